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

    @torch.no_grad()
    def apply(self, gradients: tuple[Tensor, ...]) -> None:
        """One step; the gradients are in the order of the parameters."""
        (group,) = self.param_groups
        parameters = group["params"]
        states = [self.state[parameter] or self._begin(parameter) for parameter in parameters]
        steps = [state["step"] for state in states]
        torch._foreach_add_(steps, 1)
        torch._fused_adam_(
            parameters,
            gradients,
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            steps,
            lr=group["lr"],
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            amsgrad=False,
            maximize=False,
        )

    def _begin(self, parameter: Tensor) -> dict[str, Tensor]:
        self.state[parameter] = {
            "step": torch.zeros((), device=parameter.device),
            "exp_avg": torch.zeros_like(parameter),
            "exp_avg_sq": torch.zeros_like(parameter),
        }
        return self.state[parameter]


def clipped(gradients: tuple[Tensor, ...], largest: float) -> tuple[Tensor, ...]:
    """Scaled down together to this norm if theirs is larger; nobody waits to know whether it is."""
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
    factor = (largest / (norm + 1e-6)).clamp_max(1.0)
    return torch._foreach_mul(gradients, factor)


class EagerStepper:
    """Plain autograd, differentiating each loss in its own network's parameters only."""

    def minimize(self, algorithm: Algorithm[Any], name: str, batch: Batch, noise: Noise) -> Terms:
        terms = algorithm.losses[name](algorithm, batch, noise, algorithm.config)
        parameters = algorithm.parameters_of(name)
        # grad() in these inputs alone skips the weight gradients of a critic that only relays
        gradients = torch.autograd.grad(terms[f"{name}_loss"], parameters)
        largest = getattr(algorithm.config, "max_grad_norm", None)
        if largest is not None:
            gradients = clipped(gradients, largest)
        optimizer = algorithm.optimizers[name]
        if isinstance(optimizer, FusedAdam):
            optimizer.apply(gradients)
        else:  # of an algorithm with a `build_optimizer` of its own
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter.grad = gradient
            optimizer.step()
        return {key: value.detach() for key, value in terms.items()}

    @torch.no_grad()
    def track(self, algorithm: Algorithm[Any], tau: float) -> None:
        targets, sources = algorithm.tracked_parameters()
        torch._foreach_lerp_(targets, sources, tau)
