"""Stub."""

from __future__ import annotations

from dataclasses import dataclass, field

from rl_training.ope.judged_log import JudgedLog, Numbers
from rl_training.runtime.prepare import TrainingData


@dataclass(frozen=True)
class BehaviourProbabilities:
    log_probs: Numbers
    source: str
    calibrated: bool
    calibration: dict[str, float] = field(default_factory=dict)


def behaviour_probabilities(log: JudgedLog, data: TrainingData) -> BehaviourProbabilities:
    raise NotImplementedError
