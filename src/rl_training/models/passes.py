"""The forward and backward passes of perceptrons and of ensembles of them, by hand.

The result is that of `layer_by_layer`; here it is in place, and large activations are in chunks that
stay in the cache.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from rl_training.models import small
from rl_training.models.layout import EPSILON, Layout
from rl_training.models.pool import POOL, SMALL

CHUNK = 512  # rows at a time: activations stay in the cache, in memory that malloc recycles
LARGE = 2**18  # numbers in an activation from which that outweighs more calls
ALONE = 2**16  # numbers in a member's activation from which members go one by one for that
ALONE_IF_NORMALISED = 2**15

threshold_backward = torch.ops.aten.threshold_backward.grad_input
layer_norm_backward = torch.ops.aten.native_layer_norm_backward


def _is_narrow(columns: int) -> bool:
    """Whether a product of so few columns is faster by way of its transpose: up to five times."""
    return 1 < columns < 48 and columns % 16 != 0


def _turned_product(a: Tensor, b: Tensor) -> Tensor:
    """The product of a and b, by way of its transpose, which is in memory of the pool."""
    out = POOL.take((b.shape[1], a.shape[0]), a.dtype)
    return torch.mm(b.t(), a.t(), out=out).t()


def _multiply(a: Tensor, b: Tensor, out: Tensor, *, fresh: bool = True) -> None:
    """Into `out`, or else added to what is there."""
    if _is_narrow(out.shape[1]):
        product = _turned_product(a, b)
        out.copy_(product) if fresh else out.add_(product)
        POOL.give(product.t())
    elif fresh:
        torch.mm(a, b, out=out)
    else:
        torch.addmm(out, a, b, out=out)


class Net(NamedTuple):
    """Parameters by kind, or gradients in them.

    Weights are (out, in) in two dimensions, (members, in, out) in three; a scalar head's have its
    one output in front of its inputs in both.
    """

    weights: Sequence[Tensor]
    biases: Sequence[Tensor]
    scales: Sequence[Tensor]
    shifts: Sequence[Tensor]


# What going back through a hidden layer needs: its output; if it is normalised also what went into
# that, mean, inverse deviation, and unless PyTorch did it in one go the result before the scale.
Hidden = tuple[Tensor, ...]


def _small(layout: Layout, x: Tensor, parameters: Sequence[Tensor]) -> bool:
    """Whether activations, as far as the first layer tells, are better off in fresh memory."""
    rows, width = x.shape
    return layout.norm == "none" and rows * parameters[0].numel() <= SMALL * width


def _alone(layout: Layout, x: Tensor, parameters: Sequence[Tensor]) -> bool:
    """Whether members go one by one: large ones do, so that each stays in the cache.

    PyTorch normalises, scales and shifts in one go if all rows have the same scale.
    """
    if not layout.ensemble or layout.layers == 1:
        return False
    least = ALONE if layout.norm == "none" else ALONE_IF_NORMALISED
    return x.shape[0] * parameters[0].shape[-1] >= least


def _nets(layout: Layout, parameters: Sequence[Tensor], alone: bool) -> list[Net]:
    """All there is as one, or each member."""
    if not alone:
        return [Net(*layout.by_kind(parameters))]
    nets = []
    for own in zip(*(value.unbind() for value in parameters), strict=True):
        weights, *others = layout.by_kind(own)
        hidden = [weight.t() for weight in weights[:-1]]
        last = weights[-1] if layout.scalar else weights[-1].t()
        nets.append(Net([*hidden, last], *others))
    return nets


def _chunks(x: Tensor, net: Net) -> Sequence[Tensor]:
    rows, width = x.shape
    if rows <= CHUNK or rows * net.weights[0].numel() < LARGE * width:
        return (x,)
    return x.chunk(math.ceil(rows / CHUNK))


def _for_all(x: Tensor, net: Net) -> Tensor:
    """Inputs (rows, in), seen by every member; those that have inputs of their own keep them."""
    weight = net.weights[0]
    return x if x.ndim == weight.ndim else x.expand(weight.shape[0], *x.shape)


def forward(
    layout: Layout, x: Tensor, parameters: Sequence[Tensor], kept: list[Hidden] | None = None
) -> Tensor:
    """The outputs; `kept` gets what `backward` needs of each member, chunk and hidden layer.

    Call it without gradients enabled. What is kept goes back to the pool in `backward`.
    """
    if _small(layout, x, parameters):
        return small.forward(layout, x, parameters, kept)
    alone = _alone(layout, x, parameters)
    outputs = [_forward(layout, x, net, kept) for net in _nets(layout, parameters, alone)]
    return torch.stack(outputs) if alone else outputs[0]


def _forward(layout: Layout, x: Tensor, net: Net, kept: list[Hidden] | None) -> Tensor:
    chunks = _chunks(x, net)
    if len(chunks) == 1:
        return forward_chunk(layout, x, net, kept)
    outputs = [forward_chunk(layout, chunk, net, kept) for chunk in chunks]
    return torch.cat(outputs, -1 if layout.scalar else -2)


def forward_chunk(layout: Layout, x: Tensor, net: Net, kept: list[Hidden] | None) -> Tensor:
    x = _for_all(x, net)
    hidden: list[Hidden] = []
    for position in range(layout.layers - 1):
        out = _affine_from_pool(x, net.weights[position], net.biases[position])
        if layout.norm == "none":
            x = out.relu_()
            hidden.append((x,))
            continue
        layer = _normalised(net, position, out.relu_() if layout.norm == "after" else out)
        x = layer[0]
        if layout.norm == "before":
            x.relu_()
        hidden.append(layer)
    output = _head(layout, x, net)
    if kept is None:
        give_back(hidden)
    else:
        kept += hidden
    return output


def _affine_from_pool(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    if weight.ndim == 3:
        out = POOL.take((*x.shape[:-1], weight.shape[-1]), x.dtype)
        return torch.baddbmm(bias, x, weight, out=out)
    out = POOL.take((x.shape[0], weight.shape[0]), x.dtype)
    return torch.addmm(bias, x, weight.t(), out=out)


def _normalised(net: Net, position: int, inputs: Tensor) -> Hidden:
    scale, shift, width = net.scales[position], net.shifts[position], inputs.shape[-1:]
    if inputs.ndim == 2:
        output, mean, inverse = torch.native_layer_norm(
            inputs, width, scale.view(-1), shift.view(-1), EPSILON
        )
        return output, inputs, mean, inverse
    normal, mean, inverse = torch.native_layer_norm(inputs, width, None, None, EPSILON)
    output = POOL.take(inputs.shape, inputs.dtype)
    torch.addcmul(shift, normal, scale, out=output)
    return output, inputs, mean, inverse, normal


def _head(layout: Layout, x: Tensor, net: Net) -> Tensor:
    weight, bias = net.weights[-1], net.biases[-1]
    if not layout.scalar:
        if weight.ndim == 3:
            return torch.baddbmm(bias, x, weight)
        narrow = _is_narrow(len(weight))
        return _narrow_head(x, weight, bias) if narrow else F.linear(x, weight, bias)
    if weight.ndim == 2:
        return torch.addmv(bias, x, weight[0])
    # in this order at half the cost; autograd would go back the slower way
    return torch.baddbmm(bias.unsqueeze(-1), weight, x.mT).squeeze(1)


def _narrow_head(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    product = _turned_product(x, weight.t())
    output = torch.empty_like(product, memory_format=torch.contiguous_format)
    torch.add(product, bias, out=output)
    POOL.give(product.t())
    return output


def give_back(hidden: Sequence[Hidden]) -> None:
    """To the pool, except what PyTorch has made."""
    for layer in hidden:
        if len(layer) != 4:
            POOL.give(layer[0])
        if len(layer) > 1:
            POOL.give(layer[1])


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
    """Gradients in x and in the parameters, in their order, where these are wanted.

    Those in the parameters are from the pool; that in x leaves out the columns before `first`.
    """
    if _small(layout, x, parameters):
        return small.backward(layout, x, parameters, kept, gradient, into_x, into_parameters, first)
    alone = _alone(layout, x, parameters)
    nets = _nets(layout, parameters, alone)
    found: list[Tensor] = []
    places: list[Net] | list[None] = [None] * len(nets)
    if into_parameters:
        found = [POOL.take(value.shape, value.dtype) for value in parameters]
        places = _nets(layout, found, alone)
    slopes = gradient.unbind() if alone else (gradient,)
    share = len(kept) // len(nets)
    x_gradients: list[Tensor] = []
    for n, (net, slope, place) in enumerate(zip(nets, slopes, places, strict=True)):
        own = kept[n * share : (n + 1) * share]
        x_gradient = _backward(layout, x, net, own, slope, into_x, place, first)
        if x_gradient is not None:
            x_gradients.append(x_gradient)
    give_back(kept)
    if not into_x:
        return None, found
    return torch.stack(x_gradients).sum(0) if alone else x_gradients[0], found


def _backward(
    layout: Layout,
    x: Tensor,
    net: Net,
    kept: Sequence[Hidden],
    gradient: Tensor,
    into_x: bool,
    place: Net | None,
    first: int,
) -> Tensor | None:
    chunks, axis = _chunks(x, net), -1 if layout.scalar else -2
    share, start = len(kept) // len(chunks), 0
    x_gradients: list[Tensor] = []
    for number, chunk in enumerate(chunks):
        rows = chunk.shape[0]
        of_chunk = gradient if len(chunks) == 1 else gradient.narrow(axis, start, rows)
        start += rows
        own = kept[number * share : (number + 1) * share]
        into = None if place is None else Into(place, fresh=number == 0)
        d = backward_chunk(layout, chunk, net, own, of_chunk, into_x, into, first)
        if d is not None:
            x_gradients.append(d)
    return torch.cat(x_gradients) if len(x_gradients) > 1 else x_gradients[0] if into_x else None


class Into(NamedTuple):
    """Where gradients in the parameters go; those of further chunks are added."""

    place: Net
    fresh: bool

    def add_product(self, out: Tensor, a: Tensor, b: Tensor) -> None:
        if out.ndim == 3:
            torch.bmm(a, b, out=out) if self.fresh else torch.baddbmm(out, a, b, out=out)
        else:
            _multiply(a, b, out, fresh=self.fresh)

    def add(self, out: Tensor, values: Tensor) -> None:
        out.copy_(values) if self.fresh else out.add_(values)

    def add_sum(self, out: Tensor, values: Tensor, axis: int) -> None:
        keep = out.ndim == values.ndim
        if self.fresh:
            torch.sum(values, axis, keep, out=out)
        else:
            out.add_(values.sum(axis, keep))

    def add_layer(self, position: int, inputs: Tensor, d: Tensor, scalar: bool) -> None:
        weight, bias = self.place.weights[position], self.place.biases[position]
        if scalar:
            self.add_product(weight, d.unsqueeze(-2), inputs)
        elif weight.ndim == 3:
            self.add_product(weight, inputs.mT, d)
        else:
            self.add_product(weight, d.t(), inputs)
        if bias.shape == d.shape:  # one for each row
            self.add(bias, d)
        else:
            self.add_sum(bias, d, -1 if scalar else -2)


def backward_chunk(
    layout: Layout,
    x: Tensor,
    net: Net,
    kept: Sequence[Hidden],
    d: Tensor,
    into_x: bool,
    into: Into | None,
    first: int = 0,
) -> Tensor | None:
    """The gradient in x, if that is wanted; `d` is always that in the current layer's output."""
    shared, x = x.ndim < net.weights[0].ndim, _for_all(x, net)
    spent: Tensor | None = None  # of the pool
    for position in range(layout.layers - 1, -1, -1):
        scalar = layout.scalar and position == layout.layers - 1
        inputs = kept[position - 1][0] if position else x
        if into is not None:
            into.add_layer(position, inputs, d, scalar)
        if not (position or into_x):
            break
        weight = net.weights[position]
        if first and not position:
            axis = 2 if scalar and weight.ndim == 3 else 1
            weight, inputs = (
                weight.narrow(axis, first, weight.shape[axis] - first),
                inputs[..., first:],
            )
        d = _through_weight(weight, d, inputs, scalar)
        if spent is not None:
            POOL.give(spent)
        spent = d
        if position and layout.norm == "none":
            threshold_backward(d, inputs, 0, grad_input=d)
        elif position:
            d = _through_norm(layout, kept[position - 1], net, d, into, position - 1)
    if into_x and not shared:
        return d
    gradient = d.sum(0) if into_x else None
    if spent is not None:
        POOL.give(spent)
    return gradient


def _through_weight(weight: Tensor, d: Tensor, inputs: Tensor, scalar: bool) -> Tensor:
    """The gradient in a layer's inputs, in memory of the pool."""
    out = POOL.take(inputs.shape, inputs.dtype)
    if scalar:
        return torch.mul(d.unsqueeze(-1), weight, out=out)  # bmm is slow for an outer product
    if weight.ndim == 3:
        return torch.bmm(d, weight.mT, out=out)
    _multiply(d, weight, out)
    return out


def _through_norm(
    layout: Layout, layer: Hidden, net: Net, d: Tensor, into: Into | None, position: int
) -> Tensor:
    output, inputs, mean, inverse, *rest = layer
    if layout.norm == "before":
        threshold_backward(d, output, 0, grad_input=d)
    scale, shift, width = net.scales[position], net.shifts[position], inputs.shape[-1:]
    if not rest:
        wanted = [True, into is not None, into is not None]
        d, *others = layer_norm_backward(
            d, inputs, width, mean, inverse, scale.view(-1), shift.view(-1), wanted
        )
        if into is not None:
            into.add(into.place.scales[position], others[0])
            into.add(into.place.shifts[position], others[1])
    else:
        if into is not None:
            into.add_sum(into.place.scales[position], d * rest[0], -2)
            into.add_sum(into.place.shifts[position], d, -2)
        d.mul_(scale)
        only_d = [True, False, False]
        d = layer_norm_backward(d, inputs, width, mean, inverse, None, None, only_d)[0]
    if layout.norm == "after":
        threshold_backward(d, inputs, 0, grad_input=d)
    return d
