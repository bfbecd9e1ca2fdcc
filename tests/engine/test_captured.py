"""Captured updates are the eager ones up to rounding, for every algorithm and shape."""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import Any

import pytest
import torch
from tests.support.engines import (
    KINDS,
    assert_all_captured,
    assert_close_updates,
    batches_of,
    cloner,
    data_of,
    error_of,
    learner,
    plain_batch,
)

from rl_training.data.transitions.batch import Batch
from rl_training.engine import CapturedEngine, captured

every_kind = pytest.mark.parametrize(("name", "kind"), KINDS)


@every_kind
def test_updates_are_the_eager_ones_and_stay_captured(name: str, kind: str) -> None:
    eager, ours = learner(name, kind), learner(name, kind, engine=CapturedEngine())
    dataset = data_of(kind)
    # enough for an actor that waits; some in another size, and the first again
    assert_close_updates(eager, ours, batches_of(dataset, 6))
    programs = ours.engine.programs
    assert_close_updates(eager, ours, batches_of(dataset, 6, size=16, first=6))
    assert_all_captured(ours)
    assert_close_updates(eager, ours, batches_of(dataset, 6, first=12))
    assert_all_captured(ours)
    assert {id(program) for program in programs} == {id(p) for p in ours.engine.programs}


@every_kind
@pytest.mark.parametrize(("hidden", "rows"), [((7, 13), 33), ((5,), 1)])
def test_so_they_are_with_odd_widths_and_sizes(
    name: str, kind: str, hidden: tuple[int, ...], rows: int
) -> None:
    options: dict[str, Any] = {"hidden_sizes": hidden, "batch_size": rows}
    options |= {"obs_dim": 5, "action_dim": 3}
    eager, ours = learner(name, kind, **options), learner(
        name, kind, engine=CapturedEngine(), **options
    )  # fmt: skip
    assert_close_updates(eager, ours, batches_of(data_of(kind, 5, 3), 6, size=rows))
    assert_all_captured(ours)


LARGE: list[tuple[str, str, dict[str, Any]]] = [
    ("sac", "continuous", {}),
    ("iql", "continuous", {}),
    ("td3_bc", "continuous", {}),
    ("rebrac", "continuous", {}),  # normalised layers
    ("rebrac", "continuous", {"critic_layer_norm": False}),
    ("rlpd", "continuous", {"num_critics": 3}),
    ("cql", "continuous", {"cql_target_gap": 1.0, "max_target_backup": True}),
    ("crr", "continuous", {"advantage_type": "max"}),
    ("dqn", "discrete", {"dueling": True, "max_grad_norm": 0.1}),
]


@pytest.mark.parametrize(("name", "kind", "options"), LARGE)
def test_so_they_are_with_large_networks(name: str, kind: str, options: dict[str, Any]) -> None:
    """Narrow products go by their transpose, sums of products accumulate, memory is pooled."""
    options = {"hidden_sizes": (256, 256), "batch_size": 128, "obs_dim": 11, **options}
    eager, ours = learner(name, kind, **options), learner(
        name, kind, engine=CapturedEngine(), **options
    )  # fmt: skip
    batches = batches_of(data_of(kind, 11), 6, size=128)
    # the largest relative difference of an entry, as Adam divides small gradients by themselves
    assert_close_updates(eager, ours, batches, rtol=2e-2, atol=5e-4)
    assert_all_captured(ours)


@every_kind
def test_first_gradients_agree_to_rounding(name: str, kind: str) -> None:
    """Before Adam has amplified anything: through one step of plain gradient descent."""

    def descended(engine: Any) -> list[torch.Tensor]:
        algorithm = learner(name, kind, engine=engine, hidden_sizes=(40, 40), obs_dim=5)
        for network, parameters in algorithm._parameters_of.items():
            algorithm.optimizers[network] = torch.optim.SGD(parameters, lr=0.1)
        for batch in batches_of(data_of(kind, 5), 4):
            algorithm.update(batch)
        return list(algorithm.parameters())

    for ours, plain in zip(descended(CapturedEngine()), descended(None), strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-5)


def test_terms_of_earlier_updates_stay_as_they_are() -> None:
    algorithm = learner("sac", "continuous", engine=CapturedEngine())
    updates, values = [], []
    for batch in batches_of(data_of("continuous"), captured.ROWS + 5):
        terms = algorithm.update(batch)
        updates.append(terms)
        values.append({key: value.item() for key, value in terms.items()})
    assert [{key: value.item() for key, value in terms.items()} for terms in updates] == values


def test_the_program_that_served_longest_ago_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(captured, "MOST", 3)
    eager, ours = learner("bc", "continuous"), learner(
        "bc", "continuous", engine=CapturedEngine()
    )  # fmt: skip
    dataset = data_of("continuous")
    sizes = [batches_of(dataset, 1, size=size, first=size)[0] for size in (4, 5, 6, 7, 8)]
    assert_close_updates(eager, ours, sizes * 3)
    assert len(ours.engine._programs) == 3
    assert_close_updates(eager, ours, [sizes[-1]] * 4)
    assert_all_captured(ours)
    assert len(ours.engine._programs) == 3


@pytest.mark.parametrize("field", ["actions", "rewards", "weights"])
def test_a_batch_that_is_changed_in_place_is_seen(field: str) -> None:
    eager, ours = learner("dqn", "discrete"), learner("dqn", "discrete", engine=CapturedEngine())
    dataset = data_of("discrete")
    rows = dataset.rows_at(torch.arange(32))
    both = [Batch.from_rows(rows.clone(), dataset.layout, weights=torch.ones(32)) for _ in range(2)]
    for step in range(6):
        for algorithm, batch in zip((eager, ours), both, strict=True):
            if step > 2:  # once it is replayed
                getattr(batch, field).copy_((torch.arange(32) + step) % 2)
            algorithm.update(batch)
    for a, b in zip(ours.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_a_field_may_have_one_number_for_all_rows() -> None:
    eager, ours = learner("td3_bc", "continuous"), learner(
        "td3_bc", "continuous", engine=CapturedEngine()
    )  # fmt: skip
    batches = [
        replace(batch, terminations=torch.full((), float(number % 2)).expand(len(batch)))
        for number, batch in enumerate(batches_of(data_of("continuous"), 6))
    ]
    assert_close_updates(eager, ours, batches)
    assert_all_captured(ours)


def test_inputs_of_another_type_or_layout_get_a_program_of_their_own() -> None:
    def loss(nets: Any, batch: Any, *_: Any) -> Any:
        error = error_of(nets, batch)
        return {"actor_loss": error, "reward": (batch.rewards + 1e-9).sum()}

    algorithm = cloner(loss, CapturedEngine())
    for seed in range(6):
        batch = plain_batch(seed)
        batch = replace(batch, rewards=batch.rewards.double() if seed % 2 else batch.rewards)
        terms = algorithm.update(batch)
        assert terms["reward"].dtype is batch.rewards.dtype
        assert torch.equal(terms["reward"], (batch.rewards + 1e-9).sum())
    assert len(algorithm.engine._programs) == 2


def test_terms_that_are_no_float_scalars_come_as_they_are() -> None:
    def loss(nets: Any, batch: Any, *_: Any) -> Any:
        error = error_of(nets, batch)
        return {
            "count": (batch.rewards > 0).sum(),
            "actor_loss": error,
            "rewards": batch.rewards * 2,
        }

    algorithm = cloner(loss, CapturedEngine())
    for seed in range(4):
        batch = plain_batch(seed)
        terms = algorithm.update(batch)
        assert list(terms) == ["count", "actor_loss", "rewards"]
        assert int(terms["count"]) == int((batch.rewards > 0).sum())
        assert torch.equal(terms["rewards"], batch.rewards * 2)
    assert_all_captured(algorithm)


def test_an_error_of_a_loss_is_its_own() -> None:
    def half(nets: Any, batch: Any, *_: Any) -> Any:
        first = next(module for module in nets.actor.modules() if hasattr(module, "in_features"))
        return {"actor_loss": first(batch.obs).mean()}

    algorithm = cloner(half, CapturedEngine())
    for _ in range(2):
        with pytest.raises(RuntimeError, match="actor_loss does not depend on"):
            algorithm.update(plain_batch(0))
    assert algorithm.engine.eager == set()


def test_an_optimizer_may_keep_a_gradient() -> None:
    class Optimistic(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            for parameter in self.param_groups[0]["params"]:
                former = self.state[parameter].setdefault("former", torch.zeros_like(parameter))
                parameter.data -= 0.1 * (2 * parameter.grad - former)
                self.state[parameter] = {"former": parameter.grad}

    def loss(nets: Any, batch: Any, *_: Any) -> Any:
        return {"actor_loss": error_of(nets, batch)}

    members = {"build_optimizer": lambda self, name: Optimistic(self._parameters_of[name], 0.1)}
    eager, ours = cloner(loss, **members), cloner(loss, CapturedEngine(), **members)
    assert_close_updates(eager, ours, [plain_batch(seed) for seed in range(6)], rtol=1e-5)


@pytest.mark.parametrize("width", [8, 4096])
def test_updates_keep_no_tensor(width: int) -> None:
    algorithm = learner("bc", "continuous", engine=CapturedEngine(), hidden_sizes=(width, 8))
    batch = batches_of(data_of("continuous"), 1)[0]

    def tensors_after(updates: int) -> int:
        gc.collect()
        gc.disable()  # so that a cycle shows, too
        try:
            for _ in range(updates):
                algorithm.update(batch)
            return sum(isinstance(value, torch.Tensor) for value in gc.get_objects())
        finally:
            gc.enable()

    first = tensors_after(captured.CHECKS + 3)  # captured, and checked twice
    left = captured.ROWS - (captured.CHECKS + 3)
    assert tensors_after(left + 5 * captured.ROWS + captured.CHECKS + 3) == first
