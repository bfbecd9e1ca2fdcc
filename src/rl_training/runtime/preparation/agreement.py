"""Agreement of algorithm, environment and data on observations and actions, checked before training."""

from __future__ import annotations

import logging
import shlex
from typing import Any

import numpy as np

from rl_training.algorithms.registry import list_algorithm_specs
from rl_training.config import ConfigError, DatasetError, EnvError, Problem
from rl_training.data.checks.action_checks import (
    RENUMBER,
    are_labels,
    are_whole_numbers,
    look_discrete,
    looks_normalised,
    numbering_command,
    one_hot,
    unclear_numbering,
)
from rl_training.data.checks.episode_ends import judge_ends_of
from rl_training.data.dataset_config import DatasetConfig
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.runtime.config.train_config import TrainConfig
from rl_training.spec import ProblemSpec, goal_keys

log = logging.getLogger("rl_training")


def spec_from_data(dataset: TransitionDataset, options: DatasetConfig) -> ProblemSpec:
    """Derive the problem from the log, for lack of an environment."""
    _refuse_unclear_actions(dataset, options)
    if dataset.discrete:
        log.info("no environment: %d actions, as many as the data has", dataset.num_actions)
        return ProblemSpec(dataset.obs_dim, "discrete", int(dataset.num_actions or 0))
    width = dataset.action_width
    measured_low, measured_high = _action_range(dataset)
    low = _bound(options.action_low, measured_low, "action_low", width)
    high = _bound(options.action_high, measured_high, "action_high", width)
    if np.any(low > high):
        raise ConfigError([Problem(("algo_kwargs", "action_low"), "is above action_high")])
    origin = "action_low / action_high" if options.action_low is not None else "the data's range"
    log.info(
        "no environment: action bounds from %s: low %s, high %s", origin, _short(low), _short(high)
    )
    return ProblemSpec(
        dataset.obs_dim, "continuous", width, tuple(map(float, low)), tuple(map(float, high))
    )


def point_to_check(dataset: TransitionDataset, location: str | None) -> None:
    """Warn of next observations that are lost, and name `data check` where ends are doubtful.

    Args:
        dataset: The data as it was loaded.
        location: Its name on the command line, if it has one.
    """
    doubt = doubt_about_ends(dataset, location)
    if doubt is not None:
        log.warning("%s: %s", dataset.source, doubt)
    elif dataset.boundaries != "given":
        check = f"`rl-training data check {_word(location)}`"
        log.info("%s: episode ends are doubtful; see %s", dataset.source, check)


def doubt_about_ends(dataset: TransitionDataset, location: str | None) -> str | None:
    """Say what is wrong, or likely to be, with the ends of episodes; None if nothing is."""
    judged = judge_ends_of(dataset)
    if judged is None:
        return None
    name = _word(location)
    check = f"`rl-training data check {name}`"
    rows = int((dataset.terminations[judged.lost.rows] == 0).sum())
    if rows:
        return (
            f"{rows} last rows of episodes have a next observation that is not their own; values "
            f"bootstrapped from it are wrong. See {check}; `rl-training data convert {name} OUT.npz "
            "--repair` drops these rows"
        )
    if judged.time_limit is not None:
        limit = judged.time_limit
        return (
            f"{len(limit.rows)} episodes terminate after exactly {limit.length} steps, which looks "
            f"like a time limit; see {check}"
        )
    if len(judged.going_on):
        return (
            f"after {len(judged.going_on)} rows that terminate, the next row goes on where they ended; "
            f"nothing after them is learned from. See {check}"
        )
    if judged.offset:
        side = "late" if judged.offset > 0 else "early"
        return (
            f"{judged.misplaced} are marked one row too {side}, so that values are wrong there; see "
            f"{check}"
        )
    return None


def _word(location: str | None) -> str:
    """Dataset as a word of a command."""
    return "FILE" if location is None else shlex.quote(location)


def read_as_choices(dataset: TransitionDataset, spec: ProblemSpec | None) -> TransitionDataset:
    """Take whole numbers that are stored as floats for what the environment says they are."""
    choices = spec is not None and spec.action_kind == "discrete" and not dataset.discrete
    if not choices or not are_whole_numbers(dataset.actions.numpy()):
        return dataset
    log.info("%s: actions are whole numbers stored as floats, read as choices", dataset.source)
    return dataset.with_discrete_actions()


def _refuse_unclear_actions(dataset: TransitionDataset, options: DatasetConfig) -> None:
    """Refuse actions of which only an environment could tell what they are."""
    smallest, largest = int(dataset.actions.min()), int(dataset.actions.max())
    name = _word(options.location)
    span = f"{dataset.source}: actions go from {smallest} to {largest}"
    if dataset.discrete:
        if unclear_numbering(smallest, dataset.first_action):
            raise DatasetError(
                f"{span}, and choices count from 0. "
                f"`{numbering_command(name, smallest)}` renumbers them from 0; "
                "--first-action 0 instead says that the lower ones are choices that no row takes"
            )
        taken = len(np.unique(dataset.actions.numpy()))
        if are_labels(int(dataset.num_actions or 0), taken):
            raise DatasetError(
                f"{span}, but only {taken} of these choices are taken: they look like labels, and a "
                f"network would have an output for each number between. If they are, {RENUMBER}"
            )
    elif options.action_low is None and one_hot(dataset.actions.numpy()):
        raise DatasetError(
            f"{dataset.source}: every action is a 1 among {dataset.action_width} columns of 0. If "
            f"they are choices, declare them with `{numbering_command(name, 0, floats=True)}`; "
            "if they are continuous, set action_low and action_high"
        )
    elif options.action_low is None and look_discrete(dataset.actions.numpy()):
        raise DatasetError(
            f"{span}, all whole numbers stored as floats. If they are choices, declare them with "
            f"`{numbering_command(name, smallest, floats=True)}`; "
            "if they are continuous, set action_low and action_high"
        )


def check_action_kind(
    config: TrainConfig, spec: ProblemSpec | None, dataset: TransitionDataset | None
) -> None:
    """Refuse algorithm, environment and data that disagree on what an action is."""
    algorithm, kind, whose = config.spec, "", ""
    if dataset is not None:
        kind, whose = dataset.action_kind, f"the actions of {dataset.source}"
    if dataset is not None and spec is not None and kind != spec.action_kind:
        fits = kind in algorithm.action_kinds
        raise DatasetError(
            f"the actions of {dataset.source} are {kind}, but those of {config.env_id} are "
            f"{spec.action_kind}: set env_id to the environment of the data, or to null"
            + (
                ""
                if fits
                else f", and algo to one for {kind} actions{_other_algorithms(config, kind, None)}"
            )
        )
    if spec is not None:
        kind, whose = spec.action_kind, f"the actions of {config.env_id}"
    if kind not in algorithm.action_kinds:
        supported = " or ".join(algorithm.action_kinds)
        raise EnvError(
            f"{algorithm.name} needs {supported} actions, but {whose} are {kind}"
            + _other_algorithms(config, kind, None if spec is None else config.env_id)
        )


def _other_algorithms(config: TrainConfig, kind: str, env_id: str | None) -> str:
    """Name algorithms for these actions that learn in the same way, and a command that trains one."""
    others = [
        spec.name
        for spec in list_algorithm_specs()
        if kind in spec.action_kinds and config.regime in spec.regimes
    ]
    if not others:
        return ""
    hint = f"; algorithms for them: {', '.join(others)}"
    choice = config.groups.dataset
    options = choice.chosen_keys()
    if "dataset_path" in options:
        options["dataset_path"] = choice.location
    if kind != "discrete" or "iql" not in others or not options:
        return hint
    words = {
        "env_id": env_id or "null",
        "dataset_kind": config.groups.dataset.dataset_kind,
        **options,
    }
    assignments = " ".join(f"{key}={shlex.quote(str(value))}" for key, value in words.items())
    return f"{hint}, such as `rl-training train iql/cartpole {assignments}`"


def check_widths(dataset: TransitionDataset, spec: ProblemSpec, env_id: str | None) -> None:
    other = env_id or "the policy"
    for what, width, expected in (
        ("observations", dataset.obs_dim, spec.obs_dim),
        ("actions", dataset.action_width, spec.action_width),
    ):
        if width != expected:
            goals = spec.goal_dim and what == "observations"
            parts = f": {', '.join(goal_keys(spec.sees_achieved_goal))}" if goals else ""
            raise DatasetError(
                f"{dataset.source} has {what} of width {width}, but {other} has {expected}{parts}"
            )


def check_bounds(dataset: TransitionDataset, spec: ProblemSpec, options: DatasetConfig) -> None:
    if spec.action_kind == "discrete":
        _check_choices(dataset, spec, options)
        return
    # as the actions are stored: a bound like 1000.01 is rounded, too
    low = np.array(spec.action_low, np.float32).astype(float)
    high = np.array(spec.action_high, np.float32).astype(float)
    if options.clip_actions:
        return
    slack = 1e-4 * (high - low) + 1e-6  # rounding of a log is not a wrong unit
    measured_low, measured_high = _action_range(dataset)
    if np.all(measured_low >= low - slack) and np.all(measured_high <= high + slack):
        if looks_normalised(measured_low, measured_high, low, high):
            log.warning(
                "the actions of %s fill [-1, 1], but the bounds are %s .. %s: if the log is "
                "normalised, rescale it with `rl-training data convert --scale-actions`",
                dataset.source, _short(low), _short(high),
            )  # fmt: skip
        return
    actions = dataset.actions.numpy()
    outside = np.any((actions < low - slack) | (actions > high + slack), axis=1)
    row = int(outside.argmax())
    raise DatasetError(
        f"{dataset.source}: actions of {int(outside.sum())} rows lie outside the bounds "
        f"{_short(low)} .. {_short(high)}, first row {row}: {_short(actions[row])}; "
        "set clip_actions: true to clip them, or rescale the log (rl-training data convert --scale-actions)"
    )


def _check_choices(dataset: TransitionDataset, spec: ProblemSpec, options: DatasetConfig) -> None:
    largest = int(dataset.actions.max())
    if largest >= spec.action_dim:
        row = int((dataset.actions >= spec.action_dim).nonzero()[0])
        raise DatasetError(
            f"{dataset.source}: action {largest} is not one of {spec.action_dim} choices, which "
            f"count from 0; first row {row}{_renumber(dataset, options)}"
        )


def _renumber(dataset: TransitionDataset, options: DatasetConfig) -> str:
    smallest = int(dataset.actions.min())
    if smallest == 0:
        return ""
    command = numbering_command(_word(options.location), smallest)
    return f". Are they numbered from {smallest}? `{command}`"


def _action_range(dataset: TransitionDataset) -> tuple[Any, Any]:
    actions = dataset.actions
    return actions.amin(0).numpy().astype(float), actions.amax(0).numpy().astype(float)


def _bound(option: Any, measured: Any, key: str, width: int) -> Any:
    if option is None:
        return measured
    values = np.asarray(option, dtype=float)
    if values.ndim == 0:
        values = np.broadcast_to(values, (width,))
    if values.shape != (width,):
        message = f"has {len(values)} entries, but actions have {width}"
        raise ConfigError([Problem(("algo_kwargs", key), message)])
    return values


def _short(values: Any) -> str:
    shown = ", ".join(f"{value:.7g}" for value in values[:4])  # all that float32 holds
    return f"[{shown}, ...]" if len(values) > 4 else f"[{shown}]"
