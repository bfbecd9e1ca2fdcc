"""Field names of other libraries, and how they map to ours."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from rl_training.config import DatasetError, suggest

SPELLINGS: dict[str, tuple[str, ...]] = {
    "obs": ("obs", "observation", "observations", "state", "states"),
    "actions": ("actions", "action"),
    "rewards": ("rewards", "reward"),
    "next_obs": ("next_obs", "next_observation", "next_observations", "next_state", "next_states"),
    "terminations": ("terminations", "termination", "terminated", "terminal", "terminals"),
    "truncations": ("truncations", "truncation", "truncated", "timeout", "timeouts"),
    "dones": ("dones", "done"),
    "masks": ("masks", "mask"),
    "next_actions": ("next_actions", "next_action"),
    "next_action_valid": ("next_action_valid",),
    "episode_ids": ("episode_ids", "episode_id", "episode"),
    "behavior_log_probs": ("behavior_log_probs", "behaviour_log_probs", "behavior_log_prob",
                           "behaviour_log_prob", "action_log_probs", "action_log_prob", "log_probs",
                           "log_prob", "logp"),
    "behavior_probs": ("behavior_probs", "behaviour_probs", "behavior_prob", "behaviour_prob",
                       "propensities", "propensity", "action_probs", "action_prob", "pscore"),
}  # fmt: skip
_CANONICAL = {spelling: name for name, group in SPELLINGS.items() for spelling in group}

_ADVICE = {
    "terminations": "Add it (all zeros if episodes never terminate).",
    "next_obs": (
        "Add it, or add 'truncations' or 'episode_ids' so that it can be read from the next row."
    ),
}

# our names of the probabilities with which the logging policy acted; at most one is given
BEHAVIOR_FIELDS = ("behavior_log_probs", "behavior_probs")


class FieldNames(NamedTuple):
    """Our name of each field to its spelling in the source, and the names that match none."""

    matched: dict[str, str]
    ignored: tuple[str, ...]


def match_field_names(spellings: Iterable[str], label: str) -> FieldNames:
    """Match the names in a source to ours; two spellings of one field are an error."""
    matched: dict[str, str] = {}
    ignored = []
    for spelling in spellings:
        name = _CANONICAL.get(spelling.lower())
        if name is None:
            ignored.append(spelling)
        elif name in matched:
            raise DatasetError(
                f"{label} gives {name!r} twice, as {matched[name]!r} and {spelling!r}. Keep one."
            )
        else:
            matched[name] = spelling
    return FieldNames(matched, tuple(ignored))


def missing_field(name: str, names: FieldNames, label: str) -> DatasetError:
    """Make the error for a required field, with the near miss if there is one."""
    present = ", ".join(sorted([*names.matched.values(), *names.ignored])) or "nothing"
    near = [key for key in names.ignored if suggest(key, SPELLINGS[name])]
    advice = f"Rename {near[0]!r} to {name!r}." if near else _ADVICE.get(name, "Add it.")
    return DatasetError(f"{label} has no {name!r} (found: {present}). {advice}")
