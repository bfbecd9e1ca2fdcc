"""Our updates of TD3+BC, ReBRAC, IQL, CRR, SAC and RLPD once more, as pure functions in plain jax.numpy.

A step takes a state, batches whose arrays have an axis of updates first, and noise; `jax_check.py`
compares steps with ours.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from benchmarks.speed.jax_networks import (
    Batch,
    Learner,
    Tree,
    descend,
    ensemble,
    ensemble_of_samples,
    learner,
    mlp,
    new_mlp,
    track,
)
from benchmarks.speed.problem import ACTION_DIM, HIDDEN, OBS_DIM

GAMMA = 0.99
CRITIC = (OBS_DIM + ACTION_DIM, *HIDDEN, 1)
RLPD_CRITICS, RLPD_SUBSET = 10, 2
CRR_SAMPLES, CRR_COPIES_EVERY = 4, 100
Noise = dict[str, Array]


def _value_target(batch: Batch, next_values: Array) -> Array:
    return batch.rewards + GAMMA * (1 - batch.terminations) * next_values


def _at(batches: Batch, index: int) -> Batch:
    return jax.tree.map(lambda values: values[index], batches)


def _critic_gradient(
    critic: Tree, batch: Batch, target: Array, *, mean: bool = False, norm_first: bool = True
) -> Tree:
    def loss(members: Tree) -> Array:
        values = ensemble(members, batch.obs, batch.actions, norm_first=norm_first)
        errors = jnp.square(values - target).mean(-1)
        return errors.mean() if mean else errors.sum()

    return jax.grad(loss)(critic)


def _deterministic(actor: Tree, obs: Array) -> Array:
    return jnp.tanh(mlp(actor, obs))


def _smoothed(actor: Tree, obs: Array, noise: Array) -> Array:
    """Actions of TD3's target policy."""
    return jnp.clip(_deterministic(actor, obs) + jnp.clip(0.2 * noise, -0.5, 0.5), -1, 1)


def _critics(key: Array, count: int = 2, **options: Any) -> list[Tree]:
    return [new_mlp(own, CRITIC, **options) for own in jax.random.split(key, count)]


# -- TD3+BC -----------------------------------------------------------------------------------


class TD3BC(NamedTuple):
    actor: Learner
    critic: Learner
    target_actor: Tree
    target_critic: Tree


def new_td3_bc(key: Array) -> TD3BC:
    first, second = jax.random.split(key)
    actor, critics = new_mlp(first, (OBS_DIM, *HIDDEN, ACTION_DIM)), _critics(second)
    return TD3BC(learner(actor), learner(critics), actor, critics)


def td3_bc_critic(state: TD3BC, batch: Batch, noise: Array) -> TD3BC:
    actions = _smoothed(state.target_actor, batch.next_obs, noise)
    next_values = ensemble(state.target_critic, batch.next_obs, actions).min(0)
    gradient = _critic_gradient(state.critic.params, batch, _value_target(batch, next_values))
    return state._replace(critic=descend(state.critic, gradient))


def td3_bc_actor(state: TD3BC, batch: Batch) -> TD3BC:
    def loss(actor: Tree) -> Array:
        actions = _deterministic(actor, batch.obs)
        (values,) = ensemble(state.critic.params[:1], batch.obs, actions)
        scale = 2.5 / lax.stop_gradient(jnp.abs(values).mean())
        return jnp.square(actions - batch.actions).mean() - scale * values.mean()

    actor = descend(state.actor, jax.grad(loss)(state.actor.params))
    return state._replace(
        actor=actor,
        target_actor=track(state.target_actor, actor.params),
        target_critic=track(state.target_critic, state.critic.params),
    )


def td3_bc_step(state: TD3BC, batches: Batch, noise: Noise) -> TD3BC:
    """Two updates: the actor waits for the second."""
    first, second = _at(batches, 0), _at(batches, 1)
    state = td3_bc_critic(state, first, noise["smoothing"][0])
    state = td3_bc_critic(state, second, noise["smoothing"][1])
    return td3_bc_actor(state, second)


# -- ReBRAC -----------------------------------------------------------------------------------


def new_rebrac(key: Array) -> TD3BC:
    state = new_td3_bc(key)
    critics = _critics(key, layer_norm=True)
    return state._replace(critic=learner(critics), target_critic=critics)


_rebrac_values = partial(ensemble, norm_first=False)


def rebrac_critic(state: TD3BC, batch: Batch, noise: Array) -> TD3BC:
    actions = _smoothed(state.target_actor, batch.next_obs, noise)
    penalty = jnp.square(actions - batch.next_actions).sum(-1)
    next_values = _rebrac_values(state.target_critic, batch.next_obs, actions).min(0)
    target = _value_target(batch, next_values - 0.01 * penalty)
    gradient = _critic_gradient(state.critic.params, batch, target, norm_first=False)
    return state._replace(critic=descend(state.critic, gradient, 1e-3))


def rebrac_actor(state: TD3BC, batch: Batch) -> TD3BC:
    def loss(actor: Tree) -> Array:
        actions = _deterministic(actor, batch.obs)
        values = _rebrac_values(state.critic.params, batch.obs, actions).min(0)
        scale = 1 / lax.stop_gradient(jnp.abs(values).mean())
        distance = jnp.square(actions - batch.actions).sum(-1)
        return 0.01 * distance.mean() - scale * values.mean()

    actor = descend(state.actor, jax.grad(loss)(state.actor.params), 1e-3)
    return state._replace(
        actor=actor,
        target_actor=track(state.target_actor, actor.params),
        target_critic=track(state.target_critic, state.critic.params),
    )


def rebrac_step(state: TD3BC, batches: Batch, noise: Noise) -> TD3BC:
    """Two updates, as of TD3+BC."""
    first, second = _at(batches, 0), _at(batches, 1)
    state = rebrac_critic(state, first, noise["smoothing"][0])
    state = rebrac_critic(state, second, noise["smoothing"][1])
    return rebrac_actor(state, second)


# -- IQL --------------------------------------------------------------------------------------


class IQL(NamedTuple):
    value: Learner
    actor: Learner
    critic: Learner
    target_critic: Tree


def new_iql(key: Array) -> IQL:
    first, second, third = jax.random.split(key, 3)
    actor = {
        "net": new_mlp(second, (OBS_DIM, *HIDDEN, ACTION_DIM)),
        "log_std": jnp.zeros(ACTION_DIM),
    }
    critics = _critics(third)
    value = new_mlp(first, (OBS_DIM, *HIDDEN, 1))
    return IQL(learner(value), learner(actor), learner(critics), critics)


def iql_step(state: IQL, batches: Batch, noise: Noise, horizon: float = 1e9) -> IQL:
    batch = _at(batches, 0)
    min_q = ensemble(state.target_critic, batch.obs, batch.actions).min(0)

    def value_loss(net: Tree) -> Array:
        error = min_q - mlp(net, batch.obs)[:, 0]
        return (jnp.where(error < 0, 0.3, 0.7) * jnp.square(error)).mean()

    value = descend(state.value, jax.grad(value_loss)(state.value.params))
    advantages = min_q - mlp(value.params, batch.obs)[:, 0]
    weights = jnp.minimum(jnp.exp(3.0 * advantages), 100.0)

    def actor_loss(actor: Tree) -> Array:
        mean = jnp.tanh(mlp(actor["net"], batch.obs))
        log_std = jnp.clip(actor["log_std"], -5, 2)
        return -(weights * _log_normal(mean, log_std, batch.actions)).mean()

    rate = 3e-4 * 0.5 * (1 + jnp.cos(jnp.pi * state.actor.steps / horizon))
    actor = descend(state.actor, jax.grad(actor_loss)(state.actor.params), rate)
    next_values = mlp(value.params, batch.next_obs)[:, 0]
    gradient = _critic_gradient(state.critic.params, batch, _value_target(batch, next_values))
    critic = descend(state.critic, gradient)
    return IQL(value, actor, critic, track(state.target_critic, critic.params))


def _log_normal(mean: Array, log_std: Array, x: Array) -> Array:
    standardised = (x - mean) * jnp.exp(-log_std)
    return (-0.5 * jnp.square(standardised) - log_std - 0.5 * math.log(2 * math.pi)).sum(-1)


# -- CRR --------------------------------------------------------------------------------------


class CRR(NamedTuple):
    actor: Learner
    critic: Learner
    target_actor: Tree
    target_critic: Tree


def new_crr(key: Array) -> CRR:
    first, second = jax.random.split(key)
    actor, critics = new_mlp(first, (OBS_DIM, *HIDDEN, 2 * ACTION_DIM)), _critics(second)
    return CRR(learner(actor), learner(critics), actor, critics)


def _gaussian(actor: Tree, obs: Array) -> tuple[Array, Array]:
    """Means within [-1, 1], and logarithms of standard deviations."""
    mean, log_std = jnp.split(mlp(actor, obs), 2, -1)
    return jnp.tanh(mean), jnp.clip(log_std, -20, 2)


def _gaussian_actions(actor: Tree, obs: Array, noise: Array) -> Array:
    mean, log_std = _gaussian(actor, obs)
    return jnp.clip(mean + jnp.exp(log_std) * noise, -1, 1)


def crr_step(state: CRR, batches: Batch, noise: Noise) -> CRR:
    batch = _at(batches, 0)
    next_actions = _gaussian_actions(state.target_actor, batch.next_obs, noise["next"])
    next_values = ensemble(state.target_critic, batch.next_obs, next_actions).min(0)
    gradient = _critic_gradient(state.critic.params, batch, _value_target(batch, next_values))
    critic = descend(state.critic, gradient)

    own = _gaussian_actions(state.actor.params, batch.obs, noise["samples"])
    compared = jnp.concatenate([batch.actions[None], own])
    values = ensemble_of_samples(critic.params, batch.obs, compared).min(0)
    weights = jnp.minimum(jnp.exp(values[0] - values[1:].mean(0)), 20.0)

    def loss(actor: Tree) -> Array:
        return -(weights * _log_normal(*_gaussian(actor, batch.obs), batch.actions)).mean()

    actor = descend(state.actor, jax.grad(loss)(state.actor.params))
    targets = lax.cond(
        state.critic.steps % CRR_COPIES_EVERY == 0,  # at the first update, too
        lambda: (actor.params, critic.params),
        lambda: (state.target_actor, state.target_critic),
    )
    return CRR(actor, critic, *targets)


# -- SAC --------------------------------------------------------------------------------------


class SAC(NamedTuple):
    actor: Learner
    critic: Learner
    target_critic: Tree
    temperature: Learner  # its logarithm


def new_sac(key: Array) -> SAC:
    first, second = jax.random.split(key)
    actor, critics = new_mlp(first, (OBS_DIM, *HIDDEN, 2 * ACTION_DIM)), _critics(second)
    return SAC(learner(actor), learner(critics), critics, learner(jnp.zeros(())))


def _draw(actor: Tree, obs: Array, noise: Array) -> tuple[Array, Array]:
    """Squashed Gaussian actions, and their log-densities."""
    mean, log_std = jnp.split(mlp(actor, obs), 2, -1)
    log_std = jnp.clip(log_std, -20, 2)
    x = mean + jnp.exp(log_std) * noise
    log_det = 2 * (math.log(2) - x - jax.nn.softplus(-2 * x))
    return jnp.tanh(x), _log_normal(mean, log_std, x) - log_det.sum(-1)


def _policy_step(
    state: Any, batch: Batch, noise: Array, reduce: Callable[[Array], Array], entropy: float
) -> Any:
    """SAC's actor and temperature; `reduce` makes one value of those of all critics."""
    alpha = jnp.exp(state.temperature.params)

    def loss(actor: Tree) -> tuple[Array, Array]:
        actions, log_probs = _draw(actor, batch.obs, noise)
        values = reduce(ensemble(state.critic.params, batch.obs, actions))
        return (alpha * log_probs - values).mean(), log_probs.mean()

    gradient, log_prob = jax.grad(loss, has_aux=True)(state.actor.params)
    temperature = descend(state.temperature, -(log_prob + entropy))
    return state._replace(actor=descend(state.actor, gradient), temperature=temperature)


def sac_step(state: SAC, batches: Batch, noise: Noise) -> SAC:
    batch = _at(batches, 0)
    actions, log_probs = _draw(state.actor.params, batch.next_obs, noise["next"])
    values = ensemble(state.target_critic, batch.next_obs, actions).min(0)
    target = _value_target(batch, values - jnp.exp(state.temperature.params) * log_probs)
    gradient = _critic_gradient(state.critic.params, batch, target)
    state = state._replace(critic=descend(state.critic, gradient))
    least = partial(jnp.min, axis=0)
    state = _policy_step(state, batch, noise["policy"], least, -float(ACTION_DIM))
    return state._replace(target_critic=track(state.target_critic, state.critic.params))


# -- RLPD -------------------------------------------------------------------------------------


def stacked(members: list[Tree]) -> Tree:
    """Targets are stacked, since two of them are picked by number."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *members)


def new_rlpd(key: Array) -> SAC:
    state = new_sac(key)
    critics = _critics(key, RLPD_CRITICS, layer_norm=True)
    return state._replace(critic=learner(critics), target_critic=stacked(critics))


def rlpd_critic(state: SAC, batch: Batch, noise: Array, subset: Array) -> SAC:
    actions, log_probs = _draw(state.actor.params, batch.next_obs, noise)
    chosen = [
        jax.tree.map(lambda leaf, own=place: leaf[own], state.target_critic) for place in subset
    ]
    values = ensemble(chosen, batch.next_obs, actions).min(0)
    target = _value_target(batch, values - jnp.exp(state.temperature.params) * log_probs)
    gradient = _critic_gradient(state.critic.params, batch, target, mean=True)
    critic = descend(state.critic, gradient)
    return state._replace(
        critic=critic, target_critic=track(state.target_critic, stacked(critic.params))
    )


def rlpd_step(state: SAC, batches: Batch, noise: Noise) -> SAC:
    """Twenty critic updates, scanned, and one of the actor on the last batch."""

    def update(state: SAC, given: Any) -> tuple[SAC, None]:
        return rlpd_critic(state, *given), None

    state, _ = lax.scan(update, state, (batches, noise["next"], noise["subset"]))
    mean = partial(jnp.mean, axis=0)
    return _policy_step(state, _at(batches, -1), noise["policy"], mean, -ACTION_DIM / 2)
