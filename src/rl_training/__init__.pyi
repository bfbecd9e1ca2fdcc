"""Typed names of `rl_training`: its rooms, and everything that `rl_training.api` has."""

from rl_training import algorithms as algorithms
from rl_training import api as api
from rl_training import cli as cli
from rl_training import config as config
from rl_training import data as data
from rl_training import envs as envs
from rl_training import experiment as experiment
from rl_training import models as models
from rl_training import reports as reports
from rl_training import runs as runs
from rl_training import runtime as runtime
from rl_training import sweeps as sweeps
from rl_training.api import *  # noqa: F403

__version__: str
