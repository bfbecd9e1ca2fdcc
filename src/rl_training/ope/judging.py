"""Judging: from a policy and a log to a score card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from rl_training.config import ConfigError, DatasetError
from rl_training.data.locations import load_location
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.transitions.normalizer import ObservationNormalizer
from rl_training.ope.behaviour import UPDATES, behaviour_probabilities
from rl_training.ope.card import ScoreCard
from rl_training.ope.estimates import (
    Weighted,
    behaviour_interval,
    card_model,
    fitted_estimate,
    replicate_interval,
    weighted_estimates,
)
from rl_training.ope.fitted_q import FitOptions, FittedValues, fit_values
from rl_training.ope.judged_log import JudgedLog, Numbers
from rl_training.ope.judged_policy import JudgedPolicy
from rl_training.ope.pictures import compare_actions, draw
from rl_training.ope.verdict import Evidence, judge_evidence
from rl_training.runtime.config.train_config import TrainConfig
from rl_training.runtime.policy import Policy
from rl_training.runtime.preparation.agreement import doubt_about_ends, read_as_choices
from rl_training.runtime.prepare import SavedPreparation, TrainingData, prepare
from rl_training.spec import ProblemSpec

OUTPUT_DIR = "runs/ope"
CONFIDENCE = 0.9
AT_BOUNDS = 0.1  # of the range of actions: farther outside they are in other units


@dataclass(frozen=True)
class Judgement:
    """A score card, and the numbers by episode that two policies are compared with."""

    card: ScoreCard
    values: FittedValues
    initial: Numbers  # (members, episodes) fitted values of first states
    contributions: Mapping[str, Numbers]  # (episodes,) by estimator with importance weights


def judge(
    policy: str | Path | Policy,
    dataset: str | Path | TransitionDataset,
    *,
    gamma: float | None = None,
    stochastic: bool = False,
    held_out: bool = False,
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
        held_out: Judge by the episodes that `validation_fraction` kept from training, and no others.
        confidence: Of every interval.
        options: How fitted Q evaluation is fitted.
        output_dir: Directory for its runs, which the same call takes up again.
        progress_bar: Show the progress of the fits.
    """
    judged = judged_policy(policy, stochastic)
    judgement = judge_policy(
        judged,
        open_log(dataset, judged, judged.gamma if gamma is None else gamma, held_out),
        confidence=confidence,
        options=options or FitOptions(),
        output_dir=output_dir,
        progress_bar=progress_bar,
    )
    return judgement.card


def judge_policy(
    policy: JudgedPolicy,
    opened: tuple[JudgedLog, TrainingData],
    *,
    confidence: float,
    options: FitOptions,
    output_dir: str | Path,
    progress_bar: bool,
) -> Judgement:
    """Fit behaviour and policy, and put the card together."""
    if not 0 < confidence < 1:
        raise ConfigError(f"confidence must lie between 0 and 1, got {confidence}")
    log, data = opened
    directory = Path(output_dir).expanduser().absolute()
    behaviour = fit_values(log, data, None, options, directory, progress_bar=progress_bar)
    values = fit_values(log, data, policy, options, directory, progress_bar=progress_bar)
    return make_card(policy, log, behaviour, values, confidence, progress_bar=progress_bar)


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
    dataset: str | Path | TransitionDataset,
    policy: JudgedPolicy,
    gamma: float,
    held_out: bool = False,
) -> tuple[JudgedLog, TrainingData]:
    """Load a log and check that it fits the policy; returns are scaled for the critics."""
    location = None if isinstance(dataset, TransitionDataset) else str(dataset)
    if not isinstance(dataset, TransitionDataset):
        dataset = load_location(str(dataset))
    dataset = read_as_choices(dataset, policy.spec)
    if dataset.action_kind != policy.spec.action_kind:
        raise DatasetError(
            f"the actions of {dataset.source} are {dataset.action_kind}, but those of the policy are "
            f"{policy.spec.action_kind}"
        )
    doubt = doubt_about_ends(dataset, location)
    if held_out:
        dataset = policy.held_out(dataset)
    log = JudgedLog(dataset, gamma, doubt, _lie_at_bounds(dataset, policy.spec))
    options = {"reward_scale": log.value_scale, "clip_actions": log.clips_actions}
    config = TrainConfig(algo="fqe", algo_kwargs=options)
    normalizer = ObservationNormalizer(*dataset.observation_statistics())
    saved = SavedPreparation(policy.spec, normalizer, 1.0, shaped_log=True)
    return log, prepare(config, dataset, saved=saved)


def _lie_at_bounds(dataset: TransitionDataset, policy: ProblemSpec) -> bool:
    """Tell if logged actions are hardly outside of the policy's bounds, so that clipping changes little.

    Bounds of a policy that was trained without an environment are the range of its own log.
    """
    if policy.action_kind == "discrete" or dataset.discrete:
        return False
    low, high = torch.tensor(policy.action_low), torch.tensor(policy.action_high)
    if dataset.action_width != len(low):
        return False  # refused later
    slack = AT_BOUNDS * (high - low)
    actions = dataset.actions
    return bool(((actions >= low - slack) & (actions <= high + slack)).all())


def make_card(
    policy: JudgedPolicy,
    log: JudgedLog,
    behaviour: FittedValues,
    values: FittedValues,
    confidence: float,
    *,
    progress_bar: bool = False,
) -> Judgement:
    """Put estimates, support and verdict together."""
    returns = log.returns + log.rest_discounts * behaviour.final()  # (members, episodes)
    behaviour_value, initial = behaviour_interval(returns, confidence), values.initial()
    actions = compare_actions(policy, log, values.data)
    fitted = fitted_estimate(values, initial, returns, confidence)
    weighted = _weighted(policy, log, values, returns, confidence, progress_bar)
    estimates = [fitted, *weighted.rows]
    evidence = Evidence(
        log,
        behaviour_value,
        replicate_interval(behaviour, behaviour.initial(), confidence),
        actions.unlike_share,
        values.trace,
    )
    verdict, reasons = judge_evidence(estimates, evidence)
    card = ScoreCard(
        policy=_policy_facts(policy, log),
        log=_log_facts(log),
        gamma=log.gamma,
        confidence=confidence,
        behaviour=behaviour_value,
        estimates=estimates,
        support={
            "unlike_share": actions.unlike_share,
            "action_distance": actions.distance,
        },
        verdict=verdict,
        reasons=reasons,
        notes=_notes(policy, log),
        behaviour_model=card_model(weighted.behaviour),
        pictures=draw(initial.mean(0), returns.mean(0), weighted.log10_weights, actions),
    )
    return Judgement(card, values, initial, weighted.contributions)


def _weighted(
    policy: JudgedPolicy,
    log: JudgedLog,
    values: FittedValues,
    returns: Numbers,
    confidence: float,
    progress_bar: bool,
) -> Weighted:
    log_probs = values.log_probs(policy)
    if log_probs is None:
        return Weighted.none(policy.reason_without_density)
    behaviour = behaviour_probabilities(
        log,
        values.data,
        values.run_dir.parent,
        updates=min(UPDATES, values.options.updates),
        seed=values.options.seed,
        progress_bar=progress_bar,
    )
    return weighted_estimates(log, values, log_probs, behaviour, returns, confidence)


def _policy_facts(policy: JudgedPolicy, log: JudgedLog) -> dict[str, Any]:
    return {
        "path": None if policy.path is None else str(policy.path),
        "algo": policy.algorithm.name,
        "acts": "deterministic" if policy.is_deterministic else "stochastic",
        "sha256": policy.sha256,
        "trained_on_this_log": policy.has_seen(log.dataset),
    }


def _log_facts(log: JudgedLog) -> dict[str, Any]:
    returns = log.dataset.episode_returns
    return {
        "source": log.dataset.source,
        "sha256": log.dataset.sha256,
        "rows": len(log.dataset),
        "episodes": len(log.starts),
        "cut_episodes": int(log.cut.sum()),
        "return_mean": float(returns.mean()),
        "return_std": float(returns.std(ddof=1)),
    }


def _notes(policy: JudgedPolicy, log: JudgedLog) -> list[str]:
    """Say what a reader must know to read the numbers."""
    notes = [
        f"values are discounted returns (gamma {log.gamma:g}) from first states; an episode's return of "
        f"{log.dataset.episode_returns.mean():.4g} is not discounted"
    ]
    cut = int(log.cut.sum())
    if cut:
        notes.append(
            f"{cut} of {len(log.cut)} episodes were cut; what is missing of them is estimated"
        )
    if log.doubt_about_ends is not None:
        notes.append(log.doubt_about_ends)
    if policy.has_seen(log.dataset):
        notes.append(
            "the policy was trained on this log, so that estimates may be too high; judge it by another "
            "log of the same behaviour, or train with validation_fraction and judge by --held-out"
        )
    return notes
