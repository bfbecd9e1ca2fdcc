"""A learner that is stopped and continued elsewhere makes the same updates, bit for bit."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.support.engines import (
    KINDS,
    assert_close_updates,
    assert_same_state,
    batches_of,
    cloner,
    data_of,
    error_of,
    learner,
    plain_batch,
)

from rl_training.algorithms.bc import BCConfig
from rl_training.engine import CapturedEngine

every_kind = pytest.mark.parametrize(("name", "kind"), KINDS)


def assert_resumes(
    name: str, kind: str, size: int, moments: tuple[int, ...], **options: Any
) -> None:
    """Run through, and again with a stop at each of these updates."""

    def fresh() -> Any:
        return learner(name, kind, engine=CapturedEngine(), **options)

    obs_dim, action_dim = options.get("obs_dim", 3), options.get("action_dim", 2)
    batches = batches_of(data_of(kind, obs_dim, action_dim), 9, size=size)
    whole, states = fresh(), []
    for batch in batches:
        state = whole.training_state()
        states.append(
            state._replace(tensors={key: value.clone() for key, value in state.tensors.items()})
        )
        whole.update(batch)
    for moment in moments:
        resumed = fresh()
        resumed.load_training_state(states[moment])
        for batch in batches[moment:]:
            resumed.update(batch)
        assert_same_state(resumed, whole)


@every_kind
def test_a_resumed_learner_continues_bit_for_bit(name: str, kind: str) -> None:
    assert_resumes(name, kind, 32, (1, 2, 5))


@every_kind
def test_so_it_does_with_odd_widths_and_sizes(name: str, kind: str) -> None:
    options = {"hidden_sizes": (33, 7), "batch_size": 27, "obs_dim": 31, "action_dim": 3}
    assert_resumes(name, kind, 27, (3,), **options)


@pytest.mark.parametrize("name", ["sac", "cql", "rebrac"])
def test_so_it_does_with_large_networks(name: str) -> None:
    options = {"hidden_sizes": (256, 256), "batch_size": 128, "obs_dim": 11}
    assert_resumes(name, "continuous", 128, (3,), **options)


@pytest.mark.parametrize("name", ["redq", "rlpd"])
@pytest.mark.parametrize("size", [10, 16])  # of which the first puts parts across cache lines
def test_so_do_joint_updates(name: str, size: int) -> None:
    options = {"hidden_sizes": (5, 3), "batch_size": size, "num_critics": 3, "obs_dim": 31}
    assert_resumes(name, "continuous", 3 * size, (1, 4), **options)


@pytest.mark.parametrize("width", [(33, 17), (7,), (64, 33)])
@pytest.mark.parametrize("dueling", [False, True])
def test_so_do_clipped_gradients(width: tuple[int, ...], dueling: bool) -> None:
    options = {"hidden_sizes": width, "max_grad_norm": 0.1, "dueling": dueling, "action_dim": 4}
    assert_resumes("dqn", "discrete", 32, (1, 4), **options)


def test_clipped_gradients_are_the_eager_ones() -> None:
    options = {"hidden_sizes": (33, 17), "max_grad_norm": 0.1, "action_dim": 4}
    eager = learner("dqn", "discrete", **options)
    ours = learner("dqn", "discrete", engine=CapturedEngine(), **options)
    assert_close_updates(eager, ours, batches_of(data_of("discrete", 3, 4), 10))


def test_rows_that_are_laid_out_otherwise_round_as_after_a_resume() -> None:
    """A run that goes over to other memory, and one that begins with it, do the same."""

    def batches(stride: int) -> list[Any]:
        result = []
        for seed in range(5):
            batch = plain_batch(seed, 33)
            wide = torch.zeros(33, stride)
            wide[:, :3] = batch.obs
            object.__setattr__(batch, "obs", wide[:, :3])
            result.append(batch)
        return result

    def loss(nets: Any, batch: Any, *_: Any) -> Any:
        return {"actor_loss": error_of(nets, batch) + batch.obs.sum(0).square().mean()}

    def fresh() -> Any:
        return cloner(loss, CapturedEngine(), BCConfig(hidden_sizes=(33,)))

    whole, half, resumed = fresh(), fresh(), fresh()
    for batch in batches(3):
        whole.update(batch)
        half.update(batch)
    resumed.load_training_state(half.training_state())
    for batch in batches(17):
        for algorithm in (whole, resumed):
            algorithm.update(batch)
    assert_same_state(whole, resumed)
    # whatever the processor makes of it: a program reads memory as it was recorded
    assert len(whole.engine._programs) == 2
    assert len(resumed.engine._programs) == 1


def test_a_resumed_learner_keeps_what_ran_eagerly() -> None:
    """Its losses are evaluated as often, and round as they would have."""

    def loss(nets: Any, batch: Any, *_: Any) -> Any:
        drawn = torch.rand((), generator=nets.generator)
        return {"actor_loss": error_of(nets, batch) * drawn}

    whole, resumed = cloner(loss, CapturedEngine()), cloner(loss, CapturedEngine())
    for seed in range(4):
        whole.update(plain_batch(seed))
    resumed.load_training_state(whole.training_state())
    assert resumed.engine.eager == {"actor"}
    for seed in range(4, 8):
        for algorithm in (whole, resumed):
            algorithm.update(plain_batch(seed))
    assert_same_state(whole, resumed)


@pytest.mark.parametrize(
    "copied",
    [copy.deepcopy, lambda algorithm: pickle.loads(pickle.dumps(algorithm))],
    ids=["deep copy", "pickled"],
)
@pytest.mark.parametrize(("name", "kind"), [("td3_bc", "continuous"), ("dqn", "discrete")])
def test_a_copy_goes_on_alike_and_leaves_the_original(copied: Any, name: str, kind: str) -> None:
    original = learner(name, kind, engine=CapturedEngine())
    batches = batches_of(data_of(kind), 8)
    for batch in batches[:4]:
        original.update(batch)
    before = [value.clone() for value in original.parameters()]
    other = copied(original)
    assert other.engine.programs == []
    for batch in batches[4:]:
        other.update(batch)
    assert all(map(torch.equal, before, original.parameters()))
    for batch in batches[4:]:
        original.update(batch)
    assert_same_state(original, other)


def test_a_copy_keeps_what_runs_eagerly() -> None:
    def loss(nets: Any, batch: Any, *_: Any) -> Any:
        return {"actor_loss": error_of(nets, batch) * (1 + nets.update_count)}

    original = cloner(loss, CapturedEngine())
    for seed in range(3):
        original.update(plain_batch(seed))
    assert copy.deepcopy(original.engine).eager == original.engine.eager == {"actor"}


# -- changes in the middle of a run are noticed -----------------------------------------------------


def load_networks(algorithm: Any) -> None:
    saved = {f"networks.{key}": value * 0.9 for key, value in algorithm.state_dict().items()}
    algorithm.load_networks(saved)


def change_config(algorithm: Any) -> None:
    algorithm.config = algorithm.config.model_copy(update={"gamma": 0.5})


def replace_network(algorithm: Any) -> None:
    algorithm.target_critic = copy.deepcopy(algorithm.critic).requires_grad_(False)


def move_memory(algorithm: Any) -> None:
    """Give every parameter other memory, as `.to` does where it changes something."""
    algorithm._apply(lambda value: value.clone() + 0.01)


CHANGES: dict[str, Callable[[Any], None]] = {
    "networks are loaded": load_networks,
    "another config": change_config,
    "another network": replace_network,
    "other memory": move_memory,
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_noticed(change: str) -> None:
    eager = learner("sac", "continuous")
    ours = learner("sac", "continuous", engine=CapturedEngine())
    dataset = data_of("continuous")
    assert_close_updates(eager, ours, batches_of(dataset, 5))
    for algorithm in (eager, ours):
        CHANGES[change](algorithm)
    assert_close_updates(eager, ours, batches_of(dataset, 5, first=5))
    assert ours.engine.eager == set()


def test_networks_in_double_precision_are_captured_anew() -> None:
    def loss(nets: Any, batch: Any, *_: Any) -> Any:
        obs, actions = (x.to(nets.actor.net.layers[0].weight) for x in (batch.obs, batch.actions))
        return {"actor_loss": (nets.actor(obs) - actions).square().mean()}

    eager, ours = cloner(loss), cloner(loss, CapturedEngine())
    batches = [plain_batch(seed) for seed in range(8)]
    assert_close_updates(eager, ours, batches[:4])
    for algorithm in (eager, ours):
        algorithm.to(torch.float64)
        algorithm.optimizers["actor"] = torch.optim.SGD(algorithm.actor.parameters(), 0.1)
    assert_close_updates(eager, ours, batches[4:], rtol=1e-12, atol=1e-12)
    assert ours.update(batches[0])["actor_loss"].dtype is torch.float64


def test_an_engine_may_serve_another_learner_once_it_has_forgotten_the_first() -> None:
    engine = CapturedEngine()
    eager = learner("td3_bc", "continuous")
    first, second = (learner("td3_bc", "continuous", engine=engine) for _ in range(2))
    batches = batches_of(data_of("continuous"), 6)
    for batch in batches:
        first.update(batch)
    engine.forget()
    assert_close_updates(eager, second, batches)
