"""Runs that are trained elsewhere: what comes home is always a run that goes on."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.support.runs import Killed, assert_same_run

from rl_training.config import OutputError
from rl_training.runs.layout import step_directories
from rl_training.runs.lock import RunLockedError
from rl_training.runtime import Callback, TrainConfig, TrainerState
from rl_training.runtime.checkpoints.format import read_checkpoint
from rl_training.runtime.commands import train_in
from rl_training.sweeps.cluster.mirror import RunMirror
from rl_training.sweeps.cluster.receiver import RunReceiver
from rl_training.sweeps.cluster.tree import UnsafePathError, inside, list_tree
from rl_training.sweeps.status import TrialStatus, read_status, write_status

ConfigMaker = Callable[..., TrainConfig]


@pytest.fixture
def config(pendulum_config: ConfigMaker) -> TrainConfig:
    """A run with a replay, whose older checkpoints are pruned."""
    return pendulum_config(
        "sac", checkpoint_interval=8, algo_kwargs={"keep_checkpoints": 3, "tensorboard": False}
    )


def receiver_in(home: Path) -> RunReceiver:
    return RunReceiver(home / "run", home / "status.json", home / "log")


class Returning(Callback):
    """Sends the run home after every tick, as the watching process does once a second."""

    def __init__(self, mirror: RunMirror | None) -> None:
        self.mirror = mirror

    def on_collect_end(self, state: TrainerState, env_steps: int) -> None:
        if self.mirror is not None:
            self.mirror.send()


class KilledAt:
    """Receiver whose sender is gone after so many operations."""

    def __init__(self, receiver: RunReceiver, left: int) -> None:
        self.receiver, self.left, self.operations = receiver, left, []

    def __getattr__(self, name: str) -> Any:
        def operate(*arguments: Any) -> Any:
            if self.left == 0:
                raise Killed
            self.left -= 1
            self.operations.append(name)
            return getattr(self.receiver, name)(*arguments)

        return operate


def train_away(config: TrainConfig, home: Path, away: Path, operations: int) -> KilledAt:
    """Fetch a run, train it, send it home; all of it gone after so many operations."""
    receiver = receiver_in(home)
    link = KilledAt(receiver, operations)
    mirror = RunMirror(link, away / "run", away / "status.json", away / "log")  # type: ignore[arg-type]
    try:
        mirror.fetch(str(home / "run"))
        train_in(away / "run", config, callbacks=[Returning(mirror)])
        mirror.send(everything=True)
    except Killed:
        pass
    finally:
        receiver.close()
    return link


def test_a_run_comes_home_as_it_is_away(config: TrainConfig, tmp_path: Path) -> None:
    link = train_away(config, tmp_path / "home", tmp_path / "away", -1)
    home, away = tmp_path / "home/run", tmp_path / "away/run"
    assert_same_run(home, away)
    at_home, there = list_tree(home), list_tree(away)
    assert set(at_home.files) == set(there.files)
    assert {s: set(f) for s, f in at_home.steps.items()} == {
        s: set(f) for s, f in there.steps.items()
    }
    assert at_home.pointers == there.pointers
    assert {"remove_step", "remove", "point", "place", "place_step"} <= set(link.operations)


@pytest.mark.parametrize("share", [0.05, 0.2, 0.4, 0.6, 0.8, 0.97])
def test_a_kill_between_any_two_operations_leaves_a_run_that_goes_on(
    config: TrainConfig, tmp_path: Path, share: float
) -> None:
    train_in(tmp_path / "whole", config, callbacks=[Returning(None)])
    total = len(train_away(config, tmp_path / "counted", tmp_path / "there", -1).operations)
    train_away(config, tmp_path / "home", tmp_path / "first", int(share * total))
    train_away(config, tmp_path / "home", tmp_path / "second", -1)  # on another node
    assert_same_run(tmp_path / "whole", tmp_path / "home/run")
    assert not [path for path in (tmp_path / "home").rglob(".*") if path.suffix == ".tmp"]


def test_a_run_that_was_cut_off_goes_on_at_home_too(config: TrainConfig, tmp_path: Path) -> None:
    train_in(tmp_path / "whole", config, callbacks=[Returning(None)])
    link = train_away(config, tmp_path / "home", tmp_path / "away", 60)
    assert link.left == 0
    train_in(tmp_path / "home/run", config, callbacks=[Returning(None)])
    assert_same_run(tmp_path / "whole", tmp_path / "home/run")


def test_metrics_are_home_before_the_checkpoint_that_counts_on_them(
    config: TrainConfig, tmp_path: Path
) -> None:
    home = tmp_path / "home/run"

    class Checking(KilledAt):
        def __getattr__(self, name: str) -> Any:
            def operate(*arguments: Any) -> Any:
                answer = getattr(self.receiver, name)(*arguments)
                for step in list_tree(home).steps:
                    text = (home / f"checkpoints/step_{step}/manifest.json").read_text()
                    size = (home / "metrics.jsonl").stat().st_size
                    assert json.loads(text)["metrics_position"] <= size
                return answer

            return operate

    receiver = receiver_in(tmp_path / "home")
    checking: Any = Checking(receiver, -1)
    mirror = RunMirror(checking, tmp_path / "away/run", tmp_path / "s", tmp_path / "l")
    mirror.fetch(str(home))
    train_in(tmp_path / "away/run", config, callbacks=[Returning(mirror)])
    mirror.send(everything=True)
    assert list_tree(home).steps


def test_checkpoints_share_the_rows_of_their_replay_at_home_too(
    config: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rl_training.runtime.checkpoints.segments.BLOCK_BYTES", 200)
    config = config.replace(algo_kwargs={**config.algo_kwargs, "buffer_capacity": 200})
    link = train_away(config, tmp_path / "home", tmp_path / "away", -1)
    assert "link" in link.operations
    inodes = [
        mark[2]
        for files in list_tree(tmp_path / "home/run").steps.values()
        for path, mark in files.items()
        if "/replay/" in path
    ]
    assert len(set(inodes)) < len(inodes)


def test_a_status_names_the_directory_that_the_user_knows(tmp_path: Path) -> None:
    receiver = receiver_in(tmp_path / "home")
    status, log = tmp_path / "status.json", tmp_path / "log"
    mirror = RunMirror(receiver, tmp_path / "away/run", status, log)
    mirror.fetch("/sweeps/a/run")
    log.write_bytes(b"first\n")
    write_status(status, TrialStatus(state="failed", error=f"see {tmp_path / 'away/run'}"))
    mirror.report()
    with log.open("ab") as file:
        file.write(b"second\n")
    mirror.report()
    assert read_status(tmp_path / "home/status.json").error == "see /sweeps/a/run"
    assert (tmp_path / "home/log").read_bytes() == b"first\nsecond\n"


@pytest.mark.parametrize(
    "path",
    ["/etc/passwd", "../x", "a/../../x", "a/./x", "", ".", "a//b", ".lock", "a\\b", "C:x", "a\0"],
)
def test_a_path_that_leads_out_of_the_run_is_refused(path: str, tmp_path: Path) -> None:
    receiver = receiver_in(tmp_path / "home")
    for operate in (receiver.read, receiver.write):
        with pytest.raises(UnsafePathError, match="not a path inside"):
            operate(path, 0, *([b"x"] if operate == receiver.write else []))
    for operate in (receiver.place, receiver.remove):
        with pytest.raises(UnsafePathError, match="not a path inside"):
            operate(path)


def test_a_link_inside_the_run_is_not_followed(tmp_path: Path) -> None:
    receiver = receiver_in(tmp_path / "home")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/x").write_text("mine")
    (receiver.run_dir / "out").symlink_to(tmp_path / "elsewhere")
    (receiver.run_dir / "file").symlink_to(tmp_path / "elsewhere/x")
    for path in ("out/x", "file"):
        with pytest.raises(UnsafePathError, match="is a link"):
            receiver.read(path, 0)
        with pytest.raises(UnsafePathError, match="is a link"):
            receiver.write(path, 0, b"y")
    assert (tmp_path / "elsewhere/x").read_text() == "mine"
    assert list_tree(receiver.run_dir).files == {}


@pytest.mark.parametrize("step", [-1, "3", "../x", 10**18, True])
def test_a_step_is_a_number(step: Any, tmp_path: Path) -> None:
    receiver = receiver_in(tmp_path / "home")
    for operate in (receiver.place_step, receiver.remove_step, lambda s: receiver.point("last", s)):
        with pytest.raises(UnsafePathError, match="not a step"):
            operate(step)
    with pytest.raises(UnsafePathError, match="no name"):
        receiver.point("other", 3)


def test_checkpoints_behind_a_link_cannot_travel(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run/checkpoints").symlink_to(tmp_path / "disk")
    with pytest.raises(OutputError, match=r"is a link.*--storage shared"):
        list_tree(tmp_path / "run")


def test_a_run_that_is_being_received_is_locked(tmp_path: Path) -> None:
    receiver = receiver_in(tmp_path / "home")
    with pytest.raises(RunLockedError):
        receiver_in(tmp_path / "home")
    receiver.close()
    assert not receiver.run_dir.exists()  # nothing had come
    receiver_in(tmp_path / "home").close()


def test_special_files_and_hidden_ones_stay_where_they_are(tmp_path: Path) -> None:
    (tmp_path / ".hidden").write_text("x")
    (tmp_path / "odd:name").write_text("x")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "note.txt").write_text("x")
    assert inside(tmp_path, "note.txt") == tmp_path / "note.txt"
    assert set(list_tree(tmp_path).files) == {"note.txt"}


def test_no_checkpoint_without_its_replay_is_ever_the_newest_at_home(
    config: TrainConfig, tmp_path: Path
) -> None:
    """A node may write several before it sends the first; all but the newest two lose their replay."""
    train_in(tmp_path / "away/run", config)
    for operations in range(12, 40):
        home = tmp_path / f"home-{operations}"
        receiver = receiver_in(home)
        link: Any = KilledAt(receiver, operations)
        mirror = RunMirror(link, tmp_path / "away/run", tmp_path / "s", tmp_path / "l")
        with suppress(Killed):
            mirror.send(everything=True)
        receiver.close()
        steps = step_directories(home / "run/checkpoints")
        if steps:
            assert read_checkpoint(steps[-1]).replay is not None
