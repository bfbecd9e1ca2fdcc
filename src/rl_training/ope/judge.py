"""Judging: from a policy and a log to a score card."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rl_training.config import ConfigError
from rl_training.data.locations import load_location
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.support import Support
from rl_training.data.transitions.normalizer import ObservationNormalizer
from rl_training.ope.card import CardEstimate, Interval, ScoreCard
from rl_training.ope.fitted_q import FitOptions, FittedValues, fit_values
from rl_training.ope.importance import (
    TRUSTED_SAMPLE_SIZE,
    Estimator,
    WeightedLog,
    importance_estimates,
)
from rl_training.ope.intervals import bootstrap_interval, student_margin
from rl_training.ope.judged_log import JudgedLog, Numbers
from rl_training.ope.judged_policy import JudgedPolicy, in_pieces
from rl_training.ope.verdict import Evidence, judge_evidence
from rl_training.runtime.agreement import read_as_choices
from rl_training.runtime.config.train_config import TrainConfig
from rl_training.runtime.policy import Policy
from rl_training.runtime.prepare import SavedPreparation, TrainingData, prepare

OUTPUT_DIR = "runs/ope"
CONFIDENCE = 0.9
WEIGHTING: tuple[Estimator, ...] = ("pdis", "wis", "pdwis", "dr", "wdr")
PICTURED = 2_000  # numbers per picture
UNLIKE_ROWS = 10_000  # that the policy's actions are compared with the log's in


def judge(
    policy: str | Path | Policy,
    dataset: str | Path | TransitionDataset,
    *,
    gamma: float | None = None,
    stochastic: bool = False,
    confidence: float = CONFIDENCE,
    options: FitOptions | None = None,
    output_dir: str | Path = OUTPUT_DIR,
    progress_bar: bool = False,
) -> ScoreCard:
    """Judge a policy by a log, without an environment.

    Args:
        policy: A checkpoint, a run (its last checkpoint), or a policy in memory.
        dataset: A file, `builtin:NAME`, `minari:NAME`, or transitions in memory.
        gamma: Discount of the values; that of the policy's training by default.
        stochastic: Judge the policy that draws its actions, instead of their modes.
        confidence: Of every interval.
        options: How fitted Q evaluation is fitted.
        output_dir: Directory for its runs, which the same call takes up again.
        progress_bar: Show the progress of the fits.
    """
    options = options or FitOptions()
    if not 0 < confidence < 1:
        raise ConfigError(f"confidence must lie between 0 and 1, got {confidence}")
    judged = judged_policy(policy, stochastic)
    log, data = open_log(dataset, judged, judged.gamma if gamma is None else gamma)
    fits = {"output_dir": Path(output_dir).expanduser().absolute(), "progress_bar": progress_bar}
    behaviour = fit_values(log, data, None, options, **fits)
    values = fit_values(log, data, judged, options, **fits)
    return make_card(judged, log, data, behaviour, values, confidence)


def judged_policy(policy: str | Path | Policy, stochastic: bool) -> JudgedPolicy:
    """Load a checkpoint, or take a policy in memory; one that cannot draw has no stochastic form."""
    if isinstance(policy, Policy):
        judged = JudgedPolicy.of(policy, stochastic=stochastic)
    else:
        judged = JudgedPolicy.load(policy, stochastic=stochastic)
    if stochastic and judged.is_deterministic:
        raise ConfigError(
            f"{judged.algorithm.name} has a deterministic policy, which draws no actions: leave out "
            "--stochastic"
        )
    return judged


def open_log(
    dataset: str | Path | TransitionDataset, policy: JudgedPolicy, gamma: float
) -> tuple[JudgedLog, TrainingData]:
    """Load a log and check that it fits the policy; returns are scaled for the critics."""
    if not isinstance(dataset, TransitionDataset):
        dataset = load_location(str(dataset))
    dataset = read_as_choices(dataset, policy.spec)
    log = JudgedLog(dataset, gamma)
    config = TrainConfig(algo="fqe", algo_kwargs={"reward_scale": log.value_scale})
    normalizer = ObservationNormalizer(*dataset.observation_statistics())
    saved = SavedPreparation(policy.spec, normalizer, 1.0, shaped_log=True)
    return log, prepare(config, dataset, saved=saved)


def make_card(
    policy: JudgedPolicy,
    log: JudgedLog,
    data: TrainingData,
    behaviour: FittedValues,
    values: FittedValues,
    confidence: float,
) -> ScoreCard:
    """Put estimates, support and verdict together."""
    returns = log.returns + log.rest_discounts * behaviour.final()  # (members, episodes)
    behaviour_value = _behaviour_interval(returns, confidence)
    initial = values.initial()
    estimates = [_fitted_estimate(values, initial, returns, confidence)]
    weighted, model = weigh(policy, log, values, confidence)
    estimates += [_with_difference(e, returns.mean(0), confidence) for e in weighted]
    support, actions = _measure_support(policy, data)
    evidence = Evidence(
        log,
        behaviour_value,
        _replicate_interval(behaviour, behaviour.initial(), confidence),
        support["unlike_share"],
        values.trace,
    )
    verdict, reasons = judge_evidence(estimates, evidence)
    return ScoreCard(
        policy=_policy_facts(policy, log),
        log=_log_facts(log),
        gamma=log.gamma,
        confidence=confidence,
        behaviour=behaviour_value,
        estimates=estimates,
        support=support,
        verdict=verdict,
        reasons=reasons,
        notes=_notes(policy, log, estimates),
        behaviour_model=model,
        pictures=_pictures(log, initial.mean(0), returns.mean(0), actions, model),
    )
