"""Errors raised by an environment's own code, turned into one line."""

from __future__ import annotations

from types import TracebackType

from rl_training.config import RLTrainingError, RunError


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
        if isinstance(error, Exception) and not isinstance(error, RLTrainingError):
            reason = str(error).strip().split("\n")[0]
            raise RunError(f"{self.env_id} failed: {type(error).__name__}: {reason}") from error
