"""The `control` group of options: evaluation, budgets, early stopping, schedules, checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import field_validator, model_validator

from rl_training.config import ConfigError, Options, Problem, option, suggest
from rl_training.runtime.config.schedules import ScheduleConfig, ScheduleKind

EVALUATION_METRICS = (
    "eval/return_mean",
    "eval/return_std",
    "eval/length_mean",
    "eval/success_rate",
    "eval/shaped_return_mean",
)

VALIDATION_METRICS = (
    "validation/td_error",
    "validation/log_prob",
    "validation/action_distance",
    "validation/initial_value",
    "validation/logged_q",
    "validation/policy_q",
    "validation/unlike_share",
)


def metric_key(name: str) -> str:
    """Return a metric's name in its one spelling: `eval_return_mean` is `eval/return_mean`."""
    group, separator, rest = name.partition("_")
    if (
        "/" not in name
        and separator
        and group in ("eval", "validation", "train", "rollout", "time")
    ):
        return f"{group}/{rest}"
    return name


class EarlyStoppingConfig(Options):
    metric: str = option("eval/return_mean", "the metric of evaluations or validation to watch")
    mode: Literal["max", "min"] = option("max", "whether larger or smaller is better")
    patience: int = option(10, "evaluations without improvement before stopping", ge=1)
    min_delta: float = option(0.0, "change that counts as an improvement", ge=0)
    min_steps: int = option(0, "no stopping before this step", ge=0)
    target_value: float | None = option(
        None, "stop as soon as the metric reaches this", unset="no target"
    )

    @field_validator("metric")
    @classmethod
    def _is_measured(cls, name: str) -> str:
        key, known = metric_key(name), (*EVALUATION_METRICS, *VALIDATION_METRICS)
        if key not in known and not key.startswith("train/"):
            hint = suggest(key, known) or f" (known: {', '.join(known)}, train/<loss>)"
            raise ValueError(f"early stopping cannot watch {name!r}{hint}")
        return name


class ControlsConfig(Options):
    regime: Literal["offline", "online", "offline_to_online"] | None = option(
        None, "where transitions come from; null = the algorithm's first"
    )
    eval_interval: int = option(5_000, "steps between evaluations", ge=1)
    early_stopping: EarlyStoppingConfig | None = option(
        None, "when to stop before the budget", unset="never"
    )
    max_updates: int | None = option(
        None,
        "budget in gradient updates; a round of RLPD or REDQ is not cut",
        ge=1,
        unset="no bound",
    )
    max_epochs: int | None = option(
        None, "budget in passes over the dataset", ge=1, unset="no bound"
    )
    learning_rate_schedule: ScheduleKind | dict[str, Any] | None = option(
        None,
        "decay of every learning rate: a name, {kind, final, horizon}, or one of these per network; "
        "null = the algorithm's own",
    )
    warmup_steps: int = option(
        0, "steps over which learning rates rise linearly to their value", ge=0
    )
    keep_checkpoints: int | None = option(
        None, "how many step checkpoints to keep besides `best`; null = all", ge=2, unset="all"
    )
    torch_threads: int = option(
        1, "CPU threads of PyTorch; more than one rarely helps networks of this size", ge=1, le=256
    )
    stepper: Literal["captured", "eager"] = option(
        "captured",
        "how losses are differentiated: captured once and replayed, or operation by operation",
    )
    tensorboard: bool | Literal["auto"] = option(
        "auto", "write tensorboard/ event files; auto (also null) = if TensorBoard is installed"
    )

    @field_validator("tensorboard", mode="before")
    @classmethod
    def _name_the_automatic(cls, value: Any) -> Any:
        return "auto" if value is None else value

    @field_validator("stepper", mode="before")
    @classmethod
    def _rename_stepper(cls, value: Any) -> Any:
        if value == "compiled":
            raise ValueError("'compiled' was removed: leave it out, captured losses are faster")
        return "captured" if value == "replay" else value

    @model_validator(mode="after")
    def _schedules_parse(self) -> ControlsConfig:
        self.schedules()
        return self

    def best_metric(self) -> tuple[str, Literal["max", "min"]]:
        """Return the metric of the best checkpoint and its direction.

        It is the one that early stopping watches, unless that is a loss.
        """
        stopping = self.early_stopping
        if stopping is None or metric_key(stopping.metric).startswith("train/"):
            return EVALUATION_METRICS[0], "max"
        return metric_key(stopping.metric), stopping.mode

    def schedules(self) -> dict[str, ScheduleConfig]:
        """Return the schedule of each network; the key `*` stands for every network."""
        value = self.learning_rate_schedule
        if value is None:
            return {}
        if isinstance(value, str):
            return {"*": ScheduleConfig(kind=value)}
        path: tuple[str, ...] = ("learning_rate_schedule",)
        try:
            if "kind" in value:
                return {"*": ScheduleConfig(**value)}
            by_network: dict[str, ScheduleConfig] = {}
            for network, schedule in value.items():
                path = ("learning_rate_schedule", str(network))
                options = {"kind": schedule} if isinstance(schedule, str) else schedule
                if not isinstance(options, dict):
                    raise ConfigError(f"expected a schedule, got {schedule!r}")
                by_network[network] = ScheduleConfig(**options)
        except ConfigError as error:
            raise ConfigError([problem.under(*path) for problem in error.problems]) from None
        return by_network


def schedule_problems(controls: ControlsConfig, networks: Mapping[str, Any]) -> list[Problem]:
    """Report schedules for networks that the algorithm does not have."""
    names = ", ".join(networks)
    return [
        Problem(("learning_rate_schedule", name), f"no such network (the networks are: {names})")
        for name in controls.schedules()
        if name != "*" and name not in networks
    ]
