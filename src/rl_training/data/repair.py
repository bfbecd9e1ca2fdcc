"""Repair of logs: rows whose next observation is lost are dropped."""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import torch

from rl_training.data.checks.column_checks import list_rows
from rl_training.data.checks.episode_ends import judge_ends_of
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.packing.flags import episode_ends

log = logging.getLogger("rl_training")


def repair_dataset(dataset: TransitionDataset) -> TransitionDataset:
    """Drop the last rows of episodes that have lost their next observation; a note says which.

    These are the rows that `data check` reports as `shifted-next-obs` or `padded-next-obs`, and those of
    `time-limit` with the same fault. The row before each becomes the last of its episode, truncated.
    All else stays as it is.
    """
    judged = judge_ends_of(dataset)
    lost = judged.lost.rows if judged is not None else np.empty(0, np.int64)
    if not len(lost):
        why = "; episode boundaries are unknown" if judged is None else ""
        log.info("%s: nothing to repair%s", dataset.source, why)
        return dataset
    layout, starts = dataset.layout, dataset.episode_starts
    keep = np.ones(len(dataset), np.bool_)
    keep[lost] = False
    rows = torch.cat(list(dataset.pieces()))
    rows[torch.from_numpy(lost[~np.isin(lost, starts)] - 1), layout.truncation] = 1
    rows = rows[torch.from_numpy(keep)]
    _say_what_was_dropped(dataset, lost)
    flags = (rows[:, layout.termination].numpy() > 0, rows[:, layout.truncation].numpy() > 0)
    packed = dataset.packed
    return TransitionDataset.from_packed(
        replace(packed, rows=rows, layout=layout, ends=episode_ends(*flags), in_memory=True)
    )


def _say_what_was_dropped(dataset: TransitionDataset, lost: np.ndarray) -> None:
    starts = dataset.episode_starts
    episodes = np.searchsorted(starts, lost, "right") - 1
    named = list_rows(episodes, 5).removeprefix("rows ").removeprefix("row ")
    whole = int(np.isin(lost, starts).sum())
    log.info(
        "%s: dropped %s of %s rows, which had lost their next observation: the last of %s of %s "
        "episodes (%s); the rows before them are now truncated%s",
        dataset.source, f"{len(lost):,}", f"{len(dataset):,}", f"{len(episodes):,}",
        f"{len(starts):,}", named,
        f"; {whole:,} of these episodes had no other row" if whole else "",
    )  # fmt: skip
