"""Algorithms that differ in the seed alone, updated as one.

Each of them keeps its names, its optimizers and its random stream, but its parameters and moments are
slices of tensors that have the seed axis first. What an update does is the algorithm's own
`update_step`, run once inside a `vmap` over the seeds, with a stepper that moves them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from rl_training.algorithms.base import Algorithm
from rl_training.algorithms.stepping import (
    Differentiated,
    FusedAdam,
    Noise,
    Terms,
    TermsFunction,
    all_found,
    terms_of,
)
from rl_training.data.batch import Batch
from rl_training.data.row_layout import RowLayout
from rl_training.models.modes import NoGrad
from rl_training.models.nodes import Tape
from rl_training.models.pool import POOL
from rl_training.models.stacked import Stack, outside_vmap
from rl_training.runtime.replay import Evaluation, Recordings, What, is_repeatable


class SeedStack:
    """Takes over the parameters of its algorithms until `release`, and is the stepper of them all."""

    def __init__(self, algorithms: Sequence[Algorithm[Any]], *, repeats: bool = True) -> None:
        """With `repeats`, operations that have been seen once are repeated, as for one seed."""
        self.algorithms, self._repeats = algorithms, repeats
        self._stack = Stack(len(algorithms))
        first = algorithms[0]
        named = [dict(algorithm.named_parameters()) for algorithm in algorithms]
        stacked: dict[str, Tensor] = {}
        for name, parameter in named[0].items():
            values = torch.stack([own[name].detach() for own in named])
            for own, value in zip(named, values.unbind(), strict=True):
                own[name].data = value
            stacked[name] = values.requires_grad_(parameter.requires_grad)
        by_id = {id(parameter): stacked[name] for name, parameter in named[0].items()}
        self._trained = {
            name: [by_id[id(value)] for value in first.parameters_of(name)] for name in first.losses
        }
        self._recordings = Recordings(
            partial(_HeldBatch, self._stack), lambda _: list(stacked.values())
        )
        # rows and returns by their shapes, in memory that stays
        self._held: dict[tuple[torch.Size, ...], list[Tensor]] = {}
        self._targets, self._sources = (
            [by_id[id(value)] for value in values] for values in first.tracked_parameters()
        )
        self._optimizers = {
            name: StackedAdam([each.optimizers[name] for each in algorithms], self._trained[name])
            for name in first.losses
        }
        self._body = type(first)(first.spec, first.config, device=first.device)
        self._body.update_count = first.update_count
        self._body.stepper = self
        # where the parameters of the body go, and what goes there
        names = {id(parameter): name for name, parameter in self._body.named_parameters()}
        self._slots: list[tuple[Any, str, Tensor]] = [
            (module._parameters, key, stacked[names[id(parameter)]])
            for module in self._body.modules()
            for key, parameter in module._parameters.items()
            if parameter is not None
        ]

    def update(self, layout: RowLayout, rows: Tensor, returns: Tensor | None = None) -> list[Terms]:
        """One update of every algorithm; rows (seeds, batch, width), returns (seeds, batch)."""

        def of_one_seed(rows: Tensor, *returns: Tensor) -> Terms:
            for holder, key, values in self._slots:
                holder[key] = self._stack.shown(values)
            batch = Batch.from_rows(rows, layout, returns=returns[0] if returns else None)
            return self._body.update(batch)

        held = self._hold(rows) if returns is None else self._hold(rows, returns)
        terms = self._stack.run(of_one_seed, *held)
        for algorithm in self.algorithms:
            algorithm.update_count = self._body.update_count
        each = {name: values.unbind() for name, values in terms.items()}
        return [
            {name: values[seed] for name, values in each.items()}
            for seed in range(len(self.algorithms))
        ]

    def _hold(self, *given: Tensor) -> list[Tensor]:
        shapes = tuple(value.shape for value in given)
        if shapes not in self._held:
            self._held[shapes] = [value.clone() for value in given]
        held = self._held[shapes]
        for place, value in zip(held, given, strict=True):
            place.copy_(value)
        return held

    def release(self) -> None:
        """Give every algorithm its parameters and moments back, as tensors of its own."""
        for algorithm in self.algorithms:
            for parameter in algorithm.parameters():
                parameter.data = parameter.data.clone()
            for optimizer in algorithm.optimizers.values():
                for state in optimizer.state.values():
                    state.update({key: value.clone() for key, value in state.items()})

    # -- the stepper of the body, which runs inside vmap ---------------------------------------

    def minimize(self, algorithm: Algorithm[Any], name: str, batch: Batch, noise: Noise) -> Terms:
        def evaluation(batch: Batch, noise: Noise) -> Differentiated:
            return self._differentiate(algorithm, name, batch, noise)

        found = self._evaluate(algorithm, name, evaluation, batch, noise)
        with outside_vmap(), NoGrad():
            self._step(name, found.gradients)
            POOL.give(*found.spent)
        return self._shown(found.terms)

    def evaluate(
        self, algorithm: Algorithm[Any], function: TermsFunction, batch: Batch, noise: Noise
    ) -> Terms:
        def evaluation(batch: Batch, noise: Noise) -> Differentiated:
            with NoGrad():
                terms = function(algorithm, batch, self._shown(noise), algorithm.config)
            return Differentiated([], self._of_all(terms))

        return self._shown(self._evaluate(algorithm, function, evaluation, batch, noise).terms)

    def _evaluate(
        self,
        algorithm: Algorithm[Any],
        what: What,
        evaluation: Evaluation,
        batch: Batch,
        noise: Noise,
    ) -> Differentiated:
        """For noise, and with terms, of all seeds; what has been seen already is repeated."""
        drawn = self._of_all(noise)
        if not (self._repeats and is_repeatable(algorithm)):
            return evaluation(batch, drawn).with_own_terms()
        replay = self._recordings.ready(algorithm, what, batch, drawn)
        if replay is not None:
            with outside_vmap():
                return replay(batch, drawn)
        return self._recordings.evaluate(algorithm, what, evaluation, batch, drawn)

    def _differentiate(
        self, algorithm: Algorithm[Any], name: str, batch: Batch, noise: Noise
    ) -> Differentiated:
        with Tape(self._trained[name]) as tape:
            terms = terms_of(algorithm, name, batch, self._shown(noise))
        if terms[f"{name}_loss"].ndim:
            shape = tuple(terms[f"{name}_loss"].shape)
            raise RuntimeError(f"a loss is one number, but this has shape {shape}")
        found = self._of_all(terms)
        with outside_vmap():
            total = found[f"{name}_loss"].sum()  # of seeds that have nothing to do with each other
            with NoGrad():
                gradients = all_found(self.algorithms[0], name, tape.gradients(total))
        detached = {key: value.detach() for key, value in found.items()}
        return Differentiated(gradients, detached, spent=tape.from_pool)

    def _of_all(self, values: Noise) -> Noise:
        return {name: self._stack.of_all(value) for name, value in values.items()}

    def _shown(self, values: Noise) -> Noise:
        return {name: self._stack.shown(value) for name, value in values.items()}

    def track(self, algorithm: Algorithm[Any], tau: float) -> None:
        with outside_vmap(), torch.no_grad():
            torch._foreach_lerp_(self._targets, self._sources, tau)

    def draw(
        self, algorithm: Algorithm[Any], distribution: Callable[..., Tensor], like: Tensor
    ) -> Tensor:
        """Every seed's draw from its own stream."""
        shape = like.shape
        with outside_vmap():
            drawn = [
                distribution(shape, generator=each.generator, device=each.device)
                for each in self.algorithms
            ]
            values = torch.stack(drawn)
        return self._stack.shown(values)

    def _step(self, name: str, gradients: list[Tensor]) -> None:
        first = self.algorithms[0]
        max_norm = getattr(first.config, "max_grad_norm", None)
        if max_norm is not None:
            gradients = clipped_by_seed(gradients, max_norm)
        self._optimizers[name].apply(gradients)


class _HeldBatch:
    """A batch as one seed sees it, of rows whose memory stays; only choices have to be copied.

    These are whole numbers, and so not in the rows themselves.
    """

    def __init__(self, stack: Stack, batch: Batch) -> None:
        self._stack, self._form, self._given = stack, batch.form, batch
        self._choices = {
            name: stack.of_all(value).clone()
            for name in ("actions", "next_actions")
            if (value := getattr(batch, name)) is not None and not value.is_floating_point()
        }

    @property
    def batch(self) -> Batch:
        """Within the same vmap as what it was filled with."""
        shown = {name: self._stack.shown(value) for name, value in self._choices.items()}
        return self._given.with_choices(**shown) if shown else self._given

    def fits(self, batch: Batch) -> bool:
        return batch.form == self._form

    def fill(self, batch: Batch) -> None:
        self._given = batch
        for name, held in self._choices.items():
            held.copy_(self._stack.of_all(getattr(batch, name)))


class StackedAdam:
    """One optimizer for a network of several seeds; theirs see slices of its moments."""

    def __init__(self, own: Sequence[torch.optim.Optimizer], stacked: Sequence[Tensor]) -> None:
        self._own = own
        self._stacked = stacked
        self._adam = FusedAdam(stacked, 0.0)
        self._adam.param_groups[0] |= {**own[0].param_groups[0], "params": stacked}
        self._shared = False
        for values, states in self._states():
            if states[0]:
                self._adam.state[values] = {
                    "step": states[0]["step"].clone(),
                    "exp_avg": torch.stack([state["exp_avg"] for state in states]),
                    "exp_avg_sq": torch.stack([state["exp_avg_sq"] for state in states]),
                }

    def apply(self, gradients: list[Tensor]) -> None:
        # a schedule sets the rate of every seed, the same for all
        self._adam.param_groups[0]["lr"] = self._own[0].param_groups[0]["lr"]
        self._adam.apply(gradients)
        if not self._shared:
            self._share()

    def _share(self) -> None:
        self._shared = True
        for values, states in self._states():
            moments = self._adam.state[values]
            for seed, state in enumerate(states):
                state["step"] = moments["step"]
                state["exp_avg"] = moments["exp_avg"][seed]
                state["exp_avg_sq"] = moments["exp_avg_sq"][seed]

    def _states(self) -> Iterator[tuple[Tensor, list[dict[str, Tensor]]]]:
        """Of each parameter the stacked values, and the state that each seed's own has."""
        own = [optimizer.param_groups[0]["params"] for optimizer in self._own]
        for values, *parameters in zip(self._stacked, *own, strict=True):
            pairs = zip(self._own, parameters, strict=True)
            yield values, [optimizer.state[parameter] for optimizer, parameter in pairs]


def clipped_by_seed(gradients: Sequence[Tensor], max_norm: float) -> list[Tensor]:
    """Each seed's gradients (seeds, ...), scaled down together to this norm if theirs is larger."""
    norms = torch.stack([value.flatten(1).norm(dim=1) for value in gradients]).norm(dim=0)
    shares = (max_norm / norms).clamp_max(1.0)
    return [value * shares.view(-1, *[1] * (value.ndim - 1)) for value in gradients]
