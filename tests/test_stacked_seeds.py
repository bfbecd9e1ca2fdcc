"""Seeds that are trained side by side leave the runs behind that they would leave alone."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from rl_training.algorithms import Algorithm
from rl_training.algorithms.bc import BC, BCConfig
from rl_training.cli.main import main
from rl_training.config import ConfigError, RunError
from rl_training.data import TransitionDataset
from rl_training.runtime import (
    Callback,
    TrainConfig,
    TrainerState,
    evaluate_checkpoint,
    predict_checkpoint,
    resume,
    train,
    train_stacked,
)
from rl_training.runtime.stackable import refuse_unstackable
from tests.algorithms.test_contract import SPECS
from tests.conftest import make_fields
from tests.test_resume import KillAt, Killed, metrics_of, tensors_of

SEEDS = (3, 1, 2)
CONTROLS = {
    "learning_rate_schedule": {"actor": "cosine"},
    "warmup_steps": 9,
    "normalize_observations": True,
    "reward_scale": 0.1,
}


class At(Callback):
    """Does something at an update of one seed."""

    def __init__(self, update: int, act: Callable[[TrainerState], None]) -> None:
        self.update, self.act = update, act

    def on_update_end(self, state: TrainerState, terms: Any) -> None:
        if state.update_count == self.update:
            self.act(state)


def only(seed: int, *callbacks: Callback) -> Callable[[TrainConfig], Iterable[Callback]]:
    return lambda config: callbacks if config.seed == seed else ()


def assert_close_runs(found: Path, expected: Path) -> None:
    """The same entries, and numbers that differ by rounding at most."""
    files = [sorted(str(path.relative_to(run)) for path in run.rglob("*") if "tfevents" not in path.name)
             for run in (found, expected)]  # fmt: skip
    assert files[0] == files[1]
    configs = [yaml.safe_load((run / "config.yaml").read_text()) for run in (found, expected)]
    assert configs[0] == configs[1]
    tensors, others = (tensors_of(run / "checkpoints/last") for run in (found, expected))
    assert tensors.keys() == others.keys()
    for name, value in others.items():
        if name.startswith("rng"):
            assert torch.equal(tensors[name], value)
        else:
            torch.testing.assert_close(tensors[name], value, rtol=1e-5, atol=1e-6)
    rows, other_rows = metrics_of(found), metrics_of(expected)
    assert [list(row) for row in rows] == [list(row) for row in other_rows]
    for row, other in zip(rows, other_rows, strict=True):
        assert row == pytest.approx(other, rel=1e-5, abs=1e-5)
    with np.load(found / "evaluations.npz") as a, np.load(expected / "evaluations.npz") as b:
        for key in b.files:
            np.testing.assert_allclose(a[key], b[key], rtol=1e-4)


@pytest.mark.parametrize("name", ["td3_bc", "cql", "rebrac"])
def test_stacked_runs_are_those_of_each_seed(name: str, pendulum_config: Any) -> None:
    config = pendulum_config(name, algo_kwargs=CONTROLS)  # random data, which the seed draws
    results = train_stacked(config, SEEDS)
    for seed, found in zip(SEEDS, results, strict=True):
        expected = train(config.replace(seed=seed))
        assert f"seed{seed}" in found.run_dir.name
        metadata = json.loads((found.run_dir / "metadata.json").read_text())
        assert metadata["stacked_seeds"] == list(SEEDS)
        assert found.stop_reason == expected.stop_reason == "total_timesteps"
        assert_close_runs(found.run_dir, expected.run_dir)


def test_each_run_of_a_stack_can_be_used_alone(small_config: Any) -> None:
    config = small_config()  # one log for all
    results = train_stacked(config, (1, 2))
    for result in results:
        assert predict_checkpoint(result.run_dir, np.zeros(3)).shape == (2,)
        longer = resume(result.run_dir, total_timesteps=60)
        assert longer.run_dir == result.run_dir
        whole = train(config.replace(seed=1 if result is results[0] else 2, total_timesteps=60))
        found, expected = tensors_of(longer.checkpoint_path), tensors_of(whole.checkpoint_path)
        for name, value in expected.items():
            torch.testing.assert_close(found[name], value, rtol=1e-5, atol=1e-6)


def test_seeds_share_one_dataset(small_config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[Any] = []
    original = TransitionDataset.from_packed.__func__  # type: ignore[attr-defined]

    def note(cls: Any, packed: Any) -> Any:
        loaded.append(packed)
        return original(cls, packed)

    monkeypatch.setattr(TransitionDataset, "from_packed", classmethod(note))
    train_stacked(small_config(), SEEDS)
    assert len(loaded) == 1


def test_a_killed_stack_leaves_runs_that_go_on_alone(pendulum_config: Any) -> None:
    config = pendulum_config()
    with pytest.raises(Killed):
        train_stacked(config, (1, 2), callbacks=only(2, KillAt(25)))
    runs = sorted(Path(config.output_dir).glob("*"))
    assert len(runs) == 2
    for seed, run_dir in enumerate(runs, 1):
        assert (run_dir / "checkpoints/last").resolve().name == "step_20"
        assert resume(run_dir).run_dir == run_dir
        assert_close_runs(run_dir, train(config.replace(seed=seed)).run_dir)
        assert evaluate_checkpoint(run_dir, num_episodes=1)["eval/length_mean"] == 30


def test_a_seed_that_stops_early_leaves_the_others_to_go_on(pendulum_config: Any) -> None:
    config = pendulum_config()

    def stopping(config: TrainConfig) -> list[Callback]:
        update = {1: 13, 2: 1000, 3: 20}[config.seed]
        return [At(update, lambda state: state.request_stop("enough"))]

    results = train_stacked(config, (1, 2, 3), callbacks=stopping)
    assert [result.stop_reason for result in results] == ["enough", "total_timesteps", "enough"]
    for seed, found in enumerate(results, 1):
        alone = config.replace(seed=seed)
        assert_close_runs(found.run_dir, train(alone, callbacks=stopping(alone)).run_dir)


def test_a_seed_that_fails_leaves_the_others_to_go_on(small_config: Any) -> None:
    def diverge(state: TrainerState) -> None:
        raise RunError("training diverged")

    config = small_config()
    with pytest.raises(RunError, match=r"^seed 2: training diverged$"):
        train_stacked(config, (1, 2), callbacks=only(2, At(15, diverge)))
    first, second = sorted(Path(config.output_dir).glob("*"))
    assert (first / "result.json").exists()
    assert not (second / "result.json").exists()
    assert (second / "checkpoints/last").resolve().name == "step_10"
    assert resume(second).stop_reason == "total_timesteps"


def test_an_interrupt_saves_every_seed(small_config: Any) -> None:
    def interrupt(state: TrainerState) -> None:
        signal.raise_signal(signal.SIGINT)

    results = train_stacked(small_config(), (1, 2), callbacks=only(1, At(13, interrupt)))
    for result in results:
        assert result.stop_reason == "interrupted"
        assert result.checkpoint_path.name in ("step_13", "step_14")
        assert resume(result.run_dir).stop_reason == "total_timesteps"


# -- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algo", "changes", "seeds", "message"),
    [
        ("td3_bc", {}, (1,), "two or more distinct seeds"),
        ("td3_bc", {}, (1, 1), "two or more distinct seeds"),
        ("sac", {}, (1, 2), "this is online training of sac"),
        ("rlpd", {}, (1, 2), "this is offline_to_online training of rlpd"),
        ("td3_bc", {"stepper": "compiled"}, (1, 2), "a stepper of their own"),
    ],
)
def test_what_cannot_be_stacked_is_refused_before_anything_is_written(
    algo: str, changes: dict[str, Any], seeds: tuple[int, ...], message: str, small_config: Any
) -> None:
    config = small_config(algo, algo_kwargs=changes)
    with pytest.raises(ConfigError, match=message):
        train_stacked(config, seeds)
    assert not Path(config.output_dir).exists()


def test_a_worker_for_evaluations_is_refused(small_config: Any) -> None:
    config = small_config(env_id="Pendulum-v1", algo_kwargs={"eval_workers": 1})
    with pytest.raises(ConfigError, match="set eval_workers: 0"):
        train_stacked(config, (1, 2))
    assert not Path(config.output_dir).exists()


class OwnOptimizer(BC):
    def build_optimizer(self, name: str) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters_of(name), lr=0.1)


class WithBuffer(BC):
    def build(self, spec: Any, config: Any) -> None:
        super().build(spec, config)
        self.register_buffer("seen", torch.zeros(()))


class DrawsElsewhere(BC):
    def update_step(self, batch: Any) -> Any:
        torch.rand(2, generator=self.generator)
        return super().update_step(batch)


class LooksAtData(BC):
    def update_step(self, batch: Any) -> Any:
        return super().update_step(batch) if batch.rewards.mean() > -9 else {}


class DiffersBySeed(BC):
    """By something that is no parameter."""

    def build(self, spec: Any, config: Any) -> None:
        super().build(spec, config)
        self.scale = float(torch.rand(()))

    losses = {
        "actor": lambda nets, batch, noise, config: {
            "actor_loss": nets.scale * nets.actor(batch.obs).square().mean((-2, -1))
        }
    }


class RarelyTrained(BC):
    def update_step(self, batch: Any) -> Any:
        return super().update_step(batch) if self.update_count == 10_000 else {}


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [
        (OwnOptimizer, "its actor has an optimizer of its own"),
        (WithBuffer, "it keeps seen, which no optimizer moves"),
        (DrawsElsewhere, "random operation"),
        (LooksAtData, "data-dependent"),
        (DiffersBySeed, "actor_loss is not what it is for one seed alone"),
        (RarelyTrained, "actor_loss is not among the first 100 updates"),
    ],
)
def test_an_algorithm_that_cannot_be_stacked_says_why(
    algorithm: type[Algorithm[Any]], message: str
) -> None:
    learner = algorithm(SPECS["continuous"], BCConfig(hidden_sizes=(8,)))
    before = learner.training_state()
    with pytest.raises(ConfigError, match=f"cannot be stacked: .*{message}.*without --stack"):
        refuse_unstackable(learner, TransitionDataset.from_dict(make_fields()))
    for name, value in learner.training_state().tensors.items():
        assert torch.equal(value, before.tensors[name])


def test_the_command_line_stacks_seeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["train", "bc/pendulum", "total_timesteps=20", "hidden_sizes=[8]", "eval_episodes=1"]
    assert main([*words, "--stack"]) == 2
    assert "--stack needs several seeds" in capsys.readouterr().err
    assert main([*words, "--stack", "--seeds", "4,5"]) == 0
    captured = capsys.readouterr()
    assert "over 2 seeds  eval/return_mean" in captured.out
    assert captured.err.count("bc 20/20") == 1  # one progress for all
    assert len(list(Path("runs").glob("*/result.json"))) == 2
