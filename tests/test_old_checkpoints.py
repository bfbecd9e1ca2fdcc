"""Checkpoints that version 0.1.0 wrote still load, predict the same, and resume to the same end.

`fixtures/make_checkpoints.py` says how they were made and what is expected of them. Only the public
surface of the package is used here, so that nothing but the format ties the two together.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from rl_training import api
from rl_training.data import TransitionDataset, load_transition_dataset
from rl_training.runtime import predict_checkpoint, resume

# How far the end of a resumed run may be from that of the uninterrupted one; 0 and 0: not a bit.
# Losses are differentiated by rewritten programs since 0.2, which round otherwise than 0.1.0 did.
RESUMED = {"rtol": 1e-4, "atol": 1e-5}

FIXTURES = Path(__file__).parent / "fixtures"
CASES = sorted(path.name for path in (FIXTURES / "checkpoints").iterdir())
MEASURED = ("train/", "eval/", "rollout/return_mean")  # metrics that rounding may change


class Case:
    """One old run, and what is known of it."""

    def __init__(self, name: str) -> None:
        self.directory = FIXTURES / "checkpoints" / name
        self.run = self.directory / "run"
        self.facts: dict[str, Any] = json.loads((self.directory / "expected.json").read_text())
        with np.load(self.directory / "expected.npz") as saved:
            self.arrays = {key: saved[key] for key in saved.files}

    def under(self, prefix: str) -> dict[str, Any]:
        return {k: v for k, v in self.arrays.items() if k.startswith(prefix)}

    def dataset(self) -> TransitionDataset | None:
        """Its log, which is no longer where its config says."""
        log = self.facts["log"]
        return log and load_transition_dataset("npz", dataset_path=FIXTURES / "logs" / log)


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return Case(request.param)


def assert_close(found: Any, expected: Any, name: str) -> None:
    found, expected = np.asarray(found), np.asarray(expected)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape), name
    if expected.dtype.kind != "f" or not any(RESUMED.values()):
        np.testing.assert_array_equal(found, expected, err_msg=name)
    else:
        np.testing.assert_allclose(found, expected, **RESUMED, err_msg=name)


def networks_of(checkpoint: Path, prefix: str = "networks.") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path in checkpoint.glob("*.safetensors"):
        found |= load_file(path)
    return {key: value for key, value in found.items() if key.startswith(prefix)}


def assert_same_metrics(run_dir: Path, expected: list[dict[str, Any]]) -> None:
    rows = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    for row, wanted in zip(rows, expected, strict=True):
        assert [key for key in row if key in wanted] == list(wanted)  # new metrics may have come
        for key, value in wanted.items():
            if key.startswith(MEASURED):
                assert_close(row[key], value, f"{key} at step {wanted['step']}")
            else:
                assert row[key] == value, f"{key} at step {wanted['step']}"


def test_there_are_cases_of_every_regime() -> None:
    assert {"td3_bc", "cql_discrete", "sac", "dqn_prioritized", "rlpd", "her", "cal_ql"} <= {*CASES}


def assert_same_actions(found: Any, expected: np.ndarray[Any, Any]) -> None:
    """Compare to the last digit or two of float32: another processor rounds products otherwise."""
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


def test_predicts_the_same_actions(case: Case) -> None:
    obs, expected = case.arrays["obs"], case.arrays
    policy = api.algorithm(case.facts["algo"]).load(case.run)
    assert_same_actions(policy.predict(obs), expected["actions"])
    single = np.array([policy.predict(row) for row in obs])
    assert_same_actions(single, expected["single_actions"])
    drawn = policy.predict(obs, deterministic=False)
    assert_same_actions(drawn, expected["drawn_actions"])
    again = predict_checkpoint(case.run / "checkpoints" / "last", obs)
    assert_same_actions(again, expected["actions"])


def test_a_policy_that_sees_no_achieved_goals_acts_where_there_are_some(tmp_path: Path) -> None:
    """Goal observations have had achieved goals at their end since 0.2."""
    case = Case("her")
    policy = api.HER.load(case.run)
    obs = case.arrays["obs"]
    parts = {"observation": obs[:, :2], "desired_goal": obs[:, 2:], "achieved_goal": obs[:, :2]}
    assert_same_actions(policy.predict(parts), case.arrays["actions"])
    assert policy.evaluate(1)["eval/length_mean"] > 0
    api.collect_dataset(tmp_path / "log.npz", checkpoint=case.run, steps=20)
    log = load_transition_dataset("npz", dataset_path=tmp_path / "log.npz")
    assert log.obs_dim == 6  # what the environment gives
    assert_same_actions(policy.predict(log.obs[:, :4].numpy()), log.actions.numpy())
    api.export_replay(case.run, tmp_path / "replay.npz")
    replay = load_transition_dataset("npz", dataset_path=tmp_path / "replay.npz")
    assert replay.obs_dim == 4  # what was stored


def test_resumes_to_the_end_of_the_uninterrupted_run(case: Case, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(case.run, copy, symlinks=True)
    before = networks_of(copy / "checkpoints" / "last")
    total = case.facts["total_timesteps"]
    result = resume(copy, total_timesteps=total, dataset=case.dataset())

    assert (result.run_dir, result.stop_reason) == (copy, "total_timesteps")
    assert result.checkpoint_path.name == case.facts["checkpoint"]
    found, expected = networks_of(result.checkpoint_path), case.under("networks.")
    assert found.keys() == expected.keys() == before.keys()
    assert any(not np.array_equal(before[key], found[key]) for key in found)  # it has learned
    for key, value in expected.items():
        assert_close(found[key], value, key)
    with np.load(copy / "evaluations.npz") as scores:
        assert {f"evaluations.{key}" for key in scores.files} == {*case.under("evaluations.")}
        for key in scores.files:
            assert_close(scores[key], case.arrays[f"evaluations.{key}"], key)
    assert_same_metrics(copy, case.facts["metrics"])


def test_a_resume_keeps_the_normalisation_of_the_run(case: Case, tmp_path: Path) -> None:
    """Defaults have changed since: a run without a normaliser must not get one, nor lose its own."""
    copy = tmp_path / "run"
    shutil.copytree(case.run, copy, symlinks=True)
    manifest = json.loads((copy / "checkpoints" / "last" / "manifest.json").read_text())
    before = networks_of(copy / "checkpoints" / "last", "normalizer.")
    steps = manifest["config"]["total_timesteps"] + 1
    result = resume(copy, total_timesteps=steps, dataset=case.dataset())
    after = networks_of(result.checkpoint_path, "normalizer.")
    assert before.keys() == after.keys()
    assert all((before[key] == after[key]).all() for key in before)
    resumed = json.loads((result.checkpoint_path / "manifest.json").read_text())
    assert resumed["reward_scale"] == manifest["reward_scale"]
