"""Small tabular problem whose true values are known: logs of it, policies in it, and coverage of intervals."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rl_training.algorithms.registry import get_algorithm_spec
from rl_training.data import TransitionDataset
from rl_training.runtime.policy import Policy
from rl_training.spec import ProblemSpec

Array = NDArray[np.float64]
STATES, ACTIONS, GAMMA = 6, 3, 0.95
EPISODES, LIMIT = 100, 40  # of a log; episodes are cut at the limit
ENDING = 1 / 15  # mean share of steps that terminate


@dataclass(frozen=True)
class Problem:
    """Tabular problem with stochastic transitions, rewards and termination."""

    start: Array  # (states,)
    transitions: Array  # (states, actions, states)
    endings: Array  # (states, actions): probability that an episode terminates
    rewards: Array  # (states, actions): means, with a deviation of 1

    @classmethod
    def draw(cls, seed: int = 0) -> Problem:
        rng = np.random.default_rng(seed)
        return cls(
            rng.dirichlet(np.ones(STATES)),
            rng.dirichlet(np.full(STATES, 0.5), (STATES, ACTIONS)),
            rng.uniform(0, 2 * ENDING, (STATES, ACTIONS)),
            rng.normal(0, 1, (STATES, ACTIONS)),
        )

    def action_values(self, policy: Array) -> Array:
        """Solve Bellman's equation of a policy (states, actions)."""
        going_on = (1 - self.endings)[..., None] * self.transitions
        moves = GAMMA * np.einsum("sat,sa->st", going_on, policy)
        values = np.linalg.solve(np.eye(STATES) - moves, (policy * self.rewards).sum(1))
        result: Array = self.rewards + GAMMA * going_on @ values
        return result

    def value(self, policy: Array) -> float:
        return float(self.start @ (policy * self.action_values(policy)).sum(1))

    @cached_property
    def behaviour(self) -> Array:
        """Return a policy that takes every action, with preferences of its own."""
        return _softmax(np.random.default_rng(1).normal(0, 0.7, (STATES, ACTIONS)))

    def policies(self) -> dict[str, Array]:
        """Return one policy near the behaviour, a little better, and one far from it."""
        values = self.action_values(self.behaviour)
        advantage = values - (self.behaviour * values).sum(1, keepdims=True)
        near = _softmax(np.log(self.behaviour) + 0.15 * advantage)
        far = _softmax(-3.0 * np.log(self.behaviour))  # what the behaviour seldom does
        return {"near": near, "far": far}

    def log(self, seed: int) -> TransitionDataset:
        """Draw episodes of the behaviour, all at the same time."""
        rng = np.random.default_rng(seed)
        state = rng.choice(STATES, EPISODES, p=self.start)
        live, columns = np.ones(EPISODES, bool), []
        for step in range(LIMIT):
            action = _choose(self.behaviour[state], rng)
            reward = self.rewards[state, action] + rng.normal(0, 1, EPISODES)
            following = _choose(self.transitions[state, action], rng)
            ended = rng.random(EPISODES) < self.endings[state, action]
            cut = ~ended & (step == LIMIT - 1)
            chosen = np.log(self.behaviour[state, action])
            columns.append((live, state, action, reward, following, ended, cut, chosen))
            live, state = live & ~ended, following
        lived, states, actions, rewards, nexts, ends, cuts, log_probs = (
            np.stack(column, 1) for column in zip(*columns, strict=True)
        )  # (episodes, steps)
        seen = np.eye(STATES, dtype=np.float32)
        fields: dict[str, Any] = {
            "observations": seen[states[lived]],
            "actions": actions[lived],
            "rewards": rewards[lived].astype(np.float32),
            "next_observations": seen[nexts[lived]],
            "terminals": ends[lived],
            "timeouts": cuts[lived],
            "behavior_log_probs": log_probs[lived].astype(np.float32),
        }
        return TransitionDataset.from_dict(fields)


def as_policy(probabilities: Array) -> Policy:
    """Put probabilities (states, actions) into a discrete BC actor without hidden layers."""
    kind = get_algorithm_spec("bc")
    learner = kind.algorithm(ProblemSpec(STATES, "discrete", ACTIONS), kind.config(hidden_sizes=()))
    (weight, bias) = learner.actor.parameters()
    with torch.no_grad():
        weight.copy_(torch.from_numpy(np.log(probabilities)).T)
        bias.zero_()
    return Policy(learner)


def _softmax(logits: Array) -> Array:
    powers = np.exp(logits - logits.max(1, keepdims=True))
    result: Array = powers / powers.sum(1, keepdims=True)
    return result


def _choose(probabilities: Array, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw one choice per row."""
    drawn = rng.random((len(probabilities), 1))
    chosen: NDArray[np.int64] = (drawn > probabilities.cumsum(1)).sum(1)
    return np.minimum(chosen, probabilities.shape[1] - 1)
