"""Online algorithms beside Stable-Baselines3: the same tasks, budgets, settings and seeds.

    rl-training benchmark online
    python benchmarks/online.py [--cells 'sac *'] [--output runs/benchmarks/sb3]

The first command trains ours, the second Stable-Baselines3 with what the suite's configurations say in its own
words, and writes the page. Each cell is saved when it is done; a second call runs only what is missing, or what
was run with other settings than it would be now.
"""

from __future__ import annotations

import argparse
import copy
import sys
import time
from collections.abc import Callable, Sequence
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import torch
from cells import Result, listed_versions, mean_and_deviation, read, run_all, save, table, versions
from numpy.typing import NDArray

from rl_training.api import Suite, SuiteRun
from rl_training.experiment import TrainConfig
from rl_training.runtime.evaluation.evaluator import Evaluator
from rl_training.runtime.seeding import episode_seeds

LIBRARIES = {"sb3": "Stable-Baselines3", "ours": "rl-training"}
MISSING = ("redq",)  # in Stable-Baselines3
PACKAGES = ("stable_baselines3", "sb3_contrib", "torch", "gymnasium", "mujoco", "numpy")
Act = Callable[[NDArray[Any]], NDArray[Any]]
PAGE = Path(__file__).parents[1] / "docs" / "benchmarks" / "online.md"
SUITE = Suite.load("online")


class Cell(NamedTuple):
    """One training in Stable-Baselines3, with the configuration of a run of the suite."""

    row: str
    column: str
    config: TrainConfig

    @property
    def name(self) -> str:
        return f"{self.row} {self.column} seed {self.config.seed}"

    def path(self, output: Path) -> Path:
        return output / "cells" / f"{self.name.replace(' ', '-')}.json"

    def read(self, output: Path) -> Result | None:
        return read(self.path(output), sb3_settings(self.config))


def sb3_settings(config: TrainConfig) -> dict[str, Any]:
    """The same training in the words of Stable-Baselines3."""
    options, replay = config.groups.algorithm.model_dump(), config.groups.replay
    rates = {
        config.groups.algorithm.network_learning_rate(net) for net in config.spec.algorithm.losses
    }
    if len(rates) > 1 or replay.n_step > 1 or replay.prioritized:
        raise ValueError(f"Stable-Baselines3 has no {config.algo} like this")
    sizes = list(options["hidden_sizes"])
    settings = {
        "algo": config.algo,
        "env_id": config.env_id,
        "total_timesteps": config.total_timesteps,
        "seed": config.seed,
        "learning_rate": rates.pop(),
        "batch_size": options["batch_size"],
        "gamma": options["gamma"],
        "tau": options["tau"],
        "buffer_size": replay.buffer_capacity,
        "learning_starts": replay.learning_starts,
        "train_freq": replay.train_frequency,
        "gradient_steps": replay.gradient_updates_per_step,
    }
    critics: dict[str, Any] = {"n_critics": 2, "net_arch": {"pi": sizes, "qf": sizes}}
    if config.algo in ("sac", "tqc"):
        entropy = options["target_entropy"]
        settings["ent_coef"] = options["alpha"]
        settings["target_entropy"] = "auto" if entropy is None else entropy
    if config.algo == "tqc":
        critics["net_arch"]["qf"] = list(options["critic_hidden_sizes"])
        critics |= {"n_critics": options["num_critics"], "n_quantiles": options["num_quantiles"]}
        settings["top_quantiles_to_drop_per_net"] = options["top_quantiles_to_drop_per_net"]
    if config.algo in ("td3", "ddpg"):
        settings["action_noise"] = options["exploration_noise"]
    if config.algo == "td3":
        settings["policy_delay"] = options["policy_delay"]
        settings["target_policy_noise"] = options["policy_noise"]
        settings["target_noise_clip"] = options["noise_clip"]
    if config.algo == "ddpg":
        critics["n_critics"] = 1
    if config.algo == "dqn":
        critics = {"net_arch": sizes}
        settings["target_update_interval"] = options["target_update_interval"]
        settings["max_grad_norm"] = options["max_grad_norm"]
        settings["exploration_fraction"] = options["exploration_fraction"]
        settings["exploration_initial_eps"] = options["epsilon_start"]
        settings["exploration_final_eps"] = options["epsilon_end"]
    return {**settings, "policy_kwargs": critics}


class Acting:
    """A deterministic policy with the methods that evaluation needs."""

    def __init__(self, act: Act) -> None:
        self.act = act

    def predict(self, obs: NDArray[Any], *, deterministic: bool) -> NDArray[Any]:
        assert deterministic
        return self.act(obs)

    def reseed(self, seed: int) -> None:
        """Nothing is drawn."""


def train_sb3(settings: dict[str, Any], log: Path) -> Act:
    """Returns of training episodes go to `log`."""
    import sb3_contrib
    import stable_baselines3
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.noise import NormalActionNoise

    options = copy.deepcopy(settings)  # the policy's are changed in place
    name = options.pop("algo").upper()
    library = sb3_contrib if name == "TQC" else stable_baselines3
    log.parent.mkdir(parents=True, exist_ok=True)
    env = Monitor(gym.make(options.pop("env_id")), str(log))
    steps = options.pop("total_timesteps")
    if "action_noise" in options:
        zeros = np.zeros(env.action_space.shape)
        options["action_noise"] = NormalActionNoise(zeros, zeros + options["action_noise"])
    model = getattr(library, name)("MlpPolicy", env, **options, device="cpu")
    model.learn(steps)
    return lambda obs: model.predict(obs, deterministic=True)[0]


def run_cell(cell: Cell, output: Path) -> Result:
    """Train and score, outside the calling process."""
    torch.set_num_threads(1)
    config, settings = cell.config, sb3_settings(cell.config)
    start = time.perf_counter()
    act = train_sb3(settings, output / "runs" / cell.name.replace(" ", "-"))
    seconds = time.perf_counter() - start
    assert config.env_id is not None
    evaluator = Evaluator(Acting(act), config.env_id, config.env_kwargs)
    options = SUITE.config
    try:
        evaluation = evaluator.run(
            episode_seeds(options.scoring_seed or 0, "scoring", options.episodes)
        )
    finally:
        evaluator.close()
    result = {
        "return_mean": float(evaluation.returns.mean()),
        "return_std": float(evaluation.returns.std()),
        "episodes": options.episodes,
        "training_seconds": round(seconds, 1),
        "config": settings,
        "versions": versions(*PACKAGES),
    }
    save(cell.path(output), result)
    return result


def page_text(ours: SuiteRun, output: Path) -> str:
    """The page: a row per algorithm and environment, a column per library."""
    rows, results = [], []
    for cell in ours.cells:
        config = cell.trials[0].config
        scores: dict[str, list[Result | None]] = {"ours": [ours.saved(t) for t in cell.trials]}
        if cell.row not in MISSING:
            theirs = [Cell(cell.row, cell.column, trial.config) for trial in cell.trials]
            scores["sb3"] = [each.read(output) for each in theirs]
        results += [result for found in scores.values() for result in found if result is not None]
        place = [f"`{cell.row}`", f"`{cell.column}`", f"{config.total_timesteps:,}"]
        means = [mean_and_deviation(scores[lib]) if lib in scores else "—" for lib in LIBRARIES]
        seeds = [by_seed(scores[lib]) if lib in scores else "—" for lib in LIBRARIES]
        rows.append([*place, *means, *seeds])
    header = ["algorithm", "environment", "steps", *LIBRARIES.values()]
    header += [f"{name}, by seed" for name in LIBRARIES.values()]
    seed_words = ", ".join(map(str, SUITE.config.seeds))
    return f"""# Online benchmark

<!-- not run: it trains every algorithm in two libraries, and writes this page -->
```bash
pip install -c constraints.txt -e ".[bench,mujoco]"
rl-training benchmark online  # trains ours
python benchmarks/online.py   # trains theirs
```

Each algorithm is trained here and in Stable-Baselines3 (TQC: in its contrib package) with the
same environment, number of steps, settings and seeds. An entry is the mean return of the final policy,
acting deterministically, over {SUITE.config.episodes} episodes: mean ± sample standard deviation over seeds {seed_words}. No checkpoint
is chosen by its score. The episodes start in the same states for both libraries and every seed.

{table(header, rows)}

— : Stable-Baselines3 has no REDQ. "not run": no result yet.

Higher is better. Pendulum swung up and held returns about -150, and 500 is the limit of CartPole.
Three seeds of a short budget can show a broken algorithm, not which of two sound ones is better.
DQN's last policy is a matter of luck with these settings: an earlier revision, which drew its random
actions in another order, scored 500, 295 and 500 here.

Settings are those of the packaged configurations `<algorithm>/pendulum` and `dqn/cartpole`; for
HalfCheetah those of `<algorithm>/locomotion` with 5,000 random steps, and for TQC with two critics of
256-256. Stable-Baselines3 gets the same learning rates, networks, batches, discount, target updates,
noise, random steps, updates per step and replay, not its own defaults. What remains different:

- `dqn` here is double DQN; theirs is not.
- Theirs add the exploration noise of TD3 and DDPG to the first, random actions, too.
- Theirs finishes the round of `train_frequency` steps that the budget ends in: 50,176 steps of CartPole.
- Random streams: the same seed means other initial weights, episodes and batches.

Versions: {listed_versions(results)}.
"""


def by_seed(results: Sequence[Result | None]) -> str:
    if not any(results):
        return "not run"
    return ", ".join("not run" if r is None else f"{r['return_mean']:.1f}" for r in results)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ours", type=Path, default=Path("runs/benchmarks/online"))
    parser.add_argument("--output", type=Path, default=Path("runs/benchmarks/sb3"))
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--cells", default="*", metavar="PATTERN", help="such as 'sac *'")
    arguments = parser.parse_args()
    output, ours = arguments.output.absolute(), SuiteRun.of(SUITE, arguments.ours)
    cells = [
        Cell(cell.row, cell.column, trial.config)
        for cell in ours.cells
        if cell.row not in MISSING
        for trial in cell.trials
    ]
    missing = [
        cell
        for cell in cells
        if cell.read(output) is None and fnmatch(f"{cell.row} {cell.column}", arguments.cells)
    ]
    print(f"{len(missing)} cells to run", flush=True)
    failed = run_all(missing, partial(run_cell, output=output), arguments.jobs)
    PAGE.write_text(page_text(ours, output))
    print(f"{PAGE} written")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
