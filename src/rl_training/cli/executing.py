"""Options of verbs that carry out many runs: how many at a time, what each may take."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from rl_training import api
from rl_training.config import ConfigError

JobsOption = Annotated[int | None, typer.Option(help="Runs at a time (default: the cores).")]
RetriesOption = Annotated[
    int, typer.Option(help="How often a run that crashed is begun again, from its last checkpoint.")
]
NiceOption = Annotated[int, typer.Option(help="Nice level of each run, 0 to 19.", min=0, max=19)]
MemoryOption = Annotated[
    str | None, typer.Option(help="Memory that each run may allocate, such as 4GB.")
]


def limits_of(nice: int, memory: str | None) -> api.Limits:
    return api.Limits(nice, _bytes(memory))


def _bytes(text: str | None) -> int | None:
    """Read `4GB`, `500MB` or a number of bytes."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)B?", text.strip(), re.IGNORECASE)
    if match is None or float(match[1]) <= 0:
        raise ConfigError(f"--memory {text!r}: write a size such as 4GB or 500MB")
    return int(float(match[1]) * 1000 ** " KMGT".index(match[2].upper() or " "))
