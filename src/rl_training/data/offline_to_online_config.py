"""Options of offline-to-online training: pretraining on logs, then fine-tuning online."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import field_validator

from rl_training.config import ConfigError, Options, option
from rl_training.data.replay_config import with_defaults


class RatioSchedule(Options):
    """A share of logged rows that changes over the environment steps of a run."""

    kind: Literal["linear", "cosine"] = option("linear", "shape of the change")
    start: float = option(0.5, "share at the first environment step", ge=0, le=1)
    final: float = option(0.0, "share at the end of the horizon", ge=0, le=1)
    horizon: int | None = option(
        None, "environment steps until then; null = the run's total", ge=1, unset="the run's total"
    )


class OfflineToOnlineConfig(Options):
    """Shared by every algorithm that trains offline to online."""

    offline_pretrain_updates: int = option(
        0, "gradient updates on logged data alone, before the first environment step", ge=0
    )
    offline_batch_ratio: float | Literal["pooled"] | dict[str, Any] = option(
        0.5,
        "share of logged rows in every batch once collecting: a number, {kind, start, final, horizon}, "
        "or pooled (also null) to draw from logged and collected rows as from one buffer",
    )
    initial_actions: Literal["policy", "random"] = option(
        "policy", "who takes the first `learning_starts` environment steps: the policy, or chance"
    )
    rollback_on_drop: float | None = option(
        None,
        "return to the last good policy and stop when a score falls below the offline one by more "
        "than this share of its size; null = never",
        gt=0,
        unset="never",
    )

    @field_validator("offline_batch_ratio", mode="before")
    @classmethod
    def _name_the_pool(cls, value: Any) -> Any:
        return "pooled" if value is None else value

    @field_validator("offline_batch_ratio")
    @classmethod
    def _is_a_share(cls, value: Any) -> Any:
        if isinstance(value, dict):
            try:
                RatioSchedule(**value)
            except ConfigError as error:
                raise ConfigError(
                    [problem.under("offline_batch_ratio") for problem in error.problems]
                ) from None
        elif value != "pooled" and not 0 <= value <= 1:
            raise ValueError(f"must be >= 0 and <= 1, got {value!r}")
        return value

    def ratio(self) -> RatioSchedule | float | None:
        """Read `offline_batch_ratio`; a mapping is a schedule, None draws as from one buffer."""
        ratio = self.offline_batch_ratio
        if isinstance(ratio, dict):
            return RatioSchedule(**ratio)
        return None if ratio == "pooled" else ratio


def offline_to_online_options(**defaults: Any) -> type[OfflineToOnlineConfig]:
    """Make the options of one algorithm: `OfflineToOnlineConfig` with other defaults."""
    return with_defaults(OfflineToOnlineConfig, defaults)
