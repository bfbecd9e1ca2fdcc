"""What users import and the life of a managed algorithm."""

from __future__ import annotations

import ast
import json
import pickle
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.envs.classic_control import PendulumEnv

import rl_training
from rl_training import BC, TD3BC, TrainConfig
from rl_training.algorithms import list_algorithm_specs
from rl_training.config import ConfigError, EnvError, OutputError, RunError
from rl_training.data import TransitionDataset
from tests.support.data import make_fields
from tests.support.runs import tensors_of

SURFACE = {
    "rl_training": ["BC", "TD3BC", "TrainConfig"],
    "rl_training.api": ["BC", "TD3BC", "train", "evaluate", "predict"],
    "rl_training.algorithms": [
        "BC", "TD3BC", "BCAlgorithm", "TD3BCAlgorithm", "bc_loss", "td3_bc_loss",
        "td3_bc_critic_loss", "td3_bc_actor_loss",
    ],
    "rl_training.models": ["MLPTD3Model"],
    "rl_training.data": ["TransitionDataset", "load_transition_dataset", "mix_transition_datasets"],
    "rl_training.envs": [
        "make_env", "make_vector_env", "RewardTransformConfig", "RewardScaleWrapper",
        "RewardShiftWrapper", "RewardClipWrapper", "apply_reward_wrappers",
    ],
    "rl_training.runtime": [
        "TrainerState", "TrainResult", "Callback", "CallbackList", "EarlyStoppingConfig",
        "EarlyStoppingCallback", "build_control_callbacks", "train", "resume",
        "evaluate_checkpoint", "predict_checkpoint", "train_bc", "train_td3_bc",
    ],
    "rl_training.experiment": [
        "AlgorithmSpec", "get_algorithm_spec", "list_algorithm_specs", "register_algorithm",
        "ExperimentManager", "load_config", "TrainConfig",
    ],
}  # fmt: skip


@pytest.mark.parametrize("module", SURFACE)
def test_public_names_are_importable(module: str) -> None:
    imported = __import__(module, fromlist=["_"])
    for name in SURFACE[module]:
        assert getattr(imported, name) is not None
    with pytest.raises(AttributeError, match="Nonsense"):
        _ = imported.Nonsense


def managed_names() -> set[str]:
    return {spec.class_name for spec in list_algorithm_specs()}


@pytest.mark.parametrize("module", [rl_training, rl_training.api])
def test_dir_lists_the_managed_classes(module: ModuleType) -> None:
    assert {"TrainConfig", "train", *managed_names()} <= set(dir(module))
    for name in dir(module):
        assert getattr(module, name) is not None


def test_type_checkers_see_every_name_that_the_api_has() -> None:
    """A new algorithm or function needs its line in `api/__init__.pyi`."""
    package = Path(rl_training.__file__).parent
    tree = ast.parse((package / "api" / "__init__.pyi").read_text())
    classes = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    names = {alias.name: node.module for node in imports for alias in node.names}
    assert classes == managed_names()
    assert names == rl_training.api._MODULE_OF
    assert (package / "py.typed").exists()


TYPED_SCRIPT = """\
import numpy as np
import rl_training
import torch
from rl_training import TD3BC, TrainConfig
from rl_training.runtime import TrainerState
reveal_type(rl_training.IQL.load("x"))
reveal_type(rl_training.load("x"))
reveal_type(TD3BC.from_config("td3_bc/pendulum", seed=3).learn().metrics)
TD3BC(TrainConfig(algo="td3_bc")).evaluate("ten")
TD3BC(TrainConfig(algo="td3_bc")).learn(total_timestep=3)
TD3BC(TrainConfig(algo="td3_bc")).learn(3)
TrainConfig(algo="td3_bc", total_timestep=3)
def log(state: TrainerState, loss: torch.Tensor) -> None:
    state.log({"kl": 0.1, "count": np.float32(3), "loss": loss})
rl_training.Nonsense
"""


def test_a_users_script_is_typed(tmp_path: Path) -> None:
    mypy = pytest.importorskip("mypy.api")
    script = tmp_path / "script.py"
    script.write_text(TYPED_SCRIPT)
    options = tmp_path / "mypy.ini"
    options.write_text(  # the types of other packages take most of the time and are not asked for
        "[mypy]\nfollow_imports = silent\n"
        "[mypy-torch.*,gymnasium.*,pydantic.*,rich.*]\nfollow_imports = skip\n"
    )
    words = [f"--config-file={options}", f"--cache-dir={tmp_path / 'cache'}"]
    text, _, _ = mypy.run([*words, str(script)])
    lines = [line for line in text.splitlines() if "defined in" not in line]
    notes = [line.split(": ", 1)[1] for line in lines if "script.py" in line]
    assert notes[0] == 'note: Revealed type is "rl_training.api.IQL"'
    assert notes[1] == 'note: Revealed type is "rl_training.api.algorithms.ManagedAlgorithm"'
    assert re.match(r'note: Revealed type is "(builtins\.)?dict\[', notes[2])
    assert 'incompatible type "str"; expected "int"' in notes[3]
    assert 'did you mean "total_timesteps"' in notes[4]
    assert 'incompatible type "int"' in notes[5]
    assert 'no attribute "Nonsense"' in notes[-1]


@pytest.mark.slow  # ten seconds
def test_pyright_sees_the_same_types(tmp_path: Path) -> None:
    pyright = shutil.which("pyright")
    if pyright is None:
        pytest.skip("pyright is not installed")
    (tmp_path / "script.py").write_text(TYPED_SCRIPT)
    words = [pyright, "--outputjson", "--pythonpath", sys.executable, "script.py"]
    # a checkout that is on PYTHONPATH is not in the environment that pyright looks at
    settings = {"extraPaths": [str(Path(rl_training.__file__).parents[1])]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    found = {
        entry["range"]["start"]["line"] + 1: (entry["severity"], entry["message"])
        for entry in json.loads(done.stdout)["generalDiagnostics"]
    }
    assert found[3][1].endswith('is "IQL"')
    assert found[4][1].endswith('is "ManagedAlgorithm"')
    assert found[5][1].endswith('is "dict[str, float]"')
    assert [found[line][0] for line in range(6, 11)] == ["error"] * 5


def test_life_of_a_managed_algorithm(pendulum_config: Any, tmp_path: Path) -> None:
    algorithm = TD3BC(pendulum_config())
    result = algorithm.learn()
    assert result.run_dir.is_dir()
    assert result.checkpoint_path.is_dir()
    assert result.stop_reason == "total_timesteps"
    assert result.metrics["eval/return_mean"] < 0
    scores = algorithm.evaluate(num_episodes=2)
    assert scores["eval/length_mean"] == 30
    obs = np.array([1.0, 0.0, 0.0])
    action = algorithm.predict(obs)
    assert action.shape == (1,)
    assert algorithm.predict(np.stack([obs, obs])).shape == (2, 1)
    assert np.array_equal(pickle.loads(pickle.dumps(algorithm)).predict(obs), action)
    saved = algorithm.save(tmp_path / "policy")
    again = TD3BC.load(saved)
    assert np.array_equal(again.predict(obs), action)
    assert again.evaluate(num_episodes=2) == scores
    assert again.learn().stop_reason == "total_timesteps"  # nothing left to do
    longer = again.learn(total_timesteps=50)
    assert longer.checkpoint_path.name == "step_50"
    assert algorithm.save(tmp_path / "policy") == saved  # replaces a checkpoint


def test_saved_policy_resumes_exactly(pendulum_config: Any, tmp_path: Path) -> None:
    whole = TD3BC(pendulum_config(total_timesteps=60)).learn()
    half = TD3BC(pendulum_config(total_timesteps=30))
    half.learn()
    half.save(tmp_path / "elsewhere" / "policy")
    result = TD3BC.load(tmp_path / "elsewhere" / "policy").learn(total_timesteps=60)
    expected, found = tensors_of(whole.checkpoint_path), tensors_of(result.checkpoint_path)
    assert all(torch.equal(expected[name], found[name]) for name in expected)


def test_learning_again_goes_on(pendulum_config: Any) -> None:
    algorithm = TD3BC(pendulum_config())
    first = algorithm.learn(total_timesteps=20)
    second = algorithm.learn(total_timesteps=40)
    assert second.run_dir == first.run_dir
    whole = TD3BC(pendulum_config()).learn()
    expected, found = tensors_of(whole.checkpoint_path), tensors_of(second.checkpoint_path)
    assert all(torch.equal(expected[name], found[name]) for name in expected)


def test_wrong_algorithm_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="is 'bc', but TD3BC trains 'td3_bc'"):
        TD3BC(TrainConfig(algo="bc"))
    with pytest.raises(ValueError, match="this trains 'bc'"):
        rl_training.runtime.train_bc(TrainConfig(algo="td3_bc"))


@pytest.mark.parametrize("verb", ["evaluate", "predict", "save"])
def test_verbs_before_learning_say_what_to_call(verb: str, tmp_path: Path) -> None:
    algorithm = BC(TrainConfig(algo="bc"))
    arguments = {"evaluate": (), "predict": ([0.0],), "save": (tmp_path / "x",)}[verb]
    with pytest.raises(RunError, match=rf"call learn\(\) or BC.load\(path\) before {verb}"):
        getattr(algorithm, verb)(*arguments)


def test_own_data_and_no_environment(tmp_path: Path) -> None:
    dataset = TransitionDataset.from_dict(make_fields())
    config = TrainConfig(
        algo="bc", total_timesteps=20, output_dir=str(tmp_path), algo_kwargs={"hidden_sizes": [8]}
    )
    algorithm = BC(config)
    result = algorithm.learn(dataset=dataset)
    assert algorithm.predict(np.zeros(3)).shape == (2,)
    with pytest.raises(EnvError, match="--env"):
        algorithm.evaluate()
    again = BC.load(result.run_dir)
    assert again.learn(dataset=dataset, total_timesteps=30).checkpoint_path.name == "step_30"


def test_train_functions_take_own_data(tmp_path: Path) -> None:
    dataset = TransitionDataset.from_dict(make_fields())
    kwargs = {"hidden_sizes": [8]}
    config = TrainConfig(algo="bc", total_timesteps=5, output_dir=str(tmp_path), algo_kwargs=kwargs)
    result = rl_training.runtime.train_bc(config, dataset=dataset)
    assert BC.load(result.run_dir).predict(np.zeros(3)).shape == (2,)


def test_save_does_not_overwrite_what_is_no_checkpoint(small_config: Any, tmp_path: Path) -> None:
    algorithm = TD3BC(small_config())
    algorithm.learn()
    (tmp_path / "thesis").mkdir()
    with pytest.raises(OutputError, match="not a checkpoint"):
        algorithm.save(tmp_path / "thesis")


def test_from_config_takes_overrides() -> None:
    algorithm = TD3BC.from_config("td3_bc/pendulum", seed=3, tau=0.02)
    assert algorithm.config.seed == 3
    assert algorithm.config.groups.algorithm.model_dump()["tau"] == 0.02


def test_seeds_make_different_runs_and_the_same_seed_the_same(pendulum_config: Any) -> None:
    runs = [TD3BC(pendulum_config(seed=seed)).learn() for seed in (1, 1, 2)]
    first, same, other = (tensors_of(run.checkpoint_path) for run in runs)
    assert all(torch.equal(first[name], same[name]) for name in first)
    assert not torch.equal(first["networks.actor.net.layers.0.weight"],
                           other["networks.actor.net.layers.0.weight"])  # fmt: skip


def test_evaluating_and_logging_never_move_training(pendulum_config: Any) -> None:
    busy = TD3BC(pendulum_config(log_interval=1, algo_kwargs={"eval_interval": 1})).learn()
    quiet = TD3BC(pendulum_config(eval_episodes=0, log_interval=1000)).learn()
    expected, found = tensors_of(busy.checkpoint_path), tensors_of(quiet.checkpoint_path)
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    assert "eval/return_mean" not in quiet.metrics


def test_wrong_arguments_say_what_is_expected(small_config: Any) -> None:
    with pytest.raises(ConfigError, match="takes a TrainConfig"):
        TD3BC({"algo": "td3_bc"})
    algorithm = TD3BC(small_config())
    with pytest.raises(ConfigError, match="must be a TransitionDataset"):
        algorithm.learn(dataset="log.npz")
    with pytest.raises(ConfigError, match="total_timesteps: must be >= 1"):
        algorithm.learn(total_timesteps=0)
    for verb in (algorithm.learn, algorithm.evaluate):
        with pytest.raises(ConfigError, match="env_id names an environment, registered"):
            verb(env_id=PendulumEnv())
