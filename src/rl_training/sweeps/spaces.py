"""Spaces to search in: files, packaged ones, and mappings.

axes:                                       # in the language of sweep files
  learning_rate: {log_uniform: [1e-4, 3e-3]}
  batch_size: [64, 256]
  policy_noise: {uniform: [0.1, 0.3], when: {algo: td3}}
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rl_training.config import (
    ConfigError,
    Options,
    option,
    packaged_space_text,
    packaged_spaces,
    parse_yaml,
    suggest,
)
from rl_training.files import read_regular
from rl_training.runtime.config.files import MAX_BYTES


class SpaceConfig(Options):
    """Content of a space file."""

    axes: dict[str, Any] = option(
        doc="values by key: a list, or a range to draw from", min_length=1
    )


def read_space(space: str | Path | Mapping[str, Any]) -> dict[str, Any]:
    """Read the axes of a space: a file, a packaged name, or `{"axes": ...}`."""
    if isinstance(space, Mapping):
        return SpaceConfig(**space).axes
    path = Path(space)
    packaged = packaged_spaces()
    if path.is_file():
        try:
            text = read_regular(path, limit=MAX_BYTES, follow_links=True).decode()
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise ConfigError(f"{path} is not a space, which is YAML text") from None
    elif str(space) in packaged:
        text = packaged_space_text(str(space))
    else:
        hint = suggest(str(space), packaged) or f" (packaged: {', '.join(packaged)})"
        raise ConfigError(f"no space file or packaged space {str(space)!r}{hint}")
    values = parse_yaml(text, str(space))
    if not isinstance(values, dict) or not all(isinstance(key, str) for key in values):
        raise ConfigError(f"{space} must be a mapping with the key axes")
    try:
        return SpaceConfig(**values).axes
    except ConfigError as error:
        raise ConfigError([problem.under(str(space)) for problem in error.problems]) from None
