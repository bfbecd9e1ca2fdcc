"""Other steppers give what the eager one gives: compiled losses, and seeds that are stacked."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._inductor.config
from torch._dynamo.utils import counters

from rl_training.algorithms import Algorithm, get_algorithm_spec, list_algorithm_specs
from rl_training.algorithms.bc import BC, BCConfig
from rl_training.algorithms.rebrac import ReBRAC
from rl_training.config import option
from rl_training.data import TransitionDataset
from rl_training.runtime import resume, train
from rl_training.runtime.experience import Offline, StackedOffline
from rl_training.runtime.stacking import SeedStack
from rl_training.runtime.steppers import CompiledStepper
from tests.algorithms.test_contract import SPECS, batch_of, make
from tests.conftest import make_fields
from tests.test_resume import assert_same_run, killed_run, tensors_of

CLOSE = {"rtol": 1e-5, "atol": 1e-6}
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++")
KINDS = [(spec.name, kind) for spec in list_algorithm_specs() for kind in spec.action_kinds]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is compiled is kept for these tests, not beyond them."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "inductor"))


@pytest.fixture
def complaints(caplog: pytest.LogCaptureFixture) -> Any:
    caplog.set_level(logging.WARNING, "rl_training")
    return lambda: [text for text in caplog.messages if text.startswith("stepper: compiled")]


def data_of(kind: str) -> TransitionDataset:
    fields = make_fields()
    if kind == "discrete":
        fields["actions"] = torch.arange(400) % 4
    return TransitionDataset.from_dict(fields)


def updates_agree(name: str, kind: str) -> None:
    eager, compiled, dataset = make(name, kind), make(name, kind), data_of(kind)
    compiled.stepper = CompiledStepper()
    for seed in range(8):
        batch = batch_of(dataset, seed=seed)
        expected, found = eager.update(batch), compiled.update(batch)
        assert list(expected) == list(found)
        for key, value in expected.items():
            torch.testing.assert_close(found[key], value, **CLOSE)
    for a, b in zip(eager.parameters(), compiled.parameters(), strict=True):
        torch.testing.assert_close(b, a, **CLOSE)


@needs_compiler
def test_compiled_updates_are_the_eager_ones_and_each_loss_is_compiled_once(
    complaints: Any,
) -> None:
    before = counters["stats"]["unique_graphs"]
    updates_agree("td3_bc", "continuous")  # whose actor waits for every other update
    assert counters["stats"]["unique_graphs"] - before == 2
    assert complaints() == []


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_compiled_updates_are_the_eager_ones(name: str, kind: str, complaints: Any) -> None:
    updates_agree(name, kind)
    assert complaints() == []


@needs_compiler
def test_a_compiled_run_is_resumed_exactly(pendulum_config: Any, complaints: Any) -> None:
    config = pendulum_config("bc", algo_kwargs={"stepper": "compiled"})
    whole = train(config)
    run_dir = killed_run(config, 25)
    resume(run_dir)
    assert_same_run(whole.run_dir, run_dir)
    assert complaints() == []


def test_without_a_compiler_the_run_is_the_eager_one(
    small_config: Any, complaints: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "empty"))
    eager = train(small_config())
    # as the environment variable CXX would have it, had it been set before torch was imported
    with torch._inductor.config.patch({"cpp.cxx": (None, "/nonexistent")}):
        found = train(small_config(algo_kwargs={"stepper": "compiled"}))
    (complaint,) = complaints()  # for two losses
    assert "critic_loss cannot be compiled" in complaint
    expected, tensors = tensors_of(eager.checkpoint_path), tensors_of(found.checkpoint_path)
    assert all(torch.equal(expected[name], tensors[name]) for name in expected)


def test_a_loss_that_changes_with_every_step_is_not_compiled(complaints: Any) -> None:
    eager, compiled = make("rebrac"), make("rebrac")
    assert ReBRAC.follows_progress
    compiled.stepper = CompiledStepper()
    before = counters["stats"]["unique_graphs"]
    for seed in range(4):
        for algorithm in (eager, compiled):
            algorithm.online_progress = seed / 4
            algorithm.update(batch_of(data_of("continuous"), seed=seed))
    assert counters["stats"]["unique_graphs"] == before
    assert len(complaints()) == 1
    for a, b in zip(eager.parameters(), compiled.parameters(), strict=True):
        assert torch.equal(a, b)


def test_what_is_wrong_with_a_loss_is_said_as_ever(complaints: Any) -> None:
    algorithm = make("bc")
    algorithm.losses = {
        "actor": lambda nets, batch, noise, config: {
            "actor_loss": nets.actor.net.layers[0](batch.obs).mean()
        }
    }
    algorithm.stepper = CompiledStepper()
    with pytest.raises(RuntimeError, match="actor_loss does not depend on"):
        algorithm.update(batch_of(data_of("continuous")))
    assert complaints() == []


# -- stacked seeds ------------------------------------------------------------------------------

OFFLINE = [
    (spec.name, kind, {})
    for spec in list_algorithm_specs()
    if "offline" in spec.regimes
    for kind in spec.action_kinds
]
OPTIONS: list[tuple[str, dict[str, Any]]] = [
    ("bc", {"policy_type": "gaussian"}),
    ("cql", {"cql_target_gap": 1.0, "max_target_backup": True}),
    ("cql", {"cal_ql": True}),
    ("awac", {"weight_normalization": "softmax", "actor_weight_decay": 0.1}),
    ("crr", {"advantage_type": "max", "weight_type": "binary", "target_update": "soft"}),
    ("rebrac", {"critic_layer_norm": False}),
]
CASES = OFFLINE + [(name, "continuous", options) for name, options in OPTIONS]
SEEDS = (5, 6, 7)


def seeded(algorithm: type[Algorithm[Any]], config: Any, kind: str, seed: int) -> Algorithm[Any]:
    return algorithm(SPECS[kind], config, seed=seed, update_seed=seed)


def experiences(dataset: TransitionDataset, size: int = 32) -> list[Offline]:
    return [Offline(dataset, size, seed=seed, device=torch.device("cpu")) for seed in SEEDS]


def assert_same_state(found: Algorithm[Any], expected: Algorithm[Any]) -> None:
    ours, theirs = found.training_state(), expected.training_state()
    assert ours.values == theirs.values
    assert ours.tensors.keys() == theirs.tensors.keys()
    for name, value in theirs.tensors.items():
        if name.startswith("rng"):
            assert torch.equal(ours.tensors[name], value)
        else:
            torch.testing.assert_close(ours.tensors[name], value, **CLOSE)


def stacked_updates_agree(
    algorithm: type[Algorithm[Any]], config: Any, kind: str = "continuous", updates: int = 12
) -> None:
    dataset = data_of(kind).with_next_actions().with_returns(0.99)
    alone, together = ([seeded(algorithm, config, kind, seed) for seed in SEEDS] for _ in range(2))
    streams, batches = experiences(dataset), StackedOffline(experiences(dataset))
    stack = SeedStack(together)
    for update in range(updates):
        if update == 6:  # also in the middle: on their own, and then without the first
            stack.release()
            alone, together, streams = alone[1:], together[1:], streams[1:]
            batches = StackedOffline(batches.seeds[1:])
            stack = SeedStack(together)
        for each in (*alone, *together):
            each.set_learning_rate_factor(next(iter(each.losses)), 1 / (update + 1))
        expected = [each.update(next(stream)) for each, stream in zip(alone, streams, strict=True)]
        found = stack.update(batches.layout, *batches.draw())
        for own, other in zip(expected, found, strict=True):
            assert list(own) == list(other)
            for name, value in own.items():
                torch.testing.assert_close(other[name], value, **CLOSE)
        for own, other in zip(alone, together, strict=True):
            assert_same_state(other, own)
    recorded = list(stack._recordings.replays.values())
    assert bool(recorded) == algorithm.repeatable
    assert all(each is not None and each.proved for each in recorded)


@pytest.mark.parametrize(("name", "kind", "options"), CASES)
def test_stacked_updates_are_those_of_each_seed(
    name: str, kind: str, options: dict[str, Any]
) -> None:
    spec = get_algorithm_spec(name)
    stacked_updates_agree(spec.algorithm, spec.config(hidden_sizes=(8, 8), **options), kind)


def test_stacked_updates_with_batches_of_several_sizes() -> None:
    dataset = data_of("continuous").with_next_actions()
    found = []
    for repeats in (False, True):
        together = [seeded(BC, BCConfig(hidden_sizes=(8,)), "continuous", seed) for seed in SEEDS]
        stack = SeedStack(together, repeats=repeats)
        for step, size in enumerate([16] * 4 + [8] * 4 + [16] * 4):
            generator = torch.Generator().manual_seed(step)
            drawn = [dataset.rows_at(dataset.draw(size, generator)) for _ in SEEDS]
            rows = torch.stack(drawn)
            before = rows.clone()
            stack.update(dataset.layout, rows)
            assert torch.equal(rows, before)
        found.append([value for each in together for value in each.parameters()])
    assert all(map(torch.equal, *found))


class ClippedBCConfig(BCConfig):
    max_grad_norm: float = option(0.52, "norm to which a larger gradient is scaled down", gt=0)


class ClippedBC(Algorithm[ClippedBCConfig]):
    name = "clipped_bc"
    losses = BC.losses
    build = BC.build


def test_gradients_are_clipped_by_seed() -> None:
    stacked_updates_agree(ClippedBC, ClippedBCConfig(hidden_sizes=(8,)))
    config = ClippedBCConfig(hidden_sizes=(8,))
    norms = []
    for seed in SEEDS:  # of which some are too large
        each, batch = seeded(ClippedBC, config, "continuous", seed), batch_of(data_of("continuous"))
        loss = each.losses["actor"](each, batch, {}, config)["actor_loss"]
        gradients = torch.autograd.grad(loss, each.parameters_of("actor"))
        norms.append(float(torch.cat([value.flatten() for value in gradients]).norm()))
    assert min(norms) < config.max_grad_norm < max(norms)
