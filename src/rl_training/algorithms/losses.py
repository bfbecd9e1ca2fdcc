"""Losses as an engine sees them: functions of named tensors.

A loss is written as `loss(nets, batch, noise, config)`, or with `shared` terms as a fifth argument.
An engine may evaluate it on tensors at other addresses, which hold the same values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from rl_training.data.transitions.batch import Batch
from rl_training.engine import Inputs, Terms

Noise = Mapping[str, Tensor]  # random numbers, drawn before a loss is evaluated
NO_NOISE: Noise = {}
TermsFunction = Callable[..., Terms]  # of networks, batch, noise, config, and shared terms if any


def inputs_of(batch: Batch, noise: Noise, shared: Terms | None) -> dict[str, Tensor]:
    """Name all tensors that a loss is handed."""
    inputs = dict(batch.tensors)
    for name, value in noise.items():
        inputs[f"noise.{name}"] = value
    for name, value in (shared or {}).items():
        inputs[f"shared.{name}"] = value
    return inputs


def call(
    function: TermsFunction,
    nets: Any,
    batch: Batch,
    noise: Noise,
    shared: Terms | None,
    inputs: Inputs,
) -> Terms:
    """Call a loss on `inputs`, which stand in for the tensors of batch, noise and shared terms."""
    arguments: dict[str, Any] = {}
    if shared is not None:
        arguments["shared"] = {name: inputs[f"shared.{name}"] for name in shared}
    drawn = {name: inputs[f"noise.{name}"] for name in noise}
    return function(nets, batch.with_tensors(inputs), drawn, nets.config, **arguments)


def checked(name: str, terms: Any) -> Terms:
    """Check the result of a loss: a dict of tensors with `<network>_loss` in it."""
    if not isinstance(terms, dict):
        raise RuntimeError(
            f"the loss of {name} returns {type(terms).__name__}, not a dict of tensors"
        )
    for key, value in terms.items():
        if not isinstance(value, Tensor):
            kind = type(value).__name__
            raise RuntimeError(f"the loss of {name} returns {key!r} as {kind}, not as a tensor")
    if f"{name}_loss" not in terms:
        names = ", ".join(map(repr, terms)) or "nothing"
        raise RuntimeError(f"the loss of {name} must return '{name}_loss', but returns {names}")
    return terms
