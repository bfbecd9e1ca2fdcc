"""The plan of packing a source: names, shapes and flags, before any big array is read."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from rl_training.config import DatasetError
from rl_training.data.packing.flags import EpisodeFlags, Flags, combine_flags
from rl_training.data.packing.layout import RowLayout
from rl_training.data.packing.names import (
    BEHAVIOR_FIELDS,
    FieldNames,
    match_field_names,
    missing_field,
)
from rl_training.data.packing.source import Array, FieldInfo, FieldSource

_ONE_COLUMN = ("rewards", "terminations", "truncations", "dones", "masks", "next_action_valid",
               "episode_ids", *BEHAVIOR_FIELDS)  # fmt: skip


@dataclass(frozen=True)
class PackingPlan:
    """Decisions about one source; `keep` marks rows with a next observation, None keeps all."""

    names: dict[str, str]  # our name -> the source's name
    length: int
    layout: RowLayout
    flags: EpisodeFlags
    next_obs: Literal["field", "next row"]
    keep: Flags | None
    notes: tuple[str, ...]


def plan_packing(source: FieldSource) -> PackingPlan:
    """Match names, check shapes and lengths, and read the flags."""
    names = _with_one_behavior(match_field_names(source.fields, source.label), source)
    for required in ("obs", "actions", "rewards"):
        if required not in names.matched:
            raise missing_field(required, names, source.label)
    infos = {name: source.fields[spelling] for name, spelling in names.matched.items()}
    for name, info in infos.items():
        check_field(name, info, f"{source.label}: {names.matched[name]!r}")
    length = _common_length(names, infos, source.label)
    flags = _read_flags(source, names, length)
    layout = _layout(infos, source.label)
    one_longer = "next_obs" not in infos and infos["obs"].shape[0] == length + 1
    keep = None
    notes = list(flags.notes)
    if one_longer:
        flags = _one_episode(flags, f"{source.label}: {names.matched['obs']!r}")
    elif "next_obs" not in infos:
        if flags.truncations is None:
            raise missing_field("next_obs", names, source.label)
        keep, flags = _flatten(flags.terminations, flags.truncations)
        if not keep.any():
            raise DatasetError(f"{source.label} has no row with a next observation")
        notes.append(f"next_obs is the next row's obs{_dropped(int((~keep).sum()))}")
        layout = layout.with_next_actions()
    if names.ignored:
        notes.append("ignored fields: " + ", ".join(sorted(names.ignored)))
    next_obs: Literal["field", "next row"] = "field" if "next_obs" in infos else "next row"
    return PackingPlan(names.matched, length, layout, flags, next_obs, keep, tuple(notes))


def _with_one_behavior(names: FieldNames, source: FieldSource) -> FieldNames:
    """Leave out probabilities of all choices, one per column; two fields of the logged one are an error."""
    wide = [
        name
        for name in BEHAVIOR_FIELDS
        if name in names.matched and math.prod(source.fields[names.matched[name]].shape[1:]) != 1
    ]
    matched = {name: spelling for name, spelling in names.matched.items() if name not in wide}
    given = [matched[name] for name in BEHAVIOR_FIELDS if name in matched]
    if len(given) > 1:
        raise DatasetError(
            f"{source.label} gives the behaviour's probabilities twice, as {given[0]!r} and {given[1]!r}. Keep one."
        )
    return FieldNames(matched, (*names.ignored, *(names.matched[name] for name in wide)))


def check_field(name: str, info: FieldInfo, label: str) -> None:
    """Refuse types and shapes that cannot be one row of numbers per transition."""
    shape, dtype = info
    if dtype.kind not in "fiub" and not (name == "episode_ids" and dtype.kind in "US"):
        content = "Python objects" if dtype.kind == "O" else f"type {dtype}"
        raise DatasetError(f"{label} holds {content}; only numbers can be read")
    if len(shape) == 0:
        raise DatasetError(f"{label} is a single value, not one per transition")
    if name in _ONE_COLUMN and any(size != 1 for size in shape[1:]):
        raise DatasetError(f"{label} must be one number per row, got shape {shape}")
    if len(shape) > 2 and not (len(shape) == 3 and shape[1] == 1):
        if len(shape) > 3 or dtype == np.uint8:
            advice = "image observations are not supported: store the output of an encoder instead"
        else:
            advice = (
                "put the rows of all episodes one below the other, `reshape(-1, width)`, with "
                "'truncations' or 'episode_ids' in the same order"
            )
        raise DatasetError(f"{label} has shape {shape}, expected (rows, width): {advice}")


def _common_length(names: FieldNames, infos: dict[str, FieldInfo], label: str) -> int:
    length = infos["actions"].shape[0]
    lengths = {names.matched[name]: info.shape[0] for name, info in infos.items()}
    if "next_obs" not in infos and infos["obs"].shape[0] == length + 1:
        del lengths[names.matched["obs"]]  # one episode, with its final observation
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name} {count}" for name, count in lengths.items())
        raise DatasetError(f"{label}: fields have different lengths: {listed}")
    if length == 0:
        raise DatasetError(f"{label} has no transitions")
    return length


def _width(info: FieldInfo) -> int:
    return 1 if len(info.shape) == 1 else info.shape[-1]


def _layout(infos: dict[str, FieldInfo], label: str) -> RowLayout:
    obs_dim, action_width = _width(infos["obs"]), _width(infos["actions"])
    discrete = infos["actions"].dtype.kind != "f"
    if discrete and action_width > 1:
        raise DatasetError(
            f"{label}: 'actions' are whole numbers of shape {infos['actions'].shape}; "
            "multi-discrete actions are not supported. Store continuous actions as floats, and one-hot "
            "choices as their numbers, `actions.argmax(1)`"
        )
    for name, width in (("next_obs", obs_dim), ("next_actions", action_width)):
        if name in infos and _width(infos[name]) != width:
            raise DatasetError(
                f"{label}: {name!r} has width {_width(infos[name])}, "
                f"but {name.removeprefix('next_')!r} has {width}"
            )
    if min(obs_dim, action_width) == 0:
        raise DatasetError(f"{label}: observations and actions need at least one column")
    return RowLayout(obs_dim, action_width, discrete, "next_actions" in infos)


def _read_flags(source: FieldSource, names: FieldNames, length: int) -> EpisodeFlags:
    def read(name: str) -> Array:
        return source.read(names.matched[name], 0, length)

    flags = combine_flags(names.matched, read, source.label)
    if flags is None:
        raise missing_field("terminations", names, source.label)
    return flags


def _one_episode(flags: EpisodeFlags, label: str) -> EpisodeFlags:
    """Flags of a single episode with its final observation; an earlier end is an error."""
    truncations = flags.truncations
    if truncations is None:
        truncations = np.zeros(len(flags.terminations), np.bool_)
    early = np.flatnonzero((flags.terminations | truncations)[:-1])
    if len(early):
        # Which observation is missing, and from where on rows are shifted, cannot be known.
        raise DatasetError(
            f"{label} is one longer than the other fields, which means one episode and its final "
            f"observation, but row {early[0]} ends an episode before that. Add 'next_obs', or leave "
            "out the last observation: 'truncations' then say which rows have none."
        )
    return EpisodeFlags(flags.terminations, truncations, flags.notes)


def _dropped(count: int) -> str:
    if count == 0:
        return ""
    return f"; dropped {count} row{'s that have' if count != 1 else ' that has'} none"


def _flatten(terminations: Flags, truncations: Flags) -> tuple[Flags, EpisodeFlags]:
    """Drop truncated rows of D4RL's sequences: after them comes the next episode's first row."""
    keep = terminations | ~truncations
    keep[-1] = terminations[-1]
    # A dropped cut moves to the row before it, which now ends the episode.
    moved = truncations.copy()
    moved[:-1] |= (truncations & ~keep)[1:] & ~terminations[:-1]
    return keep, EpisodeFlags(terminations, moved & keep)
