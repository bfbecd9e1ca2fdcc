"""Summary of a dataset: what `rl-training data info` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

if TYPE_CHECKING:
    from rl_training.data.transitions.fields import DatasetFields


def summarize(dataset: DatasetFields) -> dict[str, Any]:
    """Collect plain numbers and texts; the rows are read once."""
    layout = dataset.layout
    rewards = dataset.rewards.double()
    low = torch.full((layout.action_width,), torch.inf)
    high = -low
    for actions in dataset.column_pieces(layout.actions):
        low, high = low.minimum(actions.amin(0)), high.maximum(actions.amax(0))
    return {
        "source": dataset.source,
        "transitions": len(dataset),
        "obs_dim": dataset.obs_dim,
        "action_kind": "discrete" if dataset.discrete else "continuous",
        "action_width": dataset.action_width,
        "num_actions": dataset.num_actions,
        "action_min": low.tolist(),
        "action_max": high.tolist(),
        "reward": {"min": rewards.min().item(), "mean": rewards.mean().item(),
                   "max": rewards.max().item()},
        "termination_share": dataset.terminations.double().mean().item(),
        "truncation_share": dataset.truncations.double().mean().item(),
        "next_actions": layout.has_next_actions,
        "behavior_log_probs": _summarize_log_probs(dataset),
        **_summarize_episodes(dataset),
        "boundaries": dataset.boundaries,
        "in_memory": dataset.in_memory,
        "notes": list(dataset.notes),
    }  # fmt: skip


def complete_episodes(dataset: DatasetFields) -> slice:
    """Leave out an unfinished episode, which would pull statistics of returns down."""
    episodes = dataset.episodes
    return slice(None, -1) if episodes.last_is_open and len(episodes.starts) > 1 else slice(None)


def _summarize_episodes(dataset: DatasetFields) -> dict[str, Any]:
    if dataset.boundaries == "unknown":
        return {"episodes": None, "open_episode": None, "return": None, "episode_length": None}
    episodes, complete = dataset.episodes, complete_episodes(dataset)
    returns, lengths = episodes.returns[complete], episodes.lengths[complete]
    return {
        "episodes": len(episodes.starts),
        "open_episode": episodes.last_is_open,
        "return": {**_range(returns), "std": float(returns.std())},
        "episode_length": _range(lengths),
    }


def _summarize_log_probs(dataset: DatasetFields) -> dict[str, float] | None:
    log_probs = dataset.behavior_log_probs
    return None if log_probs is None else _range(log_probs.numpy().astype(np.float64))


def _range(values: npt.NDArray[Any]) -> dict[str, float]:
    return {"min": values.min().item(), "mean": float(np.mean(values)), "max": values.max().item()}
