"""Manifest of a checkpoint: JSON that ends with the checksum of all that stands before it.

A flipped bit anywhere in the file is noticed. Nothing in a manifest is trusted: numbers are checked
to be numbers, and names of files to be names that this package gives.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rl_training.config import CheckpointError, RLTrainingError, first_line
from rl_training.files import parse_json, read_regular, sha256_of, write_bytes
from rl_training.runs.layout import MANIFEST, step_directories
from rl_training.spec import ProblemSpec

SCHEMA_VERSION = 2  # 1 had no checksum of its own, and the replay in one file
_SEALED = re.compile(rb'(.*),\n  "checksum": "([0-9a-f]{64})"\n}\n', re.DOTALL)
_KEYS: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("config", "spec", "progress", "algorithm", "callbacks", "dataset"), dict),
    "files": dict,
    "reward_scale": (int, float),
    "metrics_position": int,
}
_COUNTERS = ("global_step", "epoch", "update_count")


def write_manifest(directory: Path, values: Mapping[str, Any]) -> None:
    write_bytes(directory / MANIFEST, sealed({"schema": SCHEMA_VERSION, **values}))


def sealed(values: Mapping[str, Any]) -> bytes:
    """Write values as JSON with their checksum as the last entry."""
    values = {key: value for key, value in values.items() if key != "checksum"}
    body = json.dumps(values, indent=2).removesuffix("\n}").encode()
    return body + f',\n  "checksum": "{sha256_of(body)}"\n}}\n'.encode()


def read_manifest(path: Path) -> dict[str, Any]:
    """Read and check the manifest of the checkpoint at `path`."""
    try:
        content = read_regular(path / MANIFEST)
        manifest = parse_json(content)
    except FileNotFoundError:
        raise CheckpointError(f"{path} is not a checkpoint: it has no {MANIFEST}") from None
    except OSError as error:
        raise damaged(path, f"{MANIFEST}: {error.strerror}") from None
    except ValueError:
        raise damaged(path, f"{MANIFEST} is not JSON") from None
    schema = manifest.get("schema") if isinstance(manifest, dict) else None
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
        raise damaged(path, f"{MANIFEST} is incomplete")
    if schema > SCHEMA_VERSION:
        raise CheckpointError(
            f"{path} was written by a newer version of rl-training "
            f"(schema {schema}, this one reads up to {SCHEMA_VERSION})"
        )
    seal = _SEALED.fullmatch(content)
    if schema > 1 and (seal is None or sha256_of(seal[1]) != seal[2].decode()):
        raise damaged(path, f"{MANIFEST} does not match its checksum")
    _check_values(path, manifest)
    return manifest


def _check_values(path: Path, manifest: dict[str, Any]) -> None:
    for key, kind in _KEYS.items():
        if not isinstance(manifest.get(key), kind):
            raise damaged(path, f"{key!r} of {MANIFEST} is missing or not what it should be")
    progress = manifest["progress"]
    for key in _COUNTERS:
        if type(progress.get(key)) is not int or not 0 <= progress[key] < 2**62:
            raise damaged(path, f"{key!r} in 'progress' of {MANIFEST} is not a count")
    if not isinstance(progress.get("should_stop"), bool):
        raise damaged(path, f"'should_stop' in 'progress' of {MANIFEST} is neither true nor false")
    if not isinstance(progress.get("stop_reason", ()), str | None):
        raise damaged(path, f"'stop_reason' in 'progress' of {MANIFEST} is not text")
    if manifest["metrics_position"] < 0:
        raise damaged(path, f"'metrics_position' of {MANIFEST} is negative")
    try:
        ProblemSpec.from_dict(manifest["spec"])
    except Exception:  # a stranger's values may fail in any way
        raise damaged(path, f"'spec' of {MANIFEST} is not a problem") from None


@contextmanager
def state_of(path: Path) -> Iterator[None]:
    """Context in which contents of a checkpoint are taken over; any failure is its damage."""
    try:
        yield
    except RLTrainingError:
        raise
    except KeyError as error:
        raise damaged(path, f"it lacks {error}") from None
    except Exception as error:  # a stranger's values may fail in any way
        reason = f"{type(error).__name__}: {first_line(error)}"
        raise damaged(path, f"it does not fit ({reason})") from error


class DamagedCheckpointError(CheckpointError):
    """A checkpoint that is not what was written; an earlier one may be intact."""


def damaged(path: Path, reason: str) -> DamagedCheckpointError:
    """Name the damage, and an earlier checkpoint of the run if there is one."""
    others = [step for step in step_directories(path.parent) if step.name != path.name]
    hint = f"; an earlier one: {others[-1]}" if others else ""
    return DamagedCheckpointError(f"checkpoint {path} is damaged: {reason}{hint}")
