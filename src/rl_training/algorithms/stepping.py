"""Moves parameters: the gradient of a loss in its own network, an optimizer step, target updates.

An algorithm does not know which stepper runs, so that one source of losses serves them all.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from rl_training.data.batch import Batch

if TYPE_CHECKING:
    from rl_training.algorithms.base import Algorithm

Terms = dict[str, Tensor]
Noise = dict[str, Tensor]


class Stepper(Protocol):
    """Moves parameters; an algorithm does not know which one does."""

    def minimize(
        self, algorithm: Algorithm[Any], name: str, batch: Batch, noise: Noise
    ) -> Terms: ...

    def track(self, algorithm: Algorithm[Any], tau: float) -> None: ...


class FusedAdam(torch.optim.Adam):
    """Adam on gradients that are handed to it: `step` spends more on bookkeeping than on Adam."""

    def __init__(self, parameters: Iterable[Tensor], lr: float) -> None:
        super().__init__(parameters, lr=lr, fused=True)
        self._steps: Tensor | None = None
        self._states: tuple[list[Tensor], ...] = ()

    @torch.no_grad()
    def apply(self, gradients: tuple[Tensor, ...], max_norm: float | None = None) -> None:
        """One step; the gradients are in the order of the parameters.

        With `max_norm` they are scaled down together to this norm if theirs is larger; nobody waits
        to know whether it is.
        """
        (group,) = self.param_groups
        parameters = group["params"]
        if self._steps is None or self.state[parameters[0]].get("step") is not self._states[2][0]:
            self._gather(parameters)
        assert self._steps is not None
        self._steps.add_(1)
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
            grad_scale=None if max_norm is None else _excess(gradients, max_norm),
        )

    def _gather(self, parameters: list[Tensor]) -> None:
        """New or loaded states as lists; counts of steps become views of one tensor."""
        states = [self.state[parameter] or self._begin(parameter) for parameter in parameters]
        self._steps = torch.stack([state["step"] for state in states])
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


def _excess(gradients: tuple[Tensor, ...], max_norm: float) -> Tensor:
    """By how much the norm of all gradients together is too large; at least 1."""
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
    return (norm / max_norm).clamp_min_(1.0)


class EagerStepper:
    """Plain autograd, differentiating each loss in its own network's parameters only."""

    def minimize(self, algorithm: Algorithm[Any], name: str, batch: Batch, noise: Noise) -> Terms:
        terms = algorithm.losses[name](algorithm, batch, noise, algorithm.config)
        parameters = algorithm.parameters_of(name)
        # grad() in these inputs alone skips the weight gradients of a critic that only relays
        gradients = torch.autograd.grad(terms[f"{name}_loss"], parameters)
        max_norm = getattr(algorithm.config, "max_grad_norm", None)
        optimizer = algorithm.optimizers[name]
        if isinstance(optimizer, FusedAdam):
            optimizer.apply(gradients, max_norm)
        else:  # of an algorithm with a `build_optimizer` of its own
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient
            if max_norm is not None:
                torch.nn.utils.clip_grad_norm_(parameters, max_norm)
            optimizer.step()
        return {key: value.detach() for key, value in terms.items()}

    @torch.no_grad()
    def track(self, algorithm: Algorithm[Any], tau: float) -> None:
        targets, sources = algorithm.tracked_parameters()
        torch._foreach_lerp_(targets, sources, tau)
