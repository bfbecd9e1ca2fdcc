"""HER: DDPG that learns from goals chosen in hindsight. Andrychowicz et al. 2017.

critic  min_Q  E[(Q(s,g,a) - y)²],   y = clip(r + γ (1-d) Q̄(s',g, π̄(s',g)), -1/(1-γ), 0)
actor   max_π  E[Q(s,g, π(s,g)) - c mean_i π_i(s,g)²]

States s and goals g are normalised by the statistics of all batches so far. Which goals a batch has
is up to the replay: `her: true`, here by default, gives most transitions one that was reached.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from rl_training.algorithms.base import ActorCriticConfig, Algorithm, Noise, Terms, target_of
from rl_training.algorithms.delayed import explore_with_noise, least_target_q
from rl_training.algorithms.registry import register
from rl_training.algorithms.targets import batch_target, critic_terms, policy_gradient_terms
from rl_training.config import option
from rl_training.data.replay_config import replay_options
from rl_training.data.transitions.batch import Batch
from rl_training.models import MLPTD3Model
from rl_training.models.numpy_forward import NumpyFunction
from rl_training.models.running_normalizer import RunningNormalizer
from rl_training.spec import ProblemSpec


class HERConfig(ActorCriticConfig):
    learning_rate: float = option(1e-3, "Adam's learning rate", gt=0)
    hidden_sizes: tuple[Annotated[int, Field(ge=1, le=65_536)], ...] = option(
        (256, 256, 256), "width of each hidden layer"
    )
    gamma: float = option(0.98, "discount per step", ge=0, lt=1)
    tau: float = option(0.05, "share of the online network in each target update", gt=0, le=1)
    target_update_interval: int = option(100, "environment steps between target updates", ge=1)
    clip_targets: bool = option(
        True, "keep targets between -1/(1-γ) and 0, the range of returns of rewards -1 and 0"
    )
    action_l2: float = option(1.0, "weight c of the mean square of the policy's actions", ge=0)
    exploration_noise: float = option(
        0.2, "standard deviation of the noise on collected actions, in units of their range", ge=0
    )
    random_action_chance: float = option(
        0.3, "chance of a uniformly random action while collecting", ge=0, le=1
    )


def her_critic_loss(
    *, q_values: Tensor, target_q: Tensor, bounds: tuple[float, float] | None = None
) -> Terms:
    """q_values (1, batch), target_q (batch,), which is clipped to `bounds`."""
    clipped = target_q if bounds is None else target_q.clamp(*bounds)
    share = (clipped != target_q).to(target_q.dtype).mean(-1)
    return {**critic_terms(q_values, clipped), "target_clipped_share": share}


def her_actor_loss(*, q_values: Tensor, actions: Tensor, action_l2: float) -> Terms:
    """q_values (batch,): the critic at the policy's actions (batch, dimensions)."""
    terms = policy_gradient_terms(q_values)
    square = actions.square().mean((-2, -1))
    return {
        **terms,
        "actor_loss": terms["actor_loss"] + action_l2 * square,
        "action_square_mean": square,
    }


def her_loss(
    *,
    q_values: Tensor,
    target_q: Tensor,
    policy_q_values: Tensor,
    actions: Tensor,
    action_l2: float = 1.0,
    bounds: tuple[float, float] | None = None,
) -> Terms:
    """Both halves in one dict."""
    return {
        **her_critic_loss(q_values=q_values, target_q=target_q, bounds=bounds),
        **her_actor_loss(q_values=policy_q_values, actions=actions, action_l2=action_l2),
    }


def critic_loss(nets: HERAlgorithm, batch: Batch, noise: Noise, config: HERConfig) -> Terms:
    with torch.no_grad():
        next_q = least_target_q(nets, batch, nets.target_actor(batch.next_obs))
        target_q = batch_target(batch, next_q, config.gamma)
    return her_critic_loss(
        q_values=nets.critic(batch.obs, batch.actions),
        target_q=target_q,
        bounds=(-1 / (1 - config.gamma), 0.0) if config.clip_targets else None,
    )


def actor_loss(nets: HERAlgorithm, batch: Batch, noise: Noise, config: HERConfig) -> Terms:
    actions = nets.actor(batch.obs)
    q_values = nets.critic(batch.obs, actions, members=0)
    return her_actor_loss(q_values=q_values, actions=actions, action_l2=config.action_l2)


@register("her", regimes=("online",))
class HERAlgorithm(Algorithm[HERConfig]):
    losses = {"critic": critic_loss, "actor": actor_loss}
    # a cycle of the paper's code: two episodes of 50 steps, then 40 updates
    replay = replay_options(
        her=True, learning_starts=1_000, train_frequency=100, gradient_updates_per_step=40
    )

    def build(self, spec: ProblemSpec, config: HERConfig) -> None:
        self.normalizer = RunningNormalizer(spec.obs_dim)
        model = MLPTD3Model(spec.obs_dim, spec.action_dim, config.hidden_sizes, num_critics=1)
        self.actor, self.critic = model.actor, model.critic
        self.target_actor, self.target_critic = target_of(model.actor), target_of(model.critic)

    def update_step(self, batch: Batch) -> Terms:
        self.normalizer.see(batch.obs)
        normal = replace(
            batch, obs=self.normalizer(batch.obs), next_obs=self.normalizer(batch.next_obs)
        )
        return self.minimize("critic", normal, {}) | self.minimize("actor", normal, {})

    def after_collecting(self, before: int, after: int) -> None:
        every = self.config.target_update_interval
        if after // every > before // every:
            self.track_targets(self.config.tau)

    def act(
        self, obs: Tensor, *, explore: bool = False, generator: torch.Generator | None = None
    ) -> Tensor:
        return super().act(self.normalizer(obs), explore=explore, generator=generator)

    def best_actions(self, obs: NDArray[np.float32]) -> NDArray[Any]:
        if self.device.type == "cpu":
            return self.actor.mode_numpy(self.normalizer.as_numpy()(obs))
        return self.act(torch.from_numpy(obs).to(self.device)).cpu().numpy()

    def numpy_policy(self) -> NumpyFunction:
        normalise, act = self.normalizer.as_numpy(), self.actor.as_numpy()
        return lambda obs: act(normalise(obs))

    def explore(
        self, obs: NDArray[np.float32], rng: np.random.Generator, progress: float
    ) -> NDArray[Any]:
        actions = explore_with_noise(self, obs, rng, progress)
        at_random = rng.random(len(obs)) < self.config.random_action_chance
        if at_random.any():
            shape = (int(at_random.sum()), self.spec.action_dim)
            actions[at_random] = 2 * rng.random(shape, np.float32) - 1
        return actions


HER = HERAlgorithm
