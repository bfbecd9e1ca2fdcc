"""Many runs: described once, carried out on this machine or a cluster, stopped and continued at any time.

Every trial is an ordinary run directory; nothing about a run knows that it is part of a sweep.

    sweep file -> description -> trials -> driver -> executor -> a process for each trial -> run directory
                                             |                          |
                                             +------ status files <-----+

- `axes`         values that one key takes: listed, drawn, conditional
- `description`  sweep files: bases, axes, points, seeds; the trials that they make
- `directory`    directory of a sweep, `status` of a trial in it, `board`: both in words; these need no torch
- `running`      running a sweep in its directory; `seeds` of one configuration without one
- `driver`       which trial starts when, what is tried again
- `executor`     interface to what carries trials out; `local`: processes of this machine
- `ray_executor` nodes of a Ray cluster; `cluster/`: its parts
- `nursery`      process that forks those of the local executor; `worker`: what runs in each
- `watching`     runs that go on elsewhere, by their files; `run_progress` of one; these need no torch
- `suites`       benchmark suites: cells of a table; `benchmarking`: training and scoring what is missing
- `probe`        estimate of the time that a sweep will take

A search (`tune`) makes its trials as it goes:

    space -> search -> replay of earlier rounds -> suggestions -> round of trials -> driver -> values -> record
                              ^                                                                            |
                              +------------------------------ tune.json <--------------------------------+

- `search`       description: configuration, space, metric; the runs of a point; `spaces`: reading spaces
- `suggestions`  Optuna's samplers, seeded by trial number; `search_replay`: earlier rounds once more;
  `journal`: all of it for Optuna's tools
- `search_rounds`  stages of a round; `pruning`: which trials go on; `search_metrics`: values of runs
- `tuning`       rounds until the budget is spent, then the best on fresh seeds
- `search_directory`  its files (the record itself is `runs.search_record`); `search_summary`: both in words
- `judging`      score cards of runs, for the metric ope/fqe
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rl_training.sweeps.description import Sweep, Trial
    from rl_training.sweeps.running import RunOptions, SweepResult, run_sweep
    from rl_training.sweeps.search import Search
    from rl_training.sweeps.tuning import TuneResult, tune

__all__ = [
    "RunOptions",
    "Search",
    "Sweep",
    "SweepResult",
    "Trial",
    "TuneResult",
    "run_sweep",
    "tune",
]
_MODULES = {
    "RunOptions": "rl_training.sweeps.running",
    "Search": "rl_training.sweeps.search",
    "Sweep": "rl_training.sweeps.description",
    "SweepResult": "rl_training.sweeps.running",
    "Trial": "rl_training.sweeps.description",
    "TuneResult": "rl_training.sweeps.tuning",
    "run_sweep": "rl_training.sweeps.running",
    "tune": "rl_training.sweeps.tuning",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
