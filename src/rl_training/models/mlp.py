"""Multi-layer perceptrons: a single one, and an ensemble of critics."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rl_training.models.init import DEFAULT_INIT, Init

EPSILON = 1e-6  # of layer normalisation, as in Flax, which the papers' code uses; PyTorch's is 1e-5
# Numbers in a hidden layer of one batch from which several actions in each state go one by one: the
# layer then stays in the cache. Below it, all of them in one product save calls.
LARGE = 2**15


class MLP(nn.Module):
    """Linear layers with ReLU between them."""

    def __init__(
        self, in_dim: int, hidden_sizes: Sequence[int], out_dim: int, init: Init = DEFAULT_INIT
    ) -> None:
        super().__init__()
        layers = [nn.Linear(a, b) for a, b in pairwise((in_dim, *hidden_sizes, out_dim))]
        if init != DEFAULT_INIT:
            for layer in layers:
                last = layer is layers[-1]
                init.fill_(layer.weight, layer.bias, fan_in=layer.in_features, last=last)
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Tensor:
        *hidden, last = self.layers
        for layer in hidden:
            x = F.relu(layer(x))
        return last(x)


class Layer(NamedTuple):
    """One layer of one member: weight (in, out), or (1, in) of a head with one output."""

    weight: Tensor
    bias: Tensor
    scale: Tensor | None = None
    shift: Tensor | None = None


class EnsembleMLP(nn.Module):
    """Critics: `members` perceptrons that share their inputs; parameters have the member axis first.

    Hidden weights are (members, in, out), hidden biases (members, 1, out). A last layer with one
    output has weight (members, 1, in) and bias (members, 1). With `layer_norm` every hidden layer is
    normalised, with a scale and a shift for each member: after its ReLU, or with `norm_first` before.
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
        self.layer_norm, self.norm_first = layer_norm, norm_first
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

    def forward(
        self, obs: Tensor, actions: Tensor | None = None, members: int | Tensor | None = None
    ) -> Tensor:
        """Values (members, batch) of actions (batch, dim) in states (batch, obs_dim).

        Several actions in each state, (samples, batch, dim), give (members, samples, batch). Without
        actions, `obs` is all of the input. Heads with several outputs add a last axis. `members`
        chooses some, by number, or a single one, whose values have no member axis.
        """
        if not isinstance(members, int) and self._is_small(obs):
            return self._together(obs, actions, members)
        values = [self._values(layers, obs, actions) for layers in self._chosen(members)]
        return values[0] if isinstance(members, int) else torch.stack(values)

    def _is_small(self, obs: Tensor) -> bool:
        """Tell if many members are cheaper in one product: there the number of calls is what costs."""
        many = self.members > 2 and len(self.weights) > 1
        return many and len(obs) * self.biases[0].shape[-1] < LARGE

    def _together(self, obs: Tensor, actions: Tensor | None, members: Tensor | None) -> Tensor:
        """Evaluate all chosen members in one product a layer."""
        kinds = [list(kind) for kind in (self.weights, self.biases, self.scales, self.shifts)]
        if members is not None and len(members) < self.members:
            kinds = [[value.index_select(0, members) for value in kind] for kind in kinds]
        weights, biases, scales, shifts = kinds
        x, shape = obs, obs.shape[:-1]
        if actions is not None:
            shape = actions.shape[:-1]
            x = torch.cat([obs.expand(*shape, -1), actions], -1).flatten(0, -2)
        x = x.expand(len(weights[0]), *x.shape)
        for position in range(len(weights) - 1):
            x = torch.baddbmm(biases[position], x, weights[position])
            if not self.layer_norm:
                x = F.relu(x)
                continue
            x = x if self.norm_first else F.relu(x)
            normal = F.layer_norm(x, x.shape[-1:], eps=EPSILON)
            x = torch.addcmul(shifts[position], normal, scales[position])
            x = F.relu(x) if self.norm_first else x
        if self.out_dim == 1:
            return ((x * weights[-1]).sum(-1) + biases[-1]).view(-1, *shape)
        return torch.baddbmm(biases[-1], x, weights[-1]).view(len(x), *shape, self.out_dim)

    def _chosen(self, members: int | Tensor | None) -> list[list[Layer]]:
        """Layers of the chosen members; all of them, in whatever order, are taken as they are."""
        parameters = (self.weights, self.biases, self.scales, self.shifts)
        if isinstance(members, Tensor) and len(members) < self.members:
            chosen = [[p.index_select(0, members).unbind() for p in kind] for kind in parameters]
        elif isinstance(members, int):
            chosen = [[(p[members],) for p in kind] for kind in parameters]
        else:
            chosen = [[p.unbind() for p in kind] for kind in parameters]
        weights, biases, scales, shifts = chosen
        count = len(biases[0])
        norms = list(zip(scales, shifts, strict=True)) if self.layer_norm else []
        norms += [((None,) * count,) * 2] * (len(weights) - len(norms))
        return [
            [
                Layer(weight[n], bias[n], scale[n], shift[n])
                for weight, bias, (scale, shift) in zip(weights, biases, norms, strict=True)
            ]
            for n in range(count)
        ]

    def _values(self, layers: list[Layer], obs: Tensor, actions: Tensor | None) -> Tensor:
        if actions is None:
            return self._from_input(layers, obs)
        if actions.ndim == obs.ndim:
            return self._from_input(layers, torch.cat([obs, actions], -1))
        if len(layers) == 1 or len(obs) * layers[0].bias.shape[-1] < LARGE:
            states = obs.expand(*actions.shape[:-1], -1)
            inputs = torch.cat([states, actions], -1).flatten(0, -2)
            values = self._from_input(layers, inputs)
            return values.view(*actions.shape[:-1], *values.shape[1:])
        # the states' part of the first layer is the same for all actions in them
        first = layers[0].weight
        of_states, of_actions = first.split_with_sizes([obs.shape[-1], actions.shape[-1]])
        states = torch.addmm(layers[0].bias, obs, of_states)
        return torch.stack(
            [
                self._from_first(layers, torch.addmm(states, action, of_actions))
                for action in actions.unbind()
            ]
        )

    def _from_input(self, layers: list[Layer], x: Tensor) -> Tensor:
        first = layers[0]
        if len(layers) == 1:
            return self._head(first, x)
        return self._from_first(layers, torch.addmm(first.bias, x, first.weight))

    def _from_first(self, layers: list[Layer], x: Tensor) -> Tensor:
        """Continue from the first layer's outputs, before their activation."""
        x = self._activate(layers[0], x)
        for layer in layers[1:-1]:
            x = self._activate(layer, torch.addmm(layer.bias, x, layer.weight))
        return self._head(layers[-1], x)

    def _activate(self, layer: Layer, x: Tensor) -> Tensor:
        if layer.scale is None or layer.shift is None:
            return F.relu(x)
        if not self.norm_first:
            x = F.relu(x)
        x = F.layer_norm(x, x.shape[-1:], layer.scale.view(-1), layer.shift.view(-1), EPSILON)
        return F.relu(x) if self.norm_first else x

    def _head(self, layer: Layer, x: Tensor) -> Tensor:
        if self.out_dim == 1:
            return torch.addmv(layer.bias, x, layer.weight.view(-1))
        return torch.addmm(layer.bias, x, layer.weight)


class LearnedScale(nn.Module):
    """A positive number, learned as its logarithm."""

    def __init__(self, start: float = 1.0) -> None:
        super().__init__()
        self.log = nn.Parameter(torch.tensor(start).log())

    def forward(self) -> Tensor:
        return self.log.exp().clamp(max=1e6)
