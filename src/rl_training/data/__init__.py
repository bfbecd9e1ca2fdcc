"""Transition datasets: loading, checking, mixing, and batches for the losses."""

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
