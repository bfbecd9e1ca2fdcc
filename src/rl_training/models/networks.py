"""Multi-layer perceptrons: one alone, and an ensemble evaluated as one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

NumpyFunction = Callable[[NDArray[np.float32]], NDArray[np.float32]]


class MLP(nn.Module):
    """Linear layers with ReLU between them, PyTorch's default initialisation."""

    def __init__(self, in_dim: int, hidden_sizes: Sequence[int], out_dim: int) -> None:
        super().__init__()
        sizes = (in_dim, *hidden_sizes, out_dim)
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))

    def forward(self, x: Tensor) -> Tensor:
        *hidden, last = self.layers
        for layer in hidden:
            x = F.relu(layer(x))
        return last(x)

    def as_numpy(self) -> NumpyFunction:
        """The same function on arrays: a fifth of the cost for one observation.

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

        def forward(x: NDArray[np.float32]) -> NDArray[np.float32]:
            for weight, bias in hidden:
                x = x @ weight
                x += bias
                np.maximum(x, 0, out=x)
            x = x @ last_weight
            x += last_bias
            return x

        return forward


class EnsembleMLP(nn.Module):
    """`members` scalar-valued MLPs that share an input; parameters have the member axis first."""

    def __init__(self, members: int, in_dim: int, hidden_sizes: Sequence[int]) -> None:
        super().__init__()
        self.members = members
        sizes = (in_dim, *hidden_sizes, 1)
        self.weights = nn.ParameterList()
        self.biases = nn.ParameterList()
        for fan_in, fan_out in pairwise(sizes):
            # fan_in is that of one member: kaiming on the 3-D tensor would take a wrong one
            bound = 1 / math.sqrt(fan_in)
            weight = torch.empty(members, fan_in, fan_out).uniform_(-bound, bound)
            self.weights.append(nn.Parameter(weight))
            self.biases.append(
                nn.Parameter(torch.empty(members, 1, fan_out).uniform_(-bound, bound))
            )

    def forward(self, x: Tensor) -> Tensor:
        """Values of every member, (members, batch), for inputs (batch, in)."""
        x = x.expand(self.members, *x.shape)
        *hidden, (last_weight, last_bias) = zip(self.weights, self.biases, strict=True)
        for weight, bias in hidden:
            x = F.relu(torch.baddbmm(bias, x, weight))
        # one output column: a multiply-sum, since bmm is far slower for it
        return (x * last_weight.mT).sum(-1) + last_bias[:, 0]

    def member(self, index: int, x: Tensor) -> Tensor:
        """Values of one member alone, (batch,)."""
        *hidden, (last_weight, last_bias) = zip(self.weights, self.biases, strict=True)
        for weight, bias in hidden:
            x = F.relu(torch.addmm(bias[index], x, weight[index]))
        return torch.mv(x, last_weight[index, :, 0]) + last_bias[index, 0, 0]
