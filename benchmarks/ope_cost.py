"""Cost of fitted Q evaluation: a step per member beside the critic step of TD3+BC per critic."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.cells import table
from benchmarks.ope_sections import Check, Results, of_part
from benchmarks.speed.problem import ACTION_DIM, BATCH, OBS_DIM, random_fields
from benchmarks.speed.timing import Contestant, Spread, interleave
from rl_training.algorithms.base import Algorithm
from rl_training.algorithms.registry import get_algorithm_spec
from rl_training.data import TransitionDataset
from rl_training.engine import CapturedEngine
from rl_training.engine.adam import polyak_average
from rl_training.runtime.experience.episode_bootstrap import EpisodeBootstrap
from rl_training.spec import ProblemSpec

MEMBERS, CRITICS, WIDTHS = 10, 2, (64, 256)
SPEC = ProblemSpec(OBS_DIM, "continuous", ACTION_DIM, (-1.0,) * ACTION_DIM, (1.0,) * ACTION_DIM)


def measure_cost(rounds: int) -> dict[str, Any]:
    """Time both in turns, in one process with one thread; microseconds per critic, and their ratio."""
    torch.set_num_threads(1)
    dataset = TransitionDataset.from_dict(random_fields(20_000))
    widths = {}
    for width in WIDTHS:
        policy = learner("td3_bc", hidden_sizes=(width, width))
        contestants = {
            "td3_bc": critic_step(policy, dataset),
            "fqe": fitting_step(policy, dataset, width),
        }
        timings = interleave(contestants, rounds=rounds, seconds=0.4)
        ours = [time / MEMBERS for time in timings["fqe"].cpu]
        theirs = [time / CRITICS for time in timings["td3_bc"].cpu]
        ratio = Spread([a / b for a, b in zip(ours, theirs, strict=True)])
        widths[str(width)] = {
            "fqe": Spread(ours).median,
            "td3_bc": Spread(theirs).median,
            "ratio": ratio.median,
            "quartiles": ratio.quartiles,
        }
    return {"widths": widths, "members": MEMBERS}


def learner(name: str, **options: Any) -> Algorithm[Any]:
    kind = get_algorithm_spec(name)
    made: Algorithm[Any] = kind.algorithm(SPEC, kind.config(**options))
    made.engine = CapturedEngine()
    return made


def critic_step(algorithm: Any, dataset: TransitionDataset) -> Contestant:
    """Make the part of TD3+BC's update that is for the critics: their loss, Adam, every second time the targets."""
    batch = dataset.sample(BATCH, generator=torch.Generator().manual_seed(0))
    targets = list(algorithm.target_critic.parameters())
    sources = list(algorithm.critic.parameters())

    def run(times: int) -> None:
        for step in range(times):
            noise = {"smoothing": algorithm.standard_normal(batch.actions)}
            algorithm.minimize("critic", batch, noise)
            if step % 2:
                polyak_average(targets, sources, algorithm.config.tau)

    return Contestant(run, 2)


def fitting_step(policy: Algorithm[Any], dataset: TransitionDataset, width: int) -> Contestant:
    """Make the whole update of fitted Q evaluation, on rows weighted by the bootstrap of their episodes."""
    algorithm: Any = learner(
        "fqe",
        num_critics=MEMBERS,
        hidden_sizes=(width, width),
        policy_algo="td3_bc",
        policy_options=policy.config.model_dump(mode="json"),
    )
    algorithm.judge(policy, None, None)
    bootstrap = EpisodeBootstrap(dataset, MEMBERS, seed=0)
    batch = bootstrap.sample(BATCH, torch.Generator().manual_seed(0), None)

    def run(times: int) -> None:
        for _ in range(times):
            algorithm.update(batch)

    return Contestant(run)


def cost_section(results: Results) -> tuple[str, list[Check]]:
    cells = of_part(results, "cost")
    if not cells:
        return "Not run.", []
    result = next(iter(cells.values()))
    rows, checks = [], []
    for width, cost in result["widths"].items():
        low, high = cost["quartiles"]
        rows.append(
            [
                f"{width}-{width}",
                f"{cost['fqe']:.0f} µs",
                f"{cost['td3_bc']:.0f} µs",
                f"{cost['ratio']:.2f} ({low:.2f} to {high:.2f})",
            ]
        )
        promise = f"cost of a member over that of a critic of TD3+BC, {width}-{width}"
        checks.append((promise, "1.1", f"{cost['ratio']:.2f}", cost["ratio"] <= 1.1))
    header = ["networks", "FQE, per member", "TD3+BC, per critic", "ratio (quartiles)"]
    text = f"""A whole update of fitted Q evaluation with {result["members"]} members, on bootstrap-weighted batches of 256, beside the part of
TD3+BC's update that is for its two critics. Both take turns in one process with one thread. Microseconds of CPU time; only the
ratios mean anything.

{table(header, rows)}"""
    return text, checks
