"""Compares the JAX twins with our updates: the same weights, batches and noise, one step of both.

Compared are Adam's first moments, which are sums of gradients, by their largest difference, and the
target networks by the mean one: Adam divides a gradient by its size, so that the rounding of those
that are almost 0 moves a single weight by as much as a step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import Tensor

from benchmarks.speed import ours
from benchmarks.speed.jax_networks import Batch, Learner, Tree, learner
from benchmarks.speed.jax_twins import TWINS
from benchmarks.speed.jax_updates import CRR_SAMPLES, RLPD_CRITICS, RLPD_SUBSET, stacked
from benchmarks.speed.problem import HIDDEN, Problem
from rl_training.runtime.run import Run

TOLERANCE = 1e-5  # of the largest entry of a moment, or of the mean size of a target's
UPDATES = 2  # of both; over RLPD's twenty, rounding grows to a multiple of this
Read = Callable[[str, str], Tensor]  # network, name of a parameter -> the parameter, or its moment


def check(problem: Problem) -> dict[str, float]:
    """By twin the largest difference of all tensors, relative to their size."""
    return {name: _difference(name, problem) for name in TWINS}


def _difference(name: str, problem: Problem) -> float:
    run, twin = _run(name, problem), TWINS[name]
    algorithm = run.algorithm
    kind = type(twin.new(jax.random.key(0)))
    before = algorithm.training_state().tensors
    values = _networks(name, kind._fields, lambda net, key: before[f"networks.{net}.{key}"])
    state = kind(*(part if follows(net) else learner(part) for net, part in values.items()))
    generator = torch.Generator()
    generator.set_state(algorithm.generator.get_state())
    parts: list[Any] = []
    while len(parts) < min(twin.updates, UPDATES):
        batch: Any = next(run.experience)
        algorithm.update(batch)
        parts += batch.parts(algorithm.updates_in(batch))
    names = [key for key in Batch._fields if key != "next_actions" or twin.next_actions]
    batches = Batch(*(jnp.stack([_array(getattr(part, key)) for part in parts]) for key in names))
    theirs = jax.jit(twin.step)(state, batches, _noise(name, generator, parts))
    after = algorithm.training_state().tensors

    def moment(net: str, key: str) -> Tensor:
        return after[f"networks.{net}.{key}" if follows(net) else f"optimizers.{net}.{key}.exp_avg"]

    largest = 0.0
    for part, (net, expected) in zip(
        theirs, _networks(name, kind._fields, moment).items(), strict=True
    ):
        found = part.mean if isinstance(part, Learner) else part
        size = jnp.mean if follows(net) else jnp.max
        pairs = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
        largest = max(largest, *(float(size(abs(a - b)) / size(abs(b))) for a, b in pairs))
    return largest


def follows(network: str) -> bool:
    return network.startswith("target_")


def _run(name: str, problem: Problem) -> Run:
    if name == "rlpd":
        return ours.rlpd_run(problem.fields, problem.dataset, UPDATES)
    if name == "sac":
        return ours.online_run(name, problem.fields)
    return ours.offline_run(name, problem.dataset)


def _noise(name: str, generator: torch.Generator, parts: list[Any]) -> dict[str, Any]:
    """The draws of our update, in its order."""

    def normal(*leading: int) -> Any:
        return _array(torch.randn((*leading, *parts[0].actions.shape), generator=generator))

    if name in ("td3_bc", "rebrac"):
        return {"smoothing": jnp.stack([normal() for _ in parts])}
    if name == "sac":
        return {"next": normal(), "policy": normal()}
    if name == "crr":
        return {"next": normal(), "samples": normal(CRR_SAMPLES)}
    if name == "iql":
        return {}
    subsets, normals = [], []
    for _ in parts:
        subsets.append(_array(torch.randperm(RLPD_CRITICS, generator=generator)[:RLPD_SUBSET]))
        normals.append(normal())
    return {"subset": jnp.stack(subsets), "next": jnp.stack(normals), "policy": normal()}


def _array(tensor: Tensor) -> Any:
    return jnp.asarray(np.array(tensor))


def _networks(name: str, networks: tuple[str, ...], read: Read) -> dict[str, Tree]:
    """All networks of an algorithm as the twin has them."""
    found: dict[str, Tree] = {}
    for network in networks:
        if network == "temperature":
            found[network] = _array(read(network, "log"))
        elif network.endswith("critic"):
            members = _members(network, read)
            found[network] = stacked(members) if name == "rlpd" and follows(network) else members
        elif network == "value":
            found[network] = _mlp(network, "", read)
        else:
            layers = _mlp(network, "net.", read)
            own = {"log_std": _array(read(network, "log_std"))} if name == "iql" else None
            found[network] = layers if own is None else {"net": layers, **own}
    return found


def _mlp(network: str, prefix: str, read: Read) -> Tree:
    return [
        {
            "weight": _array(read(network, f"{prefix}layers.{index}.weight").T),
            "bias": _array(read(network, f"{prefix}layers.{index}.bias")),
        }
        for index in range(len(HIDDEN) + 1)
    ]


def _members(network: str, read: Read) -> list[Tree]:
    count = len(read(network, "weights.0"))
    return [_member(network, member, read) for member in range(count)]


def _member(network: str, member: int, read: Read) -> Tree:
    layers = []
    for index in range(len(HIDDEN) + 1):
        weight = read(network, f"weights.{index}")[member]
        layer = {
            "weight": _array(weight if index < len(HIDDEN) else weight.T),
            "bias": _array(read(network, f"biases.{index}")[member].flatten()),
        }
        try:
            for kind in ("scale", "shift"):
                layer[kind] = _array(read(network, f"{kind}s.{index}")[member].flatten())
        except KeyError:
            pass  # not normalised
        layers.append(layer)
    return layers
