"""What a perceptron, or an ensemble of them, makes of its parameters, in operations autograd records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

EPSILON = 1e-6  # Flax's, which the papers' code uses; PyTorch's is 1e-5


class Layout(NamedTuple):
    """How a list of parameters makes a network: weights first, then biases, scales, shifts.

    Without `ensemble` they are those of nn.Linear. With it they have the member axis first, and
    weights are (members, in, out) but for a `scalar` head, which is (members, 1, in).
    """

    layers: int
    ensemble: bool = False
    scalar: bool = False
    norm: Literal["none", "after", "before"] = "none"  # where, beside the ReLU

    def by_kind(self, parameters: Sequence[Tensor]) -> tuple[Sequence[Tensor], ...]:
        """Weights, biases, scales and shifts."""
        n = self.layers
        if self.norm == "none":
            return parameters[:n], parameters[n:], (), ()
        return (
            parameters[:n],
            parameters[n : 2 * n],
            parameters[2 * n : -n + 1],
            parameters[-n + 1 :],
        )


def layer_by_layer(layout: Layout, x: Tensor, parameters: Sequence[Tensor]) -> Tensor:
    """Outputs (batch, out), of ensembles (members, batch, out), or (members, batch) if scalar."""
    weights, biases, scales, shifts = layout.by_kind(parameters)
    if layout.ensemble:
        x = x.expand(weights[0].shape[0], *x.shape)
    for position in range(layout.layers - 1):
        x = _affine(layout, biases[position], x, weights[position])
        if layout.norm != "before":
            x = x.relu_()
        if layout.norm != "none":
            x = normalise(x, scales[position], shifts[position])
        if layout.norm == "before":
            x = x.relu_()
    if layout.scalar:
        return (x * weights[-1]).sum(-1) + biases[-1]
    return _affine(layout, biases[-1], x, weights[-1])


def normalise(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    return torch.addcmul(shift, F.layer_norm(x, x.shape[-1:], eps=EPSILON), scale)


def _affine(layout: Layout, bias: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    return torch.baddbmm(bias, x, weight) if layout.ensemble else F.linear(x, weight, bias)
