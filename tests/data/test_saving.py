"""Saved datasets: what survives, and files that are whole or not there."""

import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from rl_training.config import DatasetError, OutputError
from rl_training.data import TransitionDataset, load_transition_dataset


def load(path, kind=None, **keys):
    return load_transition_dataset(kind or path.suffix[1:], dataset_path=path, **keys)


@pytest.fixture
def logs(tmp_path, episodes):
    """A dataset and a function that writes it to a file of the given name."""
    dataset = TransitionDataset(**episodes([30, 20, 10], terminal=[True, False, False]))

    def write(name):
        dataset.save(tmp_path / name)
        return tmp_path / name

    return dataset, write


def test_unknown_and_derived_boundaries_survive_saving(tmp_path, episodes):
    fields = episodes([30, 30])
    del fields["truncations"]
    shuffled = {key: value[::-1] for key, value in fields.items()}
    for data, kind in ((fields, "derived"), (shuffled, "unknown")):
        for name in ("a.npz", "a.pt", "a.hdf5"):
            TransitionDataset(**data).save(tmp_path / name)
            assert load(tmp_path / name).boundaries == kind


def test_choices_that_a_subset_does_not_take_survive_saving(tmp_path):
    fields = {"obs": np.arange(4), "actions": [0, 5, 1, 1], "rewards": [0, 0, 9, 9],
              "next_obs": np.arange(1, 5), "terminations": [0, 1, 0, 1],
              "truncations": [0] * 4}  # fmt: skip
    TransitionDataset(**fields).top_episodes(0.5).save(tmp_path / "a.npz")
    assert load(tmp_path / "a.npz").num_actions == 6
    with np.load(tmp_path / "a.npz") as arrays:
        assert TransitionDataset.from_dict(dict(arrays)).num_actions == 6


def test_npz_of_ours_is_readable_by_numpy_and_not_compressed(logs):
    dataset, write = logs
    path = write("a.npz")
    with np.load(path, allow_pickle=False) as arrays:
        assert np.array_equal(arrays["obs"], dataset.obs.numpy())
        assert arrays["terminations"].dtype == bool
    with zipfile.ZipFile(path) as archive:
        assert {entry.compress_type for entry in archive.infolist()} == {zipfile.ZIP_STORED}


def test_an_unknown_suffix_is_refused_with_the_valid_ones(logs, tmp_path):
    with pytest.raises(
        DatasetError, match=r"a\.csv: unknown suffix; use one of \.hdf5, \.h5, \.npz, \.pt"
    ):
        logs[0].save(tmp_path / "a.csv")


def test_a_failed_save_leaves_the_old_file_and_no_other(logs, monkeypatch):
    dataset, write = logs
    path = write("a.pt")
    before = path.read_bytes()

    def fail(values, target):
        Path(target).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", fail)
    with pytest.raises(OutputError, match=r"cannot write .*a\.pt: No space left"):
        dataset.save(path)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir() if p.is_file()] == ["a.pt"]


@pytest.mark.parametrize("name", ["a.npz", "a.pt", "a.hdf5"])
def test_values_that_overflow_are_not_saved_over_a_good_file(logs, name):
    dataset, write = logs
    path = write(name)
    before = path.read_bytes()
    row = int((dataset.rewards * 1e38 * 1e3).isinf().nonzero()[0])
    huge = dataset.with_reward_transform(scale=1e38).with_reward_transform(scale=1e3)
    with pytest.raises(DatasetError, match=rf"cannot write .*{name}: 'rewards' .*inf at row {row}"):
        huge.save(path)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir() if p.is_file()] == [name]


def test_actions_that_overflow_are_not_saved(logs, tmp_path):
    scaled = logs[0].with_action_scaling(-1e-40, 1e-40)
    with pytest.raises(DatasetError, match="'actions' would have"):
        scaled.save(tmp_path / "a.npz")
    assert not (tmp_path / "a.npz").exists()


def test_a_read_only_place_is_named_though_nothing_can_be_removed_there(logs, monkeypatch):
    """On a read-only file system, unlink fails even for files that are not there."""
    dataset, write = logs
    path = write("a.npz")

    def refuse(*_args, **_keys):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(zipfile, "ZipFile", refuse)
    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(OutputError, match=r"cannot write .*a\.npz: Read-only file system"):
        dataset.save(path)
