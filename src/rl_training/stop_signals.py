"""Signals that ask a process to stop.

Imports nothing of weight, because the command line needs it while PyTorch is being imported.
"""

from __future__ import annotations

import signal

STOP_SIGNALS: tuple[signal.Signals, ...] = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
REPEAT_SECONDS = 0.5  # `timeout` and the like send a signal twice, to the process and to its group
