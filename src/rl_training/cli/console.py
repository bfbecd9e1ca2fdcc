"""Conventions of every verb: where text goes, how plugins load, how notes are shown."""

from __future__ import annotations

import json
import logging
import sys
import warnings
from typing import Annotated, Any

import typer

from rl_training import api
from rl_training.config import visible, without_colours


def say(text: str = "") -> None:
    """Write a line of the result to stdout."""
    sys.stdout.write(f"{visible(text)}\n")


def note(text: str) -> None:
    """Write a line that is not part of the result to stderr."""
    sys.stderr.write(f"{visible(text)}\n")


def say_json(value: Any) -> None:
    text = json.dumps(value, indent=2)  # escapes all control characters but this one
    say(text.replace("\x7f", "\\u007f"))


class _VisibleText(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record))


def show_notes(quiet: bool = False, debug: bool | None = None) -> None:
    """Let the package's notes and warnings reach stderr as plain lines; None leaves `debug` as it is."""
    logger = logging.getLogger("rl_training")
    debug = logger.level == logging.DEBUG if debug is None else debug
    logger.handlers.clear()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_VisibleText("note: %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG if debug else logging.WARNING if quiet else logging.INFO)
    logger.propagate = False

    def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        if issubclass(category, UserWarning):
            note(f"warning: {without_colours(str(message))}")

    warnings.showwarning = show


def _load_plugins(plugins: list[str]) -> list[str]:
    for plugin in plugins:
        api.load_plugin(plugin)
    return plugins


PluginOption = Annotated[
    list[str],
    typer.Option(
        "--plugin",
        help="Python file or module that registers an algorithm, a dataset format or a logger.",
        callback=_load_plugins,
        is_eager=True,
    ),
]
TrustEnvOption = Annotated[
    bool,
    typer.Option(
        "--trust-env", help="Import the module of the environment that the checkpoint names."
    ),
]
