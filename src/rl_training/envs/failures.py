"""What an environment's own code does wrong, said in one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rl_training.config import RLTrainingError, RunError


@contextmanager
def naming_the_env(env_id: str) -> Iterator[None]:
    """Errors of an environment's own code become one line that says whose they are."""
    try:
        yield
    except RLTrainingError:
        raise
    except Exception as error:
        reason = str(error).strip().split("\n")[0]
        raise RunError(f"{env_id} failed: {type(error).__name__}: {reason}") from error
