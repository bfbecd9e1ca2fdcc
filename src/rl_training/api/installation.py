"""Check of the installed package: its files, its packaged configurations."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from rl_training.algorithms.registry import list_algorithm_specs
from rl_training.config import RLTrainingError, packaged_configs
from rl_training.runtime.config.files import load_config


def installation_problems() -> list[str]:
    """Say what is missing or damaged, a sentence each; empty if nothing is."""
    return [*_file_problems(), *_config_problems()]


def _file_problems() -> list[str]:
    """Compare the files with the list that the installer left, by presence and size."""
    try:
        listed = distribution("rl-training").files or []
    except PackageNotFoundError:  # a source tree that was never installed
        return []
    wrong = [
        str(file)
        for file in listed
        if file.parts[0] == "rl_training" and file.size is not None
        if _size(Path(str(file.locate()))) != file.size
    ]
    if not wrong:
        return []
    more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
    return [f"{wrong[0]}{more}: missing or not as installed"]


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def _config_problems() -> list[str]:
    """Every algorithm of the package has a packaged configuration, and each of them is valid."""
    names = packaged_configs()
    if not names:
        return ["there are no packaged configurations"]
    folders = {name.split("/")[0] for name in names}
    problems = [
        f"there is no packaged configuration of {spec.name}"
        for spec in list_algorithm_specs()
        if spec.name not in folders and spec.algorithm.__module__.startswith("rl_training.")
    ]
    for name in names:
        try:
            load_config(name)
        except RLTrainingError as error:
            problems.append(f"{name}: {error}")
    return problems
