"""Text on its way to a terminal: made visible, and dropped if the terminal is gone."""

from __future__ import annotations

import io
import re
from contextlib import suppress
from typing import TextIO, cast

# C0 without tab and newline, DEL and C1, line and paragraph separators, and controls of writing direction,
# with which a terminal can be made to hide, overwrite or reorder what it shows
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]"
)


_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def without_colours(text: str) -> str:
    """Remove the colour codes that gymnasium puts around its warnings."""
    return _COLOURS.sub("", text)


def first_line(error: BaseException, limit: int = 200) -> str:
    """Put an error in one line: the beginning of its text, or its class if it has none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:limit]


def visible(text: str) -> str:
    r"""Write control characters as escapes that can be seen, such as `\x1b`."""
    return _CONTROLS.sub(_escape, text)


def lasting(stream: TextIO) -> TextIO:
    """Wrap a stream for notes and progress, which may lose its reader: no run ends because nobody looks.

    A closed pipe (`| head`), a terminal that hung up, a full disk behind `2>log`: the text is dropped.
    """
    return cast(TextIO, _Terminal(stream))


class _Terminal(io.TextIOBase):
    """Stream that drops what cannot be written."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return getattr(self._stream, "encoding", None) or "utf-8"

    def write(self, text: str) -> int:
        with suppress(OSError, ValueError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._stream.flush()

    def isatty(self) -> bool:
        with suppress(OSError, ValueError):
            return self._stream.isatty()
        return False


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
