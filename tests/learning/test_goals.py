"""Is hindsight what makes sparse rewards learnable? Minutes, so not part of the default run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rl_training.api import algorithm

pytestmark = pytest.mark.slow


def score(name: str, tmp_path: Path, **overrides: Any) -> dict[str, float]:
    """Of the final policy, over 100 episodes."""
    managed = algorithm(name.split("/")[0]).from_config(
        name, seed=1, output_dir=str(tmp_path), eval_episodes=0, **overrides
    )
    managed.learn()
    return managed.evaluate(num_episodes=100)


def test_bits_are_learned_in_hindsight_only(tmp_path: Path) -> None:
    assert score("dqn/bitflip", tmp_path)["eval/success_rate"] >= 0.95
    assert score("dqn/bitflip", tmp_path, her_ratio=0.0)["eval/success_rate"] <= 0.2


@pytest.mark.parametrize("name", ["her/pointgoal", "sac/pointgoal"])
def test_a_point_finds_its_goal_and_stays(name: str, tmp_path: Path) -> None:
    found = score(name, tmp_path)
    assert found["eval/success_rate"] >= 0.95
    assert found["eval/return_mean"] >= -16  # -11 is the straight way; passing by is not enough


def test_an_arm_reaches(tmp_path: Path) -> None:
    pytest.importorskip("gymnasium_robotics")
    found = score("her/fetchreach", tmp_path)
    assert found["eval/success_rate"] >= 0.95
    assert found["eval/return_mean"] >= -2.5
