"""Advice about a log can be followed: the command that a message names does what it says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from rl_training.cli.main import main
from rl_training.data import load_transition_dataset
from tests.support.data import make_fields

QUICK = ["total_timesteps=5", "hidden_sizes=[8]", "output_dir=runs", "-q"]


@pytest.fixture(autouse=True)
def _in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    """Both outputs of a command, in one line."""
    capsys.readouterr()
    returned = main(list(words))
    captured = capsys.readouterr()
    assert returned == code, captured.err
    return " ".join((captured.out + captured.err).split())


def command(text: str, pattern: str) -> list[str]:
    """Words of the command in backticks that has this pattern in it."""
    [found] = [c for c in re.findall(r"`rl-training ([^`]*)`", text) if re.search(pattern, c)]
    return shlex.split(found)


def train(path: str, *words: str, config: str = "bc/pendulum", env: str = "null") -> list[str]:
    data = [f"env_id={env}", "dataset_kind=npz", f"dataset_path={path}"]
    return ["train", config, *data, *QUICK, *words]


def choices(first: int = 0, kind: type = np.int64) -> dict[str, np.ndarray]:
    fields = make_fields(obs_dim=4)
    fields["actions"] = (np.arange(400) % 2 + first).astype(kind)
    return fields


def test_a_discrete_log_for_a_continuous_algorithm(capsys: pytest.CaptureFixture[str]) -> None:
    np.savez("a log.npz", **choices())
    for env in ("null", "Pendulum-v1"):  # no environment, and that of another log
        error = run(capsys, *train("a log.npz", config="td3_bc/pendulum", env=env), code=2)
        assert "algorithms for them: awac, bc, cql, crr, iql, such as" in error
        run(capsys, *command(error, "^train"), *QUICK)


def test_choices_numbered_from_one(capsys: pytest.CaptureFixture[str]) -> None:
    np.savez("log.npz", **choices(first=1))
    error = run(capsys, *train("log.npz"), code=2)
    assert "actions go from 1 to 2, and choices count from 0" in error
    run(capsys, *command(error, "--first-action 1"))
    assert "actions are renumbered: 0 was 1" in run(capsys, "data", "info", "OUT.npz")
    run(capsys, "data", "check", "OUT.npz")
    run(capsys, *train("OUT.npz"))
    run(capsys, "data", "convert", "log.npz", "three.hdf5", "--first-action", "0")
    assert load_transition_dataset("hdf5", "three.hdf5").num_actions == 3
    run(capsys, "data", "check", "three.hdf5")


def test_choices_numbered_from_one_for_an_environment(capsys: pytest.CaptureFixture[str]) -> None:
    np.savez("log.npz", **choices(first=1))
    error = run(capsys, *train("log.npz", env="CartPole-v1"), code=2)
    assert "action 2 is not one of 2 choices" in error
    run(capsys, *command(error, "--first-action 1"))
    run(capsys, *train("OUT.npz", "eval_episodes=1", env="CartPole-v1"))


def test_choices_stored_as_floats(capsys: pytest.CaptureFixture[str]) -> None:
    np.savez("log.npz", **choices(first=1, kind=np.float32))
    error = run(capsys, *train("log.npz"), code=2)
    assert "all whole numbers stored as floats" in error
    run(capsys, *train("log.npz", "action_low=1", "action_high=2"))
    run(capsys, *command(error, "--discrete-actions"))
    assert load_transition_dataset("npz", "OUT.npz").actions.tolist()[:3] == [0, 1, 0]
    run(capsys, *train("OUT.npz"))


def test_whole_floats_are_choices_where_the_environment_has_choices(
    capsys: pytest.CaptureFixture[str],
) -> None:
    np.savez("log.npz", **choices(kind=np.float32))
    words = train("log.npz", "eval_episodes=1", env="CartPole-v1")
    words.remove("-q")
    assert "whole numbers stored as floats, read as choices" in run(capsys, *words)


def test_choices_in_one_hot_form(capsys: pytest.CaptureFixture[str]) -> None:
    fields = choices()
    np.savez("log.npz", **{**fields, "actions": np.eye(2, dtype=np.float32)[fields["actions"]]})
    error = run(capsys, *train("log.npz"), code=2)
    run(capsys, *command(error, "--discrete-actions"))
    np.testing.assert_array_equal(
        load_transition_dataset("npz", "OUT.npz").actions.flatten(), fields["actions"]
    )
    run(capsys, *train("OUT.npz"))
    run(capsys, *train("log.npz", "action_low=0", "action_high=1"))  # continuous after all


def test_labels_are_refused_before_a_network_has_an_output_for_each(
    capsys: pytest.CaptureFixture[str],
) -> None:
    fields = choices()
    np.savez("log.npz", **{**fields, "actions": fields["actions"] * 1_000_000})
    error = run(capsys, *train("log.npz"), code=2)
    assert "only 2 of these choices are taken" in error
    assert "np.unique(actions, return_inverse=True)" in error


@pytest.mark.parametrize(
    ("field", "values", "words"),
    [
        ("rewards", np.zeros(400), "every reward is 0: log the reward of the task"),
        (
            "rewards",
            np.arange(400) * 1e4,
            "which makes value errors and gradients huge: set reward_scale: 1e-06",
        ),
        ("obs", np.ones((400, 4)), "observation columns 0, 1, 2 and 1 more never change"),
        ("actions", np.full((400, 1), 0.5), "action column 0 is always 0.5"),
    ],
)
def test_training_warns_of_data_that_nothing_can_be_learned_from(
    field: str, values: np.ndarray, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez("log.npz", **{**make_fields(obs_dim=4), field: values})
    assert words in run(capsys, *train("log.npz", "reward_scale=1", config="td3_bc/pendulum"))
    if field == "rewards":  # which cloning does not learn from
        assert words not in run(capsys, *train("log.npz"))
        scaled = run(capsys, *train("log.npz", config="td3_bc/pendulum"))  # by 0.1
        assert ("change reward_scale" in scaled) == ("reward_scale" in words)


def test_flags_that_are_wrong_are_warned_of_by_training(capsys: pytest.CaptureFixture[str]) -> None:
    fields = make_fields(obs_dim=4)
    late = {name: np.roll(fields[name], 1) for name in ("terminations", "truncations")}
    np.savez("log.npz", **{**fields, **late})
    assert "are marked one row too late" in run(capsys, *train("log.npz"))
    fields["obs"] = np.linspace(0, 1, 401 * 4, dtype=np.float32).reshape(401, 4)[:-1]
    fields["next_obs"] = np.append(fields["obs"][1:], fields["obs"][-1:] + 1, axis=0)
    fields["terminations"], fields["truncations"] = np.ones(400, bool), np.zeros(400, bool)
    np.savez("log.npz", **fields)
    assert "after 399 rows that terminate" in run(capsys, *train("log.npz"))


def test_bounds_of_a_narrow_range_are_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    fields = make_fields(obs_dim=4)
    fields["actions"] = np.linspace(999.95, 1000.05, 400, dtype=np.float32)[:, None]
    np.savez("log.npz", **fields)
    assert "low [999.95], high [1000.05]" in run(capsys, *train("log.npz")[:-1])


def test_a_shifted_log_is_warned_of_and_repaired(capsys: pytest.CaptureFixture[str]) -> None:
    fields = make_fields()
    fields["next_obs"][:-1] = fields["obs"][1:]
    fields["terminations"][:], fields["truncations"] = False, np.arange(1, 401) % 20 == 0
    np.savez("log.npz", **fields)
    warning = run(capsys, *train("log.npz"))
    assert "19 last rows of episodes have a next observation that is not their own" in warning
    assert "shifted-next-obs" in run(capsys, *command(warning, "data check"), code=1)
    note = run(capsys, *command(warning, "--repair"))
    assert "dropped 19 of 400 rows, the last ones of episodes 0, 1, 2 and 16 more" in note
    assert "OUT.npz: ok" in run(capsys, "data", "check", "OUT.npz")
    assert "next observation" not in run(capsys, *train("OUT.npz"))
    again = run(capsys, "data", "convert", "OUT.npz", "same.npz", "--repair")
    assert "nothing to repair" in again


def test_derived_ends_point_to_the_check(capsys: pytest.CaptureFixture[str]) -> None:
    fields = make_fields()
    del fields["truncations"]
    np.savez("log.npz", **fields)
    words = train("log.npz")
    words.remove("-q")
    note = run(capsys, *words)
    run(capsys, *command(note, "data check log.npz"), code=0)


@pytest.mark.parametrize("scale", ["0", "-0.0", "1e-60"])
def test_a_reward_scale_of_zero_is_refused(scale: str, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez("log.npz", **make_fields())
    error = run(capsys, "data", "convert", "log.npz", "out.npz", "--reward-scale", scale, code=2)
    assert "--reward-scale must not be 0" in error
    assert not Path("out.npz").exists()


def test_a_missing_minari_dataset_names_a_command_that_fetches_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", "minari")
    error = run(capsys, "data", "check", "minari:D4RL/door/human-v2", code=2)
    assert "`minari download D4RL/door/human-v2`" in error
