"""One update of an offline algorithm, sampling included, against CORL and d3rlpy, in one thread.

    python benchmarks/offline_speed.py --corl PATH [--algos td3_bc,iql] [--json speed.json]
    .venv-parity/bin/python benchmarks/offline_speed.py --d3rlpy     # after `make parity`

PATH is a checkout of CORL; its modules are imported as they are, and what they import but do not need
here is stubbed. 1M random transitions in episodes of 1,000, observations of 17 numbers, actions of 6.
Both sides have networks of the same sizes, batches of the same size and the same number of draws.
Logging is left out on both sides, learning-rate schedules are not. With `--update-only` the same batch
is used again and again, which leaves sampling out: d3rlpy gathers a batch row by row in Python.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import torch
from interleaved import interleave, print_comparison
from numpy.typing import NDArray

from rl_training.data.offline_dataset import TransitionDataset
from rl_training.runtime.assemble import new_run
from rl_training.runtime.callbacks import CallbackList
from rl_training.runtime.controls import build_control_callbacks
from rl_training.runtime.train_config import TrainConfig

ROWS, EPISODE, OBS_DIM, ACTION_DIM = 1_000_000, 1_000, 17, 6
Fields = dict[str, NDArray[Any]]
Call = Callable[[], object]


def random_fields() -> Fields:
    rng = np.random.default_rng(0)
    terminals = rng.random(ROWS) < 0.001
    return {
        "observations": rng.standard_normal((ROWS, OBS_DIM), np.float32),
        "actions": rng.random((ROWS, ACTION_DIM), np.float32) * 2 - 1,
        "rewards": rng.standard_normal(ROWS, np.float32),
        "next_observations": rng.standard_normal((ROWS, OBS_DIM), np.float32),
        "terminals": terminals,
        "timeouts": (np.arange(1, ROWS + 1) % EPISODE == 0) & ~terminals,
    }


@dataclass(frozen=True)
class Case:
    """What both sides are asked to do; `options` are ours, `theirs` those of the peer."""

    algo: str
    batch_size: int = 256
    hidden_sizes: tuple[int, ...] = (256, 256)
    options: dict[str, Any] = field(default_factory=dict)
    theirs: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.algo}, batch {self.batch_size}, {len(self.hidden_sizes)} x {self.hidden_sizes[0]}"


DEEP = (256, 256, 256)
# sizes and options of CORL's scripts; only these fit its classes
CORL_CASES = [
    Case("td3_bc"),
    Case("iql"),
    Case("awac", hidden_sizes=DEEP),
    Case("cql", hidden_sizes=DEEP, options={"cql_alpha": 10.0}),
]
D3RLPY_CASES = [
    Case("rebrac", hidden_sizes=DEEP),
    Case("rebrac", batch_size=1024, hidden_sizes=DEEP),
    Case("crr", theirs={"n_critics": 2, "n_action_samples": 4}),
    Case("td3_bc"),
    Case("iql"),
    Case("awac", hidden_sizes=DEEP, theirs={"lam": 1 / 3}),
    # a rate of 0 leaves out d3rlpy's learned multiplier, which ours has as an option
    Case("cql", hidden_sizes=DEEP, theirs={"alpha_learning_rate": 0.0}),
]


def stream(sample: Call, update: Callable[[Any], object], update_only: bool) -> Call:
    if not update_only:
        return lambda: update(sample())
    batch = sample()
    return lambda: update(batch)


def our_update(case: Case, dataset: TransitionDataset, update_only: bool) -> Call:
    """The trainer's loop, in a run put together as for training."""
    options = {
        "action_low": -1.0,
        "action_high": 1.0,
        "normalize_rewards": False,
        "batch_size": case.batch_size,
        "hidden_sizes": case.hidden_sizes,
        **case.options,
    }
    run = new_run(TrainConfig(algo=case.algo, device="cpu", algo_kwargs=options), dataset=dataset)
    callbacks = CallbackList(
        build_control_callbacks(
            run.config.groups.controls,
            total_timesteps=run.config.total_timesteps,
            default_schedules=run.algorithm.schedules,
        )
    )

    def update(batch: Any) -> None:
        terms = run.algorithm.update(batch)
        run.state.update_count = run.algorithm.update_count
        run.state.global_step, run.state.epoch = run.experience.clock(run.state)
        callbacks.on_update_end(run.state, terms)

    callbacks.on_train_start(run.state)
    return stream(lambda: next(run.experience), update, update_only)


# -- CORL -------------------------------------------------------------------------------------


def import_corl(checkout: Path, name: str) -> ModuleType:
    for stub in ("d4rl", "gym", "pyrallis", "wandb"):
        sys.modules[stub] = MagicMock()
    path = checkout / "algorithms" / "offline" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"corl_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def adam(network: torch.nn.Module, rate: float = 3e-4) -> torch.optim.Optimizer:
    return torch.optim.Adam(network.parameters(), lr=rate)


def corl_td3_bc(corl: Any) -> Callable[[Any], object]:
    actor = corl.Actor(OBS_DIM, ACTION_DIM, 1.0)
    first, second = (corl.Critic(OBS_DIM, ACTION_DIM) for _ in range(2))
    trainer = corl.TD3_BC(1.0, actor, adam(actor), first, adam(first), second, adam(second))
    return trainer.train


def corl_iql(corl: Any) -> Callable[[Any], object]:
    actor = corl.GaussianPolicy(OBS_DIM, ACTION_DIM, 1.0)
    critics, value = corl.TwinQ(OBS_DIM, ACTION_DIM), corl.ValueFunction(OBS_DIM)
    trainer = corl.ImplicitQLearning(
        1.0, actor, adam(actor), critics, adam(critics), value, adam(value)
    )
    return trainer.train


def corl_awac(corl: Any) -> Callable[[Any], object]:
    actor = corl.Actor(OBS_DIM, ACTION_DIM, 256)
    first, second = (corl.Critic(OBS_DIM, ACTION_DIM, 256) for _ in range(2))
    trainer = corl.AdvantageWeightedActorCritic(
        actor, adam(actor), first, adam(first), second, adam(second), awac_lambda=1 / 3
    )
    return trainer.update


def corl_cql(corl: Any) -> Callable[[Any], object]:
    actor = corl.TanhGaussianPolicy(OBS_DIM, ACTION_DIM, 1.0, orthogonal_init=True)
    first, second = (corl.FullyConnectedQFunction(OBS_DIM, ACTION_DIM, True) for _ in range(2))
    trainer = corl.ContinuousCQL(
        first,
        adam(first),
        second,
        adam(second),
        actor,
        adam(actor, 3e-5),
        target_entropy=-float(ACTION_DIM),
        policy_lr=3e-5,
        cql_alpha=10.0,
        bc_steps=0,  # as in its TrainConfig; the class has another default
    )
    return trainer.train


CORL_TRAINERS = {"td3_bc": corl_td3_bc, "iql": corl_iql, "awac": corl_awac, "cql": corl_cql}


def corl_update(case: Case, checkout: Path, fields: Fields, update_only: bool) -> Call:
    """What CORL's `train` does per update."""
    corl: Any = import_corl(checkout, case.algo)
    buffer = corl.ReplayBuffer(OBS_DIM, ACTION_DIM, ROWS, "cpu")
    with redirect_stdout(sys.stderr):  # it prints the size; the table stays clean
        buffer.load_d4rl_dataset(fields)
    update = CORL_TRAINERS[case.algo](corl)
    return stream(
        lambda: [part.to("cpu") for part in buffer.sample(case.batch_size)], update, update_only
    )


# -- d3rlpy -----------------------------------------------------------------------------------

D3RLPY_NAMES = {
    "rebrac": "ReBRAC", "crr": "CRR", "td3_bc": "TD3PlusBC", "iql": "IQL", "awac": "AWAC", "cql": "CQL",
}  # fmt: skip


def d3rlpy_buffer(fields: Fields) -> Any:
    from d3rlpy.dataset import MDPDataset

    names = ("observations", "actions", "rewards", "terminals", "timeouts")
    return MDPDataset(**{name: fields[name].astype(np.float32) for name in names})


def d3rlpy_update(case: Case, buffer: Any, update_only: bool) -> Call:
    """What d3rlpy's `fitter` does per update."""
    import d3rlpy

    def encoder(**options: Any) -> Any:
        return d3rlpy.models.VectorEncoderFactory(list(case.hidden_sizes), **options)

    networks = {
        "actor_encoder_factory": encoder(),
        "critic_encoder_factory": encoder(use_layer_norm=case.algo == "rebrac"),
    }
    if case.algo == "iql":
        networks["value_encoder_factory"] = encoder()
    config = getattr(d3rlpy.algos, f"{D3RLPY_NAMES[case.algo]}Config")
    algorithm = config(batch_size=case.batch_size, **networks, **case.theirs).create(device=False)
    algorithm.create_impl((OBS_DIM,), ACTION_DIM)
    return stream(
        lambda: buffer.sample_transition_batch(case.batch_size), algorithm.update, update_only
    )


# -- comparison -------------------------------------------------------------------------------


def contests(arguments: argparse.Namespace) -> Iterator[tuple[Case, str, Call, Call]]:
    """The case, the peer's name, our update, the peer's."""
    fields, alone = random_fields(), arguments.update_only
    dataset = TransitionDataset.from_dict(fields)
    chosen = arguments.algos.split(",") if arguments.algos else list(D3RLPY_NAMES)
    if arguments.corl:
        for case in (case for case in CORL_CASES if case.algo in chosen):
            theirs = corl_update(case, arguments.corl, fields, alone)
            yield case, "CORL", our_update(case, dataset, alone), theirs
    if arguments.d3rlpy:
        buffer = d3rlpy_buffer(fields)
        for case in (case for case in D3RLPY_CASES if case.algo in chosen):
            theirs = d3rlpy_update(case, buffer, alone)
            yield case, "d3rlpy", our_update(case, dataset, alone), theirs


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corl", type=Path, help="a checkout of CORL")
    parser.add_argument("--d3rlpy", action="store_true", help="needs d3rlpy: .venv-parity")
    parser.add_argument("--algos", help="names with commas between; default: all")
    parser.add_argument("--update-only", action="store_true", help="leave sampling out")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--updates", type=int, default=20, help="updates per round")
    parser.add_argument("--json", type=Path, help="also write the numbers there")
    arguments = parser.parse_args()
    if not arguments.corl and not arguments.d3rlpy:
        parser.error("nothing to compare with: give --corl PATH, --d3rlpy, or both")
    return arguments


def main() -> None:
    arguments = parse_arguments()
    torch.set_num_threads(1)
    results = []
    for case, peer, ours, theirs in contests(arguments):
        contestants = {"ours": ours, peer: theirs}
        timings = interleave(contestants, rounds=arguments.rounds, calls=arguments.updates)
        print_comparison(str(case), "ours", peer, timings)
        ratio, low, high = timings["ours"].ratio(timings[peer])
        microseconds = {name: timing.microseconds for name, timing in timings.items()}
        numbers = {"microseconds": microseconds, "ratio": ratio, "quartiles": [low, high]}
        results.append({"case": str(case), "update_only": arguments.update_only, **numbers})
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
