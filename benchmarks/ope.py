"""Off-policy evaluation held against the truth: tabular, in environments, beside d3rlpy, and on shuffled rewards.

    python -m benchmarks.ope [--jobs 2] [--part ranking] [--d3rlpy PYTHON] [--quick] [--output runs/ope_benchmark]

tabular   coverage of every estimator's interval over 100 logs of a problem solved by dynamic programming
ranking   ten policies from poor to good on Pendulum and on CartPole: estimates beside true values
d3rlpy    fitted Q evaluation by d3rlpy, five seeds, of the same policies on the same logs
shuffled  policies trained on logs with shuffled rewards, and untrained ones: none may be called better
cost      a step of fitted Q evaluation per member beside the critic step of TD3+BC per critic

Each cell is saved when it is done; a second call runs only what is missing. d3rlpy needs an environment of its
own, `make .venv-bench/.installed`, whose interpreter `--d3rlpy` names.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks import ope_policies, ope_tabular
from benchmarks.cells import Result, read, run_all, save, versions
from benchmarks.ope_cost import measure_cost
from benchmarks.ope_page import PAGE, UPDATES, page_text
from benchmarks.ope_policies import (
    EXPERT,
    LOGS,
    POLICIES,
    Trained,
    candidates,
    shuffled_log,
    true_value,
)
from rl_training.ope import FitOptions, ScoreCard, judge

ROOT = Path(__file__).parents[1]
PARTS = ("tabular", "ranking", "d3rlpy", "shuffled", "cost")
D3RLPY = ROOT / ".venv-bench" / "bin" / "python"
CHUNK = 10  # logs of a tabular cell
COMPARED = {"pendulum": ("td3_bc", 10_000), "cartpole": ("iql", 10_000)}  # also fitted by d3rlpy


@dataclass(frozen=True)
class Settings:
    """Amount of work."""

    logs: int = 100
    tabular_updates: int = 1_500
    updates: int = UPDATES
    members: int = 10
    hidden_sizes: tuple[int, ...] = (64, 64)
    episodes: int = 200
    shuffled_seeds: int = 2
    d3rlpy_seeds: int = 5
    d3rlpy_updates: int = 20_000
    rounds: int = 15  # of the measured cost
    trained: bool = True  # judge trained policies, not untrained ones alone

    def fit(self) -> FitOptions:
        return FitOptions(
            updates=self.updates,
            members=self.members,
            hidden_sizes=self.hidden_sizes,
        )

    def tabular_fit(self) -> FitOptions:
        return FitOptions(
            updates=self.tabular_updates,
            members=self.members,
            hidden_sizes=(),
            learning_rate=0.005,
        )


QUICK = Settings(
    logs=CHUNK, tabular_updates=200, updates=200, members=3, hidden_sizes=(16,), episodes=3,
    shuffled_seeds=1, d3rlpy_seeds=1, d3rlpy_updates=100, rounds=3, trained=False,
)  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """One piece of work; `work` says all that its result depends on."""

    part: str
    name: str
    work: dict[str, Any]

    def path(self, output: Path) -> Path:
        plain = "".join(letter if letter.isalnum() else "-" for letter in self.name)
        return output / "cells" / f"{self.part}-{plain}.json"

    def result(self, output: Path) -> Result | None:
        return read(self.path(output), self.work)


def cells_of(settings: Settings) -> list[Cell]:
    fit = settings.fit().model_dump(mode="json")
    made = [
        Cell(
            "tabular",
            f"logs {start} to {start + CHUNK - 1}",
            {"start": start, "fit": settings.tabular_fit().model_dump(mode="json")},
        )
        for start in range(0, settings.logs, CHUNK)
    ]
    for task in POLICIES:
        for policy in candidates(task):
            work = {"policy": asdict(policy), "fit": fit, "episodes": settings.episodes}
            made.append(Cell("ranking", f"{task}: {policy.name}", work))
    for task, (algo, step) in COMPARED.items():
        work = {
            "policy": asdict(Trained(task, algo, step if settings.trained else 0)),
            "gamma": ope_policies.GAMMA,
            "seeds": settings.d3rlpy_seeds,
            "updates": settings.d3rlpy_updates,
        }
        made.append(Cell("d3rlpy", task, work))
    for policy in shuffled_policies(settings):
        for judged_on in ("the shuffled log", "the true log"):
            work = {"policy": asdict(policy), "log": judged_on, "fit": fit}
            if judged_on == "the true log":  # of shuffled rewards no environment is known
                work["episodes"] = settings.episodes
            made.append(Cell("shuffled", f"{policy.name}, judged on {judged_on}", work))
    made.append(Cell("cost", "of a step", {"rounds": settings.rounds}))
    if not settings.trained:
        made = [cell for cell in made if not cell.work.get("policy", {}).get("step")]
    return made


def shuffled_policies(settings: Settings) -> list[Trained]:
    """List trained and untrained policies; those of one seed share a shuffled log."""
    seeds = range(1, settings.shuffled_seeds + 1)
    trained = [
        Trained("pendulum", algo, 10_000, seed, shuffle=seed)
        for seed in seeds
        for algo in ("td3_bc", "iql")
    ]
    of_expert = [Trained(EXPERT, algo, 10_000, shuffle=1) for algo in ("td3_bc", "iql")]
    return [*trained, *of_expert, *(replace(policy, step=0) for policy in trained[:2])]


def run_cell(cell: Cell, output: Path, python: Path) -> Result:
    """Do the work of a cell and save it, in a process of its own."""
    torch.set_num_threads(1)
    start = time.perf_counter()
    if cell.part == "tabular":
        result = run_tabular(cell.work)
    elif cell.part == "d3rlpy":
        result = run_d3rlpy(cell.work, output, python)
    elif cell.part == "cost":
        result = measure_cost(cell.work["rounds"])
    else:
        result = run_judged(cell, output)
    result |= {
        "seconds": round(time.perf_counter() - start, 1),
        "config": cell.work,
        "versions": versions("rl_training", "torch", "gymnasium", "numpy"),
    }
    save(cell.path(output), result)
    return result


def run_tabular(work: dict[str, Any]) -> Result:
    """Judge both policies on each log."""
    problem = ope_tabular.Problem.draw()
    policies = problem.policies()
    cards: dict[str, list[Any]] = {name: [] for name in policies}
    for seed in range(work["start"], work["start"] + CHUNK):
        log = problem.log(seed)
        with tempfile.TemporaryDirectory() as fits:
            for name, probabilities in policies.items():
                card = judge(
                    ope_tabular.as_policy(probabilities),
                    log,
                    gamma=ope_tabular.GAMMA,
                    stochastic=True,
                    options=FitOptions(**work["fit"]),
                    output_dir=fits,
                )
                cards[name].append(plain(card))
    truth = {name: problem.value(probabilities) for name, probabilities in policies.items()}
    return {"truth": {**truth, "behaviour": problem.value(problem.behaviour)}, "cards": cards}


def run_judged(cell: Cell, output: Path) -> Result:
    """Judge a trained policy, and play it if its true value is asked for."""
    trained = Trained(**cell.work["policy"])
    policy = trained.load(output)
    log: str | Path = f"builtin:{LOGS[trained.task]}"
    if cell.work.get("log") == "the shuffled log":
        assert trained.shuffle is not None
        log = shuffled_log(trained.task, trained.shuffle, output)
    card = judge(
        policy,
        log,
        gamma=ope_policies.GAMMA,
        options=FitOptions(**cell.work["fit"]),
        output_dir=output / "fits" / Path(log).name,
    )
    result: Result = {"card": plain(card)}
    if "episodes" in cell.work:
        result["truth"] = true_value(policy, trained.task, cell.work["episodes"])
    return result


def run_d3rlpy(work: dict[str, Any], output: Path, python: Path) -> Result:
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    done = subprocess.run(
        [str(python), "-m", "benchmarks.ope_d3rlpy", json.dumps({**work, "output": str(output)})],
        env={**os.environ, "PYTHONPATH": path},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-2_000:])
    found: Result = json.loads(done.stdout.splitlines()[-1])
    return found


def plain(card: ScoreCard) -> dict[str, Any]:
    """Leave out what only pictures need."""
    return {key: value for key, value in card.as_dict().items() if key != "pictures"}


def in_turns(cells: Sequence[Cell]) -> list[list[Cell]]:
    """Order cells so that no two at a time train the same run or fit the same log's behaviour."""
    first: dict[Any, Cell] = {}
    for cell in cells:
        policy = cell.work.get("policy", {})
        training = tuple(policy.get(key) for key in ("task", "algo", "seed", "shuffle"))
        first.setdefault((*training, cell.part, cell.work.get("start")), cell)
    logs: dict[Any, Cell] = {}
    for cell in first.values():
        policy = cell.work.get("policy", {})
        shuffle = policy.get("shuffle") if cell.work.get("log") == "the shuffled log" else None
        logs.setdefault((cell.part, cell.work.get("start"), policy.get("task"), shuffle), cell)
    alone = list(logs.values())
    begun = [cell for cell in first.values() if cell not in alone]
    rest = [cell for cell in cells if cell not in alone and cell not in begun]
    return [turn for turn in (alone, begun, rest) if turn]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--part", action="append", choices=PARTS, help="may be repeated")
    parser.add_argument("--d3rlpy", type=Path, default=D3RLPY, help="interpreter that has d3rlpy")
    parser.add_argument("--quick", action="store_true", help="little of everything; writes no page")
    parser.add_argument("--output", type=Path, default=Path("runs/ope_benchmark"))
    options = parser.parse_args(arguments)
    settings = QUICK if options.quick else Settings()
    output = options.output.absolute() / ("quick" if options.quick else "full")
    parts = options.part or PARTS
    every = cells_of(settings)
    missing = [cell for cell in every if cell.part in parts and cell.result(output) is None]
    if not options.d3rlpy.exists() and any(cell.part == "d3rlpy" for cell in missing):
        print(f"d3rlpy left out: no {options.d3rlpy}; `make .venv-bench/.installed` installs it")
        missing = [cell for cell in missing if cell.part != "d3rlpy"]
    run = partial(run_cell, output=output, python=options.d3rlpy.absolute())
    timed = [cell for cell in missing if cell.part == "cost"]  # with nothing beside it
    failed = 0
    for turn in in_turns([cell for cell in missing if cell.part != "cost"]):
        failed += run_all(turn, run, options.jobs, summary)
    failed += run_all(timed, run, 1, summary)
    results = {(cell.part, cell.name): result for cell in every if (result := cell.result(output))}
    text = page_text(results)
    print(text)
    if not options.quick:
        PAGE.write_text(text)
        print(f"wrote {PAGE}")
    return 1 if failed else 0


def summary(result: Result) -> str:
    verdict = result["card"]["verdict"] if "card" in result else "done"
    return f"{verdict} ({result['seconds']:.0f} s)"


if __name__ == "__main__":
    sys.exit(main())
