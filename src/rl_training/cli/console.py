"""Shared manners of every verb: where text goes, how plugins load, how notes are shown."""

from __future__ import annotations

import json
import logging
import sys
import warnings
from typing import Annotated, Any

import typer


def say(text: str = "") -> None:
    """A line of result, on stdout."""
    sys.stdout.write(f"{text}\n")


def note(text: str) -> None:
    """A line beside the result, on stderr."""
    sys.stderr.write(f"{text}\n")


def say_json(value: Any) -> None:
    say(json.dumps(value, indent=2))


def show_notes(quiet: bool = False) -> None:
    """Let the package's notes and warnings reach stderr as plain lines."""
    logger = logging.getLogger("rl_training")
    logger.handlers.clear()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("note: %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.WARNING if quiet else logging.INFO)
    logger.propagate = False

    def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        if issubclass(category, UserWarning):
            note(f"warning: {message}")

    warnings.showwarning = show


def _load_plugins(plugins: list[str]) -> list[str]:
    if plugins:
        from rl_training.algorithms.registry import load_plugin

        for plugin in plugins:
            load_plugin(plugin)
    return plugins


PluginOption = Annotated[
    list[str],
    typer.Option(
        "--plugin",
        help="Python file or module that registers an algorithm or a dataset format.",
        callback=_load_plugins,
        is_eager=True,
    ),
]
