"""The plain engine: autograd, operation by operation, on any device."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rl_training.engine.door import Function, Gradients, Inputs, Loss, Terms, UnusedParametersError


def gradient_norm(gradients: Sequence[Tensor]) -> Tensor:
    """L2 norm of all gradients, concatenated."""
    return torch.linalg.vector_norm(torch.cat([gradient.reshape(-1) for gradient in gradients]))


def differentiate(
    loss: Loss, parameters: Sequence[Tensor], inputs: Inputs, with_norm: bool
) -> Gradients:
    """Run a loss and its gradient; terms may be views of inputs or of parameters."""
    with torch.enable_grad():
        objective, terms = loss(inputs)
    if objective.numel() != 1:
        raise RuntimeError(f"a loss is one number, but this has shape {tuple(objective.shape)}")
    computed: Sequence[Tensor | None]
    if objective.requires_grad:
        computed = torch.autograd.grad(objective, list(parameters), allow_unused=True)
    else:
        computed = [None] * len(parameters)
    missing = [position for position, value in enumerate(computed) if value is None]
    if missing:
        raise UnusedParametersError(missing)
    with torch.no_grad():
        gradients = _like(parameters, [value for value in computed if value is not None])
        norm = gradient_norm(gradients) if with_norm else None
    return Gradients(gradients, {name: value.detach() for name, value in terms.items()}, norm)


def _like(parameters: Sequence[Tensor], gradients: Sequence[Tensor]) -> list[Tensor]:
    """Lay gradients out as their parameters, each in memory of its own: fused Adam relies on it."""
    result: list[Tensor] = []
    addresses: set[int] = set()
    for gradient, parameter in zip(gradients, parameters, strict=True):
        alike = gradient.is_contiguous() and parameter.is_contiguous()
        if not alike or gradient.data_ptr() in addresses:
            gradient = torch.empty_like(parameter).copy_(gradient)
        addresses.add(gradient.data_ptr())
        result.append(gradient)
    return result


def copied(terms: Terms) -> Terms:
    return {name: value.clone() for name, value in terms.items()}


class EagerEngine:
    """Runs every loss through autograd anew."""

    def __init__(self) -> None:
        self.eager: set[str] = set()

    def gradients(
        self,
        key: str,
        loss: Loss,
        parameters: Sequence[Tensor],
        inputs: Inputs,
        *,
        with_norm: bool = False,
    ) -> Gradients:
        result = differentiate(loss, parameters, inputs, with_norm)
        return result._replace(terms=copied(result.terms))

    def values(self, key: str, function: Function, inputs: Inputs) -> Terms:
        with torch.no_grad():
            return copied(function(inputs))

    def forget(self) -> None:
        """Nothing is prepared."""
