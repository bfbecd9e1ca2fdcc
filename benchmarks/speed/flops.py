"""How much arithmetic an update needs, and how much a matrix product gets done in a second.

Counted are multiplications and additions of the layers' matrix products, no more of them than are
needed: no gradient in a critic's weights for the actor's sake, none in observations.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch

from benchmarks.speed.problem import ACTION_DIM, BATCH, HIDDEN, OBS_DIM
from benchmarks.speed.timing import Contestant

SIDE = 256


def gemm() -> Contestant:
    """One product of two 256 x 256 matrices."""
    a, b, out = (torch.randn(SIDE, SIDE) for _ in range(3))

    def multiply(times: int) -> None:
        for _ in range(times):
            torch.mm(a, b, out=out)

    return Contestant(multiply)


GEMM_FLOPS = 2 * SIDE**3


def forward(sizes: Sequence[int]) -> int:
    """Per row."""
    return sum(2 * a * b for a, b in pairwise(sizes))


def train(sizes: Sequence[int]) -> int:
    """Forward, and the gradient in the weights: none goes back into the input."""
    return 3 * forward(sizes) - 2 * sizes[0] * sizes[1]


def through(sizes: Sequence[int], columns: int) -> int:
    """Forward, and the gradient in this many columns of the input alone."""
    return 2 * forward(sizes) - 2 * (sizes[0] - columns) * sizes[1]


def td3_flops(
    batch: int = BATCH,
    hidden: Sequence[int] = HIDDEN,
    obs_dim: int = OBS_DIM,
    action_dim: int = ACTION_DIM,
) -> float:
    """TD3 and TD3+BC with two critics; the actor waits for every second update."""
    actor = (obs_dim, *hidden, action_dim)
    critic = (obs_dim + action_dim, *hidden, 1)
    critics = forward(actor) + 2 * forward(critic) + 2 * train(critic)
    policy = train(actor) + through(critic, action_dim)
    return batch * (critics + policy / 2)


def sac_flops(members: int = 2, targets: int | None = None) -> float:
    """SAC, and REDQ with one update per step, of whose targets `targets` are evaluated."""
    actor = (OBS_DIM, *HIDDEN, 2 * ACTION_DIM)
    critic = (OBS_DIM + ACTION_DIM, *HIDDEN, 1)
    evaluated = members if targets is None else targets
    critics = forward(actor) + evaluated * forward(critic) + members * train(critic)
    policy = train(actor) + members * through(critic, ACTION_DIM)
    return float(BATCH * (critics + policy))
