"""Packaged configurations: their names and texts, without importing what they configure."""

from __future__ import annotations

from importlib.resources import files
from typing import Any


def _root() -> Any:
    return files("rl_training") / "assets" / "configs"


def packaged_configs() -> list[str]:
    """List names such as `td3_bc/pendulum`, which work from any directory."""
    if not _root().is_dir():
        return []
    folders = [folder for folder in _root().iterdir() if folder.is_dir()]
    return sorted(
        f"{folder.name}/{file.name.removesuffix('.yaml')}"
        for folder in folders
        for file in folder.iterdir()
        if file.name.endswith(".yaml")
    )


def packaged_config_text(name: str) -> str:
    return (_root() / f"{name}.yaml").read_text(encoding="utf-8")


def packaged_spaces() -> list[str]:
    """List algorithms that have a packaged space to search in."""
    folder = files("rl_training") / "assets" / "spaces"
    names = [file.name for file in folder.iterdir()] if folder.is_dir() else []
    return sorted(name.removesuffix(".yaml") for name in names if name.endswith(".yaml"))


def packaged_space_text(name: str) -> str:
    return (files("rl_training") / "assets" / "spaces" / f"{name}.yaml").read_text(encoding="utf-8")
