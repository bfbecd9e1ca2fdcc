"""Steppers to choose from."""

from __future__ import annotations

from typing import Literal

from rl_training.algorithms.stepping import EagerStepper, Stepper
from rl_training.runtime.replay import ReplayStepper

StepperKind = Literal["captured", "eager"]


def build_stepper(kind: StepperKind) -> Stepper:
    return EagerStepper() if kind == "eager" else ReplayStepper()
