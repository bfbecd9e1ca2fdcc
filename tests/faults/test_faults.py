"""Injected faults end as promised, in a small sample; `make faults` runs all of them.

The first tests show that the suite can fail: a verdict that cannot be bad says nothing.
"""

from __future__ import annotations

import json
import random
import shutil
import signal
from functools import partial
from pathlib import Path

import pytest

from rl_training.cli.main import main
from tests.faults import file_operations, fuzz, hostile_files
from tests.faults.hostile_checkpoints import (
    COLLECT,
    READS,
    REPORT,
    _set,
    _special_in_run,
    newest,
)
from tests.faults.hostile_data import CONFIGS, DATA
from tests.faults.support import disk, running, table
from tests.faults.support.hostile import Attack
from tests.faults.support.processes import DONE, FOREIGN, REFUSED, Child, call
from tests.faults.support.running import KINDS, KindResult, Plan, run_kind
from tests.faults.support.twins import Twin, differences, profile_values
from tests.faults.support.verdicts import Case, Tally, Verdict
from tests.support.data import make_fields


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> Twin:
    running.warm_up()
    base = tmp_path_factory.mktemp("twin")
    return Twin(base, "tiny", profile_values("tiny", base))


# -- the suite can fail ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("checkpoints/step_45/model.safetensors", b"x"),
        ("checkpoints/step_45/manifest.json", b"x"),
        ("metrics.jsonl", b'{"step": 99}\n'),
        ("evaluations.npz", b"x"),
        ("result.json", b"x"),
    ],
)
def test_comparison_notices_a_change_in_every_file(
    name: str, change: bytes, twin: Twin, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(twin.run, tmp_path / "copy", symlinks=True))
    assert differences(twin.run, copy) == []
    with (copy / name).open("ab") as file:
        file.write(change)
    if name == "evaluations.npz":
        (copy / name).write_bytes(change)
    assert len(differences(twin.run, copy)) == 1


def run_cases(*cases: Case, kind: str = "kills") -> KindResult:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running, "cases_of", lambda *_: iter(cases))
        return run_kind(kind, Plan())


def test_an_attack_that_hangs_or_crashes_is_counted_and_can_be_repeated() -> None:
    def crash(work: Path) -> Tally:
        raise RuntimeError("a mistake in the suite")

    result = run_cases(
        Case("waits", lambda _: signal.pause() or Tally(), timeout=0.5),
        Case("crashes", crash),
        Case("works", lambda _: Tally.of(Verdict.EQUAL)),
    )
    assert result.tally.counts == {Verdict.HANG: 1, Verdict.OTHER: 1, Verdict.EQUAL: 1}
    assert table.exit_code([result]) == 1
    text = table.as_text([result])
    assert "python -m tests.faults --only kills --seed 0 --case 'waits'" in text
    assert "a mistake in the suite" in text


@pytest.mark.parametrize("verdict", list(Verdict))
def test_exit_code_is_one_exactly_for_broken_promises(verdict: Verdict) -> None:
    promised = verdict in (Verdict.EQUAL, Verdict.SURVIVED, Verdict.REFUSED)
    assert table.exit_code([KindResult("kills", Tally.of(verdict))]) == int(not promised)
    assert table.exit_code([KindResult("kills", Tally())]) == 1  # nothing was injected


def test_a_payload_that_runs_a_foreign_error_and_an_escape_sequence_are_seen(
    tmp_path: Path,
) -> None:
    """Attacks that succeed, by way of a plugin, which is allowed to run code."""

    def plugin(code: str, place: Path, victim: Path, canary: Path) -> Path:
        code = code.replace("CANARY", str(canary)).replace("VICTIM", str(victim))
        (place / "plugin.py").write_text(code)
        return place / "plugin.py"

    verdicts = {}
    for name, code in {
        "executed": "open('CANARY', 'w')",
        "foreign": "from rl_training import api\napi.packaged_configs = lambda: 1 / 0",
        "escape": "print('\\x1b[2J')",
        "changed": "open('VICTIM', 'w')",
        "memory": "x = bytearray(2**35)",
        "crash": "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
    }.items():
        attack = Attack(name, partial(plugin, code), [["list", "--plugin", "FILE"]])
        (tmp_path / name).mkdir()
        tally = hostile_files.attempt(attack, tmp_path, tmp_path / name)
        verdicts[name] = next(iter(tally.counts))
    assert verdicts["executed"] is Verdict.EXECUTED
    assert verdicts["escape"] is verdicts["changed"] is Verdict.OTHER
    assert verdicts["crash"] is Verdict.FOREIGN
    assert verdicts["foreign"] is Verdict.FOREIGN
    assert verdicts["memory"] in (Verdict.REFUSED, Verdict.FOREIGN)


@pytest.mark.parametrize("verb", [*READS, COLLECT, REPORT], ids=" ".join)
def test_verbs_that_attacks_use_work_on_an_intact_run(
    verb: list[str], twin: Twin, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(twin.run, tmp_path / "run", symlinks=True))
    for target in (run, newest(run)) if verb is not REPORT else (run,):
        words = [w.replace("FILE", str(target)).replace("OUT", str(tmp_path / "o")) for w in verb]
        ended = Child(
            partial(main, [*words, *["--overwrite"] * (verb is COLLECT)]), tmp_path / "output"
        ).wait()
        assert ended.code == 0, ended.output


@pytest.mark.parametrize("verb", [*CONFIGS, *DATA], ids=" ".join)
def test_verbs_that_attacks_use_work_on_intact_files(verb: list[str], tmp_path: Path) -> None:
    import numpy as np
    import yaml

    path = tmp_path / ("c.yaml" if verb in CONFIGS else "l.npz")
    np.savez(tmp_path / "l.npz", **make_fields(400))
    if verb in CONFIGS:
        path.write_text(yaml.safe_dump(profile_values("tiny", tmp_path / "runs")))
    words = [w.replace("FILE", str(path)).replace("OUT", str(tmp_path / "out")) for w in verb]
    ended = Child(partial(main, words), tmp_path / "output").wait()
    assert ended.code == 0, ended.output


def test_fuzzing_tells_own_errors_from_foreign_ones_and_from_hangs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from rl_training.config import ConfigError

    def raising(error: BaseException) -> fuzz.Target:
        def target(rng: random.Random) -> None:
            raise error

        return target

    def endless(rng: random.Random) -> None:
        while True:
            pass

    monkeypatch.setattr(fuzz, "LIMIT", 0.2)
    before = signal.signal(signal.SIGALRM, fuzz._too_long)
    try:
        targets = [raising(ConfigError("x")), raising(ValueError("x")), endless, lambda _: 1]
        outcomes = [fuzz.outcome(target, random.Random(0), ())[0] for target in targets]
    finally:
        signal.signal(signal.SIGALRM, before)
    assert outcomes == [Verdict.REFUSED, Verdict.FOREIGN, Verdict.HANG, Verdict.SURVIVED]


@pytest.mark.parametrize("mode", disk.MODES)
def test_the_failing_disk_fails(mode: str, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    path = tmp_path / "disk" / "file"

    def run() -> int:
        disk.FailingDisk(tmp_path / "disk", 1, mode).install()
        path.write_bytes(b"abcd")
        return DONE

    ended = Child(run, tmp_path / "output").wait()
    assert ended.code == (disk.CRASHED if "crash" in mode else FOREIGN)
    torn = mode in ("torn crash", "short write")
    assert (path.read_bytes() if path.exists() else None) == (b"ab" if torn else None)


def test_exit_codes_tell_own_errors_from_foreign_ones(tmp_path: Path) -> None:
    from rl_training.config import OutputError

    def own() -> None:
        raise OutputError("full")

    assert call(own, tmp_path / "a").code == REFUSED
    assert call(lambda: 1 / 0, tmp_path / "b").code == FOREIGN
    assert call(lambda: signal.pause(), tmp_path / "c", timeout=0.3).code is None


@pytest.mark.parametrize(
    ("kind", "case"),
    [
        ("file-operations", "resume, EIO at 52 of 149"),
        ("file-operations", "resume, EROFS at 60 of 126"),
    ],
)
def test_a_failing_disk_is_survived_in_the_middle_of_a_resume(
    kind: str, case: str, twin: Twin, tmp_path: Path
) -> None:
    phase, mode, number = case.split(" ")[0].strip(","), case.split(" ")[1], case.split(" ")[3]
    tally = file_operations.fail_and_go_on(
        phase, mode, int(number), twin.directory.parents[1], tmp_path
    )
    assert tally.counts == {Verdict.EQUAL: 1}, tally.broken


@pytest.mark.parametrize("name", ["metadata.json", "result.json", ".lock.pid", "progress.csv"])
def test_a_directory_in_the_place_of_a_file_of_a_run_is_named(
    name: str, twin: Twin, tmp_path: Path
) -> None:
    attack = Attack(name, partial(_special_in_run, name, "directory"), [READS[2]], needs_run=True)
    tally = hostile_files.attempt(attack, twin.run, tmp_path)
    assert tally.counts == {Verdict.REFUSED: 1}, tally.broken


def test_a_manifest_whose_configuration_is_empty_is_refused(twin: Twin, tmp_path: Path) -> None:
    attack = Attack("config", partial(_set, "config", {"x": 1}), READS, needs_run=True)
    tally = hostile_files.attempt(attack, twin.run, tmp_path)
    assert tally.counts == {Verdict.REFUSED: 3}, tally.broken


# -- a sample of every kind ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_quick_sample_of_faults_ends_as_promised(kind: str) -> None:
    result = run_kind(kind, Plan(quick=True))
    assert result.tally.injected > 0
    assert json.dumps(table.as_json([result]))
    assert not result.failures, table.as_text([result])
