"""Changes of logs that need new rows: dropped rows without a next observation, other numbers of actions."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rl_training.config import DatasetError
from rl_training.data.checks.action_checks import one_hot
from rl_training.data.checks.column_checks import list_rows
from rl_training.data.checks.episode_ends import judge_ends_of
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.packing.flags import Ends, episode_ends
from rl_training.data.packing.pack import PackedRows
from rl_training.data.packing.propensities import as_choice_log_probs

log = logging.getLogger("rl_training")


def repair_dataset(dataset: TransitionDataset) -> TransitionDataset:
    """Drop the last rows of episodes that have lost their next observation; a note says which.

    These are the rows that `data check` reports as `shifted-next-obs` or `padded-next-obs`, and those of
    `time-limit` with the same fault. The row before each becomes the last of its episode, truncated.
    All else stays as it is.
    """
    judged = judge_ends_of(dataset)
    if judged is None or not len(judged.lost.rows):
        why = "; episode boundaries are unknown" if judged is None else ""
        log.info("%s: nothing to repair%s", dataset.source, why)
        return dataset
    lost, layout = judged.lost.rows, dataset.layout
    if len(lost) == len(dataset):
        raise DatasetError(f"{dataset.source}: no row has a next observation of its own episode")
    alone = np.isin(lost, dataset.episode_starts)
    rows = _all_rows(dataset)
    rows[torch.from_numpy(lost[~alone] - 1), layout.truncation] = 1
    keep = np.ones(len(dataset), np.bool_)
    keep[lost] = False
    rows = rows[torch.from_numpy(keep)]
    log_probs = dataset.behavior_log_probs
    if log_probs is not None:
        log_probs = log_probs[torch.from_numpy(keep)]
    episodes = np.searchsorted(dataset.episode_starts, lost, "right") - 1
    log.info(
        "%s: dropped %d of %d rows, the last ones of %s: their next observation was lost. The rows "
        "before them are marked as truncated%s",
        dataset.source, len(lost), len(dataset),
        list_rows(episodes, 3).replace("row", "episode"),
        f"; {alone.sum()} of these episodes had no other row" if alone.any() else "",
    )  # fmt: skip
    flags = (rows[:, layout.termination].numpy() > 0, rows[:, layout.truncation].numpy() > 0)
    return _with_rows(dataset, rows, ends=episode_ends(*flags), behavior_log_probs=log_probs)


def read_choices(dataset: TransitionDataset) -> TransitionDataset:
    """Read floats as discrete actions: whole numbers, or one-hot rows."""
    actions = dataset.actions
    if dataset.discrete or not one_hot(actions.numpy()):
        return dataset.with_discrete_actions()
    rows, before = _all_rows(dataset), dataset.layout
    layout = replace(before, action_width=1, discrete=True)
    narrow = torch.empty(len(rows), layout.width)
    narrow[:, layout.obs], narrow[:, layout.next_obs] = (
        rows[:, before.obs],
        rows[:, before.next_obs],
    )
    narrow[:, layout.reward : layout.reward + 3] = rows[:, before.reward : before.reward + 3]
    narrow[:, layout.actions] = actions.argmax(1, keepdim=True).float()
    if layout.has_next_actions:
        following = rows[:, before.next_actions].argmax(1, keepdim=True)
        narrow[:, layout.next_actions] = following.float()
        narrow[:, layout.next_action_valid] = rows[:, before.next_action_valid]
    return _with_rows(
        dataset,
        narrow,
        layout=layout,
        num_actions=before.action_width,
        behavior_log_probs=as_choice_log_probs(dataset.behavior_log_probs, dataset.source),
    )


def renumber_actions(dataset: TransitionDataset, first: int) -> TransitionDataset:
    """Count discrete actions from 0 that a log counts from `first`; the result remembers it."""
    if not dataset.discrete:
        raise DatasetError(
            f"{dataset.source}: actions are continuous and have no numbers; "
            "--discrete-actions reads whole numbers as choices"
        )
    smallest = int(dataset.actions.min())
    if smallest < first:
        row = int((dataset.actions < first).nonzero()[0])
        raise DatasetError(
            f"{dataset.source}: action {int(dataset.actions[row])} at row {row} is below "
            f"--first-action {first}"
        )
    rows, layout = _all_rows(dataset), dataset.layout
    rows[:, layout.actions] -= first
    if layout.has_next_actions:  # where there is none, any number may stand
        rows[:, layout.next_actions] = (rows[:, layout.next_actions] - first).clamp(min=0)
    return _with_rows(
        dataset, rows, num_actions=int(dataset.num_actions or 0) - first, first_action=first
    )


def _all_rows(dataset: TransitionDataset) -> Tensor:
    return torch.cat([piece.clone() for piece in dataset.pieces()])


def _with_rows(dataset: TransitionDataset, rows: Tensor, **changes: Any) -> TransitionDataset:
    facts = {
        "layout": dataset.layout,
        "boundaries": dataset.boundaries,
        "ends": None if dataset.boundaries == "unknown" else _ends(dataset),
        "num_actions": dataset.num_actions,
        "notes": dataset.notes,
        "source": dataset.source,
        "first_action": dataset.first_action,
        "behavior_log_probs": dataset.behavior_log_probs,
    }
    return TransitionDataset.from_packed(PackedRows(rows, **{**facts, **changes}))


def _ends(dataset: TransitionDataset) -> Ends:
    ends: npt.NDArray[np.int64] = dataset.episode_starts + dataset.episode_lengths - 1
    return ends
