"""Environments in a process each: workers that ignore signals, answers waited for with a limit.

A terminal sends Ctrl-C to every process of its group, and a scheduler often SIGTERM. A worker that died
of it would take the run with it, so workers ignore these signals, and the training process alone
decides what happens.
"""

from __future__ import annotations

import signal
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.process import BaseProcess
from typing import Any

import gymnasium as gym
from gymnasium.vector import AsyncVectorEnv
from gymnasium.vector.async_vector_env import AsyncState, _async_worker

from rl_training.config import EnvError, RunError
from rl_training.envs.errors import WorkerError, reason_of
from rl_training.stop_signals import STOP_SIGNALS

CLOSE_SECONDS = 5.0  # for all environments together to close
_POLL_SECONDS = 1.0  # between two looks whether a worker has died


class WorkerEnvs(AsyncVectorEnv):
    """Gymnasium's asynchronous vector, which notices workers that die, hang or fail to close."""

    def __init__(
        self, makers: Sequence[Callable[[], Any]], *, step_timeout: float | None, **options: Any
    ) -> None:
        self.step_timeout = step_timeout
        self.processes: list[Any] = []
        try:
            super().__init__(makers, worker=_deaf_worker, **options)
        except (EOFError, ConnectionError):
            _kill(self.processes)
            raise EnvError("an environment could not be created in its process") from None
        except BaseException:
            _kill(self.processes)
            raise
        # multiprocessing would end them by SIGTERM when this process ends, and wait for ever
        self._kill = weakref.finalize(self, _kill, list(self.processes))

    def step(self, actions: Any) -> Any:
        """Step every environment; one that dies or takes too long is a `RunError`."""
        try:
            self.step_async(actions)
            self._await_answers()
            return self.step_wait()
        except (EOFError, ConnectionError):  # it died in the middle of an answer
            for process in self.processes:
                process.join(0.5)
            self._refuse_dead(range(self.num_envs))
            raise RunError("the process of an environment broke off its answer") from None

    def _await_answers(self) -> None:
        limit = self.step_timeout
        deadline = None if limit is None else time.monotonic() + limit
        waiting = dict(enumerate(self.parent_pipes))
        while waiting:
            left = _POLL_SECONDS
            if deadline is not None:
                left = min(left, max(0.0, deadline - time.monotonic()))
            for index, pipe in list(waiting.items()):
                if pipe.poll(left / len(waiting)):
                    del waiting[index]
            self._refuse_dead(waiting)
            if waiting and deadline is not None and time.monotonic() >= deadline:
                raise RunError(
                    f"environment {min(waiting)} has not answered a step within {limit:g} seconds "
                    "(env_step_timeout)"
                )

    def _refuse_dead(self, indices: Iterable[int]) -> None:
        for index in indices:
            process = self.processes[index]
            if not process.is_alive():
                raise RunError(f"the process of environment {index} died ({process.exitcode})")

    def _raise_if_errors(self, successes: Iterable[bool]) -> None:
        """Raise the first error; gymnasium would also print the traceback of each."""
        if not all(successes):
            self._state = AsyncState.DEFAULT
            raise self.error_queue.get(timeout=CLOSE_SECONDS)[2]

    def close_extras(self, timeout: float | None = CLOSE_SECONDS, terminate: bool = False) -> None:
        """Let idle environments close, and end their processes in any case."""
        idle = self._state is AsyncState.DEFAULT and not terminate
        self._state = AsyncState.DEFAULT
        failures: list[str] = []
        if idle:
            deadline = time.monotonic() + (CLOSE_SECONDS if timeout is None else timeout)
            for pipe in self.parent_pipes:
                with suppress(OSError, ValueError):  # it has died before
                    pipe.send(("close", None))
            for process, pipe in zip(self.processes, self.parent_pipes, strict=True):
                process.join(max(0.0, deadline - time.monotonic()))
                failures += _failures(pipe)
        self._kill()
        for pipe in self.parent_pipes:
            pipe.close()
        if failures:
            raise WorkerError(failures[0])


def _failures(pipe: Any) -> Iterator[str]:
    """Read what a worker had to say while it closed its environment."""
    with suppress(OSError, EOFError, ValueError):
        while pipe.poll(0):
            text, success = pipe.recv()
            if not success and text is not None:
                yield text


def _kill(processes: Sequence[BaseProcess]) -> None:
    started = [process for process in processes if process.pid is not None]
    for process in started:
        if process.is_alive():
            process.kill()
    for process in started:
        process.join(CLOSE_SECONDS)


def _deaf_worker(index: int, make: Callable[[], Any], pipe: Any, *rest: Any) -> None:
    """Serve one environment, as gymnasium's worker does, without reacting to signals."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    try:
        _async_worker(index, lambda: _PlainErrors(make()), pipe, *rest)
    except (EOFError, ConnectionError):  # the training process is gone
        return
    except WorkerError as error:  # while closing
        with suppress(OSError):
            pipe.send((str(error), False))


class _PlainErrors(gym.Wrapper[Any, Any, Any, Any]):
    """Turns whatever an environment raises into a `WorkerError`, `sys.exit` included."""

    def step(self, action: Any) -> Any:
        with _as_text():
            return self.env.step(action)

    def reset(self, **options: Any) -> Any:
        with _as_text():
            return self.env.reset(**options)

    def get_wrapper_attr(self, name: str) -> Any:
        value = self.env.get_wrapper_attr(name)
        if not callable(value):
            return value

        def call(*arguments: Any, **options: Any) -> Any:
            with _as_text():
                return value(*arguments, **options)

        return call

    def close(self) -> None:
        with _as_text():
            self.env.close()


@contextmanager
def _as_text() -> Iterator[None]:
    try:
        yield
    except BaseException as error:  # this process has no other way to say what happened
        raise WorkerError(reason_of(error)) from None
