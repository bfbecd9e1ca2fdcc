"""Writing datasets: under a temporary name first, so that a file is whole or not there."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rl_training.config import DatasetError
from rl_training.data.formats import file_endings, format_of_file
from rl_training.data.packing.source import Array, FieldInfo
from rl_training.data.transitions.fields import DatasetFields
from rl_training.files import written_aside


def save_dataset(dataset: DatasetFields, path: Path) -> None:
    """Write the dataset in the format of the file ending."""
    dataset_format = format_of_file(path)
    if dataset_format is None or dataset_format.write is None:
        endings = ", ".join(file_endings(writable=True))
        raise DatasetError(f"{path.name}: unknown suffix; use one of {endings}")
    with written_aside(path) as aside:
        dataset_format.write(DatasetSource(dataset, f"cannot write {path}"), aside)


class DatasetSource:
    """A dataset as the arrays that a file holds: our names, whole-number actions, boolean flags."""

    def __init__(self, dataset: DatasetFields, label: str) -> None:
        self.label = label
        self._dataset = dataset
        self.remarks: dict[str, str | int] = {"boundaries": dataset.boundaries}
        if dataset.num_actions is not None:
            self.remarks["num_actions"] = dataset.num_actions
        if dataset.first_action is not None:
            self.remarks["first_action"] = dataset.first_action
        layout, rows = dataset.layout, (len(dataset),)
        number, flag = np.dtype(np.float32), np.dtype(np.bool_)
        obs = FieldInfo((*rows, layout.obs_dim), number)
        actions = FieldInfo((*rows, layout.action_width), number)
        if layout.discrete:
            actions = FieldInfo(rows, np.dtype(np.int64))
        self.fields = {
            "obs": obs, "actions": actions, "rewards": FieldInfo(rows, number), "next_obs": obs,
            "terminations": FieldInfo(rows, flag), "truncations": FieldInfo(rows, flag),
        }  # fmt: skip
        self._columns: dict[str, int | slice] = {
            "obs": layout.obs, "actions": layout.actions, "rewards": layout.reward,
            "next_obs": layout.next_obs, "terminations": layout.termination,
            "truncations": layout.truncation,
        }  # fmt: skip
        if layout.has_next_actions:
            self.fields |= {"next_actions": actions, "next_action_valid": FieldInfo(rows, flag)}
            self._columns["next_actions"] = layout.next_actions
            self._columns["next_action_valid"] = layout.next_action_valid
        self._log_probs = dataset.behavior_log_probs
        if self._log_probs is not None:
            self.fields["behavior_log_probs"] = FieldInfo(rows, number)

    def read(self, field: str, start: int, stop: int) -> Array:
        """Rows of one field; a number that a transform took out of float32 is an error."""
        if field == "behavior_log_probs":
            assert self._log_probs is not None
            return np.ascontiguousarray(self._log_probs[start:stop].numpy())
        values = self._dataset.column(self._columns[field], start, stop)
        finite = values.isfinite()
        if not bool(finite.all()):
            first = tuple(finite.logical_not().nonzero()[0].tolist())
            raise DatasetError(
                f"{self.label}: {field!r} would have {values[first]:g} at row {start + first[0]}; "
                "scale or shift by smaller numbers"
            )
        shape, dtype = self.fields[field]
        array = np.ascontiguousarray(values.numpy(), dtype=dtype)
        return array.reshape(len(array), *shape[1:])
