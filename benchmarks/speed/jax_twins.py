"""Updates in JAX as one compiled loop: the `jit` of a `lax.scan` over updates.

Indices and noise are drawn inside, and nothing comes back to Python between updates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from benchmarks.speed.jax_networks import Batch, pack, unpack
from benchmarks.speed.jax_updates import (
    CRR_SAMPLES,
    RLPD_CRITICS,
    RLPD_SUBSET,
    Noise,
    crr_step,
    iql_step,
    new_crr,
    new_iql,
    new_rebrac,
    new_rlpd,
    new_sac,
    new_td3_bc,
    rebrac_step,
    rlpd_step,
    sac_step,
    td3_bc_step,
)
from benchmarks.speed.problem import ACTION_DIM, BATCH, OBS_DIM, Problem
from benchmarks.speed.timing import Contestant

SCANNED = 20  # updates per call
RLPD_UPDATES = 20  # of the critics for one of the actor


@dataclass(frozen=True)
class Twin:
    new: Callable[[Array], Any]  # key -> state
    step: Callable[[Any, Batch, Noise], Any]  # all arrays of the batch have an axis of updates
    draw: Callable[[Array], Noise]  # key -> the noise of a step
    updates: int = 1  # in a step
    sources: int = 1  # of rows, which give each batch equal shares
    next_actions: bool = False  # in the batch


def _normal(key: Array, *leading: int) -> Array:
    return jax.random.normal(key, (*leading, BATCH, ACTION_DIM))


def _two_normals(key: Array) -> Noise:
    first, second = jax.random.split(key)
    return {"next": _normal(first), "policy": _normal(second)}


def _smoothing(key: Array) -> Noise:
    return {"smoothing": _normal(key, 2)}


def _crr_noise(key: Array) -> Noise:
    first, second = jax.random.split(key)
    return {"next": _normal(first), "samples": _normal(second, CRR_SAMPLES)}


def _rlpd_noise(key: Array) -> Noise:
    first, second, third = jax.random.split(key, 3)
    orders = jax.vmap(lambda own: jax.random.permutation(own, RLPD_CRITICS))(
        jax.random.split(third, RLPD_UPDATES)
    )
    return {
        "next": _normal(first, RLPD_UPDATES),
        "policy": _normal(second),
        "subset": orders[:, :RLPD_SUBSET],
    }


TWINS = {
    "td3_bc": Twin(new_td3_bc, td3_bc_step, _smoothing, updates=2),
    "rebrac": Twin(new_rebrac, rebrac_step, _smoothing, updates=2, next_actions=True),
    "iql": Twin(new_iql, iql_step, lambda key: {}),
    "crr": Twin(new_crr, crr_step, _crr_noise),
    "sac": Twin(new_sac, sac_step, _two_normals),
    "rlpd": Twin(new_rlpd, rlpd_step, _rlpd_noise, updates=RLPD_UPDATES, sources=2),
}


def update(problem: Problem, algo: str) -> Contestant:
    twin = TWINS[algo]
    sources = (pack(problem.fields, next_actions=twin.next_actions),) * twin.sources

    @jax.jit
    def several(sources: tuple[Array, ...], carry: tuple[Any, Array]) -> tuple[Any, Array]:
        def one(carry: tuple[Any, Array], _: None) -> tuple[tuple[Any, Array], None]:
            state, key = carry
            key, for_rows, for_noise = jax.random.split(key, 3)
            batches = _draw_batches(sources, for_rows, twin.updates)
            return (twin.step(state, batches, twin.draw(for_noise)), key), None

        return lax.scan(one, carry, length=SCANNED // twin.updates)[0]

    carry = (twin.new(jax.random.key(0)), jax.random.key(1, impl="rbg"))

    def train(updates: int) -> None:
        nonlocal carry
        for _ in range(updates // SCANNED):
            carry = several(sources, carry)
        jax.block_until_ready(carry)

    return Contestant(train, unit=SCANNED)


def _draw_batches(sources: tuple[Array, ...], key: Array, updates: int) -> Batch:
    """An equal share of every batch from each source."""
    share = BATCH // len(sources)
    keys = jax.random.split(key, len(sources))
    drawn = [
        rows[jax.random.randint(own, (updates, share), 0, len(rows))]
        for rows, own in zip(sources, keys, strict=True)
    ]
    return unpack(jnp.concatenate(drawn, 1), OBS_DIM, ACTION_DIM)
