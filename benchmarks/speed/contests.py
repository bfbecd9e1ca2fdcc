"""Who is timed beside whom: one round of a contest has every contestant in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from benchmarks.speed import flops, ours, peers_cleanrl, peers_corl, peers_d3rlpy, peers_sb3
from benchmarks.speed.problem import HIDDEN, OBS_DIM, Problem
from benchmarks.speed.timing import Contestant, NotMeasuredError
from rl_training.runtime.policy import Policy

Build = Callable[[Problem], Contestant]


@dataclass(frozen=True)
class Contest:
    ours: Build
    peers: Mapping[str, Build]
    flops: float = 0.0  # of our update, for the peer `gemm`


def _jax(algo: str) -> Build:
    def build(problem: Problem) -> Contestant:
        try:
            from benchmarks.speed import jax_twins
        except ImportError as error:
            raise NotMeasuredError(f"{error.name} is not installed") from None
        return jax_twins.update(problem, algo)

    return build


def _gemm(problem: Problem) -> Contestant:
    del problem
    return flops.gemm()


def _corl(algo: str) -> Build:
    return partial(peers_corl.update, algo=algo)


def _d3rlpy(algo: str) -> Build:
    return partial(peers_d3rlpy.update, algo=algo)


def _cleanrl(algo: str) -> Build:
    return partial(peers_cleanrl.update, algo=algo)


def _sb3(name: str, **options: Any) -> Build:
    return partial(peers_sb3.update, name=name, **options)


def _our_predict(problem: Problem) -> Contestant:
    run = ours.offline_run("td3_bc", problem.dataset)  # normalises observations, too
    return _on_fresh_observations(Policy(run.algorithm, run.data.normalizer).predict)


def _sb3_predict(problem: Problem) -> Contestant:
    del problem
    return _on_fresh_observations(partial(peers_sb3.policy().predict, deterministic=True))


def _on_fresh_observations(predict: Callable[[Any], object]) -> Contestant:
    """The next one each time, so that nothing stays in the cache."""
    observations = list(np.random.default_rng(0).standard_normal((1000, OBS_DIM), np.float32))

    def several(times: int) -> None:
        for turn in range(times):
            predict(observations[turn % 1000])

    return Contestant(several)


CONTESTS: dict[str, Contest] = {
    "td3_bc": Contest(
        partial(ours.offline, algo="td3_bc", unit=2),
        {
            "corl": _corl("td3_bc"),
            "d3rlpy": _d3rlpy("td3_bc"),
            "jax": _jax("td3_bc"),
            "gemm": _gemm,
        },
        flops=flops.td3_flops(),
    ),
    "iql": Contest(
        partial(ours.offline, algo="iql"),
        {"corl": _corl("iql"), "d3rlpy": _d3rlpy("iql"), "jax": _jax("iql")},
    ),
    "awac": Contest(partial(ours.offline, algo="awac"), {"corl": _corl("awac")}),
    "cql": Contest(partial(ours.offline, algo="cql"), {"corl": _corl("cql")}),
    "rebrac": Contest(
        partial(ours.offline, algo="rebrac", unit=2),
        {"d3rlpy": _d3rlpy("rebrac"), "jax": _jax("rebrac")},
    ),
    "crr": Contest(
        partial(ours.offline, algo="crr"), {"d3rlpy": _d3rlpy("crr"), "jax": _jax("crr")}
    ),
    "sac": Contest(
        partial(ours.online, algo="sac"),
        {"sb3": _sb3("SAC"), "cleanrl": _cleanrl("sac"), "jax": _jax("sac"), "gemm": _gemm},
        flops=flops.sac_flops(),
    ),
    "tqc": Contest(
        partial(ours.online, algo="tqc", num_critics=2, critic_hidden_sizes=HIDDEN),
        {"contrib": _sb3("TQC", n_critics=2)},
    ),
    "td3": Contest(
        partial(ours.online, algo="td3", unit=2),
        {"sb3": _sb3("TD3", unit=2), "cleanrl": _cleanrl("td3")},
    ),
    # the least of all ten targets, as there; ours trains the actor on their mean, theirs on the least
    "ten_critics": Contest(
        partial(
            ours.online, algo="redq", num_critics=10, subset_size=10, gradient_updates_per_step=1
        ),
        {"sb3": _sb3("SAC", n_critics=10)},
    ),
    "rlpd": Contest(ours.rlpd, {"jax": _jax("rlpd")}),
    "predict": Contest(_our_predict, {"sb3": _sb3_predict}),
}
