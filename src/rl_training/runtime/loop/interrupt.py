"""Signals as an orderly stop: Ctrl-C, SIGTERM and SIGHUP end a run at its next tick, saved.

`Interrupt` notes the signal, `InterruptCallback` stops the loop, and `StepGuard` ends the wait for an
environment that does not come back.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

from rl_training.algorithms.base import Terms
from rl_training.envs.errors import StepAbandoned
from rl_training.runtime.loop.callback import Callback
from rl_training.runtime.loop.state import TrainerState
from rl_training.runtime.loop.stop_reasons import INTERRUPTED
from rl_training.stop_signals import REPEAT_SECONDS, STOP_SIGNALS, RaisingHandler

log = logging.getLogger("rl_training")
GRACE_SECONDS = 1.0  # after a signal, for an environment to finish its step


class Interrupt:
    """Notes the first signal; one that comes later acts as if nobody listened."""

    def __init__(self, then: Callable[[], None] = lambda: None) -> None:
        self.interrupted = False
        self.then = then  # called after the first signal
        self._noted_at = 0.0
        self._handlers: dict[signal.Signals, Any] = {}

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Catch signals inside the block, in the main thread; ignored ones stay ignored."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        handlers = {number: signal.getsignal(number) for number in STOP_SIGNALS}
        self._handlers = {n: h for n, h in handlers.items() if h != signal.SIG_IGN}
        # one that came while modules were imported, where an `except:` swallowed its error
        self.interrupted |= any(isinstance(h, RaisingHandler) and h.came for h in handlers.values())
        for number in self._handlers:
            signal.signal(number, self._note)
        try:
            yield
        finally:
            self._restore()

    def _note(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if not self.interrupted:
            self.interrupted, self._noted_at = True, now
            self.then()
        elif now - self._noted_at > REPEAT_SECONDS:
            self._restore()
            signal.raise_signal(signal.Signals(number))

    def _restore(self) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._handlers = {}


class InterruptCallback(Callback):
    """Stops the run at the end of the tick in which a signal came, so that the tick is saved whole."""

    def __init__(self, interrupt: Interrupt | None = None) -> None:
        self.interrupt = Interrupt() if interrupt is None else interrupt

    def on_train_start(self, state: TrainerState) -> None:
        self._tick(state)

    def on_collect_end(self, state: TrainerState, env_steps: int) -> None:
        self._tick(state)

    def on_update_end(self, state: TrainerState, terms: Terms) -> None:
        self._tick(state)

    def _tick(self, state: TrainerState) -> None:
        if self.interrupt.interrupted:
            state.request_stop(INTERRUPTED)


class StepGuard:
    """Limits the wait for an environment: to `env_step_timeout`, and to a second after a signal.

    An alarm signal raises `StepAbandoned` in the Python code that waits, so it works in the main thread
    only, and not while C code runs. Environments in processes are waited for in Python code.
    """

    def __init__(self, interrupt: Interrupt, timeout: float | None = None) -> None:
        self.interrupt = interrupt
        self.inside = False
        usable = hasattr(signal, "setitimer")
        in_main = threading.current_thread() is threading.main_thread()
        self._usable = usable and in_main
        self.timeout = timeout if self._usable else None
        if timeout is not None and not self._usable:
            log.warning(
                "env_step_timeout needs the main thread here; vector_env: async or ray works in any "
                "thread"
            )
        self._armed = False
        self._handler: Any = None  # of the alarm signal before

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take over the alarm signal inside the block, once there is a use for it."""
        if not self._usable:
            yield
            return
        self.interrupt.then = self.limit_wait
        if self.timeout is not None:
            self._take_over()
        try:
            yield
        finally:
            if self._armed:
                signal.setitimer(signal.ITIMER_REAL, 0)
                signal.signal(signal.SIGALRM, self._handler or signal.SIG_DFL)

    def _take_over(self) -> None:
        if not self._armed:
            self._handler = signal.signal(signal.SIGALRM, self._abandon)
            self._armed = True

    def limit_wait(self) -> None:
        """Give the environment another second, and look again every second."""
        self._take_over()
        signal.setitimer(signal.ITIMER_REAL, GRACE_SECONDS, GRACE_SECONDS)

    def renew(self) -> None:
        """Start the time of a step."""
        if self.timeout is not None and not self.interrupt.interrupted:
            signal.setitimer(signal.ITIMER_REAL, self.timeout)

    def __enter__(self) -> None:
        self.inside = True
        self.renew()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.inside = False
        if self.timeout is not None and not self.interrupt.interrupted:
            signal.setitimer(signal.ITIMER_REAL, 0)
        if isinstance(error, KeyboardInterrupt) and not self.interrupt.interrupted:
            raise RuntimeError("it raised KeyboardInterrupt, though no signal came") from error

    def _abandon(self, number: int, frame: FrameType | None) -> None:
        if self.inside:
            self.inside = False
            raise StepAbandoned(None if self.interrupt.interrupted else self.timeout)
