"""Layout of a run directory, its creation, and `result.json`, which marks a finished run."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from rl_training.config import OutputError
from rl_training.files import SpecialFileError, read_json, write_json

CONFIG = "config.yaml"
METADATA = "metadata.json"
METRICS = "metrics.jsonl"
PROGRESS = "progress.csv"
EVALUATIONS = "evaluations.npz"
TENSORBOARD = "tensorboard"
CHECKPOINTS = "checkpoints"
STEP_PREFIX = "step_"  # of a checkpoint's name
MANIFEST = "manifest.json"  # of a checkpoint
REPLAY_FOLDER = "replay"  # of a checkpoint
RESULT = "result.json"
ARTIFACTS = (CONFIG, METADATA, METRICS, PROGRESS, EVALUATIONS, TENSORBOARD, CHECKPOINTS, RESULT)
MAX_METRICS_BYTES = 2**30  # of one file of metrics
_DISK_ERRORS = (errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EACCES, errno.EIO)


def check_output_dir(output_dir: str | Path, name: str = "output_dir") -> None:
    """Fail before any work is done if nothing can be written there; `name` is the option's."""
    nearest = Path(output_dir).expanduser().absolute()
    try:
        while not nearest.exists():
            nearest = nearest.parent
    except OSError as error:
        raise OutputError(f"{name} {str(output_dir)!r}: {error.strerror}") from None
    if not nearest.is_dir():
        raise OutputError(f"{name} {str(output_dir)!r}: {nearest} is a file, not a directory")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise OutputError(f"{name} {str(output_dir)!r}: {nearest} is not writable")


def run_name(algo: str, env_id: str | None, seed: int, ending: str) -> str:
    environment = re.sub(r"[^\w.-]", "-", env_id or "logs")  # an id from a file may hold anything
    return f"{algo}__{environment}__seed{seed}__{ending}"


def create_run_dir(output_dir: str | Path, algo: str, env_id: str | None, seed: int) -> Path:
    """Create `<output_dir>/<algo>__<env>__seed<k>__<timestamp>`; an existing one gets a number."""
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    base = Path(output_dir).expanduser() / run_name(algo, env_id, seed, stamp)
    for number in range(1, 1000):
        path = base if number == 1 else base.with_name(f"{base.name}-{number}")
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise OutputError(f"cannot create {path}: {error.strerror}") from None
        return path
    raise OutputError(f"cannot find a free name beside {base}")


def runs_in(directory: str | Path) -> list[Path]:
    """List the runs that lie in a directory, the newest last; none if it is itself a run."""
    parent = Path(directory)
    return [] if (parent / CONFIG).exists() else runs_below(parent)


def runs_below(parent: Path) -> list[Path]:
    """List the runs that lie in a directory, the newest last, whatever else it holds."""
    configs = [path for path in parent.glob(f"*/{CONFIG}") if path.is_file()]
    # a resume writes the configuration anew
    return [path.parent for path in sorted(configs, key=lambda path: path.stat().st_mtime_ns)]


def step_directories(checkpoints: Path) -> list[Path]:
    """List complete step checkpoints in order of step; links are none."""
    complete = [
        path
        for path in checkpoints.glob(f"{STEP_PREFIX}*")
        if re.fullmatch(r"\d{1,18}", path.name.removeprefix(STEP_PREFIX))
        and not path.is_symlink()
        and (path / MANIFEST).exists()
    ]
    return sorted(complete, key=read_step)


def read_step(step_directory: Path) -> int:
    return int(step_directory.name.removeprefix(STEP_PREFIX))


@contextmanager
def disk_errors_named(path: Path) -> Iterator[None]:
    """Turn a full, read-only or broken disk into an `OutputError` that names the path."""
    try:
        yield
    except SpecialFileError as error:
        raise OutputError(f"cannot write to {error.filename}: {error.strerror}") from error
    except IsADirectoryError as error:
        obstacle = error.filename2 or error.filename
        raise OutputError(f"{obstacle} is a directory: remove it to go on with the run") from error
    except OSError as error:
        if error.errno not in _DISK_ERRORS:
            raise
        raise OutputError(f"cannot write to {path}: {error.strerror}") from error


def write_result(
    run_dir: Path,
    step: int,
    reason: str | None,
    metrics: Mapping[str, float],
    seconds: Mapping[str, float],
    warnings: Sequence[str] = (),
) -> None:
    """Mark the run as finished. A run directory without this file has not come to its end."""
    write_json(
        run_dir / RESULT,
        {
            "step": step,
            "stop_reason": reason,
            "metrics": metrics,
            "seconds": seconds,
            "warnings": list(warnings),
        },
    )


def result_warnings(run_dir: Path) -> tuple[str, ...]:
    """Warnings of a finished run; none if its result is missing or damaged."""
    try:
        warnings = read_json(run_dir / RESULT)["warnings"]
    except (OSError, ValueError, KeyError, TypeError):
        return ()
    texts = warnings if isinstance(warnings, list) else []
    return tuple(text for text in texts if isinstance(text, str))


def finished_step(run_dir: Path) -> int | None:
    """Step at which the run finished, or None if it has not."""
    try:
        return int(read_json(run_dir / RESULT)["step"])
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return None
