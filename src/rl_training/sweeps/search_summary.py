"""Summaries of a search: what comes next, how it stands, how to go on with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rl_training.config import ConfigError, dump_yaml_value
from rl_training.runs.search_record import BEST, SearchRecord, SearchTrial
from rl_training.runtime.trust import runs_named_code, trust
from rl_training.sweeps.axes import Axis
from rl_training.sweeps.description import Trial
from rl_training.sweeps.probe import estimate
from rl_training.sweeps.search import Search
from rl_training.sweeps.search_directory import SearchDirectory
from rl_training.sweeps.search_replay import Rounds, begin_or_continue
from rl_training.sweeps.suggestions import check_search_packages


def plan_search(
    search: Search,
    directory: str | Path,
    wanted: int,
    jobs: int,
    report: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Describe a search before it begins, or where it stands: its space, its next trials, the time it will take."""
    files = SearchDirectory(Path(directory).expanduser().absolute())
    versions = check_search_packages(search.settings.sampler)
    trust(search.config.env_id)
    search.check(files.path)
    search, record = begin_or_continue(search, files, versions, jobs, wanted)
    following = Rounds(search, record).skip_ended(wanted)
    ended = sum(trial.state != "waiting" for trial in record.trials)
    left = max(0, wanted - ended)
    runs = _runs_of(search, following, files.path)
    times = estimate(runs, jobs, report)
    each = sum(times.seconds) / len(times.seconds) if times.seconds else 0.0
    number = left * len(search.settings.seeds) + (len(search.fresh_seeds) if left else 0)
    return {
        "space": [
            {
                "option": axis.key,
                "values": _range_text(axis),
                "now": dump_yaml_value(search.start[axis.key]) if axis.key in search.start else "",
            }
            for axis in search.axes
        ],
        "next": [{"trial": t.number, "values": dict(t.values)} for t in following],
        "left": left,
        "seconds": each * number / jobs,
        "probes": times.probes,
        "jobs": jobs,
        "round_size": search.round_size,
    }


def _runs_of(search: Search, trials: list[SearchTrial], directory: Path) -> list[Trial]:
    """Make a run of each trial; a point that is no configuration will fail without one."""
    runs = []
    for trial in trials:
        try:
            runs += search.runs(trial.values, directory, search.settings.seeds[:1])
        except ConfigError:
            continue
    return runs


def _range_text(axis: Axis) -> str:
    """Say in words what values an axis has."""
    if axis.options:
        text = ", ".join(dump_yaml_value(option) for option in axis.options)
    else:
        low, high = axis.extremes()
        kind = ", whole numbers" if axis.is_whole else ""
        text = f"{low:g} to {high:g}{kind}{', logarithmic' if axis.is_log else ''}"
    conditions = " and ".join(
        f"{key} is {' or '.join(dump_yaml_value(value) for value in allowed)}"
        for key, allowed in axis.when.items()
    )
    return f"{text}, if {conditions}" if conditions else text


def search_facts(directory: str | Path, record: SearchRecord) -> dict[str, Any]:
    """Return a search as JSON."""
    best = record.best
    return {
        "directory": str(directory),
        "metric": record.metric,
        "mode": record.mode,
        "trials": [trial.as_dict() for trial in record.trials],
        "best": None if best is None else best.as_dict(),
        "config": None if best is None else str(Path(directory) / BEST),
        "fresh": None if record.fresh is None else record.fresh.as_dict(),
        "importance": dict(record.importance),
        "importance_note": record.importance_note,
    }


def resume_search_command(directory: str | Path, search: Search) -> str:
    """Return the command that goes on with a search."""
    trusted = " --trust-env" if runs_named_code(search.config.env_id) else ""
    return f"rl-training tune resume {directory}{trusted}"
