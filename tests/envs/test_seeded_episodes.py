"""Seeded episodes: what collecting gets from environments that bend their interface."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from tests.support.envs import length_of

from rl_training.envs import make_vector_env


@pytest.mark.filterwarnings("ignore::UserWarning")  # gymnasium notices the shared array, too
@pytest.mark.parametrize("asynchronous", [False, True])
def test_the_last_observation_survives_a_reset_that_overwrites_it(asynchronous: bool) -> None:
    envs: Any = make_vector_env(
        "tests.support.envs:OverwritingEnv",
        2,
        asynchronous=asynchronous,
        autoreset_mode=AutoresetMode.SAME_STEP,
        episode_seed=0,
    )
    try:
        identities = envs.reset()[0][:, 0].astype(int)
        for _ in range(max(map(length_of, identities))):
            after, _, terminated, truncated, infos = envs.step(np.zeros((2, 1), np.float32))
            for index in np.flatnonzero(terminated | truncated):
                last = [identities[index], length_of(identities[index])]
                assert infos["final_obs"][index].tolist() == last
                identities[index] = int(after[index, 0])
    finally:
        envs.close()
