"""Multi-layer perceptrons: one alone, and an ensemble evaluated as one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

NumpyFunction = Callable[[NDArray[np.float32]], NDArray[np.float32]]


class MLP(nn.Module):
    """Linear layers with ReLU between them, PyTorch's default initialisation."""

    def __init__(self, in_dim: int, hidden_sizes: Sequence[int], out_dim: int) -> None:
        super().__init__()
        sizes = (in_dim, *hidden_sizes, out_dim)
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))

    def forward(self, x: Tensor) -> Tensor:
        *hidden, last = self.layers
        for layer in hidden:  # forward() at once: there are no hooks to look for
            x = layer.forward(x).relu_()
        return last.forward(x)

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
    """`members` scalar-valued MLPs that share an input; parameters have the member axis first.

    Hidden weights are (members, in, out), hidden biases (members, 1, out). The last layer has one
    output and is a multiply-sum, since bmm is slow for it: weight (members, 1, in), bias
    (members, 1).
    """

    def __init__(self, members: int, in_dim: int, hidden_sizes: Sequence[int]) -> None:
        super().__init__()
        self.members = members
        self.weights = nn.ParameterList()
        self.biases = nn.ParameterList()
        for fan_in, fan_out in pairwise((in_dim, *hidden_sizes)):
            self._add_layer(fan_in, (members, fan_in, fan_out), (members, 1, fan_out))
        fan_in = (in_dim, *hidden_sizes)[-1]
        self._add_layer(fan_in, (members, 1, fan_in), (members, 1))

    def _add_layer(self, fan_in: int, weight: Sequence[int], bias: Sequence[int]) -> None:
        # fan_in is that of one member: kaiming on the 3-D tensor would take a wrong one
        bound = 1 / math.sqrt(fan_in)
        self.weights.append(nn.Parameter(torch.empty(*weight).uniform_(-bound, bound)))
        self.biases.append(nn.Parameter(torch.empty(*bias).uniform_(-bound, bound)))

    def forward(self, x: Tensor) -> Tensor:
        """Values of every member, (members, batch), for inputs (batch, in)."""
        x = x.expand(self.members, *x.shape)
        *hidden, (last_weight, last_bias) = self._layers()
        for weight, bias in hidden:
            x = torch.baddbmm(bias, x, weight).relu_()
        return (x * last_weight).sum(-1) + last_bias

    def member(self, index: int, x: Tensor) -> Tensor:
        """Values of one member alone, (batch,)."""
        *hidden, (last_weight, last_bias) = self._layers()
        for weight, bias in hidden:
            x = torch.addmm(bias[index], x, weight[index]).relu_()
        return torch.addmv(last_bias[index], x, last_weight[index, 0])

    def _layers(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Weight and bias of each layer; going through ParameterList costs ten times as much."""
        return zip(self.weights._parameters.values(), self.biases._parameters.values(), strict=True)  # type: ignore[arg-type]
