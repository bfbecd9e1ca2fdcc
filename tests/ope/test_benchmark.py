"""Parts of the off-policy evaluation benchmark that its numbers rest on."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from benchmarks.ope import Cell, Settings, cells_of, in_turns
from benchmarks.ope_page import page_text
from benchmarks.ope_sections import spearman
from benchmarks.ope_tabular import ACTIONS, GAMMA, STATES, Problem, as_policy


def test_true_values_of_the_tabular_problem_are_those_of_its_episodes() -> None:
    problem = Problem.draw()
    returns = []
    for seed in range(40):
        log = problem.log(seed)
        time = np.arange(len(log)) - np.repeat(log.episode_starts, log.episode_lengths)
        discounted = log.rewards.numpy() * GAMMA**time
        returns.append(np.add.reduceat(discounted, log.episode_starts))
    every = np.concatenate(returns)
    error = every.std() / len(every) ** 0.5
    assert every.mean() == pytest.approx(problem.value(problem.behaviour), abs=3 * error)


def test_a_policy_of_the_tabular_problem_draws_with_its_probabilities() -> None:
    probabilities = Problem.draw().policies()["far"]
    policy = as_policy(probabilities)
    given = policy.algorithm.choice_probabilities(torch.eye(STATES), explore=True)
    assert given.shape == (STATES, ACTIONS)
    assert np.allclose(given.detach().numpy(), probabilities, atol=1e-6)


def test_equal_values_share_their_rank() -> None:
    assert spearman([1, 2, 3, 4], [10, 20, 30, 40]) == pytest.approx(1)
    # ranks 1, 2.5, 2.5, 4 and 1, 2, 3, 4: covariance 4.5 over the root of 4.5 * 5
    assert spearman([1, 2, 2, 3], [1, 2, 3, 4]) == pytest.approx(4.5 / (4.5 * 5) ** 0.5)


def test_no_two_cells_of_a_turn_train_the_same_run_and_none_is_left_out() -> None:
    def training(cell: Cell) -> tuple[object, ...]:
        policy = cell.work.get("policy", {})
        keys = ("task", "algo", "seed", "shuffle")
        return (cell.part, cell.work.get("start"), *(policy.get(key) for key in keys))

    cells = cells_of(Settings())
    *begun, rest = in_turns(cells)
    assert sorted(cell.name for turn in (*begun, rest) for cell in turn) == sorted(
        cell.name for cell in cells
    )
    for turn in begun:
        assert len({training(cell) for cell in turn}) == len(turn)


def test_a_page_without_results_says_that_nothing_was_run() -> None:
    text = page_text({})
    assert text.count("Not run") == 5
