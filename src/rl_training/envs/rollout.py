"""Playing an environment with a policy: the one loop behind collected data and evaluation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any, NamedTuple

import gymnasium as gym

from rl_training.envs.step_checks import check_shape, reward_number

Act = Callable[[Any], Any]  # observation in, action in the environment's units out


class Transition(NamedTuple):
    """One step; an episode is over after it if `terminated` or `truncated`."""

    obs: Any
    action: Any
    reward: float
    next_obs: Any
    terminated: bool
    truncated: bool
    info: dict[str, Any]

    @property
    def ends_episode(self) -> bool:
        return self.terminated or self.truncated


def roll_out(
    env: gym.Env[Any, Any],
    act: Act,
    *,
    seed: int,
    episodes: int | None = None,
    steps: int | None = None,
) -> Iterator[Transition]:
    """Play until `episodes` have ended or `steps` were made, whichever comes first.

    The first reset is seeded, and so is the action space, from which environments and random
    policies may draw; later episodes go on with the environment's own generator.
    """
    env.action_space.seed(seed)
    shape = env.observation_space.shape
    first, _ = env.reset(seed=seed)
    obs = _checked(first, shape, "reset")
    ended = made = 0
    while ended != episodes and made != steps:
        action = act(obs)
        after, reward, terminated, truncated, info = env.step(action)
        next_obs = _checked(after, shape, "step")
        made += 1
        yield Transition(obs, action, reward_number(reward), next_obs, terminated, truncated, info)
        obs = next_obs
        if terminated or truncated:
            ended += 1
            if ended != episodes and made != steps:
                first, _ = env.reset()
                obs = _checked(first, shape, "reset")


def _checked(obs: Any, shape: tuple[int, ...] | None, method: str) -> Any:
    """Copy an observation, because the environment may write the next one into the same array."""
    check_shape(obs, shape, method)
    return deepcopy(obs)
