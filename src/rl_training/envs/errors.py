"""Errors raised by an environment's own code, turned into one line."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from rl_training.config import RLTrainingError, RunError

log = logging.getLogger("rl_training")
# errors of the code that calls an environment, and what the environment has to change
_INTERFACE = {
    r"not enough values to unpack \(expected 5, got 4\)": "step() returned 4 values, as in Gym before "
    "0.26; return obs, reward, terminated, truncated, info",
    r"values to unpack \(expected 2": "reset() must return obs and info, as a tuple: return obs, {}",
    r"reset\(\) got an unexpected keyword argument": "reset() must take a seed: "
    "def reset(self, *, seed=None, options=None)",
}


class WorkerError(Exception):
    """Error of an environment in another process, as text: it may not survive pickling."""


class InterfaceError(Exception):
    """Return value that the interface of environments does not allow; says what to change."""


class StepAbandoned(BaseException):
    """Raised inside an environment that takes too long; not an `Exception`, which it might catch."""

    def __init__(self, timeout: float | None) -> None:
        super().__init__(timeout)
        self.timeout = timeout  # seconds; None after a signal


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
        # `sys.exit`, a cancelled coroutine or a panic of native code is no `Exception`, and must not end
        # the training process without a word
        if error is not None and not isinstance(error, _PASSED_ON):
            raise RunError(f"{self.env_id} failed: {reason_of(error)}") from error


_PASSED_ON = (RLTrainingError, StepAbandoned, KeyboardInterrupt)


def reason_of(error: BaseException) -> str:
    """Put an error of an environment in one line: what to change, if the line is known to mean that."""
    try:
        first_line = str(error).strip().split("\n")[0]
    except Exception:  # whatever the error's own text does
        first_line = "an error without a text"
    if isinstance(error, WorkerError | InterfaceError):
        return first_line
    if _raised_by_the_caller(error):
        for pattern, advice in _INTERFACE.items():
            if re.search(pattern, first_line):
                return advice
    return f"{type(error).__name__}: {first_line}"


def _raised_by_the_caller(error: BaseException) -> bool:
    """Tell an error of gymnasium, numpy or this package from one in the environment's own code."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    module = "" if frame is None else str(frame.tb_frame.f_globals.get("__name__"))
    return module.split(".")[0] in ("gymnasium", "numpy", "rl_training") and not module.startswith(
        "gymnasium.envs"
    )


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
