"""Signals that ask a process to stop.

Imports nothing of weight, because the command line needs it while PyTorch is being imported.
"""

from __future__ import annotations

import signal
from types import FrameType

STOP_SIGNALS: tuple[signal.Signals, ...] = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
REPEAT_SECONDS = 0.5  # `timeout` and the like send a signal twice, to the process and to its group


class RaisingHandler:
    """Notes a signal and raises `KeyboardInterrupt`.

    An `except:` in some module that is being imported may swallow the error, so whoever takes the signals
    over looks at `came`.
    """

    came = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.came = True
        raise KeyboardInterrupt
