"""Private PyTorch names, all of them in this file, each with a public fallback.

Without them training gives the same results: losses that cannot be captured run eagerly, and an
optimizer step or a target update takes a few microseconds longer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from importlib import import_module
from typing import Any

import torch
from torch import Tensor


def import_early() -> None:
    """Import what the first optimizer of a process imports, a second's work; without it that takes longer."""
    with suppress(ImportError):
        import_module("torch._dynamo")


def dispatch_mode() -> Any:
    """Base class that sees every dispatcher call of a thread; None where PyTorch has none."""
    try:
        from torch.utils._python_dispatch import TorchDispatchMode
    except ImportError:
        return None
    return TorchDispatchMode


def storage_id(tensor: Tensor) -> int:
    """Identity of a tensor's storage, as long as anything keeps that alive."""
    storage = tensor.untyped_storage()
    identity = getattr(storage, "_cdata", None)
    return storage.data_ptr() if identity is None else int(identity)


def schema_of(function: Any) -> Any:
    """Schema of a dispatcher operator: its arguments, and those that it writes to.

    Without it no call is recorded, and every loss runs eagerly.
    """
    return function._schema


def operator(function: Any) -> Callable[..., Any]:
    """Operator without the checks around it."""
    return getattr(function, "_op", function)


def bindings(name: str) -> Iterator[Callable[..., object]]:
    """Python bindings of an operator: calling one costs half of calling the operator object."""
    private = getattr(torch, "_C", None)
    for module in ("_VariableFunctions", "_nn", "_linalg"):
        binding = getattr(getattr(private, module, None), name, None)
        if binding is not None:
            yield binding
            return
    public = getattr(torch, name, None)
    if callable(public) and not name.startswith("_"):
        yield public


def below_autograd() -> AbstractContextManager[Any]:
    """Inference mode, at a third of the cost of `torch.inference_mode`."""
    guard = getattr(getattr(torch, "_C", None), "_InferenceMode", None)
    return torch.inference_mode() if guard is None else guard(True)


def fused_adam() -> Callable[..., None] | None:
    """Adam on lists of tensors in one call; None where only `torch.optim.Adam` has it."""
    return getattr(torch, "_fused_adam_", None)


def lerp_(targets: Sequence[Tensor], sources: Sequence[Tensor], weight: float) -> None:
    """Move every target towards its source by the share `weight`, in place."""
    together = getattr(torch, "_foreach_lerp_", None)
    if together is not None:
        together(targets, sources, weight)
        return
    for target, source in zip(targets, sources, strict=True):
        target.lerp_(source, weight)
