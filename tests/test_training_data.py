"""From the dataset options to the batches that a learner sees."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rl_training.data import TransitionDataset
from rl_training.runtime import build_offline_dataset, train
from rl_training.runtime.checkpoints.manifest import sealed
from rl_training.runtime.commands import open_run
from rl_training.runtime.prepare import prepare
from rl_training.runtime.run import Run
from tests.support.data import make_fields
from tests.support.runs import tensors_of


def prepared(config: Any) -> Any:
    return prepare(config, build_offline_dataset(config))


def test_rewards_are_normalised_then_scaled_shifted_and_clipped(small_config: Any) -> None:
    options = {"normalize_rewards": True, "reward_scale": 2.0, "reward_shift": -1.0,
               "reward_clip_max": 5.0}  # fmt: skip
    config = small_config(algo_kwargs=options)
    raw = build_offline_dataset(config)
    returns = raw.episode_returns
    scale = 1000 / (returns.max() - returns.min())
    data = prepared(config)
    assert data.reward_scale == pytest.approx(scale)
    expected = np.minimum(raw.rewards.numpy() * scale * 2 - 1, 5)
    np.testing.assert_allclose(
        data.dataset.learning.rewards.numpy(), expected, rtol=1e-4, atol=1e-4
    )


def test_observations_are_normalised_by_default_where_the_paper_does(small_config: Any) -> None:
    data = prepared(small_config())
    assert data.normalizer is not None
    assert data.dataset.learning.obs.mean(0).abs().max() < 1e-5
    std = data.dataset.raw.obs.double().std(0, correction=0) + 1e-3
    torch.testing.assert_close(data.normalizer.std, std.float())
    assert prepared(small_config(algo_kwargs={"normalize_observations": False})).normalizer is None


def test_actions_are_learned_in_the_unit_box(small_config: Any) -> None:
    data = prepared(small_config())
    assert data.dataset.learning.actions.amin(0).tolist() == pytest.approx([-1, -1])
    assert data.dataset.learning.actions.amax(0).tolist() == pytest.approx([1, 1])
    wider = prepared(small_config(algo_kwargs={"action_low": -2, "action_high": 2}))
    torch.testing.assert_close(wider.dataset.learning.actions, wider.dataset.raw.actions / 2)


def test_clipped_actions_end_at_the_bounds(small_config: Any) -> None:
    options = {"action_low": -0.5, "action_high": 0.5, "clip_actions": True}
    actions = prepared(small_config(algo_kwargs=options)).dataset.learning.actions
    assert actions.amin().item() == -1
    assert actions.amax().item() == 1


def test_constant_action_dimension_is_harmless(tmp_path: Path, small_config: Any) -> None:
    fields = make_fields()
    fields["actions"][:, 1] = 0.7
    np.savez(tmp_path / "log.npz", **fields)
    result = train(small_config())
    from rl_training import TD3BC

    action = TD3BC.load(result.run_dir).predict(np.zeros(3))
    assert action[1] == pytest.approx(0.7)


def test_top_fraction_keeps_the_best_episodes(small_config: Any) -> None:
    everything = build_offline_dataset(small_config("bc"))
    best = build_offline_dataset(small_config("bc", algo_kwargs={"top_fraction": 0.1}))
    expected = np.sort(everything.episode_returns)[-2:]
    np.testing.assert_allclose(np.sort(best.episode_returns), expected, rtol=1e-6)


def test_mixture_is_sampled_by_weight(tmp_path: Path, small_config: Any) -> None:
    parts = []
    for name, reward, rows in (("one", 1.0, 40), ("two", 2.0, 400)):
        fields = {**make_fields(rows), "rewards": np.full(rows, reward, np.float32)}
        np.savez(tmp_path / f"{name}.npz", **fields)
        parts.append({"kind": "npz", "path": str(tmp_path / f"{name}.npz"), "weight": 3.0 - reward})
    config = small_config(
        algo_kwargs={"dataset_kind": None, "dataset_path": None, "dataset_mix": parts}
    )
    batch = build_offline_dataset(config).sample(20_000, generator=torch.Generator().manual_seed(0))
    assert (batch.rewards == 1).float().mean().item() == pytest.approx(2 / 3, abs=0.02)
    result = train(config)
    assert result.stop_reason == "total_timesteps"


def test_memory_mapped_training_is_the_same_training(small_config: Any) -> None:
    in_memory = train(small_config())
    mapped = train(small_config(algo_kwargs={"dataset_in_memory": False}))
    expected, found = tensors_of(in_memory.checkpoint_path), tensors_of(mapped.checkpoint_path)
    assert all(torch.equal(expected[name], found[name]) for name in expected)


def test_reward_wrappers_shape_logged_rewards_before_all_else(pendulum_config: Any) -> None:
    wrappers = {"reward": {"scale": 0.1, "shift": 1.0, "clip_min": -0.5}}
    plain = build_offline_dataset(pendulum_config())
    config = pendulum_config(
        env_kwargs={"max_episode_steps": 30, "wrappers": wrappers},
        algo_kwargs={"reward_scale": 3.0, "normalize_rewards": True},
    )
    assert torch.equal(build_offline_dataset(config).rewards, plain.rewards)
    shaped = (0.1 * plain.rewards.double() + 1).clamp_min(-0.5)
    data = prepared(config)
    expected = (3 * data.reward_scale * shaped).float()
    torch.testing.assert_close(data.dataset.learning.rewards, expected, rtol=1e-5, atol=1e-5)
    returns = shaped.reshape(-1, 30).sum(1)
    assert data.reward_scale == pytest.approx(1000 / float(returns.max() - returns.min()), rel=1e-3)
    assert isinstance(plain, TransitionDataset)
    assert plain.next_actions is not None


def test_run_begun_when_wrappers_left_logs_alone_goes_on_that_way(
    pendulum_config: Any, log_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fields = make_fields(action_dim=1)
    np.savez(log_file, **fields)
    options = {"dataset_kind": "npz", "dataset_path": str(log_file), "dataset_size": None}
    result = train(
        pendulum_config(
            env_kwargs={"wrappers": {"reward": {"scale": 0.1}}},
            algo_kwargs=options,
            eval_episodes=0,
        )
    )
    path = result.checkpoint_path / "manifest.json"
    manifest = json.loads(path.read_text())
    assert manifest["dataset"].pop("shaped") is True
    path.write_bytes(sealed(manifest))
    run = open_run(result.run_dir, total_timesteps=1_000)
    assert isinstance(run, Run)
    assert "train anew" in caplog.text
    assert run.data.dataset is not None
    assert np.array_equal(run.data.dataset.learning.rewards.numpy(), fields["rewards"])


def test_normalised_log_for_a_wider_environment_is_remarked_on(
    pendulum_config: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fields = make_fields(action_dim=1)
    fields["actions"][:2] = [[-0.99], [0.99]]
    np.savez(tmp_path / "log.npz", **fields)
    options = {
        "dataset_kind": "npz",
        "dataset_path": str(tmp_path / "log.npz"),
        "dataset_size": None,
    }
    prepared(pendulum_config(algo_kwargs=options))
    assert "--scale-actions" in caplog.text
