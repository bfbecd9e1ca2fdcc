"""Replay of a search: its trials asked for and told once more, and compared with its record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from rl_training.config import CheckpointError, ConfigError, OutputError
from rl_training.runs.search_record import SearchRecord, SearchTrial, read_search
from rl_training.sweeps.search import Search
from rl_training.sweeps.search_directory import SearchDirectory
from rl_training.sweeps.suggestions import Suggester, Suggestion, check_search_packages

_MAY_CHANGE = ("fresh_seeds",)  # settings that suggestions do not depend on


@dataclass
class Rounds:
    """Rounds of a search, one after the other: `next` asks for one, `tell` says how its trials ended.

    Round k is the trials k·R to (k+1)·R - 1. All of them are asked for before any of them is told. The last round may
    be cut by the number of trials that are wanted; if more are wanted later, it is asked for as a whole.
    """

    search: Search
    record: SearchRecord
    suggester: Suggester = field(init=False)
    _next: int = 0

    def __post_init__(self) -> None:
        settings = self.search.settings
        self.suggester = Suggester(
            self.search.axes,
            settings.sampler,
            self.search.metric.mode,
            settings.sample_seed,
            counts_pruned=settings.pruner == "hyperband",
        )

    def next(self, wanted: int) -> list[SearchTrial]:
        """Ask for the trials of the next round; those of the record are returned as they are in it."""
        end = min(self._next + self.search.round_size, max(wanted, len(self.record.trials)))
        asked = [self._ask(number) for number in range(self._next, end)]
        self._next = end
        return asked

    def tell(self, trials: Sequence[SearchTrial]) -> None:
        for trial in trials:
            self.suggester.tell(trial)

    def skip_ended(self, wanted: int) -> list[SearchTrial]:
        """Replay the rounds that have ended; returns the trials of the first that has not, if any."""
        while asked := self.next(wanted):
            if any(trial.state == "waiting" for trial in asked):
                break
            self.tell(asked)
        return asked

    def _ask(self, number: int) -> SearchTrial:
        if number == 0:
            suggestion = self.suggester.take(0, self.search.start, self.search.known)
        else:
            suggestion = self.suggester.ask(number, self.search.known)
        if number >= len(self.record.trials):
            return SearchTrial(number, suggestion.params, suggestion.values)
        self._compare(self.record.trials[number], suggestion)
        return self.record.trials[number]

    def _compare(self, stored: SearchTrial, suggestion: Suggestion) -> None:
        if stored.params == suggestion.params and stored.values == suggestion.values:
            return
        installed = check_search_packages(self.search.settings.sampler)
        raise CheckpointError(
            f"trial {stored.number} would be another one today: the search was begun with "
            f"{_listed(self.record.versions)}, and {_listed(installed)} is installed; install the former, or "
            "begin another search"
        )


def begin_or_continue(
    search: Search, files: SearchDirectory, versions: Mapping[str, str], jobs: int, wanted: int
) -> tuple[Search, SearchRecord]:
    """Return the search with the size of its rounds, and its record so far."""
    if not files.is_search:
        search = search.with_round_size(search.settings.round_size or jobs)
        return search, SearchRecord(search.as_dict(), versions, wanted)
    record = files.read()
    if search.settings.round_size is None:
        try:
            search = search.with_round_size(record.settings.get("round_size"))  # type: ignore[arg-type]
        except ConfigError as error:
            raise CheckpointError(f"the settings in {files.path} are damaged: {error}") from None
    _refuse_other(record.settings, search.as_dict(), files.path)
    return search, replace(record, settings=search.as_dict(), wanted=wanted)


def search_in(directory: str | Path, *, trust_env: bool = False) -> Search:
    """Read the description of a search that was begun before.

    An environment `module:Name` that only the directory names is refused, unless `trust_env` allows it.
    """
    path = Path(directory).expanduser().absolute()
    return Search.from_record(read_search(path), path, trust_env=trust_env)


def _refuse_other(stored: Mapping[str, object], given: Mapping[str, object], path: Path) -> None:
    """Refuse to go on with another search than the one in the directory."""
    differing = [key for key in given if key not in _MAY_CHANGE and stored.get(key) != given[key]]
    if differing:
        raise OutputError(
            f"{path} holds a search with other settings ({', '.join(differing)}): go on with it by "
            f"`rl-training tune resume`, or choose another --output-dir"
        )


def _listed(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items()) or "nothing"
