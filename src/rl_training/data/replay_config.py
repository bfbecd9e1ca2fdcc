"""Options of collecting: how much, how often to learn from it, and which rows to draw."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import create_model
from pydantic.fields import FieldInfo

from rl_training.config import Options, OptionsT, option

_UNNAMED = "<other defaults>"


class ReplayConfig(Options):
    """Shared by every algorithm that collects; `replay_options` gives one its own defaults."""

    buffer_capacity: int = option(
        1_000_000, "transitions kept; the oldest make room for new ones", ge=1, le=1_000_000_000
    )
    learning_starts: int = option(
        10_000,
        "environment steps before the first update; random ones, unless `initial_actions` is policy",
        ge=0,
    )
    train_frequency: int = option(1, "environment steps between rounds of updates", ge=1)
    gradient_updates_per_step: int = option(1, "updates in each of these rounds", ge=1)
    n_step: int = option(1, "rewards added up before the target bootstraps", ge=1, le=1_000)
    prioritized: bool = option(
        False, "draw transitions by their last error instead of uniformly; for dqn"
    )
    priority_exponent: float = option(
        0.6, "how strongly the error counts in `prioritized` draws; 0 = not at all", ge=0, le=1
    )
    priority_correction: float = option(
        0.4, "importance correction of these draws at the start; it rises to 1", ge=0, le=1
    )
    her: bool = option(
        False, "for environments with goals: replay transitions as if they had other goals"
    )
    her_ratio: float = option(0.8, "share of transitions that `her` gives another goal", ge=0, le=1)
    goal_selection_strategy: Literal["future", "final", "episode"] = option(
        "future", "where in the episode `her` takes goals from: from here on, its end, anywhere"
    )
    vector_env: Literal["sync", "async", "ray"] = option(
        "sync",
        "run `num_envs` environments in this process, in a process each, or on the machines of a Ray cluster",
    )
    env_step_timeout: float | None = option(
        None,
        "seconds after which an environment's step counts as hanging; null = never",
        gt=0,
        unset="never",
    )


def replay_options(**defaults: Any) -> type[ReplayConfig]:
    """Make the options of one algorithm: `ReplayConfig` with other defaults."""
    return with_defaults(ReplayConfig, defaults)


def with_defaults(group: type[OptionsT], defaults: dict[str, Any]) -> type[OptionsT]:
    """Make a subclass of a group of options with other defaults."""
    fields: dict[str, Any] = {}
    for name, default in defaults.items():
        field = group.model_fields[name]
        fields[name] = (field.annotation, FieldInfo.merge_field_infos(field, default=default))
    made = create_model(group.__name__, __base__=group, **fields)
    made.__qualname__ = _UNNAMED
    return made


def name_options(owner: type, attribute: str) -> None:
    """Name options made by `with_defaults` after the class attribute that holds them, so pickle finds them."""
    group = vars(owner).get(attribute)
    if group is not None and group.__qualname__ == _UNNAMED:
        group.__module__ = owner.__module__
        group.__qualname__ = f"{owner.__qualname__}.{attribute}"
