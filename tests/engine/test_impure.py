"""Losses that break the rule of purity give what they give eagerly, and the run goes on."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
import torch
from tests.support.engines import (
    SPEC,
    assert_all_captured,
    assert_close_updates,
    cloner,
    error_of,
    plain_batch,
)
from torch import Tensor, nn

from rl_training.algorithms import Algorithm
from rl_training.algorithms.bc import BC, BCConfig
from rl_training.config import option
from rl_training.engine import CapturedEngine, EagerEngine, UnusedParametersError, captured

BATCHES = 8


def counted(nets: Any) -> int:
    nets.__dict__["count"] = nets.__dict__.get("count", 0) + 1
    return int(nets.__dict__["count"])


def changing_the_batch(nets: Any, batch: Any, loss: Tensor) -> Tensor:
    return loss * batch.rewards.mul_(0.5).mean()


def seen_anew(nets: Any, batch: Any, loss: Tensor) -> Tensor:
    """A tensor of state, but another one each time."""
    nets.__dict__["seen"] = nets.__dict__.get("seen", torch.zeros(())) + 1
    return loss * nets.__dict__["seen"]


def in_place_state(nets: Any, batch: Any, loss: Tensor) -> Tensor:
    return loss * nets.__dict__.setdefault("total", torch.zeros(())).add_(1)


def cached(nets: Any, batch: Any, loss: Tensor) -> Tensor:
    if "first" not in nets.__dict__:
        nets.__dict__["first"] = batch.obs.abs().mean()
    return loss * nets.__dict__["first"]


def other_inputs_later(nets: Any, batch: Any, loss: Tensor) -> Tensor:
    """From the second time on it reads a field that it did not read the first time."""
    return loss * batch.rewards.mean() if counted(nets) > 1 else loss


def changing_inputs_later(nets: Any, batch: Any, loss: Tensor) -> Tensor:
    return loss * (batch.rewards.mul_(0.5) if counted(nets) > 1 else batch.rewards).mean()


def logging_now_and_then(nets: Any, batch: Any, loss: Tensor) -> Tensor:
    return loss * (1.0 if counted(nets) % 3 != 1 else float(loss.detach() > 0))


EAGER = {
    "a counter": lambda nets, batch, loss: loss * counted(nets),
    "a counter as a tensor": lambda nets, batch, loss: loss * torch.tensor(float(counted(nets))),
    "a counter as an array": lambda nets, batch, loss: (
        loss * torch.from_numpy(np.full(1, counted(nets), np.float32)).sum()
    ),
    "random": lambda nets, batch, loss: loss * torch.rand((), generator=nets.generator),
    "random of the global stream": lambda nets, batch, loss: loss * torch.rand(()),
    "random in place": lambda nets, batch, loss: loss * torch.empty(()).uniform_(),
    "dropout": lambda nets, batch, loss: loss * nn.functional.dropout(batch.rewards, 0.5).mean(),
    "item": lambda nets, batch, loss: loss * batch.rewards.sum().cos().item(),
    "float": lambda nets, batch, loss: loss * float(batch.rewards.sum().cos()),
    "tolist": lambda nets, batch, loss: loss * min(batch.rewards.tolist()),
    "numpy": lambda nets, batch, loss: loss * float(batch.obs.numpy().sum()),
    "asarray": lambda nets, batch, loss: loss * float(np.asarray(batch.obs).sum()),
    "dlpack": lambda nets, batch, loss: loss * float(np.from_dlpack(batch.obs).sum()),
    "a branch on data": lambda nets, batch, loss: loss * 3 if batch.rewards[0] > 0 else loss,
    "a size that depends on data": lambda nets, batch, loss: (
        loss + nets.actor(batch.obs)[batch.obs[:, 0] > 0].sum()
    ),
    "changes of the batch": changing_the_batch,
    "a state that is exchanged": seen_anew,
    "a state that is changed in place": in_place_state,
    "a cache": cached,
    "other inputs later": other_inputs_later,
    "changes of the batch later": changing_inputs_later,
    "reading now and then": logging_now_and_then,
}


@pytest.mark.parametrize("what", EAGER)
def test_an_impure_loss_gives_the_eager_result_and_stays_eager(what: str) -> None:
    def loss(nets: Any, batch: Any, *_: Any) -> dict[str, Tensor]:
        return {"actor_loss": EAGER[what](nets, batch, error_of(nets, batch))}

    def updated(engine: Any) -> tuple[list[Tensor], list[Tensor]]:
        algorithm = cloner(loss, engine)
        torch.manual_seed(0)
        batches = [plain_batch(seed) for seed in range(BATCHES)]
        terms = [algorithm.update(batch)["actor_loss"] for batch in batches]
        left = [value for batch in batches for value in (batch.rewards, batch.obs)]
        return [*algorithm.parameters(), *terms], [*left, algorithm.generator.get_state()]

    engine = CapturedEngine()
    (ours, left), (plain, expected_left) = updated(engine), updated(EagerEngine())
    for a, b in zip(ours, plain, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
    assert all(map(torch.equal, left, expected_left))
    assert engine.eager == {"actor"}
    assert engine.programs == []


class Clipped(BCConfig):
    max_grad_norm: float = option(1.0, "norm to which a larger gradient is scaled down", gt=0)


def element_of_a_vector(nets: Any, batch: Any, *_: Any) -> dict[str, Tensor]:
    by_dimension = (nets.actor(batch.obs) - batch.actions).square().mean(0)
    return {"actor_loss": by_dimension.sum(), "first": by_dimension[0]}


def parts_of_a_stack(nets: Any, batch: Any, *_: Any) -> dict[str, Tensor]:
    errors = (nets.actor(batch.obs) - batch.actions).square()
    a, b = errors.mean(), errors.amax()
    return {"actor_loss": torch.stack([a, b]).sum(), "b": b, "a": a}


def constant_gradient(nets: Any, batch: Any, *_: Any) -> dict[str, Tensor]:
    error = error_of(nets, batch)
    return {"actor_loss": error * batch.rewards.mean() + 0.1 * nets.actor.extra}


def views(nets: Any, batch: Any, *_: Any) -> dict[str, Tensor]:
    weight = nets.actor.net.layers[0].weight
    return {
        "actor_loss": error_of(nets, batch),
        "reward": batch.rewards[0],
        "rewards": batch.rewards[:3],
        "weight": weight[0, 0],
        "weights": weight,
    }


def literals(nets: Any, batch: Any, *_: Any) -> dict[str, Tensor]:
    half, array = torch.tensor(0.5), torch.from_numpy(np.array([1.0, 2.0], np.float32))
    return {"actor_loss": (error_of(nets, batch) * half * array).sum(), "half": half}


def shared_memory(nets: Any, batch: Any, *_: Any) -> dict[str, Tensor]:
    """Reads an array that the learner changes in place, through a tensor made anew."""
    array = nets.__dict__.setdefault("array", np.ones(1, np.float32))
    return {"actor_loss": error_of(nets, batch) * torch.from_numpy(array).sum()}


def differences(nets: Any, batch: Any, *_: Any) -> dict[str, Tensor]:
    actions = nets.actor(batch.obs)
    return {"actor_loss": (actions[1:] - actions[:-1]).square().mean()}


def in_place_inside(nets: Any, batch: Any, *_: Any) -> dict[str, Tensor]:
    scaled = batch.obs.clone()
    scaled[:, 0] = 0.0
    scaled.mul_(2).clamp_(-1, 1)
    return {"actor_loss": (nets.actor(scaled) - batch.actions).square().mean(), "s": scaled.sum()}


@pytest.mark.parametrize(
    "loss",
    [
        element_of_a_vector, parts_of_a_stack, constant_gradient, views, literals, shared_memory,
        differences, in_place_inside,
    ],
)  # fmt: skip
def test_unusual_pure_losses_are_captured(loss: Any) -> None:
    class Unusual(Algorithm[Clipped]):
        losses = {"actor": loss}

        def build(self, spec: Any, config: Any) -> None:
            BC.build(self, spec, config)  # type: ignore[arg-type]
            if loss is constant_gradient:
                self.actor.extra = nn.Parameter(torch.zeros(()))

        def update_step(self, batch: Any) -> Any:
            if "array" in self.__dict__:
                self.__dict__["array"] += 1
            return super().update_step(batch)

    eager, ours = (Unusual(SPEC, Clipped(hidden_sizes=(8,))) for _ in range(2))
    ours.engine = CapturedEngine()
    batches = [plain_batch(seed) for seed in range(BATCHES)]
    for seed, batch in enumerate(batches):
        batch.rewards.fill_(10.0 ** (seed - 3))  # the norm is too large only later on
    assert_close_updates(eager, ours, batches, rtol=1e-5, atol=1e-6)
    assert_all_captured(ours)


@pytest.mark.parametrize("engine", [EagerEngine, CapturedEngine])
def test_terms_are_copies_of_what_changes_later(engine: Any) -> None:
    algorithm = cloner(views, engine())
    updates, expected = [], []
    for seed in range(6):
        batch = plain_batch(seed)
        weights = algorithm.actor.net.layers[0].weight.detach().clone()
        expected.append((batch.rewards.clone(), weights))
        updates.append(algorithm.update(batch))
        batch.rewards.zero_()
    for terms, (rewards, weights) in zip(updates, expected, strict=True):
        assert torch.equal(terms["reward"], rewards[0])
        assert torch.equal(terms["rewards"], rewards[:3])
        assert torch.equal(terms["weight"], weights[0, 0])
        assert torch.equal(terms["weights"], weights)


def test_noise_that_a_loss_changes_is_changed_for_the_next_loss() -> None:
    def shrinking(nets: Any, batch: Any, noise: Any, config: Any) -> dict[str, Tensor]:
        return {"actor_loss": error_of(nets, batch) * noise["z"].mul_(0.1).mean()}

    def update_step(self: Any, batch: Any) -> Any:
        noise = {"z": self.standard_normal(batch.actions)}
        self.minimize("actor", batch, noise)
        return self.minimize("actor", batch, noise)

    eager = cloner(shrinking, update_step=update_step)
    ours = cloner(shrinking, CapturedEngine(), update_step=update_step)
    assert_close_updates(eager, ours, [plain_batch(seed) for seed in range(4)], rtol=1e-5)


def test_a_loss_that_turns_impure_later_is_noticed(caplog: pytest.LogCaptureFixture) -> None:
    """Not at once, as that would need an evaluation of every update, but with a warning."""

    def warming_up(nets: Any, batch: Any, *_: Any) -> dict[str, Tensor]:
        return {"actor_loss": error_of(nets, batch) * (1.0 if nets.update_count < 5 else 2.0)}

    algorithm = cloner(warming_up, CapturedEngine())
    with caplog.at_level(logging.WARNING, "rl_training"):
        for seed in range(2 * captured.CHECKS):
            batch = plain_batch(seed)
            expected = error_of(algorithm, batch).item() * (1 if algorithm.update_count < 5 else 2)
            loss = algorithm.update(batch)["actor_loss"].item()
            if algorithm.engine.eager or seed < 5:
                assert loss == pytest.approx(expected, rel=1e-5)
    assert algorithm.engine.eager == {"actor"}
    assert "actor runs eagerly from now on" in caplog.text
    assert "within the last 8 evaluations" in caplog.text


def test_a_pure_loss_is_evaluated_only_to_be_checked() -> None:
    evaluations = []

    def loss(nets: Any, batch: Any, *_: Any) -> dict[str, Tensor]:
        evaluations.append(nets.update_count + 1)
        return {"actor_loss": error_of(nets, batch)}

    algorithm = cloner(loss, CapturedEngine())
    for seed in range(100):
        algorithm.update(plain_batch(seed))
    assert evaluations == [1, 2, 10, 74]
    assert_all_captured(algorithm)


def test_a_program_that_fails_gives_way_to_the_eager_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where it fails only when it runs, or gives something else."""
    run = captured.Program.run

    def failing(self: Any) -> None:
        raise RuntimeError("some elements of the input tensor and the written-to tensor overlap")

    def wrong(self: Any) -> None:
        run(self)
        self.outputs[0].add_(1e3)

    def loss(nets: Any, batch: Any, *_: Any) -> dict[str, Tensor]:
        return {"actor_loss": error_of(nets, batch)}

    for broken in (failing, wrong):
        monkeypatch.setattr(captured.Program, "run", broken)
        eager, ours = cloner(loss), cloner(loss, CapturedEngine())
        assert_close_updates(eager, ours, [plain_batch(seed) for seed in range(4)], rtol=1e-5)
        assert ours.engine.eager == {"actor"}


@pytest.mark.parametrize("engine", [EagerEngine, CapturedEngine])
def test_what_an_engine_refuses(engine: Any) -> None:
    weight, unused = (torch.ones(2, requires_grad=True) for _ in range(2))
    inputs = {"x": torch.ones(2)}
    refusing = engine()

    def product(values: Any) -> Any:
        return (weight * values["x"]).sum(), {}

    for _ in range(3):
        with pytest.raises(RuntimeError, match=r"a loss is one number, but this has shape \(2,\)"):
            refusing.gradients("a", lambda i: (weight * i["x"], {}), [weight], inputs)
        with pytest.raises(UnusedParametersError) as caught:
            refusing.gradients("b", product, [unused, weight, unused], inputs)
        assert caught.value.positions == [0, 2]
        with pytest.raises(UnusedParametersError):
            refusing.gradients("c", lambda i: (i["x"].sum(), {}), [weight], inputs)
