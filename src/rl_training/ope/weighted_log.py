"""Logged episodes with importance weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class WeightedLog:
    """Logged episodes with the log-ratios of policy and behaviour at each row.

    Episode i is the rows from `starts[i]`, `lengths[i]` of them. `log_ratios` is log pi(a|s) - log b(a|s), -inf where
    the policy never takes the logged action. `v_obs` and `q_logged`, needed by the doubly robust estimators, are
    the policy's values of observations and of logged actions. `v_next` is the value of next observations; only the
    last rows of cut episodes are read.
    """

    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    rewards: Floats
    terminated: NDArray[np.bool_]
    log_ratios: Floats
    gamma: float
    q_logged: Floats | None = None
    v_obs: Floats | None = None
    v_next: Floats | None = None

    def __post_init__(self) -> None:
        for name in ("starts", "lengths"):
            object.__setattr__(self, name, np.asarray(getattr(self, name), np.int64))
        object.__setattr__(self, "terminated", np.asarray(self.terminated, bool))
        rows = self.terminated.shape
        for name in ("rewards", "log_ratios", "q_logged", "v_obs", "v_next"):
            values = getattr(self, name)
            if values is None:
                continue
            values = np.asarray(values, np.float64)
            if values.shape != rows:
                raise ValueError(f"{name} has shape {values.shape}, but terminated has {rows}.")
            object.__setattr__(self, name, values)
        self._check_episodes()
        self._check_values()

    def _check_episodes(self) -> None:
        if not len(self.starts):
            raise ValueError("A log without episodes has no value to estimate.")
        if not 0 <= self.gamma <= 1:
            raise ValueError(f"gamma is {self.gamma}; it must be from 0 to 1.")
        ends = np.cumsum(self.lengths)
        if (self.lengths < 1).any() or ends[-1] != len(self.terminated):
            raise ValueError(
                f"Episodes have {ends[-1]} rows, the log has {len(self.terminated)}; every episode needs a row."
            )
        if not np.array_equal(self.starts, ends - self.lengths):
            raise ValueError(
                "Episodes must follow each other without gaps: starts are not the sums of lengths."
            )
        inside = self.terminated.copy()
        inside[self.last] = False
        if inside.any():
            raise ValueError(f"Row {inside.argmax()} is terminated, but its episode goes on.")
        if not self.terminated[self.last].all() and self.v_next is None:
            cut = int((~self.terminated[self.last]).sum())
            raise ValueError(
                f"{cut} of {len(self.starts)} episodes are cut, not terminated. Give v_next, the value of "
                "next observations: it stands for their rest."
            )

    def _check_values(self) -> None:
        for name in ("rewards", "q_logged", "v_obs"):
            values = getattr(self, name)
            if values is not None and not np.isfinite(values).all():
                raise ValueError(f"{name} is not finite in row {np.isfinite(values).argmin()}.")
        refused = np.isnan(self.log_ratios) | (self.log_ratios == np.inf)
        if refused.any():
            row = refused.argmax()
            raise ValueError(
                f"log_ratios is {self.log_ratios[row]} in row {row}: the behaviour must give every logged action a "
                "positive probability."
            )
        if not np.isfinite(self._rest()).all():
            raise ValueError("v_next is not finite in the last row of a cut episode.")

    @property
    def last(self) -> NDArray[np.int64]:
        """Last row of each episode."""
        return np.asarray(self.starts + self.lengths - 1)

    @property
    def time(self) -> NDArray[np.int64]:
        """Step of each row in its episode."""
        return np.arange(len(self.rewards)) - np.repeat(self.starts, self.lengths)

    def _rest(self) -> Floats:
        """Value of what follows each episode: 0 after a termination."""
        if self.v_next is None:
            return np.zeros(len(self.starts))
        return np.where(self.terminated[self.last], 0.0, self.v_next[self.last])

    def discounted_terms(self, *, td_errors: bool) -> Floats:
        """gamma^t times reward or TD error, the rest of cut episodes in their last row."""
        terms = self.rewards.copy()
        terms[self.last] += self.gamma * self._rest()
        if td_errors:
            if self.v_obs is None or self.q_logged is None:
                raise ValueError("Doubly robust estimators need v_obs and q_logged.")
            following = np.append(self.v_obs[1:], 0.0)
            following[self.last] = 0.0  # in the rest
            terms += self.gamma * following - self.q_logged
        discounted: Floats = terms * np.power(self.gamma, self.time, dtype=np.float64)
        return discounted

    def log_weights(self) -> Floats:
        """Log rho_t of each row: sums of log-ratios from the start of its episode."""
        never = np.isneginf(self.log_ratios)
        # an infinite term would make the differences of sums NaN
        sums = self._sums_within(np.where(never, 0.0, self.log_ratios))
        return np.where(self._sums_within(never.astype(np.float64)) > 0, -np.inf, sums)

    def _sums_within(self, values: Floats) -> Floats:
        sums = np.cumsum(values)
        before = np.append(0.0, sums)[self.starts]
        result: Floats = sums - np.repeat(before, self.lengths)
        return result
