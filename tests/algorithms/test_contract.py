"""Promises that every registered algorithm keeps; a new one gets these tests for free."""

from __future__ import annotations

import pickle
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.support.algorithms import SPECS, batch_of, make, own_env
from tests.support.data import make_fields
from tests.support.minari_logs import GOALS, write_public

from rl_training.algorithms import AlgorithmSpec, get_algorithm_spec, list_algorithm_specs
from rl_training.config import ConfigError, MissingExtraError
from rl_training.data import Batch, TransitionDataset
from rl_training.engine import FusedAdam
from rl_training.envs import make_raw_env
from rl_training.experiment import load_config, packaged_configs
from rl_training.runtime import predict_checkpoint, train
from rl_training.runtime.config.files import read_config_text
from rl_training.runtime.config.train_config import group_classes
from rl_training.runtime.policy import Policy

NAMES = [spec.name for spec in list_algorithm_specs()]
every_algorithm = pytest.mark.parametrize("name", NAMES)
every_kind = pytest.mark.parametrize(
    ("name", "kind"),
    [(spec.name, kind) for spec in list_algorithm_specs() for kind in spec.action_kinds],
)


@pytest.fixture
def datasets() -> dict[str, TransitionDataset]:
    fields = make_fields()
    choices = np.random.default_rng(1).integers(0, 4, 400)
    return {
        "continuous": TransitionDataset.from_dict(fields),
        "discrete": TransitionDataset.from_dict({**fields, "actions": choices}),
    }


def parameters(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in module.state_dict().items()}


def changed(before: dict[str, torch.Tensor], module: torch.nn.Module) -> set[str]:
    """First parts of the names of what moved: the networks."""
    after = module.state_dict()
    return {name.split(".")[0] for name in before if not torch.equal(before[name], after[name])}


@every_kind
def test_terms_are_finite_scalars_with_stable_names(
    name: str, kind: str, datasets: dict[str, TransitionDataset]
) -> None:
    algorithm, dataset = make(name, kind), datasets[kind]
    seen = []
    for _ in range(2):
        terms: dict[str, torch.Tensor] = {}
        for seed in range(6):
            terms |= algorithm.update(batch_of(dataset, seed=seed))
        seen.append(set(terms))
        assert all(value.shape == () and value.isfinite() for value in terms.values())
        assert not any(value.requires_grad for value in terms.values())
    assert seen[0] == seen[1]
    assert {f"{network}_loss" for network in algorithm.losses} <= seen[0]


@every_kind
def test_each_loss_moves_only_its_own_network(
    name: str, kind: str, datasets: dict[str, TransitionDataset]
) -> None:
    algorithm, dataset = make(name, kind), datasets[kind]
    batch = batch_of(dataset)
    recorded: dict[str, Any] = {}
    original = algorithm.minimize

    def record(network: str, *arguments: Any, **shared: Any) -> Any:
        before = parameters(algorithm)
        terms = original(network, *arguments, **shared)
        recorded[network] = changed(before, algorithm)
        return terms

    algorithm.minimize = record
    for _ in range(6):
        algorithm.update(batch)
    assert recorded == {network: {network} for network in algorithm.losses}


@every_kind
def test_gradients_are_those_of_plain_autograd(
    name: str, kind: str, datasets: dict[str, TransitionDataset], monkeypatch: pytest.MonkeyPatch
) -> None:
    algorithm, dataset = make(name, kind), datasets[kind]
    found: list[list[torch.Tensor]] = []
    apply = FusedAdam.apply

    def spy(self: FusedAdam, gradients: list[torch.Tensor], *rest: Any) -> None:
        found.append(gradients)
        apply(self, gradients, *rest)

    monkeypatch.setattr(FusedAdam, "apply", spy)
    original, checked = algorithm.minimize, set()

    def check(network: str, batch: Batch, noise: Any = {}, shared: Any = None) -> Any:  # noqa: B006
        # losses draw nothing, so that computing one twice is the same
        more = {} if shared is None else {"shared": shared}
        terms = algorithm.losses[network](algorithm, batch, noise, algorithm.config, **more)
        own = algorithm.parameters_of(network)
        plain = torch.autograd.grad(terms[f"{network}_loss"], own)
        after = original(network, batch, noise, shared)
        for key, value in terms.items():
            torch.testing.assert_close(after[key], value.detach(), rtol=1e-5, atol=1e-6)
        for ours, expected in zip(found.pop(), plain, strict=True):
            scale = float(expected.abs().max().clamp_min(1e-3))
            torch.testing.assert_close(ours / scale, expected / scale, rtol=0, atol=1e-5)
        checked.add(network)
        return after

    algorithm.minimize = check
    for seed in range(6):
        algorithm.update(batch_of(dataset, seed=seed))
    assert checked == set(algorithm.losses)


@every_kind
def test_targets_are_frozen_copies_that_follow(
    name: str, kind: str, datasets: dict[str, TransitionDataset]
) -> None:
    algorithm, dataset = make(name, kind), datasets[kind]
    targets = {
        child: (module, getattr(algorithm, child.removeprefix("target_")))
        for child, module in algorithm.named_children()
        if child.startswith("target_")
    }
    start = {child: parameters(module) for child, (module, _) in targets.items()}
    assert all(not changed(parameters(source), module) for module, source in targets.values())
    for seed in range(6):
        algorithm.update(batch_of(dataset, seed=seed))
    algorithm.after_collecting(0, 1_000_000)  # some follow in environment steps
    algorithm.update(batch_of(dataset))
    for child, (module, source) in targets.items():
        assert not any(parameter.requires_grad for parameter in module.parameters())
        assert changed(start[child], module)
        assert changed(parameters(source), module)


@every_algorithm
def test_training_calls_the_public_loss_halves(
    name: str, datasets: dict[str, TransitionDataset], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the reference values test is what trains."""
    dataset = datasets[get_algorithm_spec(name).action_kinds[0]]
    module = sys.modules[get_algorithm_spec(name).algorithm.__module__]
    called = set()
    algorithm = make(name)
    for network in algorithm.losses:
        half = f"{name}_{network}_loss"
        original = getattr(module, half)

        def spy(*, _half: str = half, _original: Any = original, **tensors: Any) -> Any:
            called.add(_half)
            return _original(**tensors)

        # a half that several algorithms share goes by several names
        for place in [m for n, m in sys.modules.items() if n.startswith("rl_training.algorithms")]:
            for alias in [key for key, value in vars(place).items() if value is original]:
                monkeypatch.setattr(place, alias, spy)
    for _ in range(6):
        algorithm.update(batch_of(dataset))
    assert called == {f"{name}_{network}_loss" for network in algorithm.losses}
    assert callable(getattr(module, f"{name}_loss"))


@every_algorithm
def test_same_seed_same_weights_and_the_global_stream_is_untouched(
    name: str, datasets: dict[str, TransitionDataset]
) -> None:
    kind = get_algorithm_spec(name).action_kinds[0]
    dataset = datasets[kind]
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    first, second = make(name), make(name)
    for seed in range(4):
        first.update(batch_of(dataset, seed=seed))
        second.update(batch_of(dataset, seed=seed))
    assert torch.equal(torch.rand(1), expected)
    assert not changed(parameters(first), second)
    other = get_algorithm_spec(name).algorithm(SPECS[kind], first.config, seed=4)
    assert changed(parameters(make(name)), other)


@every_kind
def test_actions_are_of_the_space(name: str, kind: str) -> None:
    algorithm = make(name, kind)
    obs = 100 * torch.randn(64, 3)
    for explore in (False, True):
        actions = algorithm.act(obs, explore=explore)
        if kind == "continuous":
            assert actions.shape == (64, 2)
            assert actions.abs().max() <= 1
        else:
            assert actions.shape == (64,)
            assert set(actions.tolist()) <= {0, 1, 2, 3}
    single = Policy(algorithm).predict(obs[0].numpy())
    assert single.shape == ((2,) if kind == "continuous" else ())


@every_algorithm
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size: must be >= 1"),
        ({"learning_rate": "fast"}, "learning_rate: expected a number"),
        ({"learning_rate": -1.0}, "learning_rate: must be > 0"),
        ({"hidden_sizes": [8, 0]}, "hidden_sizes"),
        ({"batch_sise": 3}, "did you mean 'batch_size'"),
    ],
)
def test_bad_options_fail_fast(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        get_algorithm_spec(name).config(**options)


@every_algorithm
def test_groups_of_options_are_disjoint(name: str) -> None:
    groups = [set(cls.model_fields) for cls in group_classes(get_algorithm_spec(name)).values()]
    assert sum(map(len, groups)) == len(set().union(*groups))


@every_algorithm
def test_every_option_says_what_it_is(name: str) -> None:
    for cls in group_classes(get_algorithm_spec(name)).values():
        assert all(field.description for field in cls.model_fields.values())


@every_algorithm
def test_names_follow_the_convention(name: str) -> None:
    import rl_training
    import rl_training.algorithms as algorithms
    import rl_training.runtime as runtime

    spec: AlgorithmSpec = get_algorithm_spec(name)
    assert getattr(algorithms, f"{spec.class_name}Algorithm") is spec.algorithm
    assert getattr(algorithms, spec.class_name) is spec.algorithm
    assert callable(getattr(algorithms, f"{name}_loss"))
    assert getattr(rl_training, spec.class_name).algo == name
    assert getattr(rl_training, spec.class_name) is getattr(rl_training.api, spec.class_name)
    assert callable(getattr(runtime, f"train_{name}"))
    assert spec.summary
    starter = own_env(name).removeprefix("RL-").split("-")[0].lower()
    assert f"{name}/{starter}" in packaged_configs()


def small_run(config_name: str, directory: Path, monkeypatch: Any) -> dict[str, Any]:
    """Overrides for a run of a few steps; data to download is stood in for by data of its form."""
    config = load_config(config_name)
    small: dict[str, Any] = {
        "total_timesteps": 3,
        "eval_interval": 2,
        "eval_episodes": 1,
        "batch_size": 16,
        "output_dir": str(directory / "runs"),
        "env_kwargs.max_episode_steps": 30,
    }
    if config.groups.dataset.dataset_kind == "minari":
        monkeypatch.setenv("MINARI_DATASETS_PATH", str(directory / "minari"))
        assert config.groups.dataset.dataset_id
        write_public(config.groups.dataset.dataset_id)
    if config.regime != "offline":
        small |= {"learning_starts": 1, "train_frequency": 1, "gradient_updates_per_step": 1}
    if config.regime == "offline_to_online":
        small |= {"offline_pretrain_updates": 2}
    return small


@pytest.mark.filterwarnings("ignore::UserWarning:minari")
@pytest.mark.parametrize(
    "config_name",
    # tests/test_choices.py trains those for a log of one's own
    [name for name in packaged_configs() if not name.endswith("/own-log")],
)
def test_packaged_config_trains(config_name: str, tmp_path: Path, monkeypatch: Any) -> None:
    config = load_config(config_name)
    assert config.env_id is not None
    try:
        env = make_raw_env(config.env_id, config.groups.env)
    except MissingExtraError as error:
        pytest.skip(str(error))
    result = train(load_config(config_name, small_run(config_name, tmp_path, monkeypatch)))
    assert result.stop_reason == "total_timesteps"
    assert 0 < result.metrics["eval/length_mean"] <= 30
    obs, _ = env.reset(seed=0)
    assert env.action_space.contains(predict_checkpoint(result.run_dir, obs))
    env.close()


@pytest.mark.filterwarnings("ignore::UserWarning:minari")
@pytest.mark.parametrize("config_name", [name for name in packaged_configs() if "antmaze" in name])
def test_a_policy_for_goals_is_learned_from_a_log_alone(
    config_name: str, tmp_path: Path, monkeypatch: Any
) -> None:
    """The environments of these configurations need an extra that their data does not."""
    small = small_run(config_name, tmp_path, monkeypatch)
    del small["env_kwargs.max_episode_steps"]
    result = train(load_config(config_name, {**small, "env_id": None}))
    obs = GOALS.sample()
    action = predict_checkpoint(result.run_dir, obs)
    assert action.shape == (8,)
    flat = np.concatenate([obs[key] for key in ("observation", "desired_goal", "achieved_goal")])
    assert (predict_checkpoint(result.run_dir, flat) == action).all()


@pytest.mark.parametrize("config_name", packaged_configs())
def test_packaged_config_says_how_it_deviates(config_name: str) -> None:
    text, _ = read_config_text(config_name)
    assert text.startswith("# ")
    assert "deviations" in text.split("algo:")[0]


@every_kind
def test_a_pickled_learner_goes_on_as_the_original(
    name: str, kind: str, datasets: dict[str, TransitionDataset]
) -> None:
    algorithm, dataset = make(name, kind), datasets[kind]
    algorithm.update(batch_of(dataset, seed=1))
    algorithm.numpy_policy()
    algorithm.act(torch.zeros(1, 3), explore=True, generator=torch.Generator())
    copy = pickle.loads(pickle.dumps(algorithm))
    for learner in (algorithm, copy):
        learner.update(batch_of(dataset, seed=2))
    expected, actual = algorithm.state_dict(), copy.state_dict()
    assert all(torch.equal(expected[key], actual[key]) for key in expected)


@every_algorithm
def test_a_configuration_can_be_pickled(name: str) -> None:
    packaged = next(entry for entry in packaged_configs() if entry.startswith(f"{name}/"))
    config = load_config(packaged)
    copy = pickle.loads(pickle.dumps(config))
    assert copy == config
    assert copy.groups == config.groups


@pytest.mark.slow  # the process imports PyTorch
def test_configurations_can_be_sent_to_a_process_pool() -> None:
    config = load_config("td3_bc/pendulum", {"seed": 7})
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        assert pool.submit(config.replace, seed=8).result() == config.replace(seed=8)
