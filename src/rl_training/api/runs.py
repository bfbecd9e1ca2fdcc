"""Functions on runs and checkpoints: train, resume, evaluate, predict."""

from __future__ import annotations

from rl_training.experiment.manager import ExperimentManager
from rl_training.runtime.commands import resume, train
from rl_training.runtime.scoring import evaluate_checkpoint, predict_checkpoint

__all__ = ["evaluate", "predict", "resume", "summarize_results", "train"]

evaluate = evaluate_checkpoint
predict = predict_checkpoint
summarize_results = ExperimentManager.summary
