"""Moves parameters: the gradient of a loss in its own network, an optimizer step, target updates.

An algorithm does not know which stepper runs, so that one source of losses serves them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch
from torch import Tensor

from rl_training.data.transitions.batch import Batch
from rl_training.models.modes import NoGrad
from rl_training.models.nodes import Tape
from rl_training.models.pool import POOL

if TYPE_CHECKING:
    from rl_training.algorithms.base import Algorithm

Terms = dict[str, Tensor]
Noise = dict[str, Tensor]  # drawn, or evaluated, before a loss is
TermsFunction = Callable[[Any, Batch, Noise, Any], Terms]  # of the networks and the config


class Stepper(Protocol):
    """Moves parameters, and draws the noise for it; an algorithm does not know which one does."""

    def minimize(
        self, algorithm: Algorithm[Any], name: str, batch: Batch, noise: Noise
    ) -> Terms: ...

    def evaluate(
        self, algorithm: Algorithm[Any], function: TermsFunction, batch: Batch, noise: Noise
    ) -> Terms: ...

    def track(self, algorithm: Algorithm[Any], tau: float) -> None: ...

    def draw(
        self, algorithm: Algorithm[Any], distribution: Callable[..., Tensor], like: Tensor
    ) -> Tensor: ...


class FusedAdam(torch.optim.Adam):
    """Adam on gradients that are handed to it: `step` spends more on bookkeeping than on Adam."""

    def __init__(self, parameters: Iterable[Tensor], lr: float) -> None:
        super().__init__(parameters, lr=lr, fused=True)
        self._forget()

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._forget()  # a copy has parameters of its own

    def _forget(self) -> None:
        self._steps: Tensor | None = None
        self._one: Tensor | None = None  # a number would be made a tensor at every step
        self._states: tuple[list[Tensor], ...] = ()
        self._scale: Tensor | None = None

    def apply(
        self,
        gradients: list[Tensor],
        max_norm: float | None = None,
        norm: Tensor | None = None,
    ) -> None:
        """One step; the gradients are in the order of the parameters.

        With `max_norm` they are scaled down together to this norm if theirs, which may be given, is
        larger. Call it without gradients enabled.
        """
        (group,) = self.param_groups
        parameters = group["params"]
        if self._steps is None or self.state[parameters[0]].get("step") is not self._states[2][0]:
            self._gather(parameters)
        assert self._steps is not None
        assert self._one is not None
        self._steps.add_(self._one)
        torch._fused_adam_(
            parameters,
            gradients,
            self._states[0],
            self._states[1],
            [],
            self._states[2],
            lr=group["lr"],
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            amsgrad=False,
            maximize=False,
            grad_scale=self._excess(gradients, max_norm, norm),
        )

    def _excess(
        self, gradients: list[Tensor], max_norm: float | None, norm: Tensor | None
    ) -> Tensor | None:
        """By how much the norm of all gradients together is too large; None or 1 if it is not.

        On a CPU a plain number costs less than a tensor; on a GPU nobody waits to know it.
        """
        if max_norm is None:
            return None
        norm = norm_of(gradients) if norm is None else norm
        if not norm.is_cpu:
            return (norm / max_norm).clamp_min_(1.0)
        excess = norm.item() / max_norm
        if excess <= 1:
            return None
        if self._scale is None or self._scale.dtype is not norm.dtype:
            self._scale = torch.empty_like(norm)
        return self._scale.fill_(excess)

    def _gather(self, parameters: list[Tensor]) -> None:
        """New or loaded states as lists; counts of steps become views of one tensor."""
        states = [self.state[parameter] or self._begin(parameter) for parameter in parameters]
        self._steps = torch.stack([state["step"] for state in states])
        self._one = torch.ones_like(self._steps)
        for state, step in zip(states, self._steps.unbind(), strict=True):
            state["step"] = step
        self._states = tuple(
            [state[key] for state in states] for key in ("exp_avg", "exp_avg_sq", "step")
        )

    def _begin(self, parameter: Tensor) -> dict[str, Tensor]:
        self.state[parameter] = {
            "step": torch.zeros((), device=parameter.device),
            "exp_avg": torch.zeros_like(parameter),
            "exp_avg_sq": torch.zeros_like(parameter),
        }
        return self.state[parameter]


def norm_of(gradients: Sequence[Tensor]) -> Tensor:
    """Of all together."""
    return torch.linalg.vector_norm(torch.cat([gradient.reshape(-1) for gradient in gradients]))


def max_norm_of(algorithm: Algorithm[Any]) -> float | None:
    return getattr(algorithm.config, "max_grad_norm", None)


def all_found(
    algorithm: Algorithm[Any], name: str, gradients: Sequence[Tensor | None]
) -> list[Tensor]:
    found = [value for value in gradients if value is not None]
    if len(found) == len(gradients):
        return found
    names = [key for key, _ in getattr(algorithm, name).named_parameters()]
    unused = [key for key, value in zip(names, gradients, strict=True) if value is None]
    raise RuntimeError(f"{name}_loss does not depend on {name}'s {', '.join(unused)}")


def terms_of(algorithm: Algorithm[Any], name: str, batch: Batch, noise: Noise) -> Terms:
    """What a loss returns: a dict of tensors with `<network>_loss` in it."""
    terms: Any = algorithm.losses[name](algorithm, batch, noise, algorithm.config)
    if not isinstance(terms, dict):
        raise RuntimeError(
            f"the loss of {name} returns {type(terms).__name__}, not a dict of tensors"
        )
    for key, value in terms.items():
        if not isinstance(value, Tensor):
            kind = type(value).__name__
            raise RuntimeError(f"the loss of {name} returns {key!r} as {kind}, not as a tensor")
    if f"{name}_loss" not in terms:
        found = ", ".join(map(repr, terms)) or "nothing"
        raise RuntimeError(f"the loss of {name} must return '{name}_loss', but returns {found}")
    return terms


class Differentiated(NamedTuple):
    """A loss: its gradient in each parameter of its network, and all of its terms, detached."""

    gradients: list[Tensor]
    terms: Terms
    norm: Tensor | None = None  # of all gradients together, where they are to be clipped
    spent: Sequence[Tensor] = ()  # of the gradients, those that go back to the pool after the step

    def with_own_terms(self) -> Differentiated:
        """Terms that nothing writes to any more: some may be views of the batch or of parameters."""
        return self._replace(terms={name: value.clone() for name, value in self.terms.items()})

    def tensors(self) -> list[Tensor]:
        norm = () if self.norm is None else (self.norm,)
        return [*self.gradients, *norm, *self.terms.values()]


def differentiated(
    algorithm: Algorithm[Any], name: str, batch: Batch, noise: Noise
) -> Differentiated:
    """Operation by operation, in the network's own parameters only."""
    with Tape(algorithm.parameters_of(name)) as tape:
        terms = terms_of(algorithm, name, batch, noise)
    with NoGrad():
        gradients = all_found(algorithm, name, tape.gradients(terms[f"{name}_loss"]))
        norm = None if max_norm_of(algorithm) is None else norm_of(gradients)
    detached = {
        key: value.detach() if value.requires_grad else value for key, value in terms.items()
    }
    return Differentiated(gradients, detached, norm, tape.from_pool)


class EagerStepper:
    """Differentiates each loss in its own network's parameters only, operation by operation."""

    def minimize(self, algorithm: Algorithm[Any], name: str, batch: Batch, noise: Noise) -> Terms:
        found = self.differentiate(algorithm, name, batch, noise)
        with NoGrad():
            if self._step(algorithm, name, found):
                POOL.give(*found.spent)
        return found.terms

    def differentiate(
        self, algorithm: Algorithm[Any], name: str, batch: Batch, noise: Noise
    ) -> Differentiated:
        return differentiated(algorithm, name, batch, noise).with_own_terms()

    def evaluate(
        self, algorithm: Algorithm[Any], function: TermsFunction, batch: Batch, noise: Noise
    ) -> Terms:
        with NoGrad():
            return function(algorithm, batch, noise, algorithm.config)

    def _step(self, algorithm: Algorithm[Any], name: str, found: Differentiated) -> bool:
        """Whether nothing holds the gradients afterwards."""
        gradients, max_norm = found.gradients, max_norm_of(algorithm)
        optimizer = algorithm.optimizers[name]
        if isinstance(optimizer, FusedAdam):
            optimizer.apply(gradients, max_norm, found.norm)
            return True
        # of an algorithm with a `build_optimizer` of its own
        parameters = algorithm.parameters_of(name)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient.clone()  # which it may keep
        if max_norm is not None:
            torch.nn.utils.clip_grad_norm_(parameters, max_norm)
        optimizer.step()
        return False

    def draw(
        self, algorithm: Algorithm[Any], distribution: Callable[..., Tensor], like: Tensor
    ) -> Tensor:
        return distribution(like.shape, generator=algorithm.generator, device=algorithm.device)

    def track(self, algorithm: Algorithm[Any], tau: float) -> None:
        targets, sources = algorithm.tracked_parameters()
        with NoGrad():
            torch._foreach_lerp_(targets, sources, tau)
