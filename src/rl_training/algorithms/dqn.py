"""DQN: deep Q-network, double by default. Mnih et al. 2015; van Hasselt et al. 2016.

critic  min_Q  E[w huber(Q(s,a) - y)],   w: importance weights of prioritised replay, else 1
        y = r + γ (1-d) Q̄(s', argmax_a' Q(s',a'));   without `double` r + γ (1-d) max_a' Q̄(s',a')
target  copied every `target_update_interval` environment steps
acting  with chance ε uniformly, else argmax_a Q(s,a); ε falls linearly and then stays
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from rl_training.algorithms.argument_checks import require_rows
from rl_training.algorithms.base import Algorithm, AlgorithmConfig, Noise, Terms, target_of
from rl_training.algorithms.registry import register
from rl_training.algorithms.targets import batch_target
from rl_training.config import option
from rl_training.data.replay_config import replay_options
from rl_training.data.transitions.batch import Batch
from rl_training.models import MLP, DuelingMLP, GreedyActor, pick
from rl_training.spec import ProblemSpec


class DQNConfig(AlgorithmConfig):
    batch_size: int = option(32, "transitions per gradient update", ge=1, le=10_000_000)
    learning_rate: float = option(1e-4, "Adam's learning rate", gt=0)
    hidden_sizes: tuple[Annotated[int, Field(ge=1, le=65_536)], ...] = option(
        (64, 64), "width of each hidden layer", min_length=1
    )
    gamma: float = option(0.99, "discount per step", ge=0, le=1)
    double: bool = option(True, "choose the target's action with the online network")
    dueling: bool = option(False, "separate streams for the state's value and the advantages")
    target_update_interval: int = option(
        10_000, "environment steps between copies into the target network", ge=1
    )
    tau: float = option(1.0, "share of the online network in each of these copies", gt=0, le=1)
    max_grad_norm: float | None = option(
        10.0, "norm to which a larger gradient is scaled down; null = none", gt=0, unset="no bound"
    )
    epsilon_start: float = option(1.0, "chance ε of a random action at first", ge=0, le=1)
    epsilon_end: float = option(0.05, "chance ε of a random action in the end", ge=0, le=1)
    exploration_fraction: float = option(
        0.1, "share of total_timesteps over which ε falls", gt=0, le=1
    )


def dqn_critic_loss(*, q_values: Tensor, target_q: Tensor, weights: Tensor | None = None) -> Terms:
    """All (batch,)."""
    require_rows(q_values=q_values, target_q=target_q, weights=weights)
    errors = F.smooth_l1_loss(q_values, target_q, reduction="none")
    if weights is not None:
        errors = weights * errors
    seen = q_values.detach()
    return {
        "critic_loss": errors.mean(-1),
        "q_mean": seen.mean(-1),
        "q_max": seen.amax(-1),
        "target_q_mean": target_q.mean(-1),
    }


dqn_loss = dqn_critic_loss


def next_values(nets: DQNAlgorithm, next_obs: Tensor, double: bool) -> Tensor:
    target_q = nets.target_critic(next_obs)
    if double:
        return pick(target_q, nets.critic(next_obs).argmax(-1))
    return target_q.amax(-1)


def critic_loss(nets: DQNAlgorithm, batch: Batch, noise: Noise, config: DQNConfig) -> Terms:
    with torch.no_grad():
        values = next_values(nets, batch.next_obs, config.double)
        target_q = batch_target(batch, values, config.gamma)
    q_values = pick(nets.critic(batch.obs), batch.actions)
    terms = dqn_critic_loss(q_values=q_values, target_q=target_q, weights=batch.weights)
    # one number per row, which `update_step` takes out again
    return {**terms, "priorities": q_values - target_q} if batch.weights is not None else terms


@register("dqn", regimes=("online",), action_kinds=("discrete",))
class DQNAlgorithm(Algorithm[DQNConfig]):
    losses = {"critic": critic_loss}
    gives_priorities = True
    replay = replay_options(learning_starts=100, train_frequency=4)

    def build(self, spec: ProblemSpec, config: DQNConfig) -> None:
        network: type[MLP] | type[DuelingMLP] = DuelingMLP if config.dueling else MLP
        self.critic: Any = network(spec.obs_dim, config.hidden_sizes, spec.action_dim)
        self.target_critic = target_of(self.critic)
        self.actor = GreedyActor(self.critic)

    def update_step(self, batch: Batch) -> Terms:
        terms = self.minimize("critic", batch)
        if batch.weights is not None:
            self.priorities = terms.pop("priorities")
        return terms

    def after_collecting(self, before: int, after: int) -> None:
        every = self.config.target_update_interval
        if after // every > before // every:
            self.track_targets(self.config.tau)

    def explore(
        self, obs: NDArray[np.float32], rng: np.random.Generator, progress: float
    ) -> NDArray[Any]:
        config = self.config
        fallen = min(1.0, progress / config.exploration_fraction)
        epsilon = config.epsilon_start + fallen * (config.epsilon_end - config.epsilon_start)
        return self.epsilon_greedy(obs, rng, epsilon)


DQN = DQNAlgorithm
