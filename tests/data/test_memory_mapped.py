"""Data that is mapped from the cache instead of held in memory."""

import json
import logging
import os
import tempfile
import threading
import tracemalloc
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from rl_training.config import DatasetError, OutputError
from rl_training.data import (
    TransitionDataset,
    load_transition_dataset,
    mix_transition_datasets,
)
from rl_training.data.formats.npz import NpzSource
from rl_training.data.packing import cache, source


@pytest.fixture
def path(tmp_path, episodes):
    np.savez(tmp_path / "a.npz", **episodes([30, 20], terminal=[True, False]))
    return tmp_path / "a.npz"


def mapped(path, **keys):
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # neither torch nor the cache has anything to say
        return load_transition_dataset(path.suffix[1:], dataset_path=path, in_memory=False, **keys)


@pytest.mark.parametrize("suffix", [".npz", ".pt", ".hdf5"])
def test_mapped_data_is_bit_equal_to_data_in_memory(path, suffix):
    held = load_transition_dataset("npz", dataset_path=path)
    held.save(path.with_suffix(suffix))
    data = mapped(path.with_suffix(suffix))
    assert not data.in_memory
    assert data.sha256 == held.sha256
    for view in (lambda d: d, lambda d: d.with_next_actions().top_episodes(0.5)):
        batches = [
            view(d).sample(32, generator=torch.Generator().manual_seed(0)) for d in (held, data)
        ]
        assert torch.equal(batches[0].tensors["rows"], batches[1].tensors["rows"])
    assert data.describe() | {"in_memory": True, "source": "a.npz"} == held.describe()


def test_sequences_are_compacted_on_disk_as_in_memory(tmp_path, episodes):
    fields = episodes([30, 20, 1])
    del fields["next_obs"]
    np.savez(tmp_path / "a.npz", **fields)
    assert mapped(tmp_path / "a.npz").sha256 == TransitionDataset.from_dict(fields).sha256


def test_packing_on_disk_holds_only_pieces_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(source, "PIECE_BYTES", 1 << 18)
    obs = np.random.default_rng(0).standard_normal((50_001, 20)).astype(np.float32)
    np.savez(
        tmp_path / "a.npz", obs=obs[:-1], next_obs=obs[1:], actions=obs[1:, :4],
        rewards=obs[1:, 0], terminations=np.zeros(50_000, bool),
    )  # fmt: skip
    size = obs.nbytes * 2
    del obs
    tracemalloc.start()
    try:
        data = mapped(tmp_path / "a.npz")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert data.boundaries == "derived"
    assert peak < size / 3


def bin_file(cache):
    (found,) = (cache / "packed").glob("*.bin")
    return found


def test_the_cache_is_reused_until_the_file_changes(path, private_cache):
    first = mapped(path)
    written = bin_file(private_cache).stat().st_mtime_ns
    assert mapped(path).sha256 == first.sha256
    assert bin_file(private_cache).stat().st_mtime_ns == written
    np.savez(path, **{key: value[:30] for key, value in np.load(path).items()})
    assert len(mapped(path)) == 30


def test_a_changed_time_of_the_source_rebuilds(path, private_cache):
    mapped(path)
    written = bin_file(private_cache).stat().st_mtime_ns
    os.utime(path, ns=(1, 1))
    mapped(path)
    assert bin_file(private_cache).stat().st_mtime_ns > written


@pytest.mark.parametrize("part", [".bin", ".json"])
def test_a_damaged_cache_is_rebuilt_and_says_so(path, private_cache, part):
    before = mapped(path).sha256
    damaged = bin_file(private_cache).with_suffix(part)
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 255
    damaged.write_bytes(content[:-3])
    with pytest.warns(UserWarning, match="is damaged .*; building it again"):
        again = load_transition_dataset("npz", dataset_path=path, in_memory=False)
    assert again.sha256 == before
    assert mapped(path).sha256 == before


def test_a_cache_of_another_schema_is_rebuilt_quietly(path, private_cache):
    mapped(path)
    sidecar = bin_file(private_cache).with_suffix(".json")
    sidecar.write_text(json.dumps(json.loads(sidecar.read_text()) | {"schema": 0}))
    assert len(mapped(path)) == 50


def test_data_that_does_not_load_leaves_nothing_in_the_cache(tmp_path, episodes, private_cache):
    fields = episodes([30])
    fields["rewards"][7] = np.nan
    np.savez(tmp_path / "a.npz", **fields)
    with pytest.raises(DatasetError, match="'rewards' has nan at row 7"):
        mapped(tmp_path / "a.npz")
    assert list((private_cache / "packed").iterdir()) == []


def test_a_full_disk_is_said_before_anything_is_written(path, monkeypatch):
    def full(*_args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OutputError, match=r"No space left on device\. Set RL_TRAINING_CACHE"):
        mapped(path)


def test_a_mixture_of_mapped_parts_is_mapped_and_leaves_no_file(path, private_cache):
    part = mapped(path)
    mixture = mix_transition_datasets([part, part])
    assert not mixture.in_memory
    assert torch.equal(mixture.obs, torch.cat([part.obs, part.obs]))
    assert len(list((private_cache / "packed").iterdir())) == 2


def read_only(monkeypatch):
    """As a read-only mount answers; chmod would not stop root."""
    memmap, opened = np.memmap, Path.open

    def refuse_writable(file, dtype, mode, **keys):
        if mode != "r":
            raise PermissionError(13, "Permission denied")
        return memmap(file, dtype, mode, **keys)

    def refuse_writing(path, mode="r", *args, **keys):
        if mode[0] != "r":
            raise OSError(30, "Read-only file system")
        return opened(path, mode, *args, **keys)

    def refuse(*_args, **_keys):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(np, "memmap", refuse_writable)
    monkeypatch.setattr(Path, "open", refuse_writing)
    monkeypatch.setattr(Path, "unlink", refuse)


def test_a_cache_on_a_read_only_mount_is_used_without_a_word(path, monkeypatch):
    before = mapped(path)
    read_only(monkeypatch)
    data = mapped(path)
    assert data.sha256 == before.sha256
    assert data.episode_lengths.tolist() == before.episode_lengths.tolist()
    batch = data.with_reward_transform(scale=2).sample(8, generator=torch.Generator())
    assert batch.obs.shape == (8, 3)


def test_a_cache_that_cannot_be_written_names_the_variable(path, monkeypatch):
    read_only(monkeypatch)
    with pytest.raises(OutputError, match=r"cannot write .*Read-only.*Set RL_TRAINING_CACHE"):
        mapped(path)


def test_a_mixture_that_cannot_be_written_names_the_variable(path, monkeypatch):
    part = mapped(path)

    def refuse(*_args, **_keys):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    with pytest.raises(OutputError, match=r"Read-only.*Set RL_TRAINING_CACHE"):
        mix_transition_datasets([part, part])


def test_a_source_that_fails_while_it_is_read_is_not_blamed_on_the_cache(path, monkeypatch):
    def fail(*_args):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(NpzSource, "read", fail)
    with pytest.raises(OSError, match="Input/output error") as caught:
        mapped(path)
    assert not isinstance(caught.value, OutputError)


def test_waiting_for_another_process_that_packs_is_said(path, monkeypatch, caplog):
    fcntl = pytest.importorskip("fcntl")
    monkeypatch.setattr(cache, "NOTE_SECONDS", 0.01)
    locked = cache.cache_dir() / "locks" / f"{path.stem}.lock"
    locked.parent.mkdir(parents=True, exist_ok=True)
    with locked.open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        threading.Timer(0.1, fcntl.flock, (other, fcntl.LOCK_UN)).start()
        with (
            caplog.at_level(logging.INFO, "rl_training"),
            cache._building(path.with_suffix(".bin")),
        ):
            pass
    assert f"another process that packs this dataset (it locks {locked})" in caplog.text
