"""Journal of a search for Optuna's tools; nothing here is ever read back."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from optuna.study import Study

STUDY = "rl-training"  # name of the study


def journal_of(study: Study) -> str:
    """Return all trials that have ended as the text of a journal file."""
    import optuna
    from optuna.storages import JournalStorage
    from optuna.trial import TrialState, create_trial

    class Lines:
        """Journal in memory; a file of Optuna's would wait for the lock of a process that was killed."""

        def __init__(self) -> None:
            self.logs: list[dict[str, Any]] = []

        def read_logs(self, log_number_from: int) -> Iterator[dict[str, Any]]:
            yield from self.logs[log_number_from:]

        def append_logs(self, logs: list[dict[str, Any]]) -> None:
            self.logs += logs

    lines = Lines()
    copied = optuna.create_study(
        study_name=STUDY, storage=JournalStorage(lines), direction=study.direction
    )
    for trial in study.get_trials(deepcopy=False):
        if trial.state.is_finished():
            copied.add_trial(
                create_trial(  # without the attributes, in which samplers keep their state
                    state=trial.state,
                    value=trial.value if trial.state == TrialState.COMPLETE else None,
                    params=trial.params,
                    distributions=trial.distributions,
                    intermediate_values=trial.intermediate_values,
                )
            )
    return "".join(json.dumps(log, separators=(",", ":")) + "\n" for log in lines.logs)


@contextmanager
def quietly() -> Iterator[None]:
    """Context in which Optuna says nothing about studies that it makes and options that are new."""
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        optuna.logging.set_verbosity(before)
