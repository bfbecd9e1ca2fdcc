"""Random input to every door of the package: a value or one of its own errors, and soon.

Batches of inputs run in one process each. `SIGALRM` ends an input that takes too long.
"""

from __future__ import annotations

import random
import signal
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType

from rl_training.config import RLTrainingError
from tests.faults import fuzz_targets
from tests.faults.support.verdicts import Case, Tally, Verdict

# one call makes an input from a random generator and hands it to the package
Target = Callable[[random.Random], object]
BATCH = 500
LIMIT = 10.0  # seconds for one input
# cases of a full run; 100,000 and more in total
COUNTS = {
    "config": 25_000, "overrides": 15_000, "yaml": 20_000, "from_dict": 16_000, "npz": 8_000,
    "manifest": 6_000, "run_directory": 6_000, "predict": 12_000,
}  # fmt: skip
QUICK = 40


class TooLong(BaseException):
    """An input that took longer than `LIMIT`; nothing catches it on the way."""


def cases(rng: random.Random, base: Path, quick: bool) -> Iterator[Case]:
    for name, count in COUNTS.items():
        size = QUICK if quick else BATCH
        for _ in range(1 if quick else count // BATCH):
            seed = rng.getrandbits(32)
            attack = partial(run_batch, name, seed, size, base)
            yield Case(f"{name} seed {seed}", attack, timeout=600)


def run_batch(name: str, seed: int, size: int, base: Path, work: Path) -> Tally:
    make, allowed = fuzz_targets.TARGETS[name]
    target, tally = make(base, work), Tally()
    signal.signal(signal.SIGALRM, _too_long)
    for number in range(size):
        verdict, note = outcome(target, random.Random(f"{seed} {number}"), allowed)
        tally.add(verdict, f"{name}, seed '{seed} {number}': {note}" if note else "")
    return tally


def outcome(
    target: Target, rng: random.Random, allowed: tuple[type[Exception], ...]
) -> tuple[Verdict, str]:
    """Call the target; errors in `allowed` are promised beside the package's own."""
    signal.setitimer(signal.ITIMER_REAL, LIMIT)
    try:
        target(rng)
    except TooLong:
        return Verdict.HANG, f"more than {LIMIT:.0f} s"
    except (RLTrainingError, *allowed):
        return Verdict.REFUSED, ""
    except BaseException as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return (
            Verdict.FOREIGN,
            f"{type(error).__name__}: {str(error)[:200]} ({where.filename}:{where.lineno})",
        )
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return Verdict.SURVIVED, ""


def _too_long(number: int, frame: FrameType | None) -> None:
    raise TooLong
