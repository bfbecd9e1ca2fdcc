"""Files: what they load as, and what is said about files that do not load."""

import os
import pickle
import sys
from pathlib import Path

import gymnasium as gym
import h5py
import numpy as np
import pytest
import torch

from rl_training.config import ConfigError, DatasetError, MissingExtraError
from rl_training.data import TransitionDataset, load_transition_dataset
from rl_training.data.packing import source


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


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npz_loads_in_any_order_and_compression(tmp_path, episodes, monkeypatch, save, order):
    monkeypatch.setattr(source, "PIECE_BYTES", 700)
    fields = episodes([30, 20])
    save(tmp_path / "a.npz", **{key: np.asarray(v, order=order) for key, v in fields.items()})
    assert load(tmp_path / "a.npz").sha256 == TransitionDataset(**fields).sha256


def test_three_dimensional_fortran_arrays_are_read_in_the_right_order(tmp_path, episodes):
    fields = episodes([6])
    wide = {**fields, "obs": np.asfortranarray(fields["obs"][:, None])}
    np.savez(tmp_path / "a.npz", **wide)
    assert load(tmp_path / "a.npz").sha256 == TransitionDataset(**fields).sha256


@pytest.mark.parametrize("drop", [[], ["truncations"], ["next_obs"]])
def test_the_size_of_pieces_changes_nothing(episodes, monkeypatch, drop):
    fields = episodes([30, 1, 20, 1, 9], terminal=[True, False, False, True, False])
    fields = {key: value for key, value in fields.items() if key not in drop}
    whole = TransitionDataset.from_dict(fields)
    for size in (1, 300, 900):
        monkeypatch.setattr(source, "PIECE_BYTES", size)
        pieces = TransitionDataset.from_dict(fields)
        assert pieces.sha256 == whole.sha256
        assert pieces.episode_lengths.tolist() == whole.episode_lengths.tolist()


def test_hdf5_has_d4rl_names_and_ignores_infos_and_metadata(logs):
    dataset, write = logs
    path = write("a.hdf5")
    with h5py.File(path, "a") as file:
        assert {"observations", "next_observations", "terminals", "timeouts"} <= set(file)
        file["infos/qpos"] = np.zeros(60)
        file["metadata/algorithm"] = "SAC"
    assert load(path).sha256 == dataset.sha256
    assert load(path).notes == ()


def test_pth_is_a_name_for_pt(logs):
    dataset, write = logs
    assert load(write("a.pth"), "pt").sha256 == dataset.sha256


@pytest.mark.parametrize("kind", ["npz", "pt", "hdf5"])
@pytest.mark.parametrize("damage", ["garbage", "half", "empty"])
def test_damaged_files_are_named(logs, kind, damage):
    path = logs[1](f"logs.{kind}")
    content = path.read_bytes()
    path.write_bytes({"garbage": b"not what it says" * 9, "half": content[: len(content) // 2],
                      "empty": b""}[damage])  # fmt: skip
    with pytest.raises(DatasetError, match=rf"logs\.{kind}") as caught:
        load(path)
    assert str(caught.value).count("\n") <= 1


def test_a_flipped_bit_in_an_npz_is_noticed(logs):
    path = logs[1]("logs.npz")
    content = bytearray(path.read_bytes())
    content[300] ^= 1
    path.write_bytes(content)
    with pytest.raises(DatasetError, match=r"logs\.npz.* is damaged"):
        load(path)


def test_a_missing_file_suggests_its_neighbour(logs, tmp_path):
    logs[1]("pendulum_logs.npz")
    with pytest.raises(DatasetError, match=r"no file .*; did you mean 'pendulum_logs\.npz'"):
        load(tmp_path / "pendulum_log.npz")
    with pytest.raises(DatasetError, match="there is no directory"):
        load(tmp_path / "nowhere" / "a.npz")


def test_a_directory_is_not_a_file(logs, tmp_path):
    logs[1]("a.npz")
    with pytest.raises(DatasetError, match=r"is a directory; give a file in it \(found: a\.npz\)"):
        load(tmp_path, "npz")


@pytest.mark.parametrize("make", [lambda p: p.symlink_to("/dev/zero"), os.mkfifo])
def test_what_is_no_regular_file_is_refused_without_reading_it(tmp_path, make):
    make(tmp_path / "a.npz")
    with pytest.raises(DatasetError, match=r"a\.npz is not a regular file"):
        load(tmp_path / "a.npz")


def test_a_file_without_permission_is_named(logs, monkeypatch):
    path = logs[1]("a.npz")

    def refuse(*_args, **_keys):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)  # chmod would not stop root
    with pytest.raises(DatasetError, match=r"a\.npz cannot be read: permission denied"):
        load(path)


class Payload:
    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return Path.touch, (self.target,)


def test_a_pickle_inside_an_npz_is_refused_and_not_executed(tmp_path, episodes):
    fields = {**episodes([5]), "rewards": np.array([Payload(tmp_path / "ran")] * 5)}
    np.savez(tmp_path / "a.npz", **fields)
    with pytest.raises(DatasetError, match=r"a\.npz: 'rewards' holds Python objects"):
        load(tmp_path / "a.npz")
    assert not (tmp_path / "ran").exists()


def test_an_ignored_pickle_inside_an_npz_is_not_executed(tmp_path, episodes):
    extra = np.array([Payload(tmp_path / "ran")] * 5)
    np.savez(tmp_path / "a.npz", **episodes([5]), infos=extra, info=np.array(extra[0]))
    assert "ignored fields: info, infos" in load(tmp_path / "a.npz").notes
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("write", [torch.save, lambda v, p: p.write_bytes(pickle.dumps(v, 2))])
def test_a_pickle_inside_a_pt_is_refused_and_not_executed(tmp_path, write):
    write({"obs": Payload(tmp_path / "ran")}, tmp_path / "a.pt")
    with pytest.raises(DatasetError, match=r"a\.pt is not a \.pt file of plain tensors"):
        load(tmp_path / "a.pt")
    assert not (tmp_path / "ran").exists()


def test_a_pt_that_is_no_dict_is_named(tmp_path):
    torch.save([torch.ones(3)], tmp_path / "a.pt")
    with pytest.raises(DatasetError, match=r"a\.pt holds a list; expected a dict of tensors"):
        load(tmp_path / "a.pt")


def test_a_path_that_cannot_be_one_is_named():
    with pytest.raises(DatasetError, match="cannot be read: embedded null byte"):
        load(Path("a\0.npz"))


def test_bfloat16_sparse_and_old_format_tensors_load(tmp_path, episodes):
    fields = {key: torch.from_numpy(value) for key, value in episodes([5]).items()}
    fields["obs"] = fields["obs"].to_sparse()
    fields["rewards"] = torch.arange(5).bfloat16()
    torch.save(fields, tmp_path / "a.pt", _use_new_zipfile_serialization=False)
    assert load(tmp_path / "a.pt").rewards.tolist() == [0, 1, 2, 3, 4]


def test_an_unknown_kind_is_suggested(tmp_path):
    with pytest.raises(ConfigError, match="unknown dataset_kind 'npzz'; did you mean 'npz'"):
        load_transition_dataset("npzz", dataset_path="a.npz")


def test_keys_that_a_kind_needs_or_does_not_use_are_named():
    with pytest.raises(ConfigError, match="dataset_kind 'npz' needs dataset_path"):
        load_transition_dataset("npz")
    with pytest.raises(ConfigError, match="dataset_path is not used by dataset_kind 'builtin'"):
        load_transition_dataset("builtin", dataset_id="x", dataset_path="a.npz")


def test_the_kind_random_needs_an_environment_from_the_caller():
    with pytest.raises(ConfigError, match="'random' needs env"):
        load_transition_dataset("random")
    env = gym.make("CartPole-v1")
    dataset = load_transition_dataset("random", env=env, dataset_size=50, dataset_seed=1)
    assert len(dataset) == 50


def test_the_home_directory_may_be_written_as_a_tilde(logs, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    logs[0].save("~/a.npz")
    assert len(load(Path("~/a.npz"))) == 60


def test_a_missing_package_names_the_extra(logs, monkeypatch):
    path = logs[1]("a.hdf5")
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(
        MissingExtraError, match=r"'hdf5' needs h5py: pip install 'rl-training\[hdf5\]'"
    ):
        load(path)
    monkeypatch.setitem(sys.modules, "minari", None)
    with pytest.raises(MissingExtraError, match=r"'minari' needs Minari: .*\[minari\]"):
        load_transition_dataset("minari", dataset_id="a/b-v0")
