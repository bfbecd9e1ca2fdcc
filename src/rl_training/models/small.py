"""The passes of small networks without normalisation: there the number of calls is what costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from rl_training.models.layout import Layout

if TYPE_CHECKING:
    from rl_training.models.passes import Hidden

threshold_backward = torch.ops.aten.threshold_backward.grad_input


def forward(
    layout: Layout, x: Tensor, parameters: Sequence[Tensor], kept: list[Hidden] | None
) -> Tensor:
    """As the function of this name in `passes`."""
    last = layout.layers - 1
    weights, biases = parameters[: last + 1], parameters[last + 1 :]
    if layout.ensemble:
        x = x.expand(weights[0].shape[0], *x.shape)
    for position in range(last):
        if layout.ensemble:
            x = torch.baddbmm(biases[position], x, weights[position]).relu_()
        else:
            x = F.linear(x, weights[position], biases[position]).relu_()
        if kept is not None:
            kept.append((x,))
    if layout.scalar:
        return torch.baddbmm(biases[last].unsqueeze(-1), weights[last], x.mT).squeeze(1)
    if layout.ensemble:
        return torch.baddbmm(biases[last], x, weights[last])
    return F.linear(x, weights[last], biases[last])


def backward(
    layout: Layout,
    x: Tensor,
    parameters: Sequence[Tensor],
    kept: Sequence[Hidden],
    d: Tensor,
    into_x: bool,
    into_parameters: bool,
    first: int,
) -> tuple[Tensor | None, list[Tensor]]:
    """As the function of this name in `passes`."""
    last, ensemble = layout.layers - 1, layout.ensemble
    if ensemble:
        x = x.expand(parameters[0].shape[0], *x.shape)
    weights: list[Tensor] = []
    biases: list[Tensor] = []
    for position in range(last, -1, -1):
        scalar = layout.scalar and position == last
        inputs = kept[position - 1][0] if position else x
        if into_parameters:
            weights.append(_product(ensemble, scalar, inputs, d))
            biases.append(d.sum(1, True) if ensemble else d.sum(0))
        if not (position or into_x):
            break
        weight = parameters[position]
        if first and not position:
            weight = weight[..., first:] if scalar or not ensemble else weight[:, first:]
        if scalar:
            d = d.unsqueeze(-1) * weight  # bmm is slow for an outer product
        elif ensemble:
            d = torch.bmm(d, weight.mT)
        else:
            d = torch.mm(d, weight)
        if position:
            threshold_backward(d, inputs, 0, grad_input=d)
    slope = (d.sum(0) if ensemble else d) if into_x else None
    return slope, weights[::-1] + biases[::-1]


def _product(ensemble: bool, scalar: bool, inputs: Tensor, d: Tensor) -> Tensor:
    if scalar:
        return torch.bmm(d.unsqueeze(1), inputs)
    if ensemble:
        return torch.bmm(inputs.mT, d)
    if 1 < inputs.shape[1] < 16:  # by way of its transpose, at a third of the cost
        return torch.mm(inputs.t(), d).t().contiguous()
    return torch.mm(d.t(), inputs)
