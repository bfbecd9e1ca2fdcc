"""Packaged configurations, suites and spaces: their names and texts, without importing what they configure."""

from __future__ import annotations

from importlib.resources import files
from typing import Any


def _root(kind: str = "configs") -> Any:
    return files("rl_training") / "assets" / kind


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


def packaged_suites() -> list[str]:
    """List names of benchmark suites, such as `offline`."""
    return _stems("suites")


def packaged_suite_text(name: str) -> str:
    return (_root("suites") / f"{name}.yaml").read_text(encoding="utf-8")


def packaged_spaces() -> list[str]:
    """List algorithms that have a packaged space to search in."""
    return _stems("spaces")


def packaged_space_text(name: str) -> str:
    return (_root("spaces") / f"{name}.yaml").read_text(encoding="utf-8")


def _stems(folder: str) -> list[str]:
    """List the YAML files of one folder of assets, without their ending."""
    root = _root(folder)
    names = [file.name for file in root.iterdir()] if root.is_dir() else []
    return sorted(name.removesuffix(".yaml") for name in names if name.endswith(".yaml"))
