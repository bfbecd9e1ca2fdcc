"""Ctrl-C and SIGTERM as an orderly stop."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rl_training.algorithms.base import Terms
from rl_training.runtime.loop.callback import Callback
from rl_training.runtime.loop.state import TrainerState
from rl_training.runtime.loop.stop_reasons import INTERRUPTED


class InterruptCallback(Callback):
    """Turns Ctrl-C and SIGTERM into a stop at the end of the tick, so that the tick is saved whole."""

    def __init__(self) -> None:
        self.interrupted = False

    def on_collect_end(self, state: TrainerState, env_steps: int) -> None:
        self._tick(state)

    def on_update_end(self, state: TrainerState, terms: Terms) -> None:
        self._tick(state)

    def _tick(self, state: TrainerState) -> None:
        if self.interrupted:
            state.request_stop(INTERRUPTED)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Catch the first signal; a second one acts as if nobody listened."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

        def note(number: int, frame: Any) -> None:
            self.interrupted = True
            signal.signal(number, handlers[signal.Signals(number)] or signal.SIG_DFL)

        for number in handlers:
            signal.signal(number, note)
        try:
            yield
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler or signal.SIG_DFL)
