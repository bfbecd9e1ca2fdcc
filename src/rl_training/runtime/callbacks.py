"""Callbacks for users: the base class, and those that a run is steered by."""

from rl_training.runtime.config.controls import EarlyStoppingConfig
from rl_training.runtime.loop.budget import BudgetCallback
from rl_training.runtime.loop.callback import Callback, CallbackList, Interval
from rl_training.runtime.loop.early_stopping import EarlyStoppingCallback
from rl_training.runtime.loop.interrupt import InterruptCallback
from rl_training.runtime.loop.logging import LoggingCallback
from rl_training.runtime.loop.progress import ProgressCallback
from rl_training.runtime.loop.schedule import ScheduleCallback

__all__ = [
    "BudgetCallback",
    "Callback",
    "CallbackList",
    "EarlyStoppingCallback",
    "EarlyStoppingConfig",
    "InterruptCallback",
    "Interval",
    "LoggingCallback",
    "ProgressCallback",
    "ScheduleCallback",
]
