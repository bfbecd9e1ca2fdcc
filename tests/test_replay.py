"""The default stepper repeats operations once seen, with the eager stepper's results to the last bit."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rl_training.algorithms import Algorithm, get_algorithm_spec, list_algorithm_specs
from rl_training.algorithms.bc import BC, BCConfig
from rl_training.algorithms.rebrac import ReBRAC
from rl_training.config import option
from rl_training.data import TransitionDataset
from rl_training.data.packing.layout import RowLayout
from rl_training.data.transitions.batch import Batch, memory_of
from rl_training.models.pool import POOL
from rl_training.runtime import replay as replay_module
from rl_training.runtime.program import Program
from rl_training.runtime.recording import Recorder, UnrepeatableError
from rl_training.runtime.replay import ReplayStepper
from rl_training.spec import ProblemSpec
from tests.support.algorithms import SPECS, batch_of, make
from tests.support.data import make_fields
from tests.test_stepper import SPEC, make_batch, tensors_after

KINDS = [(spec.name, kind) for spec in list_algorithm_specs() for kind in spec.action_kinds]


def data_of(kind: str) -> TransitionDataset:
    fields = make_fields()
    if kind == "discrete":
        fields["actions"] = torch.arange(400) % 4
    return TransitionDataset.from_dict(fields)


def recorded(stepper: Any) -> list[Any]:
    """What each loss, and each function evaluated beforehand, has come to."""
    return list(stepper.recordings.replays.values())


def assert_same_updates(eager: Any, replay: Any, batches: list[Any]) -> None:
    replay.stepper = ReplayStepper()
    for batch in batches:
        expected, found = eager.update(batch), replay.update(batch)
        assert list(expected) == list(found)
        assert all(torch.equal(expected[key], found[key]) for key in expected)
    ours, theirs = replay.training_state(), eager.training_state()
    assert all(torch.equal(ours.tensors[key], theirs.tensors[key]) for key in theirs.tensors)


@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_updates_are_the_eager_ones_and_repeated(name: str, kind: str) -> None:
    eager, replay, dataset = make(name, kind), make(name, kind), data_of(kind)
    # enough for an actor that waits; some in another size, some again
    batches = [batch_of(dataset, seed=seed) for seed in range(6)]
    batches += [batch_of(dataset, size=16, seed=seed) for seed in range(6)]
    assert_same_updates(eager, replay, batches + batches[:2])
    assert recorded(replay.stepper)
    assert all(each is not None and each.proved for each in recorded(replay.stepper))


LARGE: list[tuple[str, dict[str, Any]]] = [
    ("sac", {}),
    ("rebrac", {}),  # normalised members one by one
    ("rebrac", {"critic_layer_norm": False}),
    ("rlpd", {"num_critics": 3}),
    ("cql", {"cql_target_gap": 1.0, "max_target_backup": True}),
    ("crr", {"advantage_type": "max"}),
]


@pytest.mark.parametrize(("name", "options"), LARGE)
def test_so_they_are_where_memory_is_pooled(name: str, options: dict[str, Any]) -> None:
    spec = get_algorithm_spec(name)
    config = spec.config(hidden_sizes=(256, 256), batch_size=128, **options)
    eager, replay = (spec.algorithm(SPECS["continuous"], config) for _ in range(2))
    dataset = data_of("continuous").with_next_actions()
    batches = [batch_of(dataset, size=128, seed=seed) for seed in range(6)]
    assert_same_updates(eager, replay, batches)
    assert all(each is not None and each.proved for each in recorded(replay.stepper))


def test_terms_of_earlier_updates_stay_as_they_are() -> None:
    algorithm = make("sac")
    algorithm.stepper = ReplayStepper()
    kept, values = [], []
    for seed in range(5):
        terms = algorithm.update(batch_of(data_of("continuous"), seed=seed))
        kept.append(terms)
        values.append({key: value.item() for key, value in terms.items()})
    assert [{key: value.item() for key, value in terms.items()} for terms in kept] == values


def test_networks_that_move_to_other_memory_are_recorded_again() -> None:
    eager, replay = make("td3_bc"), make("td3_bc")
    batches = [batch_of(data_of("continuous"), seed=seed) for seed in range(6)]
    assert_same_updates(eager, replay, batches)
    for algorithm in (eager, replay):
        for parameter in algorithm.parameters():
            parameter.data = parameter.data.clone() + 0.01
    stepper = replay.stepper
    for batch in batches:
        eager.update(batch), replay.update(batch)
    assert replay.stepper is stepper
    assert all(
        torch.equal(a, b) for a, b in zip(eager.parameters(), replay.parameters(), strict=True)
    )


def changed_in_the_middle(change: Any, name: str = "sac", kind: str = "continuous") -> None:
    """Updates are the eager ones also after a change of the learner or of the batch."""
    eager, replay = make(name, kind), make(name, kind)
    replay.stepper = ReplayStepper()
    for seed in range(10):
        batches = [batch_of(data_of(kind), seed=seed % 5) for _ in range(2)]
        for algorithm, batch in zip((eager, replay), batches, strict=True):
            if seed == 5:
                change(algorithm)
            algorithm.update(batch)
    assert all(map(torch.equal, eager.parameters(), replay.parameters()))


def test_it_sees_that_a_target_network_has_moved() -> None:
    def move(algorithm: Any) -> None:
        pairs = zip(
            algorithm.target_critic.parameters(), algorithm.critic.parameters(), strict=True
        )
        for target, source in pairs:
            target.data = source.data.clone()

    changed_in_the_middle(move)


def test_it_sees_that_the_config_is_another() -> None:
    def change(algorithm: Any) -> None:
        algorithm.config = algorithm.config.model_copy(update={"gamma": 0.5})

    changed_in_the_middle(change)


def test_a_stepper_may_serve_one_learner_after_the_other() -> None:
    eager, first, second = make("td3_bc"), make("td3_bc"), make("td3_bc")
    first.stepper = second.stepper = ReplayStepper()
    batches = [batch_of(data_of("continuous"), seed=seed) for seed in range(6)]
    for algorithm in (eager, first, second):
        for batch in batches:
            algorithm.update(batch)
    assert all(map(torch.equal, eager.parameters(), second.parameters()))


@pytest.mark.parametrize("field", ["actions", "rewards", "weights"])
def test_a_batch_that_is_changed_in_place_is_seen(field: str) -> None:
    eager, replay = make("dqn", "discrete"), make("dqn", "discrete")
    replay.stepper = ReplayStepper()
    dataset = data_of("discrete")
    rows = dataset.rows_at(torch.arange(32))
    batches = [
        Batch.from_rows(rows.clone(), dataset.layout, weights=torch.ones(32)) for _ in range(2)
    ]
    for step in range(6):
        for algorithm, batch in zip((eager, replay), batches, strict=True):
            if step > 2:  # when it is repeated
                getattr(batch, field).copy_((torch.arange(32) + step) % 2)
            algorithm.update(batch)
    assert all(map(torch.equal, eager.parameters(), replay.parameters()))


def test_a_batch_may_have_a_field_with_one_number_for_all() -> None:
    algorithm = make("td3_bc")
    algorithm.stepper = ReplayStepper()
    for seed in range(5):
        batch = batch_of(data_of("continuous"), seed=seed)
        algorithm.update(replace(batch, terminations=torch.zeros(()).expand(len(batch))))


@pytest.mark.parametrize("size", [10, 16])  # of which the first puts parts across cache lines
def test_joint_updates_are_resumed_to_the_bit(size: int) -> None:
    spec = get_algorithm_spec("redq")
    config = spec.config(hidden_sizes=(5, 3), batch_size=size, num_critics=3)
    problem = ProblemSpec(31, "continuous", 2, (-1.0, -1.0), (1.0, 1.0))
    torch.manual_seed(0)
    rows = torch.randn(10, 2 * size, 31 + 2 + 31 + 3)

    def updated(algorithm: Any, rows: Tensor) -> Any:
        algorithm.stepper = ReplayStepper()
        for each in rows:
            algorithm.update(Batch.from_rows(each.clone(), RowLayout(31, 2)))
        return algorithm

    whole = updated(spec.algorithm(problem, config), rows)
    half = updated(spec.algorithm(problem, config), rows[:5])
    resumed = spec.algorithm(problem, config)
    resumed.load_training_state(half.training_state())
    updated(resumed, rows[5:])
    eager = spec.algorithm(problem, config)
    for each in rows:
        eager.update(Batch.from_rows(each.clone(), RowLayout(31, 2)))
    for other in (resumed, eager):
        assert all(map(torch.equal, whole.parameters(), other.parameters()))


def test_a_learner_can_be_pickled_and_goes_on_as_it_would() -> None:
    algorithm = make("td3_bc")
    algorithm.stepper = ReplayStepper()
    batches = [batch_of(data_of("continuous"), seed=seed) for seed in range(8)]
    for batch in batches[:4]:
        algorithm.update(batch)
    copied = pickle.loads(pickle.dumps(algorithm))
    assert recorded(copied.stepper) == []
    for batch in batches[4:]:
        for each in (algorithm, copied):
            each.update(batch)
    assert all(map(torch.equal, algorithm.parameters(), copied.parameters()))


def test_a_copy_of_a_learner_repeats_nothing_of_the_original() -> None:
    original = make("td3_bc")
    original.stepper = ReplayStepper()
    batches = [batch_of(data_of("continuous"), seed=seed) for seed in range(8)]
    for batch in batches[:4]:
        original.update(batch)
    other = copy.deepcopy(original)
    before = [value.clone() for value in original.parameters()]
    for batch in batches[4:]:
        other.update(batch)
    assert all(torch.equal(a, b) for a, b in zip(before, original.parameters(), strict=True))
    assert not any(
        torch.equal(a, b) for a, b in zip(before, other.actor.parameters(), strict=False)
    )


def test_it_follows_progress_online() -> None:
    eager, replay = make("rebrac"), make("rebrac")
    assert ReBRAC.follows_progress
    replay.stepper = ReplayStepper()
    for seed in range(6):
        for algorithm in (eager, replay):
            algorithm.online_progress = seed / 6
            algorithm.update(batch_of(data_of("continuous"), seed=seed))
    assert recorded(replay.stepper) == []
    assert all(
        torch.equal(a, b) for a, b in zip(eager.parameters(), replay.parameters(), strict=True)
    )


@pytest.mark.parametrize("width", [8, 4096])
def test_updates_keep_no_tensor(width: int) -> None:
    algorithm = BC(SPEC, BCConfig(hidden_sizes=(width, 8)))
    algorithm.stepper = ReplayStepper()
    block = replay_module.ROWS  # updates whose numbers are made room for together
    assert tensors_after(algorithm, 3 + block) == tensors_after(algorithm, 2 * block)


def test_ten_thousand_updates_keep_no_tensor() -> None:
    algorithm = BC(SPEC, BCConfig(hidden_sizes=(8,)))
    algorithm.stepper = ReplayStepper()
    block = replay_module.ROWS
    assert tensors_after(algorithm, 3) == tensors_after(algorithm, 10_000 // block * block)


def test_with_many_forms_of_batches_some_stay_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_module, "MOST", 3)
    eager, replay, dataset = make("bc"), make("bc"), data_of("continuous")
    sizes = [batch_of(dataset, size=size, seed=size) for size in (4, 5, 6, 7, 8)]
    assert_same_updates(eager, replay, sizes * 3)
    assert len(recorded(replay.stepper)) == 3


# -- what must not be repeated --------------------------------------------------------------------


def biased(nets: Any, batch: Any, change: Any) -> dict[str, Tensor]:
    loss = (nets.actor(batch.obs) - batch.actions).square().mean()
    return {"actor_loss": change(nets, batch, loss)}


def seen_anew(nets: Any, batch: Any, loss: Tensor) -> Tensor:
    nets.seen = getattr(nets, "seen", torch.zeros(())) + 1  # a tensor, but another one each time
    return loss * nets.seen


STRANGE = {
    "read as a list": lambda nets, batch, loss: (
        loss * (3.0 if min(batch.rewards.tolist()) < -1.5 else 1.0)
    ),
    "random": lambda nets, batch, loss: loss * torch.rand(()),
    "read": lambda nets, batch, loss: loss * float(batch.rewards.sum().cos()),
    "read by numpy": lambda nets, batch, loss: loss * float(batch.obs.numpy().sum()),
    "of a size that depends on data": lambda nets, batch, loss: (
        loss + nets.actor(batch.obs)[batch.obs[:, 0] > 0].sum()
    ),
    "a state that is exchanged": seen_anew,
    "a state that is changed in place": lambda nets, batch, loss: loss * nets.count.add_(1),
}


@pytest.mark.parametrize("what", STRANGE)
def test_what_cannot_be_repeated_stays_eager(what: str) -> None:
    class Strange(BC):
        losses = {"actor": lambda nets, batch, *_: biased(nets, batch, STRANGE[what])}
        repeatable = True

    def updated(stepper: Any) -> list[Tensor]:
        algorithm = Strange(SPEC, BCConfig(hidden_sizes=(8,)))
        algorithm.count = torch.zeros(())
        if stepper is not None:
            algorithm.stepper = stepper
        torch.manual_seed(0)
        for seed in range(6):
            algorithm.update(make_batch(seed))
        return list(algorithm.parameters())

    stepper = ReplayStepper()
    assert all(map(torch.equal, updated(None), updated(stepper)))
    assert recorded(stepper) == [None]


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
    error = (nets.actor(batch.obs) - batch.actions).square().mean()
    return {"actor_loss": error * batch.rewards.mean() + 0.1 * nets.actor.extra}


def views(nets: Any, batch: Any, *_: Any) -> dict[str, Tensor]:
    error = (nets.actor(batch.obs) - batch.actions).square().mean()
    weight = nets.actor.net.layers[0].weight
    return {"actor_loss": error, "reward": batch.rewards[0], "weight": weight[0, 0]}


@pytest.mark.parametrize("loss", [element_of_a_vector, parts_of_a_stack, constant_gradient, views])
def test_unusual_losses_are_repeated_as_they_are(loss: Any) -> None:
    class Unusual(Algorithm[Clipped]):
        losses = {"actor": loss}
        repeatable = True

        def build(self, spec: Any, config: Any) -> None:
            BC.build(self, spec, config)  # type: ignore[arg-type]
            if loss is constant_gradient:
                self.actor.extra = nn.Parameter(torch.zeros(()))

    eager, replay = (Unusual(SPEC, Clipped(hidden_sizes=(8,))) for _ in range(2))
    # the norm is too large only later on
    batches = [
        replace(make_batch(seed), rewards=torch.full((len(make_batch(seed)),), 10.0 ** (seed - 3)))
        for seed in range(8)
    ]
    assert_same_updates(eager, replay, batches)
    assert all(each is not None and each.proved for each in recorded(replay.stepper))


def test_terms_are_copies_of_what_changes_later() -> None:
    class Viewing(BC):
        losses = {"actor": views}
        repeatable = True

    for stepper in (None, ReplayStepper()):
        algorithm = Viewing(SPEC, BCConfig(hidden_sizes=(8,)))
        algorithm.stepper = stepper or algorithm.stepper
        kept, expected = [], []
        for seed in range(6):
            batch = make_batch(seed)
            weight = algorithm.actor.net.layers[0].weight[0, 0].item()
            expected.append((batch.rewards[0].item(), weight))
            kept.append(algorithm.update(batch))
        found = [(terms["reward"].item(), terms["weight"].item()) for terms in kept]
        assert found == expected


def test_noise_that_a_loss_changes_is_changed_for_the_next_loss() -> None:
    def shrinking(nets: Any, batch: Any, noise: Any, config: Any) -> dict[str, Tensor]:
        error = (nets.actor(batch.obs) - batch.actions).square().mean()
        return {"actor_loss": error * noise["z"].mul_(0.1).mean()}

    class Shrinking(BC):
        losses = {"actor": shrinking}
        repeatable = True

        def update_step(self, batch: Any) -> Any:
            noise = {"z": self.standard_normal(batch.actions)}
            self.minimize("actor", batch, noise)
            return self.minimize("actor", batch, noise)

    eager, replay = (Shrinking(SPEC, BCConfig(hidden_sizes=(8,))) for _ in range(2))
    assert_same_updates(eager, replay, [make_batch(seed) for seed in range(4)])


@pytest.mark.parametrize(
    ("width", "options"),
    [((33, 17), {}), ((64, 64), {"dueling": True}), ((7,), {}), ((64, 33), {})],
)
def test_clipped_gradients_are_the_eager_ones(width: Any, options: Any) -> None:
    spec = get_algorithm_spec("dqn")
    config = spec.config(hidden_sizes=width, batch_size=32, max_grad_norm=0.1, **options)
    problem, dataset = SPECS["discrete"], data_of("discrete")
    eager, replay = (spec.algorithm(problem, config) for _ in range(2))
    batches = [batch_of(dataset, size=32, seed=seed) for seed in range(30)]
    assert_same_updates(eager, replay, batches)
    assert all(each is not None and each.proved for each in recorded(replay.stepper))


def test_an_optimizer_may_keep_a_gradient() -> None:
    class Keeping(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:
            for parameter in self.param_groups[0]["params"]:
                kept = self.state[parameter].setdefault("kept", torch.zeros_like(parameter))
                parameter.data -= 0.1 * (2 * parameter.grad - kept)
                self.state[parameter] = {"kept": parameter.grad, "times": 1}

    class Optimistic(BC):
        def build_optimizer(self, name: str) -> Any:
            return Keeping(self.parameters_of(name), 0.1)

    eager, replay = (Optimistic(SPEC, BCConfig(hidden_sizes=(8,))) for _ in range(2))
    assert_same_updates(eager, replay, [make_batch(seed) for seed in range(6)])
    again = Optimistic(SPEC, BCConfig(hidden_sizes=(8,)))
    again.load_training_state(replay.training_state())
    parameter = next(again.actor.parameters())
    assert again.optimizers["actor"].state[parameter]["times"] == 1


def test_losses_of_others_are_repeated_only_if_they_say_so() -> None:
    class Own(BC):
        losses = {"actor": BC.losses["actor"]}

    class Sure(Own):
        repeatable = True

    assert BC.repeatable
    assert not Own.repeatable
    for algorithm_class in (Own, Sure):
        algorithm = algorithm_class(SPEC, BCConfig(hidden_sizes=(8,)))
        algorithm.stepper = ReplayStepper()
        for seed in range(3):
            algorithm.update(make_batch(seed))
        assert len(recorded(algorithm.stepper)) == int(algorithm_class is Sure)


def test_an_error_of_a_loss_is_its_own() -> None:
    class Half(BC):
        losses = {
            "actor": lambda nets, batch, noise, config: {
                "actor_loss": nets.actor.net.layers[0](batch.obs).mean()
            }
        }
        repeatable = True

    algorithm = Half(SPEC, BCConfig(hidden_sizes=(8,)))
    algorithm.stepper = ReplayStepper()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="actor_loss does not depend on"):
            algorithm.update(make_batch(0))


# -- programs -------------------------------------------------------------------------------------


def program_of(function: Any, *inputs: Tensor) -> tuple[Program, list[Tensor]]:
    with Recorder() as recorder:
        outputs = function(*inputs)
    return Program(recorder, outputs), outputs


def test_a_program_does_only_what_its_outputs_need() -> None:
    def function(x: Tensor) -> list[Tensor]:
        constant = torch.full((3,), 2.0).exp()  # always the same
        unused = x.sin()
        unused.add_(1)
        y = (x.t().t() * constant).view(1, 3)  # one operation and several views
        return [y.relu_()]

    x = torch.tensor([1.0, -1.0, 2.0])
    program, (y,) = program_of(function, x)
    assert len(program) == 2
    x.copy_(torch.tensor([-3.0, 0.5, 1.0]))
    program.run()
    assert torch.equal(program.outputs[0], function(x)[0])
    assert program.outputs[0].data_ptr() == y.data_ptr()


def test_numbers_are_gathered_in_one_tensor() -> None:
    def function(x: Tensor) -> list[Tensor]:
        total = x.sum()
        return [total, torch.ones(()), total, total.view(1)[0], (total.expand(3) * x).mean(), x[0]]

    x = torch.rand(3)
    with Recorder() as recorder:
        outputs = function(x)
    program = Program(recorder, [], outputs)
    for _ in range(2):
        x.copy_(torch.rand(3))
        program.run()
        assert torch.equal(program.numbers, torch.stack(function(x)))


@pytest.mark.parametrize(("size", "calls"), [(4, 6), (3, 7)])
def test_what_is_only_joined_is_written_side_by_side(size: int, calls: int) -> None:
    """Unless a part would then lie across cache lines."""

    def function(x: Tensor) -> list[Tensor]:
        parts = [x + 1, (x * 2).relu_(), x.t() @ x]
        joined = torch.cat([part.reshape(-1) for part in parts])
        return [*parts, joined, torch.stack(parts[:2]), joined.norm()]

    x = torch.randn(size, size)
    program, _ = program_of(function, x)
    assert len(program) == calls
    x.copy_(torch.randn(size, size))
    program.run()
    assert all(map(torch.equal, program.outputs, function(x)))
    first, second, third, joined, stacked, _ = program.outputs
    # the parts have one place each, so that one join is by copying in any case
    assert (memory_of(first) == memory_of(second) == memory_of(stacked)) == (size == 4)
    assert memory_of(third) != memory_of(joined)


@pytest.mark.parametrize(
    "join",
    [
        lambda a, b: torch.cat([a, b], 1),
        lambda a, b: torch.cat([a, b], dim=-1),
        lambda a, b: torch.cat([a, a]),
        lambda a, b: torch.cat([a.t(), b.t()]),
        lambda a, b: torch.cat([a[1:], b]),
        lambda a, b: torch.cat([a, b]).mul_(2),
    ],
    ids=[
        "along rows",
        "along rows, by name",
        "twice",
        "transposed",
        "a part",
        "changed afterwards",
    ],
)
def test_other_joins_are_made(join: Any) -> None:
    def function(x: Tensor) -> list[Tensor]:
        a, b = x.exp(), x.cos()
        return [a, b, join(a, b), a.add(1), b.add(1)]

    x = torch.randn(2, 2)
    program, _ = program_of(function, x)
    x.copy_(torch.randn(2, 2))
    program.run()
    assert all(map(torch.equal, program.outputs, function(x)))


def test_a_part_that_changes_after_it_is_joined_is_joined_by_a_copy() -> None:
    def function(x: Tensor) -> list[Tensor]:
        a, b = x.exp(), x.cos()
        joined = torch.cat([a, b])
        return [joined, a.mul_(2)]

    x = torch.randn(2)
    program, _ = program_of(function, x)
    x.copy_(torch.randn(2))
    program.run()
    assert all(map(torch.equal, program.outputs, function(x)))


def test_views_follow_results_that_are_made_anew() -> None:
    scale, shift = torch.rand(4), torch.rand(4)

    def function(x: Tensor) -> list[Tensor]:
        normal, mean, deviation = torch.native_layer_norm(x, (4,), scale, shift, 1e-5)
        return [normal.t()[1:] @ normal, normal[0].relu_(), mean, deviation]

    x = torch.rand(5, 4)
    program, _ = program_of(function, x)
    x.copy_(torch.rand(5, 4))
    program.run()
    assert all(map(torch.equal, program.outputs, function(x)))


def test_nothing_but_its_own_memory_is_written_to() -> None:
    outside = torch.zeros(2)
    with pytest.raises(UnrepeatableError, match="not its own"):
        program_of(lambda x: [outside.add_(x)], torch.ones(2))


def test_memory_of_a_recording_is_not_handed_out_to_others() -> None:
    shape = (1000, 100)
    POOL.give(torch.empty(shape))
    own: Any = {}
    with POOL.replaced_by(own):
        taken = POOL.take(shape, torch.float32)
        POOL.give(taken)
    assert POOL.take(shape, torch.float32) is not taken
    assert own[shape, torch.float32] == [taken]


def test_recording_loads_no_compiler() -> None:
    code = (
        "import sys, torch\n"
        "from rl_training.runtime.recording import Recorder\n"
        "with Recorder():\n    torch.rand(3).mul_(2)\n"
        "assert 'torch._dynamo' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
