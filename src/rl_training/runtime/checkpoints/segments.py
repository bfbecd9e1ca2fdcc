"""Replay of a checkpoint: immutable segments of rows, of which a save writes only new ones.

Rows are numbered from the first one ever written and cut into blocks of a fixed number of rows. A
complete block never changes, so the next checkpoint has it as a hard link: every checkpoint
directory is whole, and the disk holds each row once. Only the last block, which is still growing,
is written again. How a replay is cut does not depend on when checkpoints were written, so an
interrupted run ends with the same files as an uninterrupted one.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors.torch import save as save_tensors
from torch import Tensor

from rl_training.config import CheckpointError
from rl_training.files import sha256_of, sync_directory, write_bytes

BLOCK_BYTES = 2**20  # at least; smaller files would cost more to link than to write
MAX_BLOCKS = 256  # of a full buffer; each is a hard link in every checkpoint
_NAME = re.compile(r"\d{1,18}-\d{1,18}\.safetensors")


class StoredRows(Protocol):
    """Replay buffer, as far as saving its rows is concerned."""

    capacity: int

    @property
    def numbers(self) -> range:
        """Numbers of the stored rows."""
        ...

    def columns_of(self, numbers: range) -> dict[str, Tensor]:
        """Copy rows by their numbers; they never change."""
        ...


@dataclass(frozen=True)
class Segment:
    """One file with the rows of numbers `start` to `stop`."""

    start: int
    stop: int
    sha256: str
    bytes: int

    @property
    def name(self) -> str:
        return f"{self.start}-{self.stop}.safetensors"


@dataclass(frozen=True)
class SavedReplay:
    """Segments of one checkpoint, which together hold the rows of `numbers`."""

    directory: Path
    numbers: range
    segments: Sequence[Segment]

    def as_dict(self) -> dict[str, Any]:
        """JSON form, for the manifest."""
        return {
            "start": self.numbers.start,
            "stop": self.numbers.stop,
            "segments": [asdict(segment) for segment in self.segments],
        }

    @classmethod
    def from_dict(cls, directory: Path, values: Mapping[str, Any]) -> SavedReplay:
        """Check the entry of a manifest: whole numbers, and segments without a gap."""
        segments = [Segment(**entry) for entry in values["segments"]]
        numbers = range(values["start"], values["stop"])
        reached = segments[0].start if segments else numbers.start
        for segment in segments:
            if not _NAME.fullmatch(segment.name) or segment.start != reached:
                raise ValueError(f"segment {segment.name} does not follow on")
            reached = segment.stop
        if segments and not (segments[0].start <= numbers.start and reached == numbers.stop):
            raise ValueError("the segments do not hold the rows")
        return cls(directory, numbers, segments)


def write_segments(target: Path, rows: StoredRows, earlier: SavedReplay | None) -> SavedReplay:
    """Write the rows to the folder `target`, with links to segments of an earlier checkpoint."""
    target.mkdir()
    by_stop = {} if earlier is None else {segment.stop: segment for segment in earlier.segments}
    segments = []
    for block in blocks(rows):
        segment = by_stop.get(block.stop)
        reusable = segment is not None and segment.start <= block.start
        if segment is None or earlier is None or not reusable:
            segment = _write(target, rows, block)
        elif not _linked(earlier.directory / segment.name, target / segment.name):
            segment = _write(target, rows, block)  # somebody has removed the earlier checkpoint
        segments.append(segment)
    sync_directory(target)
    return SavedReplay(target, rows.numbers, segments)


def blocks(rows: StoredRows) -> Iterator[range]:
    """Cut the stored rows at multiples of the block size; the first and last may be shorter."""
    numbers = rows.numbers
    if not numbers:
        return
    row_bytes = sum(column.nbytes for column in rows.columns_of(numbers[:1]).values())
    least = max(BLOCK_BYTES / row_bytes, rows.capacity / MAX_BLOCKS, 1)
    size = 1 << (int(least) - 1).bit_length()
    for start in range(numbers.start // size * size, numbers.stop, size):
        yield range(max(start, numbers.start), min(start + size, numbers.stop))


def _write(target: Path, rows: StoredRows, block: range) -> Segment:
    content = save_tensors(rows.columns_of(block))
    segment = Segment(block.start, block.stop, sha256_of(content), len(content))
    write_bytes(target / segment.name, content)
    return segment


def _linked(source: Path, target: Path) -> bool:
    """Link a file that never changes, or copy it where the disk has no links."""
    if source.is_symlink() or not source.is_file():
        return False
    try:
        os.link(source, target)
    except OSError:
        try:
            shutil.copyfile(source, target)
        except OSError:
            target.unlink(missing_ok=True)
            return False
    return True


def joined(saved: SavedReplay, contents: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Join the columns of all segments, without rows older than the replay."""
    parts: dict[str, list[Tensor]] = {}
    for segment, columns in zip(saved.segments, contents, strict=True):
        for name, column in columns.items():
            if column.ndim < 1 or len(column) != segment.stop - segment.start:
                raise CheckpointError(f"{name!r} of {segment.name} has another number of rows")
            parts.setdefault(name, []).append(column[max(0, saved.numbers.start - segment.start) :])
    if any(len(columns) != len(saved.segments) for columns in parts.values()):
        raise CheckpointError("not every segment of the replay has the same columns")
    return {name: torch.cat(columns) for name, columns in parts.items()}
