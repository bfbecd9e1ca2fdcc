"""The passes of one network, or of the same network of several seeds at once.

With seeds every tensor has their axis in front, the inputs being (seeds, rows, in). A call for all
seeds takes hardly longer than a call for one while their matrices are small. Large activations would
only push each other out of the cache, so these seeds go one by one.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rl_training.models import passes
from rl_training.models.layout import Layout, layer_by_layer
from rl_training.models.passes import Hidden, Into, Net, give_back
from rl_training.models.pool import POOL

LARGE = 2**19  # numbers in one seed's activation


def recorded(layout: Layout, x: Tensor, parameters: Sequence[Tensor]) -> Tensor:
    """Layer by layer, in operations that autograd records."""
    if x.ndim == 2:
        return layer_by_layer(layout, x, parameters)
    each = torch.func.vmap(lambda x, own: layer_by_layer(layout, x, own))
    return each(x, list(parameters))


def forward(
    layout: Layout, x: Tensor, parameters: Sequence[Tensor], kept: list[Hidden] | None = None
) -> Tensor:
    if x.ndim == 2:
        return passes.forward(layout, x, parameters, kept)
    if _one_by_one(x, parameters):
        seeds = zip(x, *parameters, strict=True)
        return torch.stack([passes.forward(layout, x, own, kept) for x, *own in seeds])
    hidden: list[Hidden] = []
    inputs = _for_members(layout, x, parameters)
    if inputs is not x:
        hidden.append((inputs,))
    output = passes.forward_chunk(layout, inputs, _net(layout, parameters), hidden)
    if kept is None:
        give_back(hidden)
    else:
        kept += hidden
    return output.view(*parameters[0].shape[:2], *output.shape[1:]) if layout.ensemble else output


def backward(
    layout: Layout,
    x: Tensor,
    parameters: Sequence[Tensor],
    kept: Sequence[Hidden],
    gradient: Tensor,
    *,
    into_x: bool,
    into_parameters: bool,
    first: int = 0,
) -> tuple[Tensor | None, list[Tensor]]:
    wanted = {"into_x": into_x, "into_parameters": into_parameters}
    if x.ndim == 2:
        return passes.backward(layout, x, parameters, kept, gradient, **wanted, first=first)
    assert first == 0, "seeds give whole inputs"
    sums = [POOL.take(value.shape, value.dtype) for value in parameters] if into_parameters else []
    if _one_by_one(x, parameters):
        share = len(kept) // len(x)
        found = [
            passes.backward(layout, x, own, kept[n * share : (n + 1) * share], slope, **wanted)
            for n, (x, slope, *own) in enumerate(zip(x, gradient, *parameters, strict=True))
        ]
        slopes = [slope for slope, _ in found if slope is not None]
        for place, each in zip(sums, zip(*(own for _, own in found), strict=True), strict=True):
            torch.stack(each, out=place)
            POOL.give(*each)
        return torch.stack(slopes) if into_x else None, sums
    into = Into(_net(layout, sums), fresh=True) if into_parameters else None
    inputs, hidden = x, kept
    if len(kept) == layout.layers:  # with the members' inputs in front
        inputs, hidden = kept[0][0], kept[1:]
    d = gradient.flatten(0, 1) if layout.ensemble else gradient
    net = _net(layout, parameters)
    slope = passes.backward_chunk(layout, inputs, net, hidden, d, into_x, into)
    give_back(kept)
    if slope is None or not layout.ensemble:
        return slope, sums
    summed = slope.view(*parameters[0].shape[:2], *slope.shape[1:]).sum(1)
    POOL.give(slope)
    return summed, sums


def _one_by_one(x: Tensor, parameters: Sequence[Tensor]) -> bool:
    seeds, rows, width = x.shape
    return rows * parameters[0].numel() >= LARGE * seeds * width


def _for_members(layout: Layout, x: Tensor, parameters: Sequence[Tensor]) -> Tensor:
    """Inputs of every member of every seed, (seeds * members, rows, in)."""
    members = parameters[0].shape[1] if layout.ensemble else 1
    if members == 1:
        return x
    seeds, rows, width = x.shape
    inputs = POOL.take((seeds * members, rows, width), x.dtype)
    inputs.view(seeds, members, rows, width).copy_(x.unsqueeze(1))
    return inputs


def _net(layout: Layout, parameters: Sequence[Tensor]) -> Net:
    """As those of an ensemble of which every member of every seed is one."""
    if layout.ensemble:
        return Net(*layout.by_kind([value.flatten(0, 1) for value in parameters]))
    weights, biases, *others = layout.by_kind(parameters)
    return Net([value.mT for value in weights], [value.unsqueeze(1) for value in biases], *others)
