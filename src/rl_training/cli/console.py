"""Conventions of every verb: where text goes, how plugins load, how notes are shown."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
import shutil
import sys
import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, TextIO

import typer

from rl_training import api
from rl_training.config import lasting, visible, without_colours

# order in which metrics are printed, by the part of their name before the slash
_GROUPS = {"eval": 0, "rollout": 1, "train": 3, "time": 4}
_OTHER_GROUP = 2
_FIRST = ("eval/return_mean", "eval/return_std", "eval/length_mean", "rollout/return_mean")
_reserved: list[TextIO] = []  # stdout, while nothing but a JSON document may reach it


def say(text: str = "") -> None:
    """Write a line of the result to stdout."""
    stream = _reserved[-1] if _reserved else sys.stdout
    stream.write(f"{visible(text)}\n")


def note(text: str) -> None:
    """Write a line that is not part of the result to stderr."""
    stream = lasting(sys.stderr)
    stream.write(f"{visible(text)}\n")
    stream.flush()


def say_metrics(metrics: Mapping[str, float]) -> None:
    """Write metrics in columns: scores, then collecting, then the user's, losses, times."""

    def rank(name: str) -> tuple[int, int, str]:
        group = name.split("/")[0]
        first = _FIRST.index(name) if name in _FIRST else len(_FIRST)
        return _GROUPS.get(group, _OTHER_GROUP), first, name

    width = max(map(len, metrics), default=0)
    for name in sorted(metrics, key=rank):
        say(f"{name:{width}}  {metrics[name]:.6g}")


def say_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Write a table with aligned columns; on a terminal that is too narrow, the widest column is folded."""
    stream = _reserved[-1] if _reserved else sys.stdout
    table = [[visible(" ".join(cell.split())) for cell in row] for row in (headers, *rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    excess = sum(widths) + 2 * len(widths) - shutil.get_terminal_size().columns
    widest = max(range(len(widths)), key=widths.__getitem__)
    if stream.isatty() and excess > 0:
        widths[widest] = max(widths[widest] - excess, min(widths[widest], 20))
    for row in table:
        pieces = textwrap.wrap(row[widest], widths[widest]) or [""]
        for number, piece in enumerate(pieces):
            cells = [
                piece if at == widest else "" if number else cell for at, cell in enumerate(row)
            ]
            aligned = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
            say("  " + "  ".join(aligned).rstrip())


def say_json(value: Any) -> None:
    """Write one JSON document to stdout; numbers that JSON cannot hold are null."""
    text = json.dumps(_finite(value), indent=2)  # escapes all control characters but this one
    say(text.replace("\x7f", "\\u007f"))


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@contextlib.contextmanager
def stdout_for_result(alone: bool) -> Iterator[None]:
    """Send to stderr what environments, plugins and their processes print, so that stdout holds the result alone."""
    if not alone:
        yield
        return
    with contextlib.ExitStack() as stack:
        stream, real = sys.stdout, sys.__stdout__
        if real is not None and stream is real and real.fileno() == 1:  # else captured or replaced
            stream = stack.enter_context(os.fdopen(os.dup(1), "w", errors="replace"))
            stack.callback(os.dup2, stream.fileno(), 1)
            os.dup2(2, 1)
        _reserved.append(stream)
        stack.callback(_reserved.pop)
        stack.enter_context(contextlib.redirect_stdout(sys.stderr))
        yield


class _VisibleText(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        kind = "warning" if record.levelno >= logging.WARNING else "note"
        return visible(f"{kind}: {super().format(record)}")


def show_notes(quiet: bool = False, debug: bool | None = None) -> None:
    """Let the package's notes and warnings reach stderr as plain lines; None leaves `debug` as it is."""
    logger = logging.getLogger("rl_training")
    debug = logger.level == logging.DEBUG if debug is None else debug
    logger.handlers.clear()
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_VisibleText("%(message)s"))
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
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
TrustEnvOption = Annotated[
    bool,
    typer.Option(
        "--trust-env", help="Import the module of the environment that the checkpoint names."
    ),
]
