"""Training state: networks, optimizer moments, counters and the update stream, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from rl_training.config import CheckpointError

if TYPE_CHECKING:
    from rl_training.algorithms.base import Algorithm


class TrainingState(NamedTuple):
    """Everything needed to resume bit for bit: tensors for safetensors, values for JSON."""

    tensors: dict[str, Tensor]
    values: dict[str, Any]


def training_state(algorithm: Algorithm[Any]) -> TrainingState:
    tensors = {f"networks.{key}": value for key, value in algorithm.state_dict().items()}
    values: dict[str, Any] = {"update_count": algorithm.update_count}
    for network, optimizer in algorithm.optimizers.items():
        for parameter_name, parameter in getattr(algorithm, network).named_parameters():
            for key, value in optimizer.state[parameter].items():
                holder = tensors if isinstance(value, Tensor) else values
                holder[f"optimizers.{network}.{parameter_name}.{key}"] = value
    if algorithm.engine.eager:  # so that a resumed run rounds as this one does
        values["eager_losses"] = sorted(algorithm.engine.eager)
    tensors["rng.update"] = algorithm.generator.get_state()
    return TrainingState(tensors, values)


def load_training_state(algorithm: Algorithm[Any], state: TrainingState) -> None:
    load_networks(algorithm, state.tensors)
    saved = {**state.tensors, **state.values}
    for network, optimizer in algorithm.optimizers.items():
        for parameter_name, parameter in getattr(algorithm, network).named_parameters():
            prefix = f"optimizers.{network}.{parameter_name}."
            optimizer.state[parameter] = {
                key.removeprefix(prefix): value.to(algorithm.device, copy=True)
                if isinstance(value, Tensor)
                else value
                for key, value in saved.items()
                if key.startswith(prefix)
            }
            if isinstance(optimizer, torch.optim.Adam):
                _check_moments(f"{network}.{parameter_name}", optimizer.state[parameter], parameter)
    algorithm.engine.eager.update(state.values.get("eager_losses", ()))
    algorithm.generator.set_state(state.tensors["rng.update"])
    algorithm.update_count = int(state.values["update_count"])


def _check_moments(name: str, state: dict[str, Any], parameter: Tensor) -> None:
    """Refuse moments that are not shaped as their parameter: fused Adam would write past their end."""
    for key, value in state.items():
        shape = torch.Size() if key == "step" else parameter.shape
        if not isinstance(value, Tensor) or value.shape != shape or value.dtype != parameter.dtype:
            raise CheckpointError(
                f"the optimizer's {key!r} of {name!r} does not fit that parameter"
            )


def load_networks(algorithm: Algorithm[Any], tensors: dict[str, Tensor]) -> None:
    """Load what acting needs; every name and shape must be this algorithm's."""
    saved = {
        key.removeprefix("networks."): value
        for key, value in tensors.items()
        if key.startswith("networks.")
    }
    try:
        algorithm.load_state_dict(saved)
    except RuntimeError as error:
        raise CheckpointError(
            f"the saved networks are not those of {algorithm.name!r} with this configuration: "
            + str(error).split("\n\t")[1].strip()
        ) from None
