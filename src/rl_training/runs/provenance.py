"""Origin of a run, from its `metadata.json`: version, time, the command that makes it again, and the data."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl_training.files import read_json
from rl_training.runs.layout import CONFIG, METADATA

_MAX_BYTES = 4 << 20
_MAX_FACTS = 100  # of a dataset
_MAX_TEXT = 500  # characters of one of them
_MAX_DEPTH = 3


@dataclass(frozen=True)
class Provenance:
    """Facts about the making of a run; what `metadata.json` does not hold is None or empty."""

    version: str | None
    created: str | None
    command: str
    dataset: dict[str, Any]


def read_provenance(run: Path) -> Provenance:
    """Read `metadata.json`; damage to it stops no report."""
    try:
        metadata = _mapping(read_json(run / METADATA, limit=_MAX_BYTES))
    except (OSError, ValueError):
        metadata = {}
    return Provenance(
        version=_text(_mapping(metadata.get("versions")).get("rl-training")),
        created=_text(metadata.get("created")),
        command=_command(run, metadata.get("argv")),
        dataset=_short_values(_mapping(metadata.get("dataset"))),
    )


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str | None:
    return value[:_MAX_TEXT] if isinstance(value, str) else None


def _command(run: Path, argv: Any) -> str:
    """Command that trains the run's configuration again, with the plugins of the first time."""
    words = list(map(str, argv)) if isinstance(argv, list) else []
    plugins: list[str] = []
    for position, word in enumerate(words):
        if word == "--plugin":
            plugins += words[position : position + 2]
        elif word.startswith("--plugin="):
            plugins.append(word)
    return shlex.join(["rl-training", "train", str(run / CONFIG), *plugins])


def _short_values(facts: Mapping[str, Any], prefix: str = "", depth: int = 0) -> dict[str, Any]:
    """Short values by dotted name; what is long or deeply nested is left out."""
    values: dict[str, Any] = {}
    for name, value in facts.items():
        if len(values) >= _MAX_FACTS:
            break
        if isinstance(value, dict):
            if depth < _MAX_DEPTH:
                values |= _short_values(value, f"{prefix}{name}.", depth + 1)
        elif len(name) <= _MAX_TEXT and _is_short(value):
            values[f"{prefix}{name}"] = value
    return values


def _is_short(value: Any) -> bool:
    if isinstance(value, list) and any(isinstance(entry, list | dict) for entry in value):
        return False
    return len(str(value)) <= _MAX_TEXT
