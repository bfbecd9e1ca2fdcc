"""Mirror of a run that is trained here and belongs elsewhere: fetched first, sent back as it grows.

At every moment the home of the run holds a state from which it goes on. So the order matters: metrics before
the checkpoint that counts on them (a resume cuts back what is too long, and could not invent what is missing),
a checkpoint as a whole, removals after it, and `result.json` at the very end.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from rl_training.files import SpecialFileError, open_regular, read_json
from rl_training.runs.layout import CHECKPOINTS, MANIFEST, REPLAY_FOLDER, RESULT, STEP_PREFIX
from rl_training.sweeps.cluster.receiver import CHUNK, Receiver
from rl_training.sweeps.cluster.tree import Mark, RunTree, inside, list_tree

METRICS_SECONDS = 10.0  # between two returns of files that grow, if no checkpoint comes before
_MAX_STATUS_BYTES = 1 << 20


class RunMirror:
    """Copy of a run on the node that trains it."""

    def __init__(self, home: Receiver, run_dir: Path, status: Path, log: Path) -> None:
        self.run_dir = run_dir
        self._home, self._status, self._log = home, status, log
        self._home_dir = ""  # how messages of the run call its directory at home
        self._sent = RunTree()  # what home has, with the marks that the files have here
        self._sent_at = 0.0
        self._status_mark: Mark | None = None
        self._log_sent = 0

    def fetch(self, home_dir: str) -> None:
        """Copy the run as it is at home, which calls its directory `home_dir`."""
        self._home_dir = home_dir
        self.run_dir.mkdir(parents=True, exist_ok=True)
        tree = self._home.tree()
        copies: dict[Mark, Path] = {}  # files that several checkpoints share
        for path, mark in tree.files.items():
            self._fetch_file(path, mark, copies)
        for files in tree.steps.values():
            for path, mark in files.items():
                self._fetch_file(path, mark, copies)
        for name, step in tree.pointers.items():
            (self.run_dir / CHECKPOINTS / name).symlink_to(f"{STEP_PREFIX}{step}")
        self._sent = list_tree(self.run_dir)

    def _fetch_file(self, path: str, mark: Mark, copies: dict[Mark, Path]) -> None:
        target = inside(self.run_dir, path)
        target.parent.mkdir(parents=True, exist_ok=True)
        if mark in copies:
            hold(copies[mark], target)
            return
        with target.open("xb") as file:
            while content := self._home.read(path, file.tell()):
                file.write(content)
        copies[mark] = target

    def report(self) -> None:
        """Send the status, if it has changed, and what was printed."""
        status = None
        with suppress(OSError, ValueError):
            facts = self._status.stat()
            mark = (facts.st_size, facts.st_mtime_ns, facts.st_ino)
            if mark != self._status_mark:
                status = self._with_home_paths(read_json(self._status, limit=_MAX_STATUS_BYTES))
                self._status_mark = mark
        log = self._new_log()
        if status is not None or log:
            self._home.report(status, log)
            self._log_sent += len(log)

    def _with_home_paths(self, status: Mapping[str, Any]) -> dict[str, Any]:
        """Let messages name the directory that the user knows."""
        text = json.dumps(status)
        here, there = (json.dumps(str(path))[1:-1] for path in (self.run_dir, self._home_dir))
        replaced: dict[str, Any] = json.loads(text.replace(here, there))
        return replaced

    def _new_log(self) -> bytes:
        with suppress(FileNotFoundError), open_regular(self._log) as file:
            file.seek(self._log_sent)
            return file.read(CHUNK)
        return b""

    def send(self, *, everything: bool = False) -> None:
        """Send new checkpoints, and with them, or from time to time, the other files."""
        finished = (self.run_dir / RESULT).exists()  # so its last checkpoint is in the tree
        tree = list_tree(self.run_dir)  # before the files are read: they may only have grown since
        due = time.monotonic() - self._sent_at >= METRICS_SECONDS
        if not (everything or due or self._new_steps(tree)):
            return
        if RESULT in self._sent.files and RESULT not in tree.files:
            self._remove([RESULT])  # it goes on
        self._send_files(tree, (path for path in tree.files if path != RESULT))
        newest = max(tree.steps, default=-1)
        for step in self._in_safe_order(tree, newest, self._new_steps(tree)):
            if not self._send_step(tree, step) and step == newest:
                return  # nothing older may go before it is there
        self._send_pointers(tree)
        self._remove_what_is_gone(tree)
        if finished and not self._new_steps(tree):
            self._send_files(tree, (path for path in tree.files if path == RESULT))
        self._sent_at = time.monotonic()

    def _new_steps(self, tree: RunTree) -> list[int]:
        """List checkpoints that home does not have, or has in an earlier version, in order."""
        return [
            step
            for step, files in sorted(tree.steps.items())
            if _version(files, step) != _version(self._sent.steps.get(step, {}), step)
        ]

    def _in_safe_order(self, tree: RunTree, newest: int, steps: list[int]) -> list[int]:
        """Put the newest checkpoint first if it has a replay.

        Older ones have lost theirs, or are losing it, and none of them may be the newest at home.
        """
        if not any(REPLAY_FOLDER in path.split("/") for path in tree.steps.get(newest, ())):
            return steps
        return sorted(steps, key=lambda step: (step != newest, step))

    def _send_files(self, tree: RunTree, paths: Iterable[str]) -> None:
        for path in paths:
            mark = tree.files[path]
            if self._sent.files.get(path) != mark and self._send(path, self.run_dir):
                self._home.place(path)
                self._sent.files[path] = mark

    def _send_step(self, tree: RunTree, step: int) -> bool:
        """Send a checkpoint; False if it is being replaced or removed, which leaves it to the next time."""
        files = tree.steps[step]
        held = self._held(files, step)
        if held is None:
            return False
        at_home = {
            mark: path
            for number, paths in self._sent.steps.items()
            if number != step
            for path, mark in paths.items()
            if tree.steps.get(number, {}).get(path) == mark
        }
        manifest = _manifest_of(step)
        self._home.discard_step(step)
        for path in sorted(files, key=lambda path: path == manifest):
            existing = at_home.get(files[path])
            if existing is None or not self._home.link(path, existing):
                self._send(path, held)
        self._home.place_step(step)
        self._sent.steps[step] = files
        return True

    def _held(self, files: Mapping[str, Mark], step: int) -> Path | None:
        """Return a directory with links to the files of a checkpoint, which may go or be replaced meanwhile."""
        held = self.run_dir.with_name("held")
        shutil.rmtree(held, ignore_errors=True)
        for path in files:
            (held / path).parent.mkdir(parents=True, exist_ok=True)
            if not hold(self.run_dir / path, held / path):
                return None
        now = list_tree(self.run_dir).steps.get(step, {})
        return held if _version(now, step) == _version(files, step) else None

    def _send(self, path: str, origin: Path) -> bool:
        """Send a file; False if it is gone."""
        try:
            with open_regular(origin / path) as file:
                offset = 0
                while True:
                    content = file.read(CHUNK)
                    if content or offset == 0:
                        self._home.write(path, offset, content)
                    offset += len(content)
                    if len(content) < CHUNK:
                        return True
        except (FileNotFoundError, SpecialFileError):
            return False

    def _send_pointers(self, tree: RunTree) -> None:
        for name, step in tree.pointers.items():
            if self._sent.pointers.get(name) != step and step in self._sent.steps:
                self._home.point(name, step)
                self._sent.pointers[name] = step

    def _remove_what_is_gone(self, tree: RunTree) -> None:
        self._remove([path for path in self._sent.files if path not in tree.files])
        for step, files in list(self._sent.steps.items()):
            if step not in tree.steps:
                self._home.remove_step(step)
                del self._sent.steps[step]
                continue
            for path in [path for path in files if path not in tree.steps[step]]:
                self._home.remove(path)  # the replay of an older checkpoint, dropped
                del files[path]

    def _remove(self, paths: Iterable[str]) -> None:
        for path in paths:
            self._home.remove(path)
            del self._sent.files[path]


def hold(source: Path, target: Path) -> bool:
    """Link a file, or copy it where the disk has no links; False if it is gone."""
    try:
        os.link(source, target)
    except FileNotFoundError:
        return False
    except OSError:
        try:
            shutil.copyfile(source, target)
        except FileNotFoundError:
            return False
    return True


def _manifest_of(step: int) -> str:
    return f"{CHECKPOINTS}/{STEP_PREFIX}{step}/{MANIFEST}"


def _version(files: Mapping[str, Mark], step: int) -> Mark | None:
    """Return what tells a checkpoint from another one of its step."""
    return files.get(_manifest_of(step))
