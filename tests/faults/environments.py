"""Environments that fail and are then mended: the run ends equal to one that never failed."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from rl_training.data.replay_config import ReplayConfig
from tests.faults.faulty_envs import (
    CLOSE_FAULTS,
    DEADLY,
    ENV_ID,
    PLAN,
    RESET_FAULTS,
    STEP_FAULTS,
)
from tests.faults.kills import verdict_of
from tests.faults.support.processes import DONE, REFUSED, Child, guarded
from tests.faults.support.twins import Twin, go_on, profile_values
from tests.faults.support.verdicts import Case, Tally, Verdict

SETUPS: dict[str, dict[str, Any]] = {
    "one": {"num_envs": 1},
    "sync": {"num_envs": 2},
    "async": {"num_envs": 2, "algo_kwargs": {"vector_env": "async"}},
    "one async": {"num_envs": 1, "algo_kwargs": {"vector_env": "async"}},
}
TIMEOUT = 1.0  # seconds for a step of an environment


def cases(rng: random.Random, base: Path, quick: bool) -> Iterator[Case]:
    grid = [
        (setup, fault)
        for setup in SETUPS
        for fault in (*STEP_FAULTS, *RESET_FAULTS, *CLOSE_FAULTS)
        if fault != "hang" or "env_step_timeout" in ReplayConfig.model_fields
    ]
    for setup, fault in rng.sample(grid, 6) if quick else grid:
        for _ in range(1 if quick or fault in CLOSE_FAULTS else 3):
            at = rng.randrange(2, 12) if fault in RESET_FAULTS else rng.randrange(1, 150)
            name = f"{setup}: {fault} at {at}"
            yield Case(name, partial(fail_and_mend, setup, fault, at, base))


def values_of(setup: str, output: Path) -> dict[str, Any]:
    changes = SETUPS[setup]
    kwargs = {"learning_starts": 30, **changes.get("algo_kwargs", {})}
    if "env_step_timeout" in ReplayConfig.model_fields:
        kwargs["env_step_timeout"] = TIMEOUT
    return profile_values(
        "", output, algo="sac", env_id=ENV_ID, env_kwargs={}, num_envs=changes["num_envs"],
        total_timesteps=200, algo_kwargs=kwargs,
    )  # fmt: skip


def fail_and_mend(setup: str, fault: str, at: int, base: Path, work: Path) -> Tally:
    twin = Twin(base, setup, values_of(setup, base))
    values = {**twin.values, "output_dir": str(work / "runs")}
    plan = work / "plan.json"
    plan.write_text(json.dumps({"how": fault, "at": at}))
    ended = Child(
        lambda: guarded(lambda: go_on(values)),
        work / "failing.output",
        environment={PLAN: str(plan)},
    ).wait(30.0)
    if not (work / "plan.json.injected").exists():
        return Tally()  # the run was over before: nothing was injected
    plan.unlink()
    if ended.code is None:
        return Tally.of(Verdict.HANG, f"{fault}: {ended.tail}")
    # in this process an environment can end the run as any crash does; in another it cannot
    crashed = fault in DEADLY and "async" not in setup
    expected = {DONE, REFUSED} if fault in CLOSE_FAULTS else {REFUSED}
    if ended.code not in expected and not crashed and not _in_evaluation(fault, ended.code):
        return Tally.of(Verdict.FOREIGN, f"{fault} ({ended.code}): {ended.tail}")
    return verdict_of(values, twin, work)


def _in_evaluation(fault: str, code: int) -> bool:
    """Tell an evaluation that ended the process: it runs in the process of training."""
    return (fault == "os._exit" and code == 3) or (fault == "SIGKILL" and code == -9)
