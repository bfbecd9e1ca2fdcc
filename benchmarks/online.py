"""Online algorithms beside Stable-Baselines3: the same tasks, budgets, settings and seeds.

    python benchmarks/online.py [--cells 'sac/*'] [--seeds 0,1,2] [--library ours|sb3] [--output runs/online]

A cell is `<algorithm>/<task>` in one library for one seed: it is trained to the end of its budget
and the final policy scored. Stable-Baselines3 gets what the packaged configuration says in its own
words. Each cell is saved when it is done; a second call runs only what is missing, or what was run
with other settings than it would be now.
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
from cells import (
    EPISODES,
    Result,
    listed_versions,
    mean_and_deviation,
    read,
    run_all,
    save,
    table,
    versions,
)
from numpy.typing import NDArray

from rl_training.api.algorithms import managed_class
from rl_training.experiment import TrainConfig, load_config
from rl_training.runtime.evaluation.evaluator import Evaluator
from rl_training.runtime.seeding import episode_seeds

LIBRARIES = {"sb3": "Stable-Baselines3", "ours": "rl-training"}
SHORT = {"env_id": "HalfCheetah-v5", "total_timesteps": 30_000, "learning_starts": 5_000}
# the packaged configuration of each task, and what is changed in it, in the order of training
TASKS: dict[str, tuple[str, dict[str, Any]]] = {
    "sac/pendulum": ("sac/pendulum", {}),
    "dqn/cartpole": ("dqn/cartpole", {}),
    "td3/pendulum": ("td3/pendulum", {}),
    "ddpg/pendulum": ("ddpg/pendulum", {}),
    "tqc/pendulum": ("tqc/pendulum", {}),
    "redq/pendulum": ("redq/pendulum", {}),
    "sac/halfcheetah": ("sac/locomotion", SHORT),
    "td3/halfcheetah": ("td3/locomotion", SHORT),
    "tqc/halfcheetah": (
        "tqc/locomotion",
        {**SHORT, "num_critics": 2, "critic_hidden_sizes": [256, 256]},
    ),
}
MISSING = ("redq",)  # in Stable-Baselines3
SCORING_SEED = 1_000  # of the evaluation episodes of every cell
PACKAGES = ("rl_training", "torch", "gymnasium", "mujoco", "numpy")
Act = Callable[[NDArray[Any]], NDArray[Any]]
PAGE = Path(__file__).parents[1] / "docs" / "benchmarks" / "online.md"


class Cell(NamedTuple):
    library: str
    task: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.library} {self.task} seed {self.seed}"

    def path(self, output: Path) -> Path:
        name = self.task.replace("/", "-")
        return output / "cells" / f"{self.library}-{name}-{self.seed}.json"

    def config(self, output: Path) -> TrainConfig:
        """Nothing is evaluated or saved on the way: only the end counts."""
        packaged, changes = TASKS[self.task]
        config = load_config(packaged, changes)
        return config.replace(
            seed=self.seed,
            output_dir=str(output / "runs"),
            device="cpu",
            eval_episodes=0,
            checkpoint_interval=config.total_timesteps,
        )

    def settings(self, output: Path) -> dict[str, Any]:
        """All that the result depends on, as plain values."""
        config = self.config(output)
        return config.as_dict() if self.library == "ours" else sb3_settings(config)


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


def train_ours(config: TrainConfig) -> Act:
    algo = managed_class(config.spec)(config)
    reason = algo.learn().stop_reason
    if reason != "total_timesteps":  # a signal ends training early but in good order
        raise RuntimeError(f"training ended early ({reason}); no score")
    return algo.predict


def run_cell(cell: Cell, output: Path) -> Result:
    """Train and score, outside the calling process."""
    torch.set_num_threads(1)
    config, settings = cell.config(output), cell.settings(output)
    packages = PACKAGES
    start = time.perf_counter()
    if cell.library == "ours":
        act = train_ours(config)
    else:
        log = output / "runs" / f"sb3-{cell.task.replace('/', '-')}-{cell.seed}"
        act = train_sb3(settings, log)
        packages = ("stable_baselines3", "sb3_contrib", *PACKAGES[1:])
    seconds = time.perf_counter() - start
    assert config.env_id is not None
    evaluator = Evaluator(Acting(act), config.env_id, config.env_kwargs)
    try:
        evaluation = evaluator.run(episode_seeds(SCORING_SEED, "scoring", EPISODES))
    finally:
        evaluator.close()
    result = {
        **cell._asdict(),
        "return_mean": float(evaluation.returns.mean()),
        "return_std": float(evaluation.returns.std()),
        "episodes": EPISODES,
        "training_seconds": round(seconds, 1),
        "config": settings,
        "versions": versions(*packages),
    }
    save(cell.path(output), result)
    return result


def page_text(results: dict[Cell, Result], output: Path, seeds: Sequence[int]) -> str:
    """The page: a row per algorithm and environment, a column per library."""

    def found(library: str, task: str) -> list[Result | None]:
        return [results.get(Cell(library, task, seed)) for seed in seeds]

    def by_seed(library: str, task: str) -> str:
        if not in_library(library, task):
            return "—"
        scores = [None if r is None else f"{r['return_mean']:.1f}" for r in found(library, task)]
        return ", ".join(score or "not run" for score in scores) if any(scores) else "not run"

    rows = []
    for task in TASKS:
        config = Cell("ours", task, seeds[0]).config(output)
        rows.append(
            [
                f"`{config.algo}`",
                f"`{config.env_id}`",
                f"{config.total_timesteps:,}",
                *(
                    mean_and_deviation(found(library, task)) if in_library(library, task) else "—"
                    for library in LIBRARIES
                ),
                *(by_seed(library, task) for library in LIBRARIES),
            ]
        )
    header = ["algorithm", "environment", "steps", *LIBRARIES.values()]
    header += [f"{name}, by seed" for name in LIBRARIES.values()]
    seed_list = ",".join(map(str, seeds))
    return f"""# Online benchmark

<!-- not run: it trains every algorithm in two libraries, and writes this page -->
```bash
pip install -c constraints.txt -e ".[bench,mujoco]"
python benchmarks/online.py --seeds {seed_list}
```

Each algorithm is trained here and in Stable-Baselines3 (TQC: in its contrib package) with the
same environment, number of steps, settings and seeds. An entry is the mean return of the final policy,
acting deterministically, over {EPISODES} episodes: mean ± sample standard deviation over seeds {", ".join(map(str, seeds))}. No checkpoint
is chosen by its score. The episodes start in the same states for both libraries and every seed.

{table(header, rows)}

— : Stable-Baselines3 has no REDQ. "not run": no result yet.

Higher is better. Pendulum swung up and held returns about -150, and 500 is the limit of CartPole.
Three seeds of a short budget can show a broken algorithm, not which of two sound ones is better.
DQN's last policy is a matter of luck with these settings: an earlier revision, which drew its random
actions in another order, scored 500, 295 and 500 here.

Settings are those of the packaged configurations `<algorithm>/pendulum` and `dqn/cartpole`; for
HalfCheetah those of `<algorithm>/locomotion` with {SHORT["learning_starts"]:,} random steps, and for TQC with two critics of
256-256. Stable-Baselines3 gets the same learning rates, networks, batches, discount, target updates,
noise, random steps, updates per step and replay, not its own defaults. What remains different:

- `dqn` here is double DQN; theirs is not.
- Theirs add the exploration noise of TD3 and DDPG to the first, random actions, too.
- Theirs finishes the round of `train_frequency` steps that the budget ends in: 50,176 steps of CartPole.
- Random streams: the same seed means other initial weights, episodes and batches.

Versions: {listed_versions(results.values())}.
"""


def in_library(library: str, task: str) -> bool:
    return library == "ours" or task.split("/")[0] not in MISSING


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("runs/online"))
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--cells", default="*", metavar="PATTERN", help="such as 'sac/*'")
    parser.add_argument("--library", choices=LIBRARIES, help="train in this one only")
    parser.add_argument("--seeds", default="0,1,2")
    arguments = parser.parse_args()
    output = arguments.output.absolute()
    seeds = [int(seed) for seed in arguments.seeds.split(",")]
    cells = [
        Cell(library, task, seed)
        for seed in seeds
        for task in TASKS
        for library in LIBRARIES
        if in_library(library, task)
    ]
    found = {cell: read(cell.path(output), cell.settings(output)) for cell in cells}
    missing = [
        cell
        for cell, result in found.items()
        if result is None
        and fnmatch(cell.task, arguments.cells)
        and cell.library == (arguments.library or cell.library)
    ]
    print(f"{len(missing)} cells to run", flush=True)
    failed = run_all(missing, partial(run_cell, output=output), arguments.jobs)
    found = {cell: read(cell.path(output), cell.settings(output)) for cell in cells}
    results = {cell: result for cell, result in found.items() if result is not None}
    PAGE.write_text(page_text(results, output, seeds))
    print(f"{PAGE} written")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
