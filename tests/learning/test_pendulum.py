"""Does it learn? Minutes, so not part of the default run: `make slow`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.support.faults import Fault, ascends, learns_nothing, other_rows, sees

from rl_training.algorithms import get_algorithm_spec
from rl_training.api import algorithm
from rl_training.data import load_transition_dataset

pytestmark = pytest.mark.slow
SEEDS = (1, 2, 3)


def scores(
    name: str, tmp_path: Path, seeds: tuple[int, ...] = SEEDS, **overrides: Any
) -> np.ndarray[Any, Any]:
    """Final mean return over 50 episodes, for each seed."""
    found = []
    for seed in seeds:
        managed = algorithm(name.split("/")[0]).from_config(
            name, seed=seed, output_dir=str(tmp_path), eval_episodes=0, **overrides
        )
        managed.learn()
        found.append(managed.evaluate(num_episodes=50)["eval/return_mean"])
    return np.array(found)


def test_mixed_data_td3_bc_beats_cloning_beats_the_data(tmp_path: Path) -> None:
    behaviour = load_transition_dataset(
        "builtin", dataset_id="pendulum/mixed-v0"
    ).episode_returns.mean()
    cloned, best_cloned = scores("bc/pendulum", tmp_path), scores("bc/pendulum-top10", tmp_path)
    learned = scores("td3_bc/pendulum", tmp_path)
    assert learned.min() > cloned.max()
    assert learned.min() > behaviour
    assert cloned.mean() > behaviour
    assert best_cloned.mean() > cloned.mean()
    assert learned.mean() > -300


def test_narrow_data_only_the_behaviour_term_helps(tmp_path: Path) -> None:
    """The negative control: with a Q term a thousand times too strong the policy collapses."""
    narrow = {"dataset_id": "pendulum/expert-v0"}
    cloned = scores("bc/pendulum", tmp_path, **narrow)
    regularised = scores("td3_bc/pendulum", tmp_path, bc_alpha=0.1, **narrow)
    unregularised = scores("td3_bc/pendulum", tmp_path, bc_alpha=1e4, **narrow)
    assert cloned.mean() > -200
    assert regularised.mean() > cloned.mean() - 60
    assert unregularised.mean() < regularised.mean() - 150


@pytest.mark.parametrize(
    ("fault", "measured"),
    [
        (learns_nothing, -1240),
        (ascends("critic"), -1130),
        (sees(actions=other_rows), -1115),
        (sees(rewards=torch.neg), -844),
    ],
    ids=["nothing learned", "critics ascend", "actions of other rows", "rewards negated"],
)
def test_a_broken_td3_bc_does_not_pass(
    fault: Fault, measured: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gate above is -300; `measured` is seed 1 over 20 episodes, where the sound one had -184."""
    options = fault(get_algorithm_spec("td3_bc").algorithm, monkeypatch)
    assert scores("td3_bc/pendulum", tmp_path, (1,), **options) < (measured - 300) / 2
