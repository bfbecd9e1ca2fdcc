"""Transition datasets: loading, checking, mixing, and batches for the losses."""

from rl_training.data.batch import Batch
from rl_training.data.dataset_config import DatasetConfig
from rl_training.data.dataset_loaders import load_transition_dataset
from rl_training.data.hindsight import HERReplayBuffer
from rl_training.data.normalizers import ObservationNormalizer
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.offline_mixers import mix_transition_datasets
from rl_training.data.prioritized import PrioritizedReplayBuffer
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.data.replay_config import ReplayConfig

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
