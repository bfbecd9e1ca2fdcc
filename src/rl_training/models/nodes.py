"""Networks in a loss without a graph through their layers: autograd costs small ones the most.

While a `Tape` records, autograd sees only what a loss makes of its networks' outputs:

- of a trained network the output is a leaf, from whose gradient the tape computes the parameters';
- another network hands the gradient on to its input, in one node without parameters.

Everywhere else, and for whatever is unusual, networks go layer by layer.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.autograd.graph import _engine_run_backward

from rl_training.models import samples
from rl_training.models.layout import Layout, layer_by_layer
from rl_training.models.layout import layer_by_layer as recorded
from rl_training.models.modes import NoGrad
from rl_training.models.passes import Hidden, backward, forward, give_back


class _Current(threading.local):
    tape: Tape | None = None


_current = _Current()


def evaluate(layout: Layout, x: Tensor, parameters: Sequence[Tensor]) -> Tensor:
    """Outputs (batch, out), of ensembles (members, batch, out), or (members, batch) if scalar."""
    if _usual(x, parameters):
        return by_hand(layout, x, parameters)
    return layer_by_layer(layout, x, parameters)


def by_hand(layout: Layout, x: Tensor, parameters: Sequence[Tensor]) -> Tensor:
    """The same, of plain tensors; if all have a seed axis in front, for every seed."""
    tape = _current.tape
    if not torch.is_grad_enabled():
        return (forward if tape is None else tape.constant)(layout, x, parameters)
    if tape is None:
        return recorded(layout, x, parameters)
    return tape.evaluate(layout, x, parameters)


def evaluate_samples(
    layout: Layout, obs: Tensor, actions: Tensor, parameters: Sequence[Tensor]
) -> Tensor | None:
    """Outputs (members, samples, batch, ...) of actions (samples, batch, dim) in each state.

    None where it does not pay to keep the states apart, or gradients in the actions are wanted.
    """
    if not (_usual(obs, parameters) and type(actions) is Tensor and actions.dtype is obs.dtype):
        return None
    if (
        obs.requires_grad
        or actions.requires_grad
        or not samples.pays(layout, obs, actions, parameters)
    ):
        return None
    if not torch.is_grad_enabled():
        return samples.forward(layout, obs, actions, parameters)
    return (
        None
        if _current.tape is None
        else _current.tape.evaluate_samples(layout, obs, actions, parameters)
    )


def relay_member(
    layout: Layout, index: int, x: Tensor, parameters: Sequence[Tensor]
) -> Tensor | None:
    """Outputs of one member in a loss that does not train it; None where that is not the case."""
    if _usual(x, parameters):
        return relay_by_hand(layout, index, x, parameters)
    return None


def relay_by_hand(
    layout: Layout, index: int, x: Tensor, parameters: Sequence[Tensor]
) -> Tensor | None:
    """The same, of plain tensors; if all have a seed axis in front, for every seed."""
    tape = _current.tape
    if tape is None or not (x.requires_grad and torch.is_grad_enabled()):
        return None
    if tape.trains(parameters) is not False:
        return None
    members = x.ndim - 2  # their axis
    with NoGrad():
        own = [value.narrow(members, index, 1) for value in parameters]
    output: Tensor = _Relay.apply(x, layout, own)  # type: ignore[no-untyped-call]
    return output.squeeze(members)


def relay_actions(
    layout: Layout, obs: Tensor, actions: Tensor, parameters: Sequence[Tensor], member: int | None
) -> Tensor | None:
    """Outputs, of all members or of one, in a loss that trains neither them nor the states.

    None where that is not the case. Only the gradient in the actions is computed.
    """
    tape = _current.tape
    if tape is None or not (actions.requires_grad and torch.is_grad_enabled()):
        return None
    if obs.requires_grad or not (_usual(obs, parameters) and _usual(actions, parameters)):
        return None
    if tape.trains(parameters) is not False:
        return None
    if member is None:
        return _Relay.apply(actions, layout, parameters, obs)  # type: ignore[no-untyped-call]
    with NoGrad():
        own = [value.narrow(0, member, 1) for value in parameters]
    output: Tensor = _Relay.apply(actions, layout, own, obs)  # type: ignore[no-untyped-call]
    return output.squeeze(0)


def _usual(x: Tensor, parameters: Sequence[Tensor]) -> bool:
    """Whether the passes by hand serve: transforms, for example, must see the operations."""
    return (
        type(x) is Tensor
        and x.ndim == 2
        and x.is_cpu
        and x.dtype in (torch.float32, torch.float64)
        and x.dtype is parameters[0].dtype
        and forward_ad._current_level < 0
        and not torch._C._are_functorch_transforms_active()
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
    )


class _Record(NamedTuple):
    """One evaluation of a trained network."""

    layout: Layout
    inputs: tuple[Tensor, ...]  # one, or states and the actions in them
    versions: tuple[int, ...]  # of the inputs
    parameters: Sequence[Tensor]
    kept: list[Hidden]
    output: Tensor

    def is_of(self, x: Tensor, parameters: Sequence[Tensor]) -> bool:
        own = self.inputs[0]
        return (
            self.parameters[0] is parameters[0]
            and own.data_ptr() == x.data_ptr()
            and own.shape == x.shape
            and own.stride() == x.stride()
            and self.versions == (x._version,)
        )

    def gradients(self, slope: Tensor) -> list[Tensor]:
        """In the parameters."""
        if self.versions != tuple(x._version for x in self.inputs):
            raise RuntimeError("the input of a network was changed in place before the gradient")
        if len(self.inputs) == 2:
            obs, actions = self.inputs
            return samples.backward(self.layout, obs, actions, self.parameters, self.kept, slope)
        (x,) = self.inputs
        return backward(
            self.layout, x, self.parameters, self.kept, slope, into_x=False, into_parameters=True
        )[1]


def _record(layout: Layout, inputs: tuple[Tensor, ...], parameters: Sequence[Tensor]) -> _Record:
    kept: list[Hidden] = []
    if len(inputs) == 2:
        obs, actions = inputs
        output = samples.forward(layout, obs, actions, parameters, kept)
    else:
        output = forward(layout, inputs[0], parameters, kept)
    return _Record(layout, inputs, tuple(x._version for x in inputs), parameters, kept, output)


class Tape:
    """Records, as a context, the networks of a loss that trains these parameters."""

    def __init__(self, parameters: Sequence[Tensor]) -> None:
        self._parameters = parameters
        self._positions = {id(value): position for position, value in enumerate(parameters)}
        self._records: list[_Record] = []
        self._spare: list[_Record] = []  # evaluations that have no part in the gradient so far
        self.from_pool: list[Tensor] = []  # gradients, to be given back when nobody needs them
        self._outer: Tape | None = None

    def __enter__(self) -> Tape:
        self._outer, _current.tape = _current.tape, self
        return self

    def __exit__(self, *error: object) -> None:
        _current.tape = self._outer

    def trains(self, parameters: Sequence[Tensor]) -> bool | None:
        """Whether these are trained, all or none; None if it is neither, or not known."""
        trained = 0
        for value in parameters:
            if id(value) in self._positions:
                trained += 1
            elif value.grad_fn is not None:  # made of others, such as the chosen of an ensemble
                return None
        return bool(trained) if trained in (0, len(parameters)) else None

    def evaluate(self, layout: Layout, x: Tensor, parameters: Sequence[Tensor]) -> Tensor:
        trains = self.trains(parameters)
        if trains is None or (trains and x.requires_grad):
            return recorded(layout, x, parameters)
        if x.requires_grad:
            return _Relay.apply(x, layout, parameters)  # type: ignore[no-untyped-call]
        with NoGrad():
            if not trains:
                return forward(layout, x, parameters)
            record = self._spare_one(x, parameters) or _record(layout, (x,), parameters)
        return self._begin(record)

    def evaluate_samples(
        self, layout: Layout, obs: Tensor, actions: Tensor, parameters: Sequence[Tensor]
    ) -> Tensor | None:
        """As the function of this name, with gradients enabled."""
        trains = self.trains(parameters)
        if trains is None:
            return None
        with NoGrad():
            if not trains:
                return samples.forward(layout, obs, actions, parameters)
            record = _record(layout, (obs, actions), parameters)
        return self._begin(record)

    def _begin(self, record: _Record) -> Tensor:
        """Its output is where autograd ends and this tape begins."""
        self._records.append(record)
        return record.output.requires_grad_()

    def constant(self, layout: Layout, x: Tensor, parameters: Sequence[Tensor]) -> Tensor:
        """Outputs without gradient. Where a loss needs the same with it, one pass serves both."""
        if self.trains(parameters) is not True:
            return forward(layout, x, parameters)
        for record in (*self._records, *self._spare):
            if record.is_of(x, parameters):
                return record.output.detach().clone()
        record = _record(layout, (x,), parameters)
        self._spare.append(record)
        return record.output.clone()

    def _spare_one(self, x: Tensor, parameters: Sequence[Tensor]) -> _Record | None:
        for position, record in enumerate(self._spare):
            if record.is_of(x, parameters):
                return self._spare.pop(position)
        return None

    def gradients(self, loss: Tensor) -> list[Tensor | None]:
        """Of the loss in every parameter of this tape; None in those that have no part in it.

        Call it without gradients enabled.
        """
        if loss.numel() != 1:
            raise RuntimeError(f"a loss is one number, but this has shape {tuple(loss.shape)}")
        # Parameters are asked for too: a loss may use them itself, or go layer by layer.
        # torch.autograd.grad calls this as well, at twice the cost for small networks.
        found = _engine_run_backward(
            (loss,),
            (torch.ones_like(loss),),
            False,  # keep the graph
            False,  # make one of the gradients
            (*(record.output for record in self._records), *self._parameters),
            True,  # some may have no part in the loss
            accumulate_grad=False,
        )
        gradients: list[Tensor | None] = list(found[len(self._records) :])
        for record, slope in zip(self._records, found, strict=False):
            if slope is not None:
                self._add(gradients, record, slope)
        for record in self._spare:
            give_back(record.kept)
        self._records.clear()
        self._spare.clear()
        return gradients

    def _add(self, gradients: list[Tensor | None], record: _Record, slope: Tensor) -> None:
        own = record.gradients(slope)
        for parameter, gradient in zip(record.parameters, own, strict=True):
            position = self._positions[id(parameter)]
            before = gradients[position]
            gradients[position] = gradient if before is None else before + gradient
        self.from_pool += own


class _Relay(torch.autograd.Function):
    """A network that a loss does not train; its parameters are constants here."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        layout: Layout,
        parameters: Sequence[Tensor],
        beside: Tensor | None = None,
    ) -> Tensor:
        """With `beside` these columns come first; there is no gradient in them."""
        ctx.layout, ctx.parameters, ctx.kept, ctx.beside = layout, parameters, [], beside
        ctx.save_for_backward(x)
        ctx.inputs = x if beside is None else torch.cat([beside, x], -1)
        return forward(layout, ctx.inputs, parameters, ctx.kept)

    @staticmethod
    def backward(ctx: Any, *output_gradients: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,), (x,), beside = output_gradients, ctx.saved_tensors, ctx.beside
        if torch.is_grad_enabled():  # with create_graph
            again = _differentiable_gradient(ctx.layout, x, beside, ctx.parameters, gradient)
            return again, None, None, None
        kept, ctx.kept = ctx.kept, None  # they go back to the pool
        if kept is None:
            raise RuntimeError("a network can be gone back through once; call it again instead")
        slope, _ = backward(
            ctx.layout,
            ctx.inputs,
            ctx.parameters,
            kept,
            gradient,
            into_x=True,
            into_parameters=False,
            first=0 if beside is None else beside.shape[-1],
        )
        return slope, None, None, None


def _differentiable_gradient(
    layout: Layout,
    x: Tensor,
    beside: Tensor | None,
    parameters: Sequence[Tensor],
    gradient: Tensor,
) -> Tensor:
    """For a second derivative, at the price of another forward pass."""
    view = x.view_as(x)  # so that this differentiates no further back than the node's own input
    inputs = view if beside is None else torch.cat([beside, view], -1)
    output = recorded(layout, inputs, parameters)
    return torch.autograd.grad(output, view, gradient, create_graph=True)[0]
