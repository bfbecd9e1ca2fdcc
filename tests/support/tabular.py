"""A tabular problem with a value known by dynamic programming, and logs of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rl_training.ope.importance import WeightedLog

Floats = NDArray[np.float64]
STATES, ACTIONS = 5, 2


@dataclass(frozen=True)
class Tabular:
    """Transitions, mean rewards and chance of termination by state and action; uniform initial states."""

    transitions: Floats
    rewards: Floats
    termination: Floats
    behaviour: Floats
    gamma: float = 0.95

    @staticmethod
    def random(seed: int = 0) -> Tabular:
        rng = np.random.default_rng(seed)
        return Tabular(
            transitions=rng.dirichlet(np.ones(STATES), size=(STATES, ACTIONS)),
            rewards=rng.normal(size=(STATES, ACTIONS)),
            termination=rng.uniform(0.02, 0.1, size=(STATES, ACTIONS)),
            behaviour=rng.dirichlet(np.full(ACTIONS, 5.0), size=STATES),
        )

    def policy(self, distance: float) -> Floats:
        """Behaviour at distance 0, another policy at 1."""
        other = np.random.default_rng(1).dirichlet(np.ones(ACTIONS), size=STATES)
        mixed: Floats = (1 - distance) * self.behaviour + distance * other
        return mixed

    def values(self, policy: Floats) -> tuple[Floats, Floats]:
        """v and q of a policy, by solving the Bellman equation."""
        onward = self.gamma * np.einsum(
            "sa,sa,sat->st", policy, 1 - self.termination, self.transitions
        )
        v = np.linalg.solve(np.eye(STATES) - onward, (policy * self.rewards).sum(1))
        return v, self.rewards + self.gamma * (1 - self.termination) * (self.transitions @ v)

    def log(
        self, policy: Floats, rng: np.random.Generator, *, episodes: int = 100, horizon: int = 20
    ) -> WeightedLog:
        """Log of the behaviour, cut at `horizon`; q is wrong by noise, the value at the cut is right."""
        state = rng.integers(STATES, size=episodes)
        running = np.ones(episodes, bool)
        steps = []
        for _ in range(horizon):
            action = (rng.random(episodes) > self.behaviour[state, 0]).astype(int)
            reward = self.rewards[state, action] + 0.5 * rng.normal(size=episodes)
            ends = rng.random(episodes) < self.termination[state, action]
            drawn = rng.random((episodes, 1)) > self.transitions[state, action].cumsum(1)
            following = drawn.sum(1).clip(max=STATES - 1)
            steps.append((running, state, action, reward, ends, following))
            state, running = following, running & ~ends
        alive, *columns = (np.stack(column, axis=1) for column in zip(*steps, strict=True))
        s, a, r, terminated, following = (column[alive] for column in columns)
        v, q = self.values(policy)
        q = q + 0.5 * rng.normal(size=q.shape)
        lengths = alive.sum(1)
        return WeightedLog(
            starts=np.cumsum(lengths) - lengths,
            lengths=lengths,
            rewards=r,
            terminated=terminated,
            log_ratios=np.log(policy[s, a] / self.behaviour[s, a]),
            gamma=self.gamma,
            q_logged=q[s, a],
            v_obs=(policy * q).sum(1)[s],
            v_next=v[following],
        )
