"""Adding an algorithm touches one file: here it lies outside the package."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest

from rl_training.algorithms import registry
from rl_training.cli.main import main

PLUGIN = dedent('''
    """Mean: always the mean logged action, to show how little an algorithm needs."""

    import torch
    from torch import nn

    from rl_training.algorithms import Algorithm, AlgorithmConfig, register
    from rl_training.config import option


    class MeanConfig(AlgorithmConfig):
        pull: float = option(1.0, "weight of the loss", gt=0)


    class Constant(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.value = nn.Parameter(torch.zeros(width))

        def mode(self, obs):
            return self.value.clamp(-1, 1).expand(len(obs), -1)

        def sample(self, obs, generator):
            return self.mode(obs)


    def mean_actor_loss(*, value, actions, pull):
        return {"actor_loss": pull * (value - actions).square().mean()}


    mean_loss = mean_actor_loss


    def actor_loss(nets, batch, noise, config):
        return mean_actor_loss(value=nets.actor.value, actions=batch.actions, pull=config.pull)


    @register("mean")
    class MeanAlgorithm(Algorithm[MeanConfig]):
        losses = {"actor": actor_loss}

        def build(self, spec, config):
            self.actor = Constant(spec.action_dim)
''')

CONFIG = dedent("""
    algo: mean
    env_id: Pendulum-v1
    total_timesteps: 300
    checkpoint_interval: 100
    eval_episodes: 1
    algo_kwargs: {dataset_kind: random, dataset_size: 300, learning_rate: 1e-2}
""")


@pytest.fixture(autouse=True)
def _forget_plugin() -> Iterator[None]:
    registry.discover()
    known = dict(registry._SPECS)
    yield
    registry._SPECS.clear()
    registry._SPECS.update(known)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("mean.py").write_text(PLUGIN)
    Path("mean.yaml").write_text(CONFIG)
    return tmp_path


def forget() -> None:
    registry._SPECS.pop("mean", None)


def test_an_outside_algorithm_trains_resumes_evaluates_and_predicts(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plugin = ["--plugin", "mean.py"]
    assert main(["train", "mean.yaml", "--quiet", *plugin]) == 0
    (run_dir,) = Path("runs").glob("mean__Pendulum-v1__seed0__*")
    forget()
    assert main(["resume", str(run_dir), "--total-timesteps", "400", "--quiet", *plugin]) == 0
    assert (run_dir / "checkpoints" / "step_400").is_dir()
    forget()
    assert main(["eval", str(run_dir), "--episodes", "1", *plugin]) == 0
    forget()
    capsys.readouterr()
    assert main(["predict", str(run_dir), "--obs", "[1, 0, 0]", *plugin]) == 0
    action = float(capsys.readouterr().out.strip().strip("[]"))
    assert -2 <= action <= 2
    forget()
    assert main(["explain", "mean.pull", *plugin]) == 0
    assert "weight of the loss" in capsys.readouterr().out


def test_its_checkpoint_without_the_plugin_says_what_to_do(
    files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "mean.yaml", "--quiet", "--plugin", "mean.py"]) == 0
    (run_dir,) = Path("runs").glob("mean__*")
    forget()
    assert main(["predict", str(run_dir), "--obs", "[1, 0, 0]"]) == 2
    assert "--plugin" in capsys.readouterr().err


def test_its_managed_class_and_train_function_exist(files: Path) -> None:
    import rl_training
    import rl_training.runtime

    registry.load_plugin("mean.py")
    managed = rl_training.Mean.from_config("mean.yaml", output_dir="elsewhere")
    managed.learn()
    assert managed.predict(np.zeros(3)).shape == (1,)
    assert callable(rl_training.runtime.train_mean)


def test_a_plugin_that_is_not_there_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--plugin", "nowhere.py"]) == 2
    assert capsys.readouterr().err == "error: --plugin nowhere.py: no such file\n"


def test_an_incomplete_algorithm_is_refused_when_it_is_defined() -> None:
    from rl_training.algorithms import Algorithm, AlgorithmConfig

    with pytest.raises(TypeError, match="has no losses"):

        class Empty(Algorithm[AlgorithmConfig]):
            pass
