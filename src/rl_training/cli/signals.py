"""Signals outside of training: Ctrl-C, SIGTERM and SIGHUP end a command with one line and code 130.

While a run trains, the training loop takes them over. This module imports nothing of weight, because it
also stands guard while PyTorch is being imported.
"""

from __future__ import annotations

import signal
import sys
from contextlib import suppress
from types import FrameType

EXIT_CODE = 130
_NAMES = ("SIGINT", "SIGTERM", "SIGHUP")


class _Handler:
    """Notes a signal and raises `KeyboardInterrupt`.

    An `except:` in some module that is being imported may swallow the error, so whoever takes the signals
    over looks at `came`.
    """

    came = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.came = True
        raise KeyboardInterrupt


_handler = _Handler()


def raise_on_signals() -> None:
    """Turn signals into `KeyboardInterrupt`; ignored ones, as under nohup, stay ignored."""
    for name in _NAMES:
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _handler)


def came() -> bool:
    """Tell whether a signal has come: modules in the midst of being imported fail in odd ways."""
    return _handler.came


def exit_code() -> int:
    """Say that the command was interrupted."""
    with suppress(OSError, ValueError):  # a terminal that hung up sends SIGHUP and takes no text
        sys.stderr.write("interrupted\n")
        sys.stderr.flush()
    return EXIT_CODE
