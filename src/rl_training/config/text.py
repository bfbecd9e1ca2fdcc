"""Text from files on its way to a terminal."""

from __future__ import annotations

import re

# C0 without tab and newline, DEL and C1, line and paragraph separators, and controls of writing direction,
# with which a terminal can be made to hide, overwrite or reorder what it shows
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]"
)


_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def without_colours(text: str) -> str:
    """Remove the colour codes that gymnasium puts around its warnings."""
    return _COLOURS.sub("", text)


def visible(text: str) -> str:
    r"""Write control characters as escapes that can be seen, such as `\x1b`."""
    return _CONTROLS.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
