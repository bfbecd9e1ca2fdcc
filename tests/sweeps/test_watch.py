"""`watch` shows what files of runs say, whatever they say, and touches nothing."""

from __future__ import annotations

import json
import math
import os
import platform
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.scored_runs import make_run

from rl_training.cli.main import main
from rl_training.cli.sparkline import sparkline
from rl_training.config import OutputError
from rl_training.runs.lock import LOCK, RunLock, is_at_work, locks_held
from rl_training.runs.tailing import GrowingLines
from rl_training.sweeps import watching
from rl_training.sweeps.directory import SweepDirectory, TrialRecord
from rl_training.sweeps.status import TrialStatus, write_status
from rl_training.sweeps.watching import Watcher

HOST = platform.node()


def output(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    capsys.readouterr()
    assert main(["watch", *words]) == code
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return captured.out + captured.err


def row(step: int, score: float | None = None, **more: Any) -> str:
    scores = {} if score is None else {"eval/return_mean": score, "eval/return_std": 1.0}
    return json.dumps({"step": step, **scores, **more}) + "\n"


@pytest.fixture
def sweep(tmp_path: Path) -> SweepDirectory:
    """Two trials: one runs, one waits."""
    files = SweepDirectory(tmp_path / "sweep")
    files.create()
    records = [
        TrialRecord(name, f"tau={number}", {"tau": number}, {"algo": "bc", "seed": number})
        for number, name in enumerate(("first", "second"))
    ]
    files.write({}, records)
    files.run_dir("first").mkdir()
    (files.run_dir("first") / "config.yaml").write_text("algo: bc\n")
    (files.run_dir("first") / "metrics.jsonl").write_text(row(10, -3.0) + row(20, -1.0))
    report(files, "first", "running", step=20, total=100, score="return -1.0")
    return files


def report(files: SweepDirectory, name: str, state: Any, **values: Any) -> None:
    values = {"updated": time.time(), "host": HOST, "steps_per_second": 10.0, **values}
    write_status(files.status_path(name), TrialStatus(state=state, **values))


def states(watcher: Watcher) -> list[str]:
    return [trial.status.state for trial in watcher.look().trials]


@pytest.fixture
def holding() -> Iterator[Callable[[Path], subprocess.Popen[str]]]:
    """Starts a process that holds the lock of a directory."""
    code = (
        "import sys, time; from pathlib import Path; from rl_training.runs.lock import RunLock\n"
        "with RunLock(Path(sys.argv[1])): print('locked', flush=True); time.sleep(60)"
    )
    started: list[subprocess.Popen[str]] = []

    def hold(path: Path) -> subprocess.Popen[str]:
        words = [sys.executable, "-c", code, str(path)]
        started.append(subprocess.Popen(words, stdout=subprocess.PIPE, text=True))
        assert started[-1].stdout is not None
        assert started[-1].stdout.readline() == "locked\n"
        return started[-1]

    yield hold
    for process in started:
        process.kill()
        process.communicate()


# -- what is shown ------------------------------------------------------------------------------


def test_a_sweep_is_one_table(sweep: SweepDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    text = output(capsys, str(sweep.path), "--once")
    assert "1 running, 1 waiting; about 18 s left" in text  # 8 s, and 10 s for the other
    assert ["tau=0", "running", "20/100", "return", "-1.0", "▁█", "8", "s", "left"] in [
        line.split() for line in text.splitlines()
    ]
    assert ["tau=1", "waiting"] in [line.split() for line in text.splitlines()]


def test_a_failed_trial_gives_code_1_and_its_reason(
    sweep: SweepDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    report(sweep, "second", "failed", error="the simulator broke\nat line 3", warnings=("slow",))
    report(sweep, "first", "running", warnings=("slow",))
    text = output(capsys, str(sweep.path), "--once", code=1)
    assert "tau=1: error: the simulator broke\n" in text
    assert "tau=0 and 1 more: warning: slow" in text
    assert "at line 3" not in text


def test_json_is_one_document(sweep: SweepDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    facts = json.loads(output(capsys, str(sweep.path), "--json"))
    assert (facts["kind"], facts["counts"]) == ("sweep", {"running": 1, "waiting": 1})
    first = facts["trials"][0]
    assert (first["metric"], first["scores"]) == ("eval/return_mean", [-3.0, -1.0])
    assert (first["step"], first["total"], first["seconds_left"]) == (20, 100, 8.0)


def test_trials_that_join_a_search_are_seen(sweep: SweepDirectory) -> None:
    watcher = Watcher(sweep.path)
    assert len(watcher.look().trials) == 2
    third = TrialRecord("third", "tau=2", {"tau": 2}, {"algo": "bc", "seed": 2})
    sweep.write({}, [*sweep.records(), third])
    assert [trial.name for trial in watcher.look().trials] == ["first", "second", "third"]


def test_ordinary_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(tmp_path, {10: -5.0, 20: -4.0}, seed=1, total_timesteps=30)
    stopped = make_run(tmp_path, {10: math.nan, 20: 3.0}, finished=False, total_timesteps=90)
    lines = [line.split() for line in output(capsys, str(tmp_path)).splitlines()]
    begin = ["td3_bc", "Pendulum-v1"]
    assert [*begin, "seed=1", "ended", "30/30", "return", "-4.0", "▁█", "total_timesteps"] in lines
    assert [*begin, "seed=0", "stopped", "30/90", "return", "3.0", "×▄"] in lines
    assert "1 stopped" in output(capsys, str(stopped))


def test_a_run_of_a_sweep_has_its_status(
    sweep: SweepDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "1 running; about 8 s left" in output(capsys, str(sweep.run_dir("first")))


def test_speed_and_time_left_of_an_ordinary_run_are_in_its_metrics(tmp_path: Path) -> None:
    run = make_run(tmp_path, {10: 1.0}, finished=False, total_timesteps=130)
    with (run / "metrics.jsonl").open("a") as file:
        speeds = {"time/steps_per_second": 5.0, "time/updates_per_second": 20.0}
        file.write(row(30, **speeds) + row(40, 2.0))
    with RunLock(run):
        (trial,) = Watcher(run).look().trials
    assert (trial.status.state, trial.status.step, trial.status.total) == ("running", 40, 130)
    assert (trial.status.seconds_left, trial.status.updates_per_second) == (18.0, 20.0)


def test_without_a_return_the_watched_validation_metric_is_shown(tmp_path: Path) -> None:
    options = {"early_stopping": {"metric": "validation/log_prob"}}
    run = make_run(tmp_path, {}, finished=False, algo_kwargs=options)
    with (run / "metrics.jsonl").open("a") as file:
        file.write(row(40, **{"validation/td_error": 1.0, "validation/log_prob": -2.5}))
    (trial,) = Watcher(run).look().trials
    assert (trial.metric, trial.status.score) == (
        "validation/log_prob",
        "validation/log_prob -2.5",
    )


# -- who is at work -----------------------------------------------------------------------------


def test_looking_at_a_lock_does_not_take_it(
    tmp_path: Path, holding: Callable[[Path], subprocess.Popen[str]]
) -> None:
    assert not is_at_work(tmp_path, locks_held())
    holder = holding(tmp_path)
    assert is_at_work(tmp_path, locks_held())
    assert is_at_work(tmp_path, None)  # where there is no list of locks
    with pytest.raises(OutputError):
        RunLock(tmp_path)
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert (tmp_path / ".lock.pid").exists()
    assert not is_at_work(tmp_path, locks_held())
    assert not is_at_work(tmp_path, None)


def test_a_number_that_another_process_has_now_is_not_the_holder(tmp_path: Path) -> None:
    (tmp_path / LOCK).touch()
    (tmp_path / ".lock.pid").write_text(f"{os.getpid()} {HOST}")
    assert locks_held() is not None
    assert not is_at_work(tmp_path, locks_held())


def test_a_trial_whose_process_is_gone_has_stopped(
    sweep: SweepDirectory, holding: Callable[[Path], subprocess.Popen[str]]
) -> None:
    watcher = Watcher(sweep.path)
    old = time.time() - watching.STALE_SECONDS - 1
    report(sweep, "first", "running", updated=old)
    holder = holding(sweep.run_dir("first"))
    assert states(watcher) == ["running", "waiting"]  # as during a long evaluation
    holder.kill()
    holder.wait()
    assert states(watcher) == ["stopped", "waiting"]
    assert not watcher.look().goes_on
    report(sweep, "first", "running")
    assert states(watcher) == ["running", "waiting"]


def test_a_trial_that_starts_is_believed_as_long_as_the_driver_lives(sweep: SweepDirectory) -> None:
    watcher = Watcher(sweep.path)
    report(sweep, "second", "starting", updated=0.0, host="")
    with sweep.lock():
        assert states(watcher)[1] == "starting"
        assert watcher.look().goes_on
    assert states(watcher)[1] == "stopped"


def test_another_host_is_believed_and_its_silence_shown(
    sweep: SweepDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    report(sweep, "first", "running", updated=time.time() - 300, host="elsewhere")
    (sweep.run_dir("first") / ".lock.pid").write_text("17 elsewhere")
    text = output(capsys, str(sweep.path))
    assert "running" in text
    assert "no word for 5 min" in text


# -- reading on ---------------------------------------------------------------------------------


def test_only_new_lines_are_read_until_the_file_is_cut_back(tmp_path: Path) -> None:
    path, restarts = tmp_path / "metrics.jsonl", []
    lines = GrowingLines(path, lambda: restarts.append(1))
    assert list(lines.new_lines()) == []
    path.write_text("one\ntwo\nthr")
    assert list(lines.new_lines()) == [b"one", b"two"]
    assert list(lines.new_lines()) == []
    with path.open("a") as file:
        file.write("ee\nfour\n")
    assert list(lines.new_lines()) == [b"three", b"four"]
    assert restarts == []
    path.write_text("one\nTWO\nthree\nfour\nfive\n")  # a resume cut it back, and it grew again
    assert list(lines.new_lines()) == [b"one", b"TWO", b"three", b"four", b"five"]
    assert restarts == [1]


def test_a_line_without_end_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rl_training.runs.tailing._PIECE", 8)
    path = tmp_path / "metrics.jsonl"
    lines = GrowingLines(path, lambda: None)
    path.write_text("a\n" + "x" * 30)
    assert list(lines.new_lines()) == [b"a"]
    with path.open("a") as file:
        file.write("xxx\nb\nc\n")
    assert list(lines.new_lines()) == [b"b", b"c"]


def test_files_that_have_not_changed_are_not_opened(
    sweep: SweepDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher = Watcher(sweep.path)
    first = watcher.look()
    opened: list[str] = []

    def forbidden(path: Any, *_: Any, **__: Any) -> Any:
        opened.append(str(path))
        raise OSError

    monkeypatch.setattr("rl_training.files._descriptor", forbidden)
    assert watcher.look().trials == first.trials
    assert [path for path in opened if not path.endswith(".lock.pid")] == []


def test_nothing_is_written(sweep: SweepDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    def contents() -> list[Any]:
        files = sorted(path for path in sweep.path.rglob("*") if path.is_file())
        return [(str(path), path.read_bytes(), path.stat().st_mtime_ns) for path in files]

    before = contents()
    output(capsys, str(sweep.path))
    assert contents() == before


# -- hostile files ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["..", "", ".", "a/b", "a\0b", "a\x1b[2J", "x" * 300])
def test_names_of_trials_stay_inside(
    name: str, sweep: SweepDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    values = json.loads((sweep.path / "trials.json").read_text())
    values["trials"][0]["name"] = name
    (sweep.path / "trials.json").write_text(json.dumps(values))
    assert "is damaged" in output(capsys, str(sweep.path), code=2)


@pytest.mark.parametrize(
    "content",
    [
        b"{", b"[1, 2]", b"\xff\xfe", b"[" * 100_000, b"null",
        b'{"state": "stopped", "step": -1}',
        b'{"state": "running", "updated": 1e18, "steps_per_second": NaN, "step": 1' + b"0" * 400 + b"}",
        b'{"state": "failed", "error": "' + b"x" * 100_000 + b'\\u001b[2J"}',
        b'{"state": "running", "warnings": ["\\u001b]0;title\\u0007", 3, null], "score": "\\u202e\\u0000"}',
    ],
)  # fmt: skip
def test_a_damaged_status_is_a_clear_cell(
    content: bytes, sweep: SweepDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep.status_path("first").write_bytes(content)
    capsys.readouterr()
    assert main(["watch", str(sweep.path)]) in (0, 1)
    captured = capsys.readouterr()
    assert captured.err == ""
    assert len(captured.out) < 4_000
    assert not set(captured.out) & {"\x1b", "\x07", "\x00", "\u202e"}


@pytest.mark.parametrize("name", ["metrics.jsonl", "config.yaml", "result.json", ".lock.pid"])
@pytest.mark.parametrize("kind", ["fifo", "link", "directory", "garbage", "sparse"])
def test_odd_files_of_a_run_neither_hang_nor_crash(
    name: str, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path / "runs", {10: 1.0}, finished=False)
    if name == "config.yaml":
        make_run(tmp_path / "runs", {10: 1.0})  # so that there is a run left
    (run / name).unlink(missing_ok=True)
    if kind == "fifo":
        os.mkfifo(run / name)
    elif kind == "link":
        (run / name).symlink_to("/dev/zero")
    elif kind == "directory":
        (run / name).mkdir()
    elif kind == "garbage":
        (run / name).write_bytes(
            os.urandom(1000) + b'\n{"step": 1e999}\n{"eval/return_mean": "x"}\n'
        )
    else:
        (run / name).touch()
        os.truncate(run / name, 2**42)
    capsys.readouterr()
    assert main(["watch", str(tmp_path / "runs")]) in (0, 1)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "score", ["1e308", "-1e308", "NaN", "Infinity", "1" + "0" * 307, '"x"', "null", "[1]", "true"]
)
def test_odd_scores(score: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path, {10: 1.0}, finished=False)
    with (run / "metrics.jsonl").open("a") as file:
        file.write(f'{{"step": 20, "eval/return_mean": {score}}}\n')
    text = output(capsys, str(run))
    assert max(map(len, text.splitlines())) < 600
    json.loads(output(capsys, str(run), "--json"))


@pytest.mark.parametrize("make", ["nothing", "file", "empty", "sweeps"])
def test_a_path_without_runs_is_one_line(
    make: str, tmp_path: Path, sweep: SweepDirectory, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / make
    if make == "file":
        path.write_text("x")
    elif make == "empty":
        path.mkdir()
    elif make == "sweeps":
        path = tmp_path
    text = output(capsys, str(path), code=2)
    assert text.startswith("error: ")
    assert text.count("\n") == 1


# -- curves and terminals -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "curve"),
    [
        ([], ""),
        ([3.0], "▄"),
        ([0.0, 7.0], "▁█"),
        ([-1e308, 0.0, 1e308], "▁▅█"),
        ([math.nan, math.inf], "××"),
        ([1.0, math.nan, 2.0], "▁×█"),
        (list(range(16)), "▁▂▃▄▅▆▇█"),
        ([0.0] * 15 + [math.nan], "▄▄▄▄▄▄▄▄"),
    ],
)
def test_curves(values: list[float], curve: str) -> None:
    assert sparkline(values, 8) == curve


def test_it_needs_no_torch(sweep: SweepDirectory) -> None:
    script = (
        f"from rl_training.cli.main import main\nassert main(['watch', {str(sweep.path)!r}]) == 0\n"
        "import sys\nassert not {'torch', 'gymnasium', 'numpy', 'pandas'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)


def test_ctrl_c_leaves_a_terminal_as_it_was(
    sweep: SweepDirectory, holding: Callable[[Path], subprocess.Popen[str]]
) -> None:
    holding(sweep.path)
    leader, follower = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "20"}
    words = [sys.executable, "-m", "rl_training", "watch", str(sweep.path)]
    with subprocess.Popen(words, stdout=follower, stderr=follower, env=environment) as process:
        os.close(follower)
        seen = b""
        while b"tau=1" not in seen:
            seen += os.read(leader, 4096)
        assert b"\x1b[?25l" in seen  # the cursor is hidden
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        try:
            while piece := os.read(leader, 4096):
                seen += piece
        except OSError:  # everything is read
            pass
    os.close(leader)
    assert seen.rfind(b"\x1b[?25h") > seen.rfind(b"\x1b[?25l")
    assert seen.rfind(b"\x1b[?1049l") > seen.rfind(b"\x1b[?1049h")
