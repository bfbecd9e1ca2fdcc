"""One TD3+BC update, sampling included, against CORL's trainer, in one thread.

    python benchmarks/td3_bc.py --corl PATH [--rounds 15] [--updates 100]

PATH is a checkout of CORL. 1M random transitions, observations of 17 numbers, actions of 6, 256-256
networks, batches of 256. CORL's module is imported as it is; what it imports but does not need here is
stubbed.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Callable
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
from rl_training.runtime.train_config import TrainConfig

ROWS, OBS_DIM, ACTION_DIM = 1_000_000, 17, 6
Fields = dict[str, NDArray[Any]]


def random_fields() -> Fields:
    rng = np.random.default_rng(0)
    return {
        "observations": rng.standard_normal((ROWS, OBS_DIM), np.float32),
        "actions": rng.random((ROWS, ACTION_DIM), np.float32) * 2 - 1,
        "rewards": rng.standard_normal(ROWS, np.float32),
        "next_observations": rng.standard_normal((ROWS, OBS_DIM), np.float32),
        "terminals": rng.random(ROWS) < 0.001,
    }


def our_update(fields: Fields) -> Callable[[], object]:
    """What the trainer does per update, in a run put together as for training."""
    config = TrainConfig(
        algo="td3_bc", device="cpu", algo_kwargs={"action_low": -1.0, "action_high": 1.0}
    )
    run = new_run(config, dataset=TransitionDataset.from_dict(fields))
    return lambda: run.algorithm.update(next(run.experience))


def import_corl(checkout: Path) -> ModuleType:
    for name in ("d4rl", "gym", "pyrallis", "wandb"):
        sys.modules[name] = MagicMock()
    path = checkout / "algorithms" / "offline" / "td3_bc.py"
    spec = importlib.util.spec_from_file_location("corl_td3_bc", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def corl_update(corl: Any, fields: Fields) -> Callable[[], object]:
    """What CORL's `train` does per update; logging is left out."""
    config = corl.TrainConfig(device="cpu")
    mean, std = corl.compute_mean_std(fields["observations"], eps=1e-3)
    normalized = {
        key: corl.normalize_states(fields[key], mean, std)
        for key in ("observations", "next_observations")
    }
    buffer = corl.ReplayBuffer(OBS_DIM, ACTION_DIM, ROWS, "cpu")
    buffer.load_d4rl_dataset({**fields, **normalized})
    actor = corl.Actor(OBS_DIM, ACTION_DIM, 1.0)
    critics = [corl.Critic(OBS_DIM, ACTION_DIM) for _ in range(2)]
    optimizers = [torch.optim.Adam(net.parameters(), lr=3e-4) for net in (actor, *critics)]
    trainer = corl.TD3_BC(
        1.0, actor, optimizers[0], critics[0], optimizers[1], critics[1], optimizers[2]
    )
    return lambda: trainer.train([part.to("cpu") for part in buffer.sample(config.batch_size)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corl", type=Path, required=True, help="a checkout of CORL")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--updates", type=int, default=100, help="updates per round")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    fields = random_fields()
    contestants = {
        "ours": our_update(fields),
        "CORL": corl_update(import_corl(arguments.corl), fields),
    }
    timings = interleave(contestants, rounds=arguments.rounds, calls=arguments.updates)
    print_comparison("TD3+BC update", "ours", "CORL", timings)


if __name__ == "__main__":
    main()
