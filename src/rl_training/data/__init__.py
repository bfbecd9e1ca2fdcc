"""Transitions: loading and checking logs, replay, and batches for the losses.

Faces, which users import:

- `offline_dataset`   `TransitionDataset`: sample, transform, split and save transitions
- `dataset_loaders`   `load_transition_dataset`: from a kind and its options to a dataset
- `offline_mixers`    `mix_transition_datasets`: several datasets with their shares of a batch
- `replay_buffer`     `ReplayBuffer`: the newest transitions of an online learner
- `collecting`        a dataset from a policy and an environment
- `memory`            memory of the machine, compared with what a replay buffer takes
- `locations`         datasets as the command line names them
- `support`           states and actions that a dataset has rows near to
- `saving`            writing a dataset to a file
- `rewriting`         dropping rows without a next observation, renumbering actions
- `dataset_config`, `replay_config`, `offline_to_online_config`   groups of options

Folders, from high to low; each imports only those below it:

- `checks`       findings about suspicious data
- `replay`       prioritised replay and hindsight experience replay
- `transitions`  batches, views of packed rows, episodes, returns, normalisation
- `formats`      one file per dataset format, and their registry
- `builtin`      datasets that the package makes itself
- `hdf5`         HDF5 files, read in a process of their own
- `packing`      from named arrays to one matrix of rows, in memory or in the cache

Names are imported when first used, so that the registry of formats costs no torch import.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rl_training.data.dataset_config import DatasetConfig
    from rl_training.data.dataset_loaders import load_transition_dataset
    from rl_training.data.offline_dataset import TransitionDataset
    from rl_training.data.offline_mixers import mix_transition_datasets
    from rl_training.data.replay.hindsight import HERReplayBuffer
    from rl_training.data.replay.prioritized import PrioritizedReplayBuffer
    from rl_training.data.replay_buffer import ReplayBuffer
    from rl_training.data.replay_config import ReplayConfig
    from rl_training.data.transitions.batch import Batch
    from rl_training.data.transitions.normalizer import ObservationNormalizer

_MODULES = {
    "Batch": "transitions.batch",
    "DatasetConfig": "dataset_config",
    "HERReplayBuffer": "replay.hindsight",
    "ObservationNormalizer": "transitions.normalizer",
    "PrioritizedReplayBuffer": "replay.prioritized",
    "ReplayBuffer": "replay_buffer",
    "ReplayConfig": "replay_config",
    "TransitionDataset": "offline_dataset",
    "load_transition_dataset": "dataset_loaders",
    "mix_transition_datasets": "offline_mixers",
}
__all__ = [
    "Batch",
    "DatasetConfig",
    "HERReplayBuffer",
    "ObservationNormalizer",
    "PrioritizedReplayBuffer",
    "ReplayBuffer",
    "ReplayConfig",
    "TransitionDataset",
    "load_transition_dataset",
    "mix_transition_datasets",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
