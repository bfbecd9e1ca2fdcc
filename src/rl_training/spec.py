"""Problem specification: the sizes and bounds of observations and actions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

GOAL_KEYS = ("observation", "desired_goal", "achieved_goal")


def goal_keys(achieved: bool) -> tuple[str, ...]:
    """Parts of a goal observation in the order of a policy's input.

    Policies of version 0.1 see no achieved goal.
    """
    return GOAL_KEYS if achieved else GOAL_KEYS[:2]


def flat_goals(obs: Mapping[str, Any], *, achieved: bool = True) -> NDArray[np.float32]:
    """A goal environment's observation, or a batch of them, as the vector that policies see."""
    keys = goal_keys(achieved)
    missing = [key for key in keys if key not in obs]
    if missing:
        raise ValueError(f"a goal observation has {', '.join(keys)}; {missing[0]} is missing")
    parts = [np.asarray(obs[key], np.float32) for key in keys]
    try:
        return np.concatenate(parts, -1)
    except ValueError:
        shapes = ", ".join(str(part.shape) for part in parts)
        raise ValueError(
            f"{', '.join(keys)} must be vectors, or batches of as many; got shapes {shapes}"
        ) from None


class UnitScale(NamedTuple):
    """Range of actions in float32: center + half * u for u in [-1, 1], and (a - center) * inverse back."""

    center: NDArray[np.float32]
    half: NDArray[np.float32]
    inverse: NDArray[np.float32]  # 0 where the range has no width


def unit_scale(low: ArrayLike, high: ArrayLike) -> UnitScale:
    """Scale between [low, high] and [-1, 1], for logs and policies alike.

    A narrow range far from 0 may have no midpoint in float32. Its half then reaches to the farther
    bound, so that every action of the range lies in [-1, 1] and comes back to the bit.
    """
    bottom, top = np.asarray(low, np.float32), np.asarray(high, np.float32)
    two = np.float32(2)
    center, half = (bottom + top) / two, (top - bottom) / two
    error = np.abs((bottom.astype(np.float64) + top) / 2 - center)
    half = np.where(error > 1e-6 * half, np.maximum(top - center, center - bottom), half)
    with np.errstate(over="ignore"):  # of a range that float32 can hardly hold
        inverse = np.divide(1, half, where=half > 0, out=np.zeros_like(half))
    return UnitScale(center, half, inverse)


@dataclass(frozen=True)
class ProblemSpec:
    """Flat observations in, one action out.

    A checkpoint carries it, so that loading a policy never needs an environment.
    """

    obs_dim: int
    action_kind: Literal["continuous", "discrete"]
    action_dim: int  # width of a continuous action, number of choices of a discrete one
    action_low: tuple[float, ...] = ()  # environment units; empty for discrete actions
    action_high: tuple[float, ...] = ()
    action_start: int = 0  # the first choice of a discrete action
    goal_dim: int = 0  # width of the desired goal in an observation
    sees_achieved_goal: bool = True  # goal observations end with the achieved goal

    @property
    def action_width(self) -> int:
        """Columns that one action takes in a table of transitions."""
        return self.action_dim if self.action_kind == "continuous" else 1

    def seen_by(self, policy: ProblemSpec) -> ProblemSpec:
        """Return this problem with goal observations laid out as the policy takes them."""
        change = (policy.sees_achieved_goal - self.sees_achieved_goal) * self.goal_dim
        return replace(
            self, obs_dim=self.obs_dim + change, sees_achieved_goal=policy.sees_achieved_goal
        )

    def misfits(self, policy: ProblemSpec) -> list[str]:
        """Say why a policy of another spec cannot act in this problem; bounds may differ."""
        seen, reasons = self.seen_by(policy), []
        if seen.obs_dim != policy.obs_dim:
            reasons.append(
                f"its observations have {seen.obs_dim} numbers, those of the policy {policy.obs_dim}"
            )
        if (seen.action_kind, seen.action_dim) != (policy.action_kind, policy.action_dim):
            reasons.append(
                f"it takes {seen.action_words}, but the policy gives {policy.action_words}"
            )
        elif seen.action_start != policy.action_start:
            reasons.append(
                f"its actions count from {seen.action_start}, those of the policy from "
                f"{policy.action_start}"
            )
        return reasons

    @property
    def action_words(self) -> str:
        if self.action_kind == "discrete":
            return f"one of {self.action_dim} discrete actions"
        return f"continuous actions ({self.action_dim},)"

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> ProblemSpec:
        """Read what `as_dict` gave; ValueError, TypeError or KeyError if it cannot be that.

        A spec of version 0.1 does not name the layout of goal observations.
        """
        bounds = {key: tuple(map(float, values[key])) for key in ("action_low", "action_high")}
        spec = cls(**{"sees_achieved_goal": False, **values, **bounds})
        width = spec.action_dim if spec.action_kind == "continuous" else 0
        sizes = (spec.obs_dim, spec.action_dim, spec.action_start, spec.goal_dim)
        if not all(type(size) is int for size in sizes) or spec.action_kind not in (
            "continuous",
            "discrete",
        ):
            raise ValueError("sizes must be whole numbers")
        if type(spec.sees_achieved_goal) is not bool:
            raise ValueError("sees_achieved_goal must be true or false")
        if (len(spec.action_low), len(spec.action_high)) != (width, width):
            raise ValueError("one bound is needed for every action")
        return spec

    def __str__(self) -> str:
        if self.action_kind == "discrete":
            return f"observations ({self.obs_dim},), {self.action_dim} discrete actions"
        return f"observations ({self.obs_dim},), actions ({self.action_dim},)"
