"""Fused Adam on gradients that are handed to it, and Polyak averaging of target networks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from rl_training.engine.eager import gradient_norm
from rl_training.engine.torch_private import fused_adam, lerp_


@torch.no_grad()
def polyak_average(targets: Sequence[Tensor], sources: Sequence[Tensor], tau: float) -> None:
    """Move target networks: target = (1 - tau) target + tau source."""
    lerp_(targets, sources, tau)


class FusedAdam(torch.optim.Adam):
    """Adam in one call for all parameters; `step` spends more on bookkeeping than on Adam."""

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
        self._adam = fused_adam()

    @torch.no_grad()
    def apply(
        self, gradients: list[Tensor], max_norm: float | None = None, norm: Tensor | None = None
    ) -> None:
        """Take one step; the gradients are in the order of the parameters, and laid out as they are.

        With `max_norm` they are scaled down together, in place, to this norm if theirs, which may be
        given, is larger.
        """
        (group,) = self.param_groups
        parameters = group["params"]
        if self._adam is None:
            step_with(self, parameters, gradients, max_norm)
            return
        if self._steps is None or self.state[parameters[0]].get("step") is not self._states[2][0]:
            self._gather(parameters)
        assert self._steps is not None
        assert self._one is not None
        self._steps.add_(self._one)
        self._adam(
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
        """Factor by which the gradients' norm exceeds `max_norm`; None or 1 if it does not.

        On a CPU a plain number costs less than a tensor; on a GPU nobody waits to know it.
        """
        if max_norm is None:
            return None
        norm = gradient_norm(gradients) if norm is None else norm
        if not norm.is_cpu:
            return (norm / max_norm).clamp_min_(1.0)
        excess = norm.item() / max_norm
        if excess <= 1:
            return None
        if self._scale is None or self._scale.dtype is not norm.dtype:
            self._scale = torch.empty_like(norm)
        return self._scale.fill_(excess)

    def _gather(self, parameters: list[Tensor]) -> None:
        """List new or loaded states; counts of steps become views of one tensor."""
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


def step_with(
    optimizer: torch.optim.Optimizer,
    parameters: Sequence[Tensor],
    gradients: Sequence[Tensor],
    max_norm: float | None,
) -> None:
    """Take a step of any optimizer; it gets copies of the gradients, which it may keep."""
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient.clone()
    if max_norm is not None:
        torch.nn.utils.clip_grad_norm_(parameters, max_norm)
    optimizer.step()
    optimizer.zero_grad()
