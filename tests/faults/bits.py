"""One flipped bit in a file of a run or in a dataset: refused, mended with a note, or harmless."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from rl_training import api
from rl_training.data import TransitionDataset
from rl_training.runs.reading import read_run
from rl_training.runtime import Callback, TrainConfig, TrainerState, resume, train
from tests.faults.support.processes import DONE, REFUSED, Ended, call
from tests.faults.support.twins import Twin, differences, profile_values, run_of
from tests.faults.support.verdicts import Case, Tally, Verdict
from tests.support.data import make_fields

# files without a checksum: damage stays in them and in what is copied from them, and nowhere else
UNSEALED = {
    "metrics.jsonl": {"metrics.jsonl", "result.json"}, "evaluations.npz": {"evaluations.npz"},
    "config.yaml": set(), "result.json": set(), "metadata.json": set(), "progress.csv": set(),
}  # fmt: skip
OBSERVATION = [0.5, -0.5, 0.25]
HALFWAY = 42
FORMATS = ("npz", "pt", "hdf5")


class StopAt(Callback):
    """Ends a run like a crash, after a number of steps."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_update_end(self, state: TrainerState, terms: Any) -> None:
        if state.global_step >= self.step:
            raise SystemExit


def cases(rng: random.Random, base: Path, quick: bool) -> Iterator[Case]:
    Twin(base, "tiny", profile_values("tiny", base))
    half = interrupted(base, "half", profile_values("tiny", base / "half"), HALFWAY)
    run = run_of(half)
    assert run is not None
    (run / "result.json").write_text(json.dumps({"step": 30, "stop_reason": None, "metrics": {}}))
    names = sorted(
        str(path.relative_to(run))
        for path in run.rglob("*")
        if path.is_file() and path.stat().st_size
    )
    for name in rng.sample(names, 4) if quick else names:
        for _ in range(1 if quick else 8):
            bit = rng.randrange(8 * (run / name).stat().st_size)
            yield Case(f"{name} bit {bit}", partial(flip_in_run, name, bit, base))
    for kind in FORMATS:
        size = dataset_of(base, kind).stat().st_size
        for _ in range(1 if quick else 40):
            bit = rng.randrange(8 * size)
            yield Case(f"dataset {kind} bit {bit}", partial(flip_in_dataset, kind, bit, base))


def interrupted(base: Path, name: str, values: dict[str, Any], step: int) -> Path:
    """Output directory with one run that ended like a crash at this step."""
    output = Path(values["output_dir"])
    if not output.exists():
        stop = StopAt(step)
        ended = call(
            lambda: train(TrainConfig(**values), callbacks=[stop]), base / f"{name}.output"
        )
        assert list(output.glob("*/checkpoints/step_*")), ended.output
    return output


def flip(path: Path, bit: int) -> None:
    """Flip a bit of this file alone: segments of a replay are hard links."""
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.unlink()
    path.write_bytes(content)


# -- runs ----------------------------------------------------------------------------------------


def flip_in_run(name: str, bit: int, base: Path, work: Path) -> Tally:
    twin = Twin(base, "tiny", profile_values("tiny", base))
    intact, damaged = run_of(base / "half"), work / "runs"
    shutil.copytree(base / "half", damaged, symlinks=True)
    run = run_of(damaged)
    assert intact is not None
    assert run is not None
    flip(run / name, bit)
    tally = Tally()
    for verb, read in READERS.items():
        tally.merge(_compare(verb, read, intact, run, name, work))
    tally.merge(_resume(run, twin, name, work))
    return tally


def _predict(run: Path) -> Any:
    return api.predict(run, OBSERVATION).tolist()


def _evaluate(run: Path) -> Any:
    return api.evaluate(run, num_episodes=1)


def _report(run: Path) -> Any:
    facts = read_run(run).as_dict()
    return {key: value for key, value in facts.items() if key not in ("run", "command")}


READERS: dict[str, Callable[[Path], Any]] = {
    "predict": _predict,
    "eval": _evaluate,
    "report": _report,
}


def _compare(
    verb: str, read: Callable[[Path], Any], intact: Path, run: Path, name: str, work: Path
) -> Tally:
    answers = []
    for number, directory in enumerate((intact, run)):
        answer = work / f"{verb}-{number}.json"
        ended = call(
            lambda: answer.write_text(json.dumps(read(directory))),  # noqa: B023
            work / f"{verb}.output",
        )
        if ended.code != DONE:
            return _bad_end(f"{verb}, {name}", ended)
        answers.append(answer.read_text())
    if answers[0] == answers[1]:
        return Tally.of(Verdict.EQUAL)
    if verb == "report" and name in UNSEALED:
        return Tally.of(Verdict.SURVIVED)
    return Tally.of(Verdict.NOT_EQUAL, f"{verb} of a flipped {name} gives another answer")


def _resume(run: Path, twin: Twin, name: str, work: Path) -> Tally:
    ended = call(lambda: resume(run), work / "resume.output")
    if ended.code != DONE:
        return _bad_end(f"resume, {name}", ended)
    unequal = set(differences(twin.run, run))
    if not unequal:
        return Tally.of(Verdict.EQUAL)
    if unequal <= UNSEALED.get(name, set()):
        return Tally.of(Verdict.SURVIVED)
    return Tally.of(Verdict.NOT_EQUAL, f"resume of a flipped {name}: {', '.join(sorted(unequal))}")


def _bad_end(what: str, ended: Ended) -> Tally:
    if ended.code == REFUSED:
        return Tally.of(Verdict.REFUSED)
    verdict = Verdict.HANG if ended.code is None else Verdict.FOREIGN
    return Tally.of(verdict, f"{what} ({ended.code}): {ended.tail}")


# -- datasets ------------------------------------------------------------------------------------


def dataset_of(base: Path, kind: str) -> Path:
    path = base / f"log.{kind}"
    if not path.exists():
        fields = make_fields(120)
        if kind == "npz":
            np.savez(path, **fields)
        else:
            TransitionDataset.from_dict(fields).save(path)
    return path


def flip_in_dataset(kind: str, bit: int, base: Path, work: Path) -> Tally:
    """Flip a bit of the log that a half-done run learns from; `data check` and `resume` read it."""
    log = work / f"log.{kind}"
    shutil.copy(dataset_of(base, kind), log)
    values = profile_values(
        "", work / "runs", algo="td3_bc", env_id=None, env_kwargs={}, eval_episodes=0,
        total_timesteps=60, checkpoint_interval=20,
        algo_kwargs={"dataset_kind": kind, "dataset_path": str(log), "eval_interval": None},
    )  # fmt: skip
    values["algo_kwargs"].pop("eval_interval")
    whole = {**values, "output_dir": str(work / "whole")}
    ended = call(lambda: train(TrainConfig(**whole)), work / "whole.output")
    assert ended.code == DONE, ended.output
    interrupted(work, "half", values, 30)
    flip(log, bit)
    tally = Tally()
    checked = call(lambda: api.check_dataset(str(log)), work / "check.output")
    if checked.code == DONE:
        tally.add(Verdict.SURVIVED)
    else:
        tally.merge(_bad_end(f"data check, {kind}", checked))
    run, twin = run_of(work / "runs"), run_of(work / "whole")
    assert run is not None
    assert twin is not None
    ended = call(lambda: resume(run), work / "resume.output")
    if ended.code != DONE:
        tally.merge(_bad_end(f"resume, {kind}", ended))
        return tally
    unequal = [name for name in differences(twin, run) if name != "evaluations.npz"]
    if unequal:
        tally.add(Verdict.NOT_EQUAL, f"resume with a flipped {kind}: {', '.join(unequal)}")
    else:
        tally.add(Verdict.EQUAL)
    return tally
