"""Conventions of every verb: where text goes, how plugins load, how notes are shown."""

from __future__ import annotations

import json
import logging
import sys
import warnings
from typing import Annotated, Any

import typer

from rl_training import api


def say(text: str = "") -> None:
    """Write a line of the result to stdout."""
    sys.stdout.write(f"{text}\n")


def note(text: str) -> None:
    """Write a line that is not part of the result to stderr."""
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
