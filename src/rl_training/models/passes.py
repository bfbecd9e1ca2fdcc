"""The forward and backward passes of perceptrons and of ensembles of them.

`layer_by_layer` defines the result, in operations that autograd records. `forward` and `backward`
are the same by hand: in place, and large activations in chunks that stay in the cache.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

EPSILON = 1e-6  # Flax's, which the papers' code uses; PyTorch's is 1e-5
CHUNK = 512  # rows at a time: activations stay in the cache, in memory that malloc recycles
LARGE = 2**18  # numbers in an activation from which that outweighs more calls

threshold_backward = torch.ops.aten.threshold_backward.grad_input
layer_norm_backward = torch.ops.aten.native_layer_norm_backward


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


def _chunks(x: Tensor, first_weight: Tensor) -> Sequence[Tensor]:
    rows, width = x.shape
    if rows <= CHUNK or rows * first_weight.numel() < LARGE * width:
        return (x,)
    return x.chunk(math.ceil(rows / CHUNK))


def forward(
    layout: Layout, x: Tensor, parameters: Sequence[Tensor], kept: list[Tensor] | None = None
) -> Tensor:
    """The outputs; `kept` gets what `backward` needs of each chunk and hidden layer.

    The layer's output comes first. Call it without gradients enabled.
    """
    kinds = layout.by_kind(parameters)
    chunks = _chunks(x, parameters[0])
    if len(chunks) == 1:
        return _forward_chunk(layout, x, kinds, kept)
    outputs = [_forward_chunk(layout, chunk, kinds, kept) for chunk in chunks]
    return torch.cat(outputs, -1 if layout.scalar else -2)


def _forward_chunk(
    layout: Layout, x: Tensor, kinds: Sequence[Sequence[Tensor]], kept: list[Tensor] | None
) -> Tensor:
    weights, biases, scales, shifts = kinds
    if layout.ensemble:
        x = x.expand(weights[0].shape[0], *x.shape)
    for position in range(layout.layers - 1):
        x = _affine(layout, biases[position], x, weights[position])
        if layout.norm == "none":
            x.relu_()
            if kept is not None:
                kept.append(x)
            continue
        inputs = x.relu_() if layout.norm == "after" else x
        normal, mean, inverse = torch.native_layer_norm(
            inputs, inputs.shape[-1:], None, None, EPSILON
        )
        x = torch.addcmul(shifts[position], normal, scales[position])
        if layout.norm == "before":
            x.relu_()
        if kept is not None:
            kept += (x, inputs, normal, mean, inverse)
    if layout.scalar:  # in this order at half the cost; autograd would go back the slower way
        return torch.baddbmm(biases[-1].unsqueeze(-1), weights[-1], x.mT).squeeze(1)
    return _affine(layout, biases[-1], x, weights[-1])


def backward(
    layout: Layout,
    x: Tensor,
    parameters: Sequence[Tensor],
    kept: Sequence[Tensor],
    gradient: Tensor,
    *,
    into_x: bool,
    into_parameters: bool,
) -> tuple[Tensor | None, list[Tensor]]:
    """Gradients in x and in the parameters, in their order, where these are wanted."""
    weights, _, scales, _ = layout.by_kind(parameters)
    chunks, rows = _chunks(x, parameters[0]), -1 if layout.scalar else -2
    share = len(kept) // len(chunks)
    x_gradients: list[Tensor] = []
    sums: list[Tensor] = []
    start = 0
    for number, chunk in enumerate(chunks):
        of_chunk = gradient if len(chunks) == 1 else gradient.narrow(rows, start, chunk.shape[0])
        start += chunk.shape[0]
        found: Found | None = ([], [], [], []) if into_parameters else None
        own = kept[number * share : (number + 1) * share]
        d = _backward_chunk(layout, chunk, weights, scales, own, of_chunk, into_x, found)
        if d is not None:
            x_gradients.append(d)
        if found is not None:
            own_sums = [value for kind in found for value in reversed(kind)]
            if sums:
                torch._foreach_add_(sums, own_sums)
            else:
                sums = own_sums
    if len(x_gradients) > 1:
        return torch.cat(x_gradients), sums
    return x_gradients[0] if x_gradients else None, sums


# gradients in weights, biases, scales and shifts, each with the last layer's first
Found = tuple[list[Tensor], list[Tensor], list[Tensor], list[Tensor]]


def _backward_chunk(
    layout: Layout,
    x: Tensor,
    weights: Sequence[Tensor],
    scales: Sequence[Tensor],
    kept: Sequence[Tensor],
    d: Tensor,
    into_x: bool,
    found: Found | None,
) -> Tensor | None:
    """The gradient in x, if that is wanted; `d` is always that in the current layer's output."""
    ensemble = layout.ensemble
    if ensemble:
        x = x.expand(weights[0].shape[0], *x.shape)
    plain = layout.norm == "none"
    step = 1 if plain else 5
    for position in range(layout.layers - 1, -1, -1):
        scalar = layout.scalar and position == layout.layers - 1
        inputs = kept[step * (position - 1)] if position else x
        if found is not None:
            _add_layer(ensemble, scalar, inputs, d, found)
        if not (position or into_x):
            return None
        if scalar:
            d = d.unsqueeze(-1) * weights[position]  # bmm is slow for an outer product
        elif ensemble:
            d = torch.bmm(d, weights[position].mT)
        else:
            d = torch.mm(d, weights[position])
        if position and plain:
            threshold_backward(d, inputs, 0, grad_input=d)
        elif position:
            of_layer = kept[step * (position - 1) : step * position]
            d = _through_norm(layout, of_layer, scales[position - 1], d, found)
    return d.sum(0) if ensemble else d


def _add_layer(ensemble: bool, scalar: bool, inputs: Tensor, d: Tensor, found: Found) -> None:
    if scalar:
        found[0].append(torch.bmm(d.unsqueeze(1), inputs))
    elif ensemble:
        found[0].append(torch.bmm(inputs.mT, d))
    else:
        found[0].append(torch.mm(d.t(), inputs))
    found[1].append(d.sum(1, True) if ensemble else d.sum(0))


def _through_norm(
    layout: Layout, kept: Sequence[Tensor], scale: Tensor, d: Tensor, found: Found | None
) -> Tensor:
    output, inputs, normal, mean, inverse = kept
    if layout.norm == "before":
        threshold_backward(d, output, 0, grad_input=d)
    if found is not None:
        found[2].append((d * normal).sum(1, True))
        found[3].append(d.sum(1, True))
    d.mul_(scale)
    width, only_d = inputs.shape[-1:], [True, False, False]
    d = layer_norm_backward(d, inputs, width, mean, inverse, None, None, only_d)[0]
    if layout.norm == "after":
        threshold_backward(d, inputs, 0, grad_input=d)
    return d
