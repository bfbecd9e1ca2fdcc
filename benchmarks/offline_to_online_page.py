"""The page of the offline-to-online benchmark, from the cells that are there."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from cells import Result, listed_versions, table

from rl_training.sweeps.suites import SuiteConfig


class Arm(NamedTuple):
    """What is trained with every seed, and what came of it: None where it has not been run."""

    title: str
    config: str
    steps: int  # online
    results: Sequence[Result | None]


def write_page(path: Path, suite: SuiteConfig, arms: Mapping[str, Arm]) -> None:
    titles = ("RLPD", "RLPD without the log", "SAC")
    cheetah = [arms[f"HalfCheetah-v5 {title}"] for title in titles]
    pendulum = [arms[f"Pendulum-v1 {title}"] for title in ("RLPD", "SAC")]
    further = [arms[f"Pendulum-v1 {title}"] for title in ("AWAC", "IQL")]
    results = [result for arm in arms.values() for result in arm.results if result is not None]
    text = TEXT.format(
        seeds=", ".join(map(str, suite.seeds)),
        episodes=suite.episodes,
        log_return=by_seed(arms["log"], lambda log: f"{log['log_return']['mean']:.0f}"),
        cheetah_steps=steps_table((*cheetah, arms["log"]), (1_000, 2_000, 3_000)),
        cheetah_curve=curve_table(cheetah, 1_000),
        steps=steps_table(pendulum, (-400, -200)),
        curve=curve_table(pendulum, 500),
        further=further_table(further),
        versions=listed_versions(results),
    )
    path.write_text(text)


def steps_table(arms: Sequence[Arm], targets: Sequence[int]) -> str:
    """When each target was reached, and the final score."""
    header = [
        "config",
        *(f"steps to {target:,}" for target in targets),
        "trained for",
        "final policy",
    ]
    rows = []
    for arm in arms:
        reached = [by_seed(arm, partial(steps_to, target=target)) for target in targets]
        rows.append([named(arm), *reached, f"{arm.steps:,}", by_seed(arm, final)])
    return table(header, rows)


def curve_table(arms: Sequence[Arm], every: int) -> str:
    """The mean over seeds, on the way."""
    longest = max(arm.steps for arm in arms)
    steps = range(every, longest + 1, every)
    rows = [[f"{step:,}", *(mean_at(arm, step) for arm in arms)] for step in steps]
    return table(["environment steps", *(arm.title for arm in arms)], rows)


def further_table(arms: Sequence[Arm]) -> str:
    """The score when the offline part ends, and in the end."""
    rows = [[named(arm), by_seed(arm, offline), by_seed(arm, final)] for arm in arms]
    return table(["config", "offline", "after 4,000 steps online"], rows)


def named(arm: Arm) -> str:
    return f"{arm.title}: `{arm.config}`"


def by_seed(arm: Arm, entry: Callable[[Result], Any]) -> str:
    return ", ".join("not run" if r is None else str(entry(r)) for r in arm.results)


def final(result: Result) -> str:
    return f"{result['return_mean']:.0f}"


def offline(result: Result) -> str:
    return f"{score_at(result, pretraining(result)):.0f}"


def score_at(result: Result, step: int) -> float:
    curve = result["curve"]
    return float(curve["returns"][curve["steps"].index(step)])


def pretraining(result: Result) -> int:
    return int(result["config"].get("algo_kwargs", {}).get("offline_pretrain_updates", 0))


def steps_to(result: Result, target: float) -> int | str:
    """The environment steps after which an evaluation first reached the target."""
    curve = result["curve"]
    for step, value in zip(curve["steps"], curve["returns"], strict=True):
        if value >= target:
            return int(step) - pretraining(result)
    return "never"


def mean_at(arm: Arm, step: int) -> str:
    if step > arm.steps:
        return ""
    values = [score_at(r, step) for r in arm.results if r is not None]
    return f"{statistics.mean(values):.0f}" if values else "not run"


TEXT = """# Offline-to-online benchmark

<!-- not run: it trains for an hour or two, and writes this page -->
```bash
pip install -c constraints.txt -e ".[mujoco]"
python benchmarks/offline_to_online.py
```

What does a log save a learner that can also act? Entries are by seed: {seeds}. A target counts as reached at
the first evaluation that is not below it; the last column is the mean return of the final policy over
{episodes} episodes. No checkpoint is chosen by its score.

## RLPD beside SAC: HalfCheetah

HalfCheetah-v5, with a medium log of 20,000 transitions whose own episodes return {log_return} on average. The
same command makes it: SAC with the settings below is trained for 30,000 steps (seed 100), and then acts for
20,000 more, exploring, like `rl-training data collect --checkpoint RUN --steps 20000 --stochastic`.

Both learners have 128-128 networks, batches of 256, learning rate 1e-3 and 1,000 random steps. RLPD has the
log, five critics with LayerNorm, five updates per step and its own target entropy; these are half of the paper's
critics and a quarter of its updates. SAC has two critics and one update. The row between them is RLPD with
`offline_batch_ratio: 0`: what its parts give without the log. Evaluations are of 5 episodes, every 500 steps.
The last row is the SAC that made the log, evaluated on 3 episodes, every 1,000 steps: seeds differ by much.

{cheetah_steps}

Mean over seeds of the evaluations on the way:

{cheetah_curve}

Steps are those of the learner in the environment, without those of the log, and not time: a step of RLPD has
five updates of five critics.

The task and the learning rate were chosen by SAC alone, for the log: with 3e-4 it was still at -54 after 17,500
steps, and on Hopper, with 1e-3, it came no higher than 479 in 17,000. RLPD was tried with no other settings
than these.

## RLPD beside SAC: Pendulum

Pendulum-v1, with the built-in log `pendulum/mixed-v0`, whose own episodes return -608 on average.

Both have 64-64 networks, batches of 64, learning rate 1e-3, discount 0.98 and 200 random steps. RLPD has the log,
ten critics and twenty updates per step; SAC has two critics and one update. They are evaluated on 10 episodes,
every 250 steps.

{steps}

Mean over seeds of the evaluations on the way:

{curve}

## Offline policies that go on

The same log of Pendulum. The score of the offline policy after 1,000 updates (10 episodes), and of the final
policy ({episodes} episodes).

{further}

"not run": no result yet. Versions: {versions}.
"""
