"""Signals outside of training: Ctrl-C, SIGTERM and SIGHUP end a command with one line and code 130.

While a run trains, the training loop takes them over. A second signal always ends the process, also where
Python code does not come to handle it, as in one long call of NumPy. This module imports nothing of weight,
because it also stands guard while PyTorch is being imported.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from contextlib import suppress

from rl_training.stop_signals import REPEAT_SECONDS, STOP_SIGNALS, RaisingHandler

EXIT_CODE = 130
LEAVE_SECONDS = 1.0  # after a second signal, for Python code to tidy up and leave by itself
_SHOW_CURSOR = "\x1b[?25h"  # which a progress bar has hidden


_handler = RaisingHandler()


def raise_on_signals() -> None:
    """Turn signals into `KeyboardInterrupt`; ignored ones, as under nohup, stay ignored."""
    for number in STOP_SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _handler)
    # Python writes the number of a signal there at once, even if its handler has to wait for C code to return
    numbers, wakeup = os.pipe()
    os.set_blocking(wakeup, False)
    signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
    threading.Thread(target=_leave_after_second, args=(numbers,), daemon=True).start()


def _leave_after_second(numbers: int) -> None:
    """End the process soon after a second signal."""
    first: float | None = None
    while received := os.read(numbers, 64):
        now = time.monotonic()
        if not set(STOP_SIGNALS) & set(received):
            continue
        if first is None:
            first = now
        elif now - first > REPEAT_SECONDS:
            time.sleep(LEAVE_SECONDS)
            with suppress(AttributeError, OSError, ValueError):
                sys.stderr.write(_SHOW_CURSOR if sys.stderr.isatty() else "")
            os._exit(exit_code())


def came() -> bool:
    """Tell whether a signal has come: modules in the midst of being imported fail in odd ways."""
    return _handler.came


def exit_code() -> int:
    """Say that the command was interrupted."""
    with suppress(OSError, ValueError):  # a terminal that hung up sends SIGHUP and takes no text
        sys.stderr.write("interrupted\n")
        sys.stderr.flush()
    return EXIT_CODE
