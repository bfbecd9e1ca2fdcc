"""Arrays of one HDF5 file. A process of its own reads the file, because libhdf5 may hang or crash.

Arrays that lie in the file as they are in memory, as D4RL's mostly do, are read from there without the
process, at the speed of the disk. Chunked and compressed ones come through a pipe.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from rl_training.config import DatasetError
from rl_training.data.packing.source import PIECE_BYTES, Array, FieldInfo
from rl_training.data.packing.sizes import check_unpacked_size
from rl_training.files import open_regular

WORK_SECONDS = 60  # of processor time per answer; sensible files need a fraction of one
WAIT_SECONDS = 600  # also for a slow disk
_WORKER = Path(__file__).with_name("worker.py")
_MAX_LISTING = 64 << 20  # bytes


class Hdf5Reader:
    """Shapes, types and rows of the arrays in an HDF5 file.

    Attributes:
        arrays: Shape and type by name; the name of an array in a group is `group/name`.
        others: Names of what is not an array, for errors.
        remarks: The single values that our own files hold beside their arrays.
    """

    def __init__(self, path: Path, label: str, process: subprocess.Popen[bytes], file: IO[bytes]):
        self.label = label
        self._process = process
        self._file = file
        listing = self._answer()
        self._offsets: dict[str, int | None] = {}
        self.arrays: dict[str, FieldInfo] = {}
        for name, facts in listing["arrays"].items():
            self.arrays[name] = FieldInfo(tuple(facts["shape"]), np.dtype(facts["dtype"]))
            self._offsets[name] = facts["offset"]
        self.others: list[str] = listing["others"]
        self.remarks: dict[str, str | int] = listing["remarks"]
        total = sum(_size(info) for info in self.arrays.values() if not info.dtype.hasobject)
        check_unpacked_size(label, total, path.stat().st_size)

    def read(self, name: str, start: int, stop: int) -> Array:
        """Rows start to stop of one array."""
        shape, dtype = self.arrays[name]
        stop = min(stop, shape[0]) if shape else 1
        if dtype.kind not in "fiubcS":
            raise DatasetError(f"{self.label}: {name!r} holds no plain numbers, and is not read")
        values = np.empty((max(stop - start, 0), *shape[1:]), dtype)
        row_bytes = max(1, math.prod(shape[1:]) * dtype.itemsize)
        step = max(1, PIECE_BYTES // row_bytes)
        for first in range(start, stop, step):
            piece = values[first - start : first - start + step]
            if piece.nbytes:
                self._fill(piece, name, first, row_bytes)
        if dtype.kind == "b" and values.view(np.uint8).max(initial=0) > 1:
            raise DatasetError(
                f"{self.label}: {name!r} is damaged: it holds more than true and false"
            )
        return values

    def _fill(self, piece: Array, name: str, first: int, row_bytes: int) -> None:
        content = memoryview(piece.reshape(-1).view(np.uint8)).cast("B")
        offset = self._offsets[name]
        if offset is not None:
            self._file.seek(offset + first * row_bytes)
            if self._file.readinto(content) != len(content):  # type: ignore[attr-defined]
                raise DatasetError(f"{self.label}: {name!r} is damaged: it ends too early")
            return
        size = self._answer([name, first, first + len(piece)])["bytes"]
        if size != len(content):
            raise DatasetError(f"{self.label}: {name!r} is damaged: it has other rows than it says")
        with self._bounded_wait():
            received = self._pipe.readinto(content)  # type: ignore[attr-defined]
        if received != size:
            raise self._died()

    @property
    def _pipe(self) -> IO[bytes]:
        assert self._process.stdout is not None
        return self._process.stdout

    def _answer(self, request: list[Any] | None = None) -> dict[str, Any]:
        assert self._process.stdin is not None
        with self._bounded_wait():
            try:
                if request is not None:
                    self._process.stdin.write(json.dumps(request).encode() + b"\n")
                    self._process.stdin.flush()
                line = self._pipe.readline(_MAX_LISTING)
            except BrokenPipeError:
                line = b""
        if not line.endswith(b"\n"):
            raise self._died()
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            colon = ":" if answer["error"].startswith("'") else ""
            raise DatasetError(f"{self.label}{colon} {answer['error']}")
        return answer

    @contextmanager
    def _bounded_wait(self) -> Iterator[None]:
        timer = threading.Timer(WAIT_SECONDS, self._process.kill)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _died(self) -> DatasetError:
        return DatasetError(
            f"{self.label} is damaged: libhdf5 crashed on it, or found no end. "
            "Restore the file from its origin."
        )


@contextmanager
def open_hdf5_reader(path: Path, label: str, *, depth: int = 0) -> Iterator[Hdf5Reader]:
    """Open the arrays at the top of a file, and those in groups down to `depth`."""
    try:
        opened = open_regular(path, follow_links=True)
    except OSError as error:
        raise DatasetError(f"{label}: {path} cannot be read: {error.strerror}") from None
    with opened as file:
        words = [sys.executable, "-I", "-S", str(_WORKER), str(path.absolute())]
        process = subprocess.Popen(
            [*words, str(WORK_SECONDS), str(depth), *filter(None, sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # Threads of linear algebra cost address space, and there is none of it.
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        )
        try:
            yield Hdf5Reader(path, label, process, file)
        finally:
            process.kill()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    _close(pipe)
            process.wait()


def _close(pipe: IO[bytes]) -> None:
    try:
        pipe.close()
    except BrokenPipeError:  # a request that the process did not live to read
        return


def _size(info: FieldInfo) -> int:
    return math.prod(info.shape) * info.dtype.itemsize
