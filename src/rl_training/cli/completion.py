"""Names that a shell completes; nothing here imports PyTorch, because every key press waits for it."""

from __future__ import annotations

from rl_training.config import packaged_configs


def configs(incomplete: str) -> list[str]:
    """Packaged configurations; where none fits, the shell offers files."""
    return [name for name in packaged_configs() if name.startswith(incomplete)]


def algorithms(incomplete: str) -> list[str]:
    """Algorithms of this package: each has a folder of packaged configurations."""
    names = dict.fromkeys(name.split("/")[0] for name in packaged_configs())
    return [name for name in names if name.startswith(incomplete)]


def configs_and_algorithms(incomplete: str) -> list[str]:
    return [*algorithms(incomplete), *configs(incomplete)]
