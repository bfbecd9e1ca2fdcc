"""Perceptrons layer by layer, and for large activations as one node of autograd.

`layer_by_layer` defines the result. The node has a forward and backward pass of its own, in place
and in chunks that stay in the cache; `evaluate` takes it where it serves and pays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import functional as F

EPSILON = 1e-6  # Flax's, which the papers' code uses; PyTorch's is 1e-5
CHUNK = 512  # rows at a time: activations stay in the cache, in memory that malloc recycles
LARGE = 2**18  # numbers in an activation from which that outweighs a backward pass in Python

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
        return (
            parameters[:n],
            parameters[n : 2 * n],
            parameters[2 * n : -n + 1],
            parameters[-n + 1 :],
        )


def evaluate(layout: Layout, x: Tensor, parameters: Sequence[Tensor]) -> Tensor:
    """Outputs (batch, out), of ensembles (members, batch, out), or (members, batch) if scalar."""
    if not _node_serves(x, parameters):
        return layer_by_layer(layout, x, parameters)
    if torch.is_grad_enabled():
        return _Node.apply(layout, x, *parameters)  # type: ignore[no-untyped-call]
    return _forward(layout, x, parameters)[0]


def layer_by_layer(layout: Layout, x: Tensor, parameters: Sequence[Tensor]) -> Tensor:
    """The same by operations that each record what they need."""
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


def _node_serves(x: Tensor, parameters: Sequence[Tensor]) -> bool:
    """Whether activations are large, in the usual case: transforms must see the operations."""
    return (
        type(x) is Tensor
        and x.ndim == 2
        and parameters[0].numel() * x.shape[0] >= LARGE * x.shape[1]
        and x.is_cpu
        and x.dtype in (torch.float32, torch.float64)
        and x.dtype is parameters[0].dtype
        and forward_ad._current_level < 0
        and not torch._C._are_functorch_transforms_active()
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
    )


def _chunks(x: Tensor) -> Sequence[Tensor]:
    rows = x.shape[0]
    return (x,) if rows <= CHUNK else x.chunk(math.ceil(rows / CHUNK))


def _forward(
    layout: Layout, x: Tensor, parameters: Sequence[Tensor]
) -> tuple[Tensor, list[Tensor]]:
    """Outputs, and of each chunk and hidden layer what its gradient needs, its output first."""
    kinds = layout.by_kind(parameters)
    kept: list[Tensor] = []
    outputs = [_forward_chunk(layout, chunk, kinds, kept) for chunk in _chunks(x)]
    rows = -1 if layout.scalar else -2
    output = outputs[0] if len(outputs) == 1 else torch.cat(outputs, rows)
    return output, kept


def _forward_chunk(
    layout: Layout, x: Tensor, kinds: Sequence[Sequence[Tensor]], kept: list[Tensor]
) -> Tensor:
    weights, biases, scales, shifts = kinds
    if layout.ensemble:
        x = x.expand(weights[0].shape[0], *x.shape)
    for position in range(layout.layers - 1):
        x = _affine(layout, biases[position], x, weights[position])
        if layout.norm == "none":
            kept.append(x.relu_())
            continue
        inputs = x.relu_() if layout.norm == "after" else x
        normal, mean, inverse = torch.native_layer_norm(
            inputs, inputs.shape[-1:], None, None, EPSILON
        )
        x = torch.addcmul(shifts[position], normal, scales[position])
        if layout.norm == "before":
            x.relu_()
        kept += (x, inputs, normal, mean, inverse)
    if layout.scalar:  # in this order at half the cost; autograd would go back the slower way
        return torch.baddbmm(biases[-1].unsqueeze(-1), weights[-1], x.mT).squeeze(1)
    return _affine(layout, biases[-1], x, weights[-1])


class _Node(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, layout: Layout, x: Tensor, *parameters: Tensor) -> Tensor:
        output, kept = _forward(layout, x, parameters)
        ctx.layout = layout
        ctx.save_for_backward(x, *parameters, *kept)
        return output

    @staticmethod
    def backward(ctx: Any, *output_gradients: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = output_gradients
        layout: Layout = ctx.layout
        _, x_needed, *needed = ctx.needs_input_grad
        x, *saved = ctx.saved_tensors
        parameters, kept = saved[: len(needed)], saved[len(needed) :]
        wanted = _wants_parameters(ctx)
        if torch.is_grad_enabled():  # with create_graph
            return None, *_differentiable_gradients(ctx, x, parameters, gradient)
        x_gradient, sums = _backward(layout, x, parameters, kept, gradient, x_needed, wanted)
        return None, x_gradient, *(sums if wanted else [None] * len(needed))


def _wants_parameters(ctx: Any) -> bool:
    """Whether the running `backward` or `grad` asks for any parameter's gradient.

    `needs_input_grad` tells what requires one, which in an actor's step holds for the critic too.
    """
    _, x_needed, *needed = ctx.needs_input_grad
    if not any(needed):
        return False
    if not x_needed:
        return True  # or this node would not run
    try:
        return any(
            torch._C._will_engine_execute_node(node)
            for node, _ in ctx.next_functions[1:]
            if node is not None
        )
    except RuntimeError:  # it does not speak of leaves that `grad` was asked for
        return True


def _differentiable_gradients(
    ctx: Any, x: Tensor, parameters: Sequence[Tensor], gradient: Tensor
) -> list[Tensor | None]:
    """For a second derivative, at the price of another forward pass."""
    needed = ctx.needs_input_grad[1:]
    # views, so that this differentiates no further back than the node's own inputs
    views = [value.view_as(value) for value in (x, *parameters)]
    output = layer_by_layer(ctx.layout, views[0], views[1:])
    wanted = [view for view, need in zip(views, needed, strict=True) if need]
    found = iter(torch.autograd.grad(output, wanted, gradient, create_graph=True))
    return [next(found) if need else None for need in needed]


def _backward(
    layout: Layout,
    x: Tensor,
    parameters: Sequence[Tensor],
    kept: Sequence[Tensor],
    gradient: Tensor,
    x_needed: bool,
    wanted: bool,
) -> tuple[Tensor | None, list[Tensor]]:
    """Gradients in x and in the parameters, in their order, where these are wanted."""
    weights, _, scales, _ = layout.by_kind(parameters)
    chunks, rows = _chunks(x), -1 if layout.scalar else -2
    share = len(kept) // len(chunks)
    start, x_gradients, sums = 0, [], []
    for number, chunk in enumerate(chunks):
        of_chunk = gradient.narrow(rows, start, chunk.shape[0])
        start += chunk.shape[0]
        walk = _Backward(layout, weights, scales, kept[number * share : (number + 1) * share])
        x_gradient = walk.run(chunk, of_chunk, x_needed, wanted)
        if x_gradient is not None:
            x_gradients.append(x_gradient)
        if not number:
            sums = walk.sums()
        elif wanted:
            torch._foreach_add_(sums, walk.sums())
    if len(x_gradients) > 1:
        return torch.cat(x_gradients), sums
    return x_gradients[0] if x_gradients else None, sums


class _Backward:
    """The way back through one chunk, collecting the parameters' gradients, last layer first."""

    def __init__(
        self,
        layout: Layout,
        weights: Sequence[Tensor],
        scales: Sequence[Tensor],
        kept: Sequence[Tensor],
    ) -> None:
        self.layout, self.weights, self.scales, self.kept = layout, weights, scales, kept
        self.of: tuple[list[Tensor], ...] = ([], [], [], [])

    def sums(self) -> list[Tensor]:
        return [value for kind in self.of for value in reversed(kind)]

    def run(self, x: Tensor, d: Tensor, x_needed: bool, wanted: bool) -> Tensor | None:
        """The gradient in x; `d` is always that in the current layer's output."""
        layout, weights = self.layout, self.weights
        if layout.ensemble:
            x = x.expand(weights[0].shape[0], *x.shape)
        step = 1 if layout.norm == "none" else 5
        for position in range(layout.layers - 1, -1, -1):
            scalar = layout.scalar and position == layout.layers - 1
            kept = self.kept[step * (position - 1) : step * position] if position else (x,)
            if wanted:
                self._add_layer(kept[0], d, scalar)
            if not (position or x_needed):
                return None
            if scalar:
                d = d.unsqueeze(-1) * weights[position]  # bmm is slow for an outer product
            elif layout.ensemble:
                d = torch.bmm(d, weights[position].mT)
            else:
                d = torch.mm(d, weights[position])
            if layout.norm != "none" and position:
                d = self._through_norm(kept, d, position - 1, wanted)
            elif position:
                threshold_backward(d, kept[0], 0, grad_input=d)
        return d.sum(0) if layout.ensemble else d

    def _add_layer(self, inputs: Tensor, d: Tensor, scalar: bool) -> None:
        if scalar:
            weight, bias = torch.bmm(d.unsqueeze(1), inputs), d.sum(1, True)
        elif self.layout.ensemble:
            weight, bias = torch.bmm(inputs.mT, d), d.sum(1, True)
        else:
            weight, bias = torch.mm(d.t(), inputs), d.sum(0)
        self.of[0].append(weight)
        self.of[1].append(bias)

    def _through_norm(
        self, kept: Sequence[Tensor], d: Tensor, position: int, wanted: bool
    ) -> Tensor:
        output, inputs, normal, mean, inverse = kept
        if self.layout.norm == "before":
            threshold_backward(d, output, 0, grad_input=d)
        if wanted:
            self.of[2].append((d * normal).sum(1, True))
            self.of[3].append(d.sum(1, True))
        d.mul_(self.scales[position])
        width, only_d = inputs.shape[-1:], [True, False, False]
        d = layer_norm_backward(d, inputs, width, mean, inverse, None, None, only_d)[0]
        if self.layout.norm == "after":
            threshold_backward(d, inputs, 0, grad_input=d)
        return d
