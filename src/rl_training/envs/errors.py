"""Errors raised by an environment's own code, turned into one line."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from rl_training.config import RLTrainingError, RunError

log = logging.getLogger("rl_training")


class WorkerError(Exception):
    """Error of an environment in another process, as text: it may not survive pickling."""


class naming_the_env:  # noqa: N801 - read as a phrase after `with`
    """Context in which any error of an environment becomes one line that names it.

    A class and no generator, because collecting goes through it in every step.
    """

    __slots__ = ("env_id",)

    def __init__(self, env_id: str) -> None:
        self.env_id = env_id

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # `sys.exit` in an environment must not end the training process without a word
        if isinstance(error, (Exception, SystemExit)) and not isinstance(error, RLTrainingError):
            raise RunError(f"{self.env_id} failed: {_reason(error)}") from error


def _reason(error: BaseException) -> str:
    first_line = str(error).strip().split("\n")[0]
    return first_line if isinstance(error, WorkerError) else f"{type(error).__name__}: {first_line}"


@contextmanager
def closed_after_error(close: Callable[[], None]) -> Iterator[None]:
    """Close environments if the block fails; a failure of that does not hide the block's."""
    try:
        yield
    except BaseException:
        try:
            close()
        except RunError as error:
            log.warning("%s (while closing)", error)
        raise


@contextmanager
def closed_afterwards(close: Callable[[], None]) -> Iterator[None]:
    """Close environments after the block, whatever happens in it."""
    with closed_after_error(close):
        yield
    try:
        close()
    except RunError as error:
        reason = f"{error} (while closing; what was done before is saved)"
        raise RunError(reason) from error.__cause__


@contextmanager
def closing(env: Any, env_id: str) -> Iterator[None]:
    """Close one environment after the block, with errors that name it."""

    def close() -> None:
        with naming_the_env(env_id):
            env.close()

    with closed_afterwards(close):
        yield
