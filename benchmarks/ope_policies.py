"""Policies from poor to good for off-policy evaluation, and their true values by playing the environment."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from rl_training.api.algorithms import managed_class
from rl_training.data import TransitionDataset, load_transition_dataset
from rl_training.experiment import TrainConfig, get_algorithm_spec, load_config
from rl_training.runtime.assemble import load_policy, new_run, open_checkpoint
from rl_training.runtime.policy import Policy

GAMMA = 0.99
STEPS = 1_000  # of a played episode: what comes later weighs less than GAMMA**STEPS = 0.00004
EPISODES = 200
EXPERT = "pendulum-expert"  # whose log a clone cannot be better than
LOGS = {
    "pendulum": "pendulum/mixed-v0",
    EXPERT: "pendulum/expert-v0",
    "cartpole": "cartpole/mixed-v0",
}
ENVIRONMENTS = {  # with time limits
    "pendulum": ("Pendulum-v1", 200),
    EXPERT: ("Pendulum-v1", 200),
    "cartpole": ("CartPole-v1", 500),
}

# algorithm, then the steps of one training from which a policy is taken; 0 is untrained
POLICIES: dict[str, dict[str, tuple[int, ...]]] = {
    "pendulum": {
        "td3_bc": (0, 200, 1_000, 10_000),
        "bc": (10_000,),
        "iql": (10_000,),
        "cql": (10_000,),
        "awac": (10_000,),
        "sac": (2_000, 10_000),
    },
    "cartpole": {
        "iql": (0, 200, 1_000, 10_000),
        "bc": (10_000,),
        "cql": (10_000,),
        "awac": (1_000,),
        "crr": (1_000,),
        "dqn": (5_000, 20_000),
    },
}


@dataclass(frozen=True)
class Trained:
    """Policy of one training at one step; `shuffle` is the seed of its log's shuffled rewards."""

    task: str
    algo: str
    step: int
    seed: int = 1
    shuffle: int | None = None

    @property
    def name(self) -> str:
        kind = "of the expert's log, " if self.task == EXPERT else ""
        log = "" if self.shuffle is None else f" on shuffled rewards {kind}".rstrip()
        seed = "" if self.shuffle is None else f" seed {self.seed}"
        return f"{self.algo} at {self.step}{log}{seed}" if self.step else f"{self.algo} untrained"

    @property
    def key(self) -> str:
        """Name of its files."""
        shuffled = "" if self.shuffle is None else f"-shuffled{self.shuffle}"
        return f"{self.task}-{self.algo}-{self.seed}{shuffled}-{self.step}"

    def config(self, output: Path) -> TrainConfig:
        """Return the packaged configuration with small networks, which keeps the checkpoints asked for."""
        steps = POLICIES.get(self.task, {}).get(self.algo, (self.step,))
        asked = [step for step in steps if step] if self.shuffle is None else [self.step or 10_000]
        overrides: dict[str, Any] = {
            "seed": self.seed,
            "device": "cpu",
            "hidden_sizes": [64, 64],
            "total_timesteps": max(asked, default=1_000),
            "checkpoint_interval": min(asked, default=1_000),
            "eval_interval": max(asked, default=1_000),
            "eval_episodes": 0,
            "tensorboard": False,
            "output_dir": str(output / "trained" / self.key.rsplit("-", 1)[0]),
        }
        if self.shuffle is not None:
            path = str(shuffled_log(self.task, self.shuffle, output))
            overrides |= {"dataset_kind": "npz", "dataset_id": None, "dataset_path": path}
        return load_config(f"{self.algo}/{self.task.removesuffix('-expert')}", overrides)

    def load(self, output: Path) -> Policy:
        """Load the policy; its training happens the first time that one of its steps is asked for."""
        config = self.config(output)
        if not self.step:
            return new_run(config).policy
        directory = Path(config.output_dir)
        if not any(directory.glob("*/result.json")):
            managed_class(get_algorithm_spec(self.algo))(config).learn()
        (path,) = directory.glob(f"*/checkpoints/step_{self.step}")
        return load_policy(*open_checkpoint(path, policy_only=True))

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def candidates(task: str) -> list[Trained]:
    return [Trained(task, algo, step) for algo, steps in POLICIES[task].items() for step in steps]


def logged(task: str) -> TransitionDataset:
    return load_transition_dataset("builtin", dataset_id=LOGS[task])


def shuffled_log(task: str, seed: int, output: Path) -> Path:
    """Write the log with its rewards shuffled over all rows."""
    path = output / f"{task}-shuffled-{seed}.npz"
    if not path.exists():
        dataset = logged(task)
        order = np.random.default_rng(seed).permutation(len(dataset))
        fields = {
            "observations": dataset.obs.numpy(),
            "actions": dataset.actions.numpy(),
            "rewards": dataset.rewards.numpy()[order],
            "next_observations": dataset.next_obs.numpy(),
            "terminals": dataset.terminations.numpy() > 0,
            "timeouts": dataset.truncations.numpy() > 0,
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, **fields)  # type: ignore[arg-type]
    return path


def true_value(policy: Policy, task: str, episodes: int = EPISODES) -> dict[str, float]:
    """Play without a time limit: discounted return, its standard error, and the plain return within the limit."""
    env_id, limit = ENVIRONMENTS[task]
    env = gym.make(env_id).unwrapped
    rewards = np.stack([_rewards(env, policy, seed) for seed in range(episodes)])
    values = rewards @ GAMMA ** np.arange(STEPS)
    env.close()
    return {
        "value": float(values.mean()),
        "error": float(values.std(ddof=1) / episodes**0.5),
        "return": float(rewards[:, :limit].sum(1).mean()),
    }


def _rewards(env: gym.Env[Any, Any], policy: Policy, seed: int) -> NDArray[np.float64]:
    rewards = np.zeros(STEPS)
    obs, _ = env.reset(seed=1_000_000 + seed)
    for step in range(STEPS):
        obs, reward, terminated, _, _ = env.step(policy.predict(obs))
        rewards[step] = reward
        if terminated:
            break
    return rewards
