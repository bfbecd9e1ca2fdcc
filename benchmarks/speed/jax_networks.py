"""Perceptrons, Adam and batches in plain jax.numpy.

An ensemble is a list of members: XLA runs that faster on a CPU than one stacked product.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

Tree = Any


class Batch(NamedTuple):
    obs: Array
    actions: Array
    rewards: Array
    next_obs: Array
    terminations: Array


def pack(fields: dict[str, Any]) -> Array:
    """All fields of a transition side by side, so that a batch is one gather."""
    columns = ("observations", "actions", "next_observations", "rewards", "terminals")
    parts = [jnp.asarray(fields[name], jnp.float32) for name in columns]
    return jnp.concatenate([part.reshape(len(part), -1) for part in parts], 1)


def unpack(rows: Array, obs_dim: int, action_dim: int) -> Batch:
    """Packed rows (..., columns) as fields."""
    ends = (obs_dim, obs_dim + action_dim, 2 * obs_dim + action_dim, 2 * obs_dim + action_dim + 1)
    obs, actions, next_obs, rewards, terminations = jnp.split(rows, ends, -1)
    return Batch(obs, actions, rewards[..., 0], next_obs, terminations[..., 0])


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


def mlp(layers: Tree, x: Array) -> Array:
    *hidden, last = layers
    for layer in hidden:
        x = x @ layer["weight"] + layer["bias"]
        if "scale" in layer:
            x = x - x.mean(-1, keepdims=True)
            x = x * jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-6)
            x = x * layer["scale"] + layer["shift"]
        x = jax.nn.relu(x)
    return x @ last["weight"] + last["bias"]


def ensemble(members: Sequence[Tree], obs: Array, actions: Array) -> Array:
    """Values (members, batch)."""
    x = jnp.concatenate([obs, actions], -1)
    return jnp.stack([mlp(member, x)[:, 0] for member in members])


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
