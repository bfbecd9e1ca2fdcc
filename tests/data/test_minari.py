"""Real Minari datasets, made here and read from Minari's own directory."""

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from gymnasium import spaces
from tests.support.minari_logs import GOALS, write_minari

from rl_training.config import DatasetError
from rl_training.data import TransitionDataset, load_transition_dataset
from rl_training.data.formats.minari import open_episodes
from rl_training.data.packing import source
from rl_training.data.packing.pack import pack

minari = pytest.importorskip("minari")

OBS = spaces.Box(-10, 10, (3,), np.float32)
ACT = spaces.Box(-1, 1, (2,), np.float32)


def write(dataset_id, lengths, *, obs_space=OBS, action_space=ACT, open_last=False):
    return write_minari(
        dataset_id, lengths, obs_space=obs_space, action_space=action_space, open_last=open_last
    )


@pytest.fixture(autouse=True)
def minari_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))


@pytest.fixture
def stored():
    return write("test/walk-v0", [5, 3, 7])


@pytest.mark.filterwarnings("ignore::UserWarning:minari")
@pytest.mark.parametrize("piece_bytes", [200, 1 << 20])
def test_episodes_load_with_true_final_observations(stored, monkeypatch, piece_bytes):
    monkeypatch.setattr(source, "PIECE_BYTES", piece_bytes)
    dataset = load_transition_dataset("minari", dataset_id="test/walk-v0")
    episodes = list(stored.iterate_episodes())
    for ours, theirs in (
        (dataset.obs, [e.observations[:-1] for e in episodes]),
        (dataset.next_obs, [e.observations[1:] for e in episodes]),
        (dataset.actions, [e.actions for e in episodes]),
        (dataset.rewards, [e.rewards for e in episodes]),
    ):
        assert torch.equal(ours, torch.from_numpy(np.concatenate(theirs)).float())
    assert dataset.truncations.nonzero().flatten().tolist() == [4, 14]
    assert dataset.terminations.nonzero().flatten().tolist() == [7]
    assert dataset.boundaries == "given"
    assert dataset.episode_lengths.tolist() == [5, 3, 7]


@pytest.mark.filterwarnings("ignore::UserWarning:minari")
def test_mapped_minari_data_equals_data_in_memory(stored):
    held = load_transition_dataset("minari", dataset_id="test/walk-v0")
    mapped = load_transition_dataset("minari", dataset_id="test/walk-v0", in_memory=False)
    assert mapped.sha256 == held.sha256
    assert not mapped.in_memory


@pytest.mark.filterwarnings("ignore::UserWarning:minari")
def test_discrete_actions_count_from_zero_and_know_all_choices():
    write("test/choice-v0", [4, 4], action_space=spaces.Discrete(9, start=3))
    dataset = load_transition_dataset("minari", dataset_id="test/choice-v0")
    assert dataset.discrete
    assert dataset.num_actions == 9
    first = next(minari.load_dataset("test/choice-v0").iterate_episodes())
    assert dataset.actions[:4].tolist() == (first.actions - 3).tolist()


class OtherStorage:
    """Minari's interface without the HDF5 file behind it, as its other formats are."""

    def __init__(self, dataset, data_path):
        self._dataset = dataset
        self.storage = self
        self.data_path = data_path

    def __getattr__(self, name):
        known = hasattr(self._dataset, name)
        return getattr(self._dataset if known else self._dataset.storage, name)


@pytest.mark.filterwarnings("ignore::UserWarning:minari")
def test_other_storage_formats_are_read_through_minari(tmp_path):
    stored = write("test/walk-v0", [5, 3, 7])
    with open_episodes(OtherStorage(stored, tmp_path)) as episodes:
        dataset = TransitionDataset.from_packed(pack(episodes))
    assert dataset.sha256 == load_transition_dataset("minari", dataset_id="test/walk-v0").sha256


@pytest.mark.filterwarnings("ignore::UserWarning:minari")
def test_an_episode_that_just_stops_still_ends_there():
    write("test/open-v0", [4], open_last=True)
    dataset = load_transition_dataset("minari", dataset_id="test/open-v0")
    assert dataset.truncations.sum() == 0
    assert dataset.episode_lengths.tolist() == [4]


@pytest.mark.filterwarnings("ignore::UserWarning:minari")
def test_a_badly_named_neighbour_does_not_stop_a_dataset_from_loading(tmp_path, stored):
    (tmp_path / "minari" / "my old stuff" / "data").mkdir(parents=True)
    dataset = load_transition_dataset("minari", dataset_id="test/walk-v0")
    assert dataset.episode_lengths.tolist() == [5, 3, 7]
    with pytest.raises(DatasetError, match=r"'test/run-v0' is not on this machine .*my old stuff"):
        load_transition_dataset("minari", dataset_id="test/run-v0")


@pytest.mark.filterwarnings("ignore::UserWarning:minari")
def test_a_dataset_without_its_files_is_damaged_and_not_missing(tmp_path, stored):
    for file in (tmp_path / "minari" / "test" / "walk-v0" / "data").iterdir():
        file.unlink()
    with pytest.raises(DatasetError, match="cannot open Minari dataset 'test/walk-v0'"):
        load_transition_dataset("minari", dataset_id="test/walk-v0")


@pytest.mark.filterwarnings("ignore::UserWarning:minari")
def test_a_missing_dataset_suggests_a_local_one():
    write("test/walk-v0", [3])
    with pytest.raises(
        DatasetError, match=r"'test/walks-v0' is not on this machine; did you mean 'test/walk-v0'"
    ):
        load_transition_dataset("minari", dataset_id="test/walks-v0")
    with pytest.raises(
        DatasetError, match=r"local datasets: test/walk-v0.*minari download completely/other-v0"
    ):
        load_transition_dataset("minari", dataset_id="completely/other-v0")


@pytest.mark.filterwarnings("ignore::UserWarning:minari")
@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.Dict({"a": OBS}), "observations are Dict.*only flat spaces are supported"),
        (spaces.Box(0, 255, (8, 8, 3), np.uint8), "image observations are not supported"),
    ],
)
def test_spaces_that_are_not_flat_are_named(space, message):
    write("test/odd-v0", [3], obs_space=space)
    with pytest.raises(DatasetError, match=message):
        load_transition_dataset("minari", dataset_id="test/odd-v0")


def goals_as_policies_see_them(stored):
    keys = ("observation", "desired_goal", "achieved_goal")
    episodes = [
        np.concatenate([episode.observations[key] for key in keys], 1)
        for episode in stored.iterate_episodes()
    ]
    obs, following = [e[:-1] for e in episodes], [e[1:] for e in episodes]
    return [torch.from_numpy(np.concatenate(part)).float() for part in (obs, following)]


@pytest.mark.filterwarnings("ignore::UserWarning:minari")
@pytest.mark.parametrize("piece_bytes", [500, 1 << 20])
@pytest.mark.parametrize("storage", ["hdf5", "other"])
def test_goal_observations_are_laid_out_as_policies_see_them(
    tmp_path, monkeypatch, storage, piece_bytes
):
    monkeypatch.setattr(source, "PIECE_BYTES", piece_bytes)
    stored = write("test/maze-v0", [5, 3, 7], obs_space=GOALS)
    opened = stored if storage == "hdf5" else OtherStorage(stored, tmp_path)
    with open_episodes(opened) as episodes:
        dataset = TransitionDataset.from_packed(pack(episodes))
    obs, next_obs = goals_as_policies_see_them(stored)
    assert torch.equal(dataset.obs, obs)
    assert torch.equal(dataset.next_obs, next_obs)
    assert dataset.episode_lengths.tolist() == [5, 3, 7]
    assert dataset.terminations.nonzero().flatten().tolist() == [7]


@pytest.mark.filterwarnings("ignore::UserWarning:minari")
@pytest.mark.parametrize("point", ["link", "length", "missing"])
def test_damaged_goal_observations_are_named(tmp_path, point):
    write("test/maze-v0", [5, 3], obs_space=GOALS)
    path = tmp_path / "minari" / "test" / "maze-v0" / "data" / "main_data.hdf5"
    with h5py.File(path, "a") as file:
        group = file["episode_1/observations"]
        if point == "length":
            group["achieved_goal"].resize((2, 2))
        else:
            del group["achieved_goal"]
        if point == "link":
            external_link(group, "achieved_goal")
    with pytest.raises(DatasetError, match="observations/achieved_goal"):
        load_transition_dataset("minari", dataset_id="test/maze-v0")


@pytest.mark.filterwarnings("ignore::UserWarning:minari")
def test_a_part_of_a_goal_observation_that_is_no_vector_is_named():
    images = spaces.Box(0, 255, (4, 4), np.uint8)
    write("test/maze-v0", [3], obs_space=spaces.Dict({**GOALS.spaces, "observation": images}))
    with pytest.raises(DatasetError, match=r"observation of the observations is Box.*not a vector"):
        load_transition_dataset("minari", dataset_id="test/maze-v0")


def test_a_download_is_asked_of_minari_and_its_failure_is_named(monkeypatch):
    asked = []

    def download(dataset_id):
        asked.append(dataset_id)
        raise ConnectionError("no network")

    monkeypatch.setattr(minari, "download_dataset", download)
    with pytest.raises(DatasetError, match="cannot download Minari dataset 'a/b-v0': no network"):
        load_transition_dataset("minari", dataset_id="a/b-v0", download=True)
    assert asked == ["a/b-v0"]


def metadata_of(tmp_path):
    return tmp_path / "minari" / "test" / "walk-v0" / "data" / "metadata.json"


@pytest.mark.filterwarnings("ignore::UserWarning:minari")
def test_no_environment_is_made_that_the_metadata_name(tmp_path, stored, monkeypatch):
    code = "import pathlib\npathlib.Path('ran').touch()\n"
    (tmp_path / "payload.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    spec = {"id": "Evil-v0", "entry_point": "payload:Env", "additional_wrappers": [], "kwargs": {}}
    metadata = json.loads(metadata_of(tmp_path).read_text())
    del metadata["observation_space"]
    metadata_of(tmp_path).write_text(json.dumps({**metadata, "env_spec": json.dumps(spec)}))
    with pytest.raises(DatasetError, match=r"observation_space .* is missing; .* would run code"):
        load_transition_dataset("minari", dataset_id="test/walk-v0")
    assert not Path("ran").exists()


class DamagedStorage(OtherStorage):
    def get_episode_metadata(self, numbers):
        return [{} for _ in numbers]


@pytest.mark.filterwarnings("ignore::UserWarning:minari")
def test_damage_in_other_storage_formats_is_named(tmp_path, stored):
    with (
        pytest.raises(DatasetError, match="'test/walk-v0' is damaged: KeyError"),
        open_episodes(DamagedStorage(stored, tmp_path)),
    ):
        pass


BOX = {"type": "Box", "dtype": "float32", "shape": [10**12], "low": 0, "high": 1}


@pytest.mark.filterwarnings("ignore::UserWarning:minari")
@pytest.mark.parametrize(
    "change",
    [
        {"observation_space": json.dumps(BOX)}, {"observation_space": "[" * 100_000},
        {"action_space": '{"type": "Nonsense"}'}, {"action_space": "{}"}, {"env_spec": "[]"},
        {"total_episodes": 10**12}, {"total_episodes": -1}, {"total_episodes": 4},
        {"total_steps": "many"}, {"data_format": "pickle"}, {"minari_version": None},
    ],
    ids=str,
)  # fmt: skip
def test_odd_metadata_are_named(tmp_path, stored, change):
    metadata = json.loads(metadata_of(tmp_path).read_text())
    metadata_of(tmp_path).write_text(json.dumps({**metadata, **change}))
    with pytest.raises(DatasetError, match=r"Minari dataset 'test/walk-v0'"):
        load_transition_dataset("minari", dataset_id="test/walk-v0")


def external_link(episode, name):
    episode[name] = h5py.ExternalLink("/tmp/other.hdf5", "/obs")


def external_storage(episode, name):
    episode.create_dataset(name, (3,), "f8", external=[("/etc/passwd", 0, 24)])


@pytest.mark.filterwarnings("ignore::UserWarning:minari")
@pytest.mark.parametrize("point", [external_link, external_storage])
def test_episodes_that_point_to_other_files_are_refused(tmp_path, stored, point):
    with h5py.File(metadata_of(tmp_path).with_name("main_data.hdf5"), "a") as file:
        del file["episode_1/rewards"]
        point(file["episode_1"], "rewards")
    with pytest.raises(DatasetError, match=r"'episode_1/rewards' is (a link|kept in other files)"):
        load_transition_dataset("minari", dataset_id="test/walk-v0")


@pytest.mark.filterwarnings("ignore::UserWarning:minari")
def test_episodes_with_fields_of_unequal_length_are_named(tmp_path, stored):
    with h5py.File(metadata_of(tmp_path).with_name("main_data.hdf5"), "a") as file:
        file["episode_1/actions"].resize((2, 2))
    with pytest.raises(DatasetError, match="'actions' of episode 1 does not fit"):
        load_transition_dataset("minari", dataset_id="test/walk-v0")


@pytest.mark.parametrize("dataset_id", ["../../etc", "/etc", "a\0b"])
def test_an_id_is_not_a_path(dataset_id):
    with pytest.raises(DatasetError, match="not a path"):
        load_transition_dataset("minari", dataset_id=dataset_id)
