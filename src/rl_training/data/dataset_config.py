"""Options that choose a dataset and prepare its rewards, observations and actions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import field_validator, model_validator

from rl_training.config import ConfigError, Options, Problem, option
from rl_training.data.formats import get_format, kind_advice, problems_with_options

PLACEHOLDER = "YOUR_LOG.npz"  # dataset_path of packaged configurations for logs of the user's


class DatasetChoice(Options):
    """The choice of one dataset, by kind."""

    dataset_kind: str | None = option(
        None, "Format of the dataset, such as npz, minari or builtin; null when no dataset is used.",
        unset="no dataset",
    )  # fmt: skip
    dataset_path: str | None = option(
        None, "The file to read, for kinds that are files.", unset="no file"
    )
    dataset_id: str | None = option(
        None, "The name of a builtin or Minari dataset.", unset="no name"
    )
    dataset_download: bool = option(False, "Download a Minari dataset that is not on this machine.")
    dataset_in_memory: bool = option(
        True, "Hold the data in memory; false maps a packed copy from the cache."
    )
    dataset_size: int | None = option(
        None, "Number of transitions that kind random collects.", ge=1,
        unset="10,000 with kind random",
    )  # fmt: skip
    dataset_seed: int | None = option(
        None, "Seed of the data that kind random collects.", ge=0,
        unset="derived from `seed` with kind random",
    )  # fmt: skip

    @field_validator("dataset_kind")
    @classmethod
    def _is_registered(cls, kind: str | None) -> str | None:
        if kind is not None:
            get_format(kind)
        return kind

    @property
    def location(self) -> str | None:
        """Name of the dataset on the command line, short if it can be; None if it has none."""
        if self.dataset_id is not None:
            return f"{self.dataset_kind}:{self.dataset_id}"
        if self.dataset_path is None:
            return None
        path, here = Path(self.dataset_path), Path.cwd()
        return str(path.relative_to(here) if path.is_relative_to(here) else path)

    def chosen_keys(self) -> dict[str, Any]:
        """The dataset_* keys that differ from their defaults, without the kind."""
        return {
            name: getattr(self, name)
            for name, field in DatasetChoice.model_fields.items()
            if name != "dataset_kind" and getattr(self, name) != field.default
        }


SHORT_NAMES = {name.removeprefix("dataset_"): name for name in DatasetChoice.model_fields}


class DatasetMixPart(DatasetChoice):
    """One dataset of a mixture; its keys may be written without `dataset_`."""

    weight: float = option(
        1.0, "Share of this dataset in every batch, relative to the others.", gt=0
    )

    @model_validator(mode="before")
    @classmethod
    def _accept_short_names(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        twice = [name for name in SHORT_NAMES if name in values and SHORT_NAMES[name] in values]
        if twice:
            raise ConfigError(
                [Problem((name,), f"is given twice, also as {SHORT_NAMES[name]}") for name in twice]
            )
        return {SHORT_NAMES.get(name, name): value for name, value in values.items()}

    @model_validator(mode="after")
    def _check_keys(self) -> DatasetMixPart:
        if self.dataset_kind is None:
            raise ConfigError([Problem(("dataset_kind",), "is required")])
        _raise(problems_with_options(self.dataset_kind, self.chosen_keys()))
        return self


class DatasetConfig(DatasetChoice):
    """The dataset and what is done to it before training."""

    dataset_mix: tuple[DatasetMixPart, ...] | None = option(
        None, "Several datasets sampled together, each with a weight.", unset="one dataset"
    )
    top_fraction: float | None = option(
        None, "Keep only this share of episodes, the ones with the highest return.", gt=0, le=1,
        unset="all episodes",
    )  # fmt: skip
    validation_fraction: float | None = option(
        None, "Hold out this share of episodes: never learned from, they give `validation/*` "
        "metrics at every evaluation.", gt=0, lt=1, unset="none are held out",
    )  # fmt: skip
    reward_scale: float = option(1.0, "Factor on every reward, applied before shift and clip.")
    reward_shift: float = option(0.0, "Number added to every scaled reward.")
    reward_clip_min: float | None = option(
        None, "Lower bound of the scaled and shifted reward.", unset="no bound"
    )
    reward_clip_max: float | None = option(
        None, "Upper bound of the scaled and shifted reward.", unset="no bound"
    )
    normalize_rewards: bool | None = option(
        None, "Scale rewards by 1000 / (best return - worst return) before all else; "
        "null leaves it to the algorithm.",
    )  # fmt: skip
    normalize_observations: bool | None = option(
        None, "Normalise observations by the data's mean and deviation; null leaves "
        "it to the algorithm.",
    )  # fmt: skip
    clip_actions: bool = option(
        False, "Clip dataset actions that lie outside of the action bounds."
    )
    action_low: float | tuple[float, ...] | None = option(
        None, "Lower bound of actions, one number or one per dimension; null takes it from the "
        "environment or the data.", unset="the environment's, or the data's least",
    )  # fmt: skip
    action_high: float | tuple[float, ...] | None = option(
        None, "Upper bound of actions, one number or one per dimension; null takes it from the "
        "environment or the data.", unset="the environment's, or the data's largest",
    )  # fmt: skip

    @model_validator(mode="after")
    def _check(self) -> DatasetConfig:
        _raise([*self._choice_problems(), *self._value_problems()])
        return self

    def _choice_problems(self) -> list[Problem]:
        keys = self.chosen_keys()
        if self.dataset_mix is not None:
            if not self.dataset_mix:
                return [Problem(("dataset_mix",), "needs at least one dataset")]
            keys.pop("dataset_in_memory", None)  # holds for all parts
            if self.dataset_kind is not None:
                return [Problem(("dataset_mix",), "give either dataset_mix or dataset_kind")]
            return [Problem((key,), "belongs inside the parts of dataset_mix") for key in keys]
        if self.dataset_kind is None:
            return [
                Problem((key,), f"{key} needs dataset_kind{kind_advice(key, value)}")
                for key, value in keys.items()
            ]
        return problems_with_options(self.dataset_kind, keys)

    def _value_problems(self) -> list[Problem]:
        problems = []
        if self.reward_scale == 0:
            problems.append(
                Problem(("reward_scale",), "must not be 0: every reward would be the same")
            )
        low, high = self.reward_clip_min, self.reward_clip_max
        if low is not None and high is not None and low >= high:
            problems.append(
                Problem(
                    ("reward_clip_min",), f"must be less than reward_clip_max {high}, got {low}"
                )
            )
        if (self.action_low is None) != (self.action_high is None):
            problems.append(Problem(("action_low",), "action_low and action_high go together"))
        elif not _is_below(self.action_low, self.action_high):
            problems.append(Problem(("action_low",), "must be less than action_high"))
        return problems


def _is_below(
    low: float | tuple[float, ...] | None, high: float | tuple[float, ...] | None
) -> bool:
    if low is None or high is None:
        return True
    lows = low if isinstance(low, tuple) else (low,)
    highs = high if isinstance(high, tuple) else (high,)
    size = max(len(lows), len(highs))
    lows = lows * size if len(lows) == 1 else lows
    highs = highs * size if len(highs) == 1 else highs
    return len(lows) == len(highs) and all(a <= b for a, b in zip(lows, highs, strict=True))


def _raise(problems: list[Problem]) -> None:
    if problems:
        raise ConfigError(problems)
