"""Perceptrons, Adam and batches in plain jax.numpy.

An ensemble is a list of members: XLA runs that faster on a CPU than one stacked product.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

Tree = Any


class Batch(NamedTuple):
    obs: Array
    actions: Array
    rewards: Array
    next_obs: Array
    terminations: Array
    next_actions: Array | None = None


def pack(fields: dict[str, Any], *, next_actions: bool = False) -> Array:
    """All fields of a transition side by side, so that a batch is one gather.

    With next actions, truncated rows are left out: no action follows them.
    """
    names = ("observations", "actions", "next_observations", "rewards", "terminals")
    columns = [fields[name].reshape(len(fields[name]), -1) for name in names]
    if next_actions:
        columns.append(np.roll(fields["actions"], -1, 0))
    rows = np.concatenate(columns, 1, dtype=np.float32)
    return jnp.asarray(rows[~fields["timeouts"]] if next_actions else rows)


def unpack(rows: Array, obs_dim: int, action_dim: int) -> Batch:
    """Packed rows (..., columns) as fields."""
    ends = np.cumsum((obs_dim, action_dim, obs_dim, 1, 1))
    obs, actions, next_obs, rewards, terminations, rest = jnp.split(rows, ends, -1)
    next_actions = rest if rest.shape[-1] else None
    return Batch(obs, actions, rewards[..., 0], next_obs, terminations[..., 0], next_actions)


def new_mlp(key: Array, sizes: Sequence[int], *, layer_norm: bool = False) -> Tree:
    """Layers of weight (in, out), bias and, if normalised, scale and shift."""
    layers = []
    for position, (fan_in, fan_out) in enumerate(pairwise(sizes)):
        key, own = jax.random.split(key)
        bound = fan_in**-0.5
        weight = jax.random.uniform(own, (fan_in, fan_out), minval=-bound, maxval=bound)
        layer = {"weight": weight, "bias": jnp.zeros(fan_out)}
        if layer_norm and position < len(sizes) - 2:
            layer |= {"scale": jnp.ones(fan_out), "shift": jnp.zeros(fan_out)}
        layers.append(layer)
    return layers


def mlp(layers: Tree, x: Array, *, norm_first: bool = True) -> Array:
    """Outputs (..., out); layers that are normalised are so before ReLU, or after it."""
    *hidden, last = layers
    for layer in hidden:
        x = x @ layer["weight"] + layer["bias"]
        if "scale" not in layer:
            x = jax.nn.relu(x)
        elif norm_first:
            x = jax.nn.relu(_normalise(x, layer))
        else:
            x = _normalise(jax.nn.relu(x), layer)
    return x @ last["weight"] + last["bias"]


def _normalise(x: Array, layer: Tree) -> Array:
    x = x - x.mean(-1, keepdims=True)
    x = x * jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-6)
    return x * layer["scale"] + layer["shift"]


def ensemble(
    members: Sequence[Tree], obs: Array, actions: Array, *, norm_first: bool = True
) -> Array:
    """Values (members, batch)."""
    x = jnp.concatenate([obs, actions], -1)
    return jnp.stack([mlp(member, x, norm_first=norm_first)[:, 0] for member in members])


def ensemble_of_samples(members: Sequence[Tree], obs: Array, actions: Array) -> Array:
    """Values (members, samples, batch) of several actions in each state, without normalisation.

    The first product with the states is made once for all samples.
    """
    values = []
    for first, *rest in members:
        for_obs, for_actions = jnp.split(first["weight"], (obs.shape[-1],))
        x = actions @ for_actions + (obs @ for_obs + first["bias"])
        values.append(mlp(rest, jax.nn.relu(x))[..., 0])
    return jnp.stack(values)


class Learner(NamedTuple):
    """Parameters with Adam's moments."""

    params: Tree
    mean: Tree
    square: Tree
    steps: Array


def learner(params: Tree) -> Learner:
    zeros = jax.tree.map(jnp.zeros_like, params)
    return Learner(params, zeros, zeros, jnp.zeros((), jnp.int32))


def descend(state: Learner, gradient: Tree, rate: float | Array = 3e-4) -> Learner:
    """One step of Adam."""
    steps = state.steps + 1
    mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state.mean, gradient)
    square = jax.tree.map(lambda s, g: 0.999 * s + 0.001 * g * g, state.square, gradient)
    size = rate / (1 - 0.9**steps)
    root = jnp.sqrt(1 - 0.999**steps)
    params = jax.tree.map(
        lambda p, m, s: p - size * m / (jnp.sqrt(s) / root + 1e-8), state.params, mean, square
    )
    return Learner(params, mean, square, steps)


def track(target: Tree, source: Tree, tau: float = 0.005) -> Tree:
    return jax.tree.map(lambda t, s: t + tau * (s - t), target, source)
