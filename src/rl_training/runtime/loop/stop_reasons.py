"""Reasons for which a run ends, as they appear in `TrainerState`, checkpoints and results.

Early stopping, rollback and callbacks of users give a sentence of their own; those listed here are
told apart by code: a run that has spent a budget is complete, an interrupted one simply goes on.
"""

from __future__ import annotations

TOTAL_TIMESTEPS = "total_timesteps"
MAX_UPDATES = "max_updates"
MAX_EPOCHS = "max_epochs"
BUDGETS = (TOTAL_TIMESTEPS, MAX_UPDATES, MAX_EPOCHS)  # each is the name of its option
INTERRUPTED = "interrupted"  # by a signal


def is_early(reason: str | None) -> bool:
    """Tell a decision to stop before the budget, which a resume has to overrule."""
    return reason is not None and reason not in (*BUDGETS, INTERRUPTED)
