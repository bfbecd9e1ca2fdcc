"""Other steppers give what the eager one gives: compiled losses."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._inductor.config
from torch._dynamo.utils import counters

from rl_training.algorithms import list_algorithm_specs
from rl_training.algorithms.rebrac import ReBRAC
from rl_training.data import TransitionDataset
from rl_training.runtime import resume, train
from rl_training.runtime.steppers import CompiledStepper
from tests.algorithms.test_contract import batch_of, make
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
