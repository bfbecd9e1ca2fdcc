"""Multi-layer perceptrons: one alone, and an ensemble evaluated as one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rl_training.models.layout import Layout, normalise
from rl_training.models.nodes import evaluate, evaluate_samples, relay_actions, relay_member

NumpyFunction = Callable[[NDArray[np.float32]], NDArray[np.float32]]


@dataclass(frozen=True)
class Init:
    """How weights start; the default is PyTorch's, U(±1/√fan_in) for weights and biases."""

    orthogonal: bool = False  # gain √2 and zero biases, as in the code of IQL
    xavier: bool = False  # U(±√(6 / (in + out))) and zero biases, as in the code of REDQ and RLPD
    hidden_bias: float | None = None  # a constant, as in EDAC and ReBRAC
    last_bound: float | None = None  # last layer U(±bound), likewise

    def fill_(self, weight: Tensor, bias: Tensor, *, fan_in: int, last: bool) -> None:
        """In place; `weight` is of one member, or of an ensemble with the member axis first."""
        bound = 1 / math.sqrt(fan_in)
        if last and self.last_bound is not None:
            bound = self.last_bound
        nn.init.uniform_(weight, -bound, bound)
        nn.init.uniform_(bias, -bound, bound)
        if self.xavier:
            fan_out = weight[0].numel() // fan_in if weight.ndim == 3 else weight.shape[0]
            bound = math.sqrt(6 / (fan_in + fan_out))
            nn.init.uniform_(weight, -bound, bound)
            nn.init.zeros_(bias)
        if self.orthogonal:
            for matrix in weight if weight.ndim == 3 else (weight,):
                nn.init.orthogonal_(matrix, math.sqrt(2))
            nn.init.zeros_(bias)
        if self.hidden_bias is not None and not last:
            nn.init.constant_(bias, self.hidden_bias)


DEFAULT_INIT = Init()


class MLP(nn.Module):
    """Linear layers with ReLU between them."""

    def __init__(
        self, in_dim: int, hidden_sizes: Sequence[int], out_dim: int, init: Init = DEFAULT_INIT
    ) -> None:
        super().__init__()
        sizes = (in_dim, *hidden_sizes, out_dim)
        layers = [nn.Linear(a, b) for a, b in pairwise(sizes)]
        if init != DEFAULT_INIT:
            for layer in layers:
                last = layer is layers[-1]
                init.fill_(layer.weight, layer.bias, fan_in=layer.in_features, last=last)
        self.layers = nn.ModuleList(layers)
        self.layout = Layout(len(layers))

    def forward(self, x: Tensor) -> Tensor:
        # by name, as going through nn.Module's attributes would double the cost of this
        layers: Any = self._modules["layers"]
        each = [layer._parameters for layer in layers._modules.values()]
        parameters = [layer["weight"] for layer in each] + [layer["bias"] for layer in each]
        return evaluate(self.layout, x, parameters)

    def as_numpy(self) -> NumpyFunction:
        """The same function on arrays: a tenth of the cost for one observation.

        It works on a copy of the weights, so build it anew after an update. The copies are torch
        memory, whose 64-byte alignment keeps results equal from process to process.
        """
        layers = [
            (
                layer.weight.detach().cpu().t().contiguous().numpy(),
                layer.bias.detach().cpu().clone().numpy(),
            )
            for layer in self.layers
            if isinstance(layer, nn.Linear)
        ]
        *hidden, (last_weight, last_bias) = layers
        zero = np.zeros((), np.float32)  # an int would be converted at every call

        def forward(x: NDArray[np.float32]) -> NDArray[np.float32]:
            for weight, bias in hidden:
                x = x.dot(weight)  # at half the overhead of @
                x += bias
                np.maximum(x, zero, out=x)
            x = x.dot(last_weight)
            x += last_bias
            return x

        return forward


class EnsembleMLP(nn.Module):
    """`members` MLPs that share an input; parameters have the member axis first.

    Hidden weights are (members, in, out), hidden biases (members, 1, out). A last layer with one
    output has weight (members, 1, in) and bias (members, 1).
    With `layer_norm` every activation is normalised, with a scale and shift for each member; with
    `norm_first` that happens before its ReLU.
    """

    def __init__(
        self,
        members: int,
        in_dim: int,
        hidden_sizes: Sequence[int],
        out_dim: int = 1,
        *,
        layer_norm: bool = False,
        norm_first: bool = False,
        init: Init = DEFAULT_INIT,
    ) -> None:
        super().__init__()
        self.members, self.out_dim = members, out_dim
        norm: Literal["before", "after"] = "before" if norm_first else "after"
        self.layout = Layout(
            layers=len(hidden_sizes) + 1,
            ensemble=True,
            scalar=out_dim == 1,
            norm=norm if layer_norm else "none",
        )
        self.weights = nn.ParameterList()
        self.biases = nn.ParameterList()
        self.scales = nn.ParameterList()
        self.shifts = nn.ParameterList()
        for fan_in, width in pairwise((in_dim, *hidden_sizes)):
            self._add_layer(init, fan_in, (members, fan_in, width), (members, 1, width))
            if layer_norm:
                self.scales.append(nn.Parameter(torch.ones(members, 1, width)))
                self.shifts.append(nn.Parameter(torch.zeros(members, 1, width)))
        fan_in = (in_dim, *hidden_sizes)[-1]
        if out_dim == 1:
            self._add_layer(init, fan_in, (members, 1, fan_in), (members, 1), last=True)
        else:
            shape = (members, fan_in, out_dim)
            self._add_layer(init, fan_in, shape, (members, 1, out_dim), last=True)

    def _add_layer(
        self,
        init: Init,
        fan_in: int,
        weight_shape: Sequence[int],
        bias_shape: Sequence[int],
        last: bool = False,
    ) -> None:
        weight, bias = torch.empty(*weight_shape), torch.empty(*bias_shape)
        # fan_in is that of one member: kaiming on the 3-D tensor would take a wrong one
        init.fill_(weight, bias, fan_in=fan_in, last=last)
        self.weights.append(nn.Parameter(weight))
        self.biases.append(nn.Parameter(bias))

    def forward(self, x: Tensor) -> Tensor:
        """Values (members, batch), or (members, batch, out_dim), for inputs (batch, in)."""
        return evaluate(self.layout, x, self._all_parameters())

    def at_actions(self, obs: Tensor, actions: Tensor, member: int | None = None) -> Tensor:
        """Values (members, ..., batch) of actions (..., batch, dim) in each state (batch, obs_dim).

        Those of one member alone have no axis of members; it takes one action in each state.
        """
        parameters = self._all_parameters()
        values = relay_actions(self.layout, obs, actions, parameters, member)
        if values is None and member is None:
            values = evaluate_samples(self.layout, obs, actions, parameters)
        if values is not None:
            return values
        inputs = torch.cat([obs.expand(*actions.shape[:-1], -1), actions], -1)
        if member is not None:
            return self.member(member, inputs)
        return self(inputs.flatten(0, -2)).unflatten(1, actions.shape[:-1])

    def member(self, index: int, x: Tensor) -> Tensor:
        """Values of one member alone, (batch,) or (batch, out_dim)."""
        relayed = relay_member(self.layout, index, x, self._all_parameters())
        if relayed is not None:
            return relayed
        norm = self.layout.norm
        *hidden, (last_weight, last_bias) = self._layers()
        for position, (weight, bias) in enumerate(hidden):
            x = torch.addmm(bias[index], x, weight[index])
            if norm != "before":
                x = x.relu_()
            if norm != "none":
                x = normalise(x, self.scales[position][index], self.shifts[position][index])
            if norm == "before":
                x = x.relu_()
        if self.out_dim == 1:
            return torch.addmv(last_bias[index], x, last_weight[index, 0])
        return torch.addmm(last_bias[index], x, last_weight[index])

    def chosen(self, indices: Tensor, x: Tensor) -> Tensor:
        """Values of some members alone, (chosen, batch) or (chosen, batch, out_dim).

        In the order of `indices`; if these are all, in the members' own.
        """
        if len(indices) == self.members:  # then nothing has to be copied
            return self(x)
        return evaluate(
            self.layout, x, [value.index_select(0, indices) for value in self._all_parameters()]
        )

    def _layers(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Weight and bias of each layer; going through ParameterList costs ten times as much."""
        return zip(self.weights._parameters.values(), self.biases._parameters.values(), strict=True)  # type: ignore[arg-type]

    def _all_parameters(self) -> list[Tensor]:
        """In the order of a `Layout`."""
        modules: Any = self._modules
        return [
            value
            for kind in ("weights", "biases", "scales", "shifts")
            for value in modules[kind]._parameters.values()
        ]


class LearnedScale(nn.Module):
    """A positive number, learned as its logarithm."""

    def __init__(self, start: float = 1.0) -> None:
        super().__init__()
        self.log = nn.Parameter(torch.tensor(start).log())

    def forward(self) -> Tensor:
        return self.log.exp().clamp(max=1e6)
