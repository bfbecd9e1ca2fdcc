"""Sinks of rows: `metrics.jsonl`, `progress.csv`, `evaluations.npz`, TensorBoard."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import logging
import os
import time
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rl_training.config import MissingExtraError
from rl_training.files import SpecialFileError, open_own, read_regular, write_bytes
from rl_training.runs.layout import MAX_METRICS_BYTES
from rl_training.runs.reading import latest_metrics

if TYPE_CHECKING:
    from numpy.typing import NDArray

log = logging.getLogger("rl_training")
Row = Mapping[str, Any]


class Sink:
    """Base of everything that receives rows of metrics; a sink implements only what it needs."""

    def write(self, row: Row) -> None:
        """Take one row: averaged losses, or the scores of an evaluation."""

    def write_episodes(self, step: int, returns: NDArray[Any], lengths: NDArray[Any]) -> None:
        """Take return and length of each episode of an evaluation."""

    def cut_back(self, rows: Sequence[Row], step: int) -> None:
        """Forget what was written after a checkpoint at `step`; `rows` are those that stay."""

    def close(self) -> None:
        """Flush and release, also after an error."""


class JsonlSink(Sink):
    """Appends rows to `metrics.jsonl`, the file that resuming and reports read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, row: Row) -> None:
        with open_own(self.path) as file:
            file.write((json.dumps(row) + "\n").encode())

    def position(self) -> int:
        with open_own(self.path) as file:
            os.fsync(file.fileno())
            return file.seek(0, os.SEEK_END)

    def truncate(self, position: int) -> None:
        with open_own(self.path) as file:
            file.truncate(min(position, os.fstat(file.fileno()).st_size))


class CsvSink(Sink):
    """Writes `progress.csv`, a line per step; a metric that appears later adds a column to the whole file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._columns: list[str] = []
        self._line: dict[str, Any] = {}  # the last one
        self._start = 0  # where it begins in the file

    def write(self, row: Row) -> None:
        same_step = self._line.get("step") == row["step"]
        self._line = {**self._line, **row} if same_step else dict(row)
        added = [key for key in row if key not in self._columns]
        if added:
            earlier = self._read()
            self._columns += added
            content = self._lines(earlier[:-1] if same_step else earlier, header=True)
            self._start = len(content)
            write_bytes(self.path, content + self._lines([self._line]))
            return
        with open_own(self.path) as file:
            end = file.seek(0, os.SEEK_END)
            if same_step:
                file.truncate(self._start)
            else:
                self._start = end
            file.write(self._lines([self._line]))

    def cut_back(self, rows: Sequence[Row], step: int) -> None:
        """Write the file anew, all rows at once."""
        self._columns = list(dict.fromkeys(key for row in rows for key in row))
        self.path.unlink(missing_ok=True)
        by_step: dict[int, dict[str, Any]] = {}
        for row in rows:
            by_step[row["step"]] = {**by_step.get(row["step"], {}), **row}
        lines = list(by_step.values())
        self._line = lines[-1] if lines else {}
        if lines:
            content = self._lines(lines[:-1], header=True)
            self._start = len(content)
            write_bytes(self.path, content + self._lines([self._line]))

    def _lines(self, rows: Sequence[Row], *, header: bool = False) -> bytes:
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, self._columns, restval="")
        if header:
            writer.writeheader()
        writer.writerows(rows)
        return text.getvalue().encode()

    def _read(self) -> list[dict[str, str]]:
        try:
            content = read_regular(self.path, limit=MAX_METRICS_BYTES)
        except FileNotFoundError:
            return []
        return list(csv.DictReader(io.StringIO(content.decode(errors="replace"), newline="")))


class EpisodesSink(Sink):
    """Writes `evaluations.npz`: steps (n,), returns and lengths (n, episodes)."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write_episodes(self, step: int, returns: NDArray[Any], lengths: NDArray[Any]) -> None:
        import numpy as np

        arrays = {"steps": np.array([step]), "returns": returns[None], "lengths": lengths[None]}
        saved = self._read(len(returns))
        if saved:
            before = saved["steps"] < step
            arrays = {key: np.concatenate([saved[key][before], arrays[key]]) for key in arrays}
        self._save(arrays)

    def cut_back(self, rows: Sequence[Row], step: int) -> None:
        saved = self._read()
        if saved:
            self._save({key: saved[key][saved["steps"] <= step] for key in saved})

    def _read(self, episodes: int | None = None) -> dict[str, Any]:
        """Read what was saved; nothing if it is damaged, or is of another number of episodes."""
        import numpy as np

        try:
            content = read_regular(self.path, limit=MAX_METRICS_BYTES)
        except FileNotFoundError:
            return {}
        except SpecialFileError:
            content = b""
        try:
            _refuse_packed(content)
            with np.load(io.BytesIO(content), allow_pickle=False) as saved:
                arrays = {key: saved[key] for key in ("steps", "returns", "lengths")}
            return _checked(arrays, episodes)
        except Exception as error:  # damaged archives fail in any way
            log.warning(
                "%s is damaged (%s); evaluations before this point are lost", self.path, error
            )
            return {}

    def _save(self, arrays: Mapping[str, Any]) -> None:
        import numpy as np

        buffer = io.BytesIO()
        np.savez(buffer, **arrays)
        write_bytes(self.path, buffer.getvalue())


def _refuse_packed(content: bytes) -> None:
    """Refuse compressed arrays: ours are not, and a few bytes could unpack to more than the memory."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        if any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist()):
            raise ValueError("its arrays are compressed")


def _checked(arrays: dict[str, Any], episodes: int | None) -> dict[str, Any]:
    steps, returns, lengths = arrays.values()
    if steps.dtype.kind != "i" or {returns.dtype.kind, lengths.dtype.kind} - set("if"):
        raise ValueError("its arrays have other types")
    if steps.ndim != 1 or returns.ndim != 2 or returns.shape != lengths.shape:
        raise ValueError("its arrays have other shapes")
    if len(steps) != len(returns):
        raise ValueError("its arrays have other lengths")
    if episodes not in (None, returns.shape[1]):
        raise ValueError(f"it has {returns.shape[1]} episodes per evaluation, this run {episodes}")
    return arrays


class TensorBoardSink(Sink):
    """Writes scalars as TensorBoard events, through TensorBoard's own writer."""

    def __init__(self, directory: Path) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._event, self._summary = event_pb2.Event, summary_pb2.Summary
        self._events = EventFileWriter(str(directory))

    def write(self, row: Row) -> None:
        values = [
            self._summary.Value(tag=name, simple_value=value)
            for name, value in latest_metrics([row]).items()
        ]
        summary = self._summary(value=values)
        self._events.add_event(
            self._event(wall_time=time.time(), step=row["step"], summary=summary)
        )

    def close(self) -> None:
        self._events.close()


def tensorboard_sinks(directory: Path, wanted: bool | Literal["auto"]) -> list[Sink]:
    """TensorBoard if it is wanted, or with `auto` if it is installed."""
    installed = importlib.util.find_spec("tensorboard") is not None
    if wanted is True and not installed:
        raise MissingExtraError("tensorboard: true", "TensorBoard", "tensorboard")
    if not installed or wanted is False:
        return []
    if directory.is_symlink() or (directory.exists() and not directory.is_dir()):
        log.warning("%s is a link or no directory: no TensorBoard events", directory)
        return []
    return [TensorBoardSink(directory)]
