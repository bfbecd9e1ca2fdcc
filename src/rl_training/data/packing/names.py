"""The spellings under which datasets of other libraries store their fields."""

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
}
_CANONICAL = {spelling: name for name, group in SPELLINGS.items() for spelling in group}

_ADVICE = {
    "terminations": "Add it (all zeros if episodes never terminate).",
    "next_obs": (
        "Add it, or add 'truncations' or 'episode_ids' so that it can be read from the next row."
    ),
}


class FieldNames(NamedTuple):
    """The spelling of each known field in a source, and the names that mean nothing to us."""

    known: dict[str, str]
    unknown: tuple[str, ...]


def match_field_names(found: Iterable[str], label: str) -> FieldNames:
    """Which field is which; two spellings of one field are an error."""
    known: dict[str, str] = {}
    unknown = []
    for spelling in found:
        name = _CANONICAL.get(spelling.lower())
        if name is None:
            unknown.append(spelling)
        elif name in known:
            raise DatasetError(
                f"{label} gives {name!r} twice, as {known[name]!r} and {spelling!r}. Keep one."
            )
        else:
            known[name] = spelling
    return FieldNames(known, tuple(unknown))


def missing_field(name: str, names: FieldNames, label: str) -> DatasetError:
    """The error for a required field, with the near miss if there is one."""
    found = ", ".join(sorted([*names.known.values(), *names.unknown])) or "nothing"
    near = [key for key in names.unknown if suggest(key, SPELLINGS[name])]
    advice = f"Rename {near[0]!r} to {name!r}." if near else _ADVICE.get(name, "Add it.")
    return DatasetError(f"{label} has no {name!r} (found: {found}). {advice}")
