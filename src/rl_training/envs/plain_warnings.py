"""Warnings of gymnasium without colour codes where no terminal shows them, such as in log files."""

from __future__ import annotations

import sys
from typing import Any

from gymnasium import logger
from gymnasium.utils import colorize


def _colorize_for_terminals(text: str, *arguments: Any, **options: Any) -> str:
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    return colorize(text, *arguments, **options) if is_terminal else text


def colour_on_terminals_only() -> None:
    """Let gymnasium colour its warnings only if stderr is a terminal."""
    vars(logger)["colorize"] = _colorize_for_terminals
