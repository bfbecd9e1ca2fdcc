"""The same weights, the same batch and the same noise for Stable-Baselines3 and for us.

Their `train()` runs as it is, on a replay that always gives the batch at hand. All optimizers have
one learning rate there, so ours have it too.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from rl_training.algorithms import get_algorithm_spec
from rl_training.data import Batch
from rl_training.spec import ProblemSpec
from tests.support.parity import harness

CHOICES = 4
RATE = 5e-3
DISCRETE = ProblemSpec(harness.OBS, "discrete", CHOICES)


class Blank(gym.Env[Any, Any]):
    """Spaces and nothing else: no step is ever taken."""

    def __init__(self, discrete: bool) -> None:
        self.observation_space = spaces.Box(-9, 9, (harness.OBS,), np.float32)
        box = spaces.Box(-1, 1, (harness.ACTIONS,), np.float32)
        self.action_space = spaces.Discrete(CHOICES) if discrete else box


def make_theirs(kind: Any, *, seed: int = 0, **options: Any) -> Any:
    """Their learner, with targets that differ from the online networks."""
    from stable_baselines3.common.logger import Logger

    discrete = kind.__name__ == "DQN"
    networks = {"net_arch": list(harness.HIDDEN), **options.pop("policy_kwargs", {})}
    model = kind(
        "MlpPolicy", Blank(discrete), learning_rate=RATE, gamma=0.9, buffer_size=1, device="cpu",
        seed=seed, policy_kwargs=networks, **options,
    )  # fmt: skip
    model.set_logger(Logger(None, []))
    with torch.no_grad():  # equal targets would hide a mix-up
        for name in ("critic_target", "actor_target", "q_net_target"):
            for parameter in getattr(model, name, nn.Module()).parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def make_ours(name: str, theirs: Any, **options: Any) -> Any:
    """Ours with their weights."""
    entry = get_algorithm_spec(name)
    rates = {"learning_rate": RATE}
    if name != "dqn":
        rates |= {"actor_learning_rate": RATE, "critic_learning_rate": RATE}
    config = entry.config(hidden_sizes=harness.HIDDEN, gamma=0.9, **rates, **options)
    spec = DISCRETE if name == "dqn" else harness.SPEC
    ours = entry.algorithm(spec, config, seed=7)
    for network, state in networks(theirs).items():
        getattr(ours, network).load_state_dict(state)
    return ours


def networks(model: Any) -> dict[str, harness.State]:
    """Every network of theirs under our name for it, in our shapes."""
    if hasattr(model, "q_net"):  # DQN
        return {
            "critic": harness.mlp(model.q_net),
            "target_critic": harness.mlp(model.q_net_target),
        }
    found = {
        "actor": actor(model.actor),
        "critic": critics(model.critic),
        "target_critic": critics(model.critic_target),
    }
    if hasattr(model, "actor_target"):
        found["target_actor"] = actor(model.actor_target)
    if getattr(model, "ent_coef_optimizer", None) is not None:
        found["temperature"] = {"log": harness.value_of(model.log_ent_coef[0])}
    return found


def actor(policy: Any) -> harness.State:
    """Two heads there, one wide one here; TD3 has one."""
    state = harness.actor(policy)
    if not hasattr(policy, "log_std"):
        return state
    last = len(harness.HIDDEN)
    for part in ("weight", "bias"):
        heads = [state.pop(f"net.layers.{last + head}.{part}") for head in (0, 1)]
        state[f"net.layers.{last}.{part}"] = torch.cat(heads)
    return state


def critics(critic: Any) -> harness.State:
    members = nn.ModuleList(critic.q_networks)
    state = harness.ensemble(members)
    last = len(state) // 2 - 1
    if state[f"weights.{last}"].shape[1] > 1:  # several outputs: laid out like a hidden layer
        state[f"weights.{last}"] = state[f"weights.{last}"].transpose(1, 2)
        state[f"biases.{last}"] = state[f"biases.{last}"].unsqueeze(1)
    return state


def train(model: Any, batch: Batch, *noise: Tensor) -> dict[str, float]:
    """One update of theirs: what it logs, by their names."""
    from stable_baselines3.common.type_aliases import ReplayBufferSamples

    column = {"discounts": batch.discounts, "rewards": batch.rewards, "dones": batch.terminations}
    samples = ReplayBufferSamples(
        observations=batch.obs,
        actions=batch.actions.reshape(len(batch), -1),
        next_observations=batch.next_obs,
        **{key: None if value is None else value.unsqueeze(1) for key, value in column.items()},
    )
    model.replay_buffer = SimpleNamespace(sample=lambda size, env: samples)
    model.logger.name_to_value.clear()
    with harness.draws(*noise):
        model.train(gradient_steps=1, batch_size=len(batch))
    logged = model.logger.name_to_value.items()
    return {key.removeprefix("train/"): float(value) for key, value in logged}


def make_batch(seed: int, *, discounts: bool = False, discrete: bool = False) -> Batch:
    """Like the harness's; with rows over several steps, or with choices for actions."""
    plain = harness.make_batch(seed)
    draw = torch.Generator().manual_seed(100 + seed)
    return Batch(
        obs=plain.obs,
        actions=torch.randint(CHOICES, (harness.ROWS,), generator=draw)
        if discrete
        else plain.actions,
        rewards=plain.rewards,
        next_obs=plain.next_obs,
        terminations=plain.terminations,
        discounts=torch.rand(harness.ROWS, generator=draw) if discounts else None,
    )


def assert_agree(ours: Any, theirs: Any) -> None:
    harness.assert_networks_agree(ours, theirs, read=networks)


def assert_moved(before: dict[str, harness.State], theirs: Any, *names: str) -> None:
    harness.assert_moved(before, theirs, *names, read=networks)
