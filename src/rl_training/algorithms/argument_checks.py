"""Checks of what public losses are called with; a captured program has passed them once.

Shapes that PyTorch would broadcast into a wrong loss, and names that no branch knows, are refused.
"""

from __future__ import annotations

from typing import Any, get_args

from torch import Tensor


def require_choice(name: str, value: str, literal: Any) -> None:
    """Refuse a text that is none of the `Literal`'s."""
    choices = get_args(literal)
    if value not in choices:
        raise ValueError(f"{name} must be {' or '.join(map(repr, choices))}, got {value!r}")


def require_rows(**tensors: Tensor | None) -> None:
    """Refuse tensors that are not all (batch,), of one batch."""
    given = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    if any(tensor.ndim != 1 for tensor in given.values()) or _differ(given):
        raise ValueError(f"expected {_names(given)} of shape (batch,), got {_shapes(given)}")


def require_same_shape(**tensors: Tensor | None) -> None:
    """Refuse tensors of different shapes."""
    given = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    if _differ(given):
        raise ValueError(f"{_names(given)} must have the same shape, got {_shapes(given)}")


def require_ensemble(*, target: Tensor, **members: Tensor) -> None:
    """Refuse values that are not (critics, batch, ...) for a target (batch, ...)."""
    ((name, values),) = members.items()
    if values.ndim != target.ndim + 1 or values.shape[1] != target.shape[0]:
        expected = (
            "(critics, batch), (batch,)" if target.ndim < 2 else "(critics, batch, quantiles)"
        )
        raise ValueError(
            f"expected {name} and their targets of shapes {expected}, got "
            f"{tuple(values.shape)} and {tuple(target.shape)}"
        )


def _differ(tensors: dict[str, Tensor]) -> bool:
    return len({tensor.shape for tensor in tensors.values()}) > 1


def _names(tensors: dict[str, Tensor]) -> str:
    return " and ".join(tensors)


def _shapes(tensors: dict[str, Tensor]) -> str:
    return ", ".join(str(tuple(tensor.shape)) for tensor in tensors.values())
