"""Datasets as a command line names them: checked and read for prediction as training reads them."""

import h5py
import numpy as np
import pytest
import torch

from rl_training.config import DatasetError
from rl_training.data import TransitionDataset, load_transition_dataset
from rl_training.data.locations import check_location, read_observations


def names(findings):
    return [finding.name for finding in findings]


def save(path, fields):
    if path.suffix == ".npz":
        np.savez(path, **fields)
    elif path.suffix == ".pt":
        torch.save(
            {k: torch.from_numpy(v) if isinstance(v, np.ndarray) else v for k, v in fields.items()},
            path,
        )
    else:
        with h5py.File(path, "w") as file:
            for key, value in fields.items():
                file[key] = value
    return path


@pytest.mark.parametrize(
    ("name", "extra"),
    [
        ("a.npz", {"gamma": 0.99, "infos": np.array([{"a": 1}] * 50), "env": "Walker"}),
        ("a.hdf5", {"gamma": 0.99, "env": "Walker", "nothing": h5py.Empty("f4")}),
        ("a.pt", {"gamma": 0.99, "env": "Walker", "meta": {"a": 1}, "ragged": [[1], [1, 2]]}),
    ],
)
def test_check_ignores_the_fields_that_training_ignores(tmp_path, episodes, name, extra):
    path = save(tmp_path / name, {**episodes([30, 20]), **extra})
    (finding,) = check_location(str(path))
    assert (finding.level, finding.name) == ("info", "note")
    assert finding.message == "ignored fields: " + ", ".join(sorted(extra))
    kind = path.suffix[1:]
    assert load_transition_dataset(kind, dataset_path=path).notes == (finding.message,)


@pytest.mark.parametrize("name", ["a.npz", "a.hdf5", "a.pt"])
def test_a_single_value_for_a_known_field_is_a_finding(tmp_path, episodes, name):
    path = save(tmp_path / name, {**episodes([30]), "rewards": 1.0})
    (finding,) = check_location(str(path))
    assert finding.name == "unreadable"
    assert "'rewards' is a single value" in finding.message


def test_an_empty_hdf5_field_has_no_rows(tmp_path, episodes):
    path = save(tmp_path / "a.hdf5", {**episodes([30]), "rewards": h5py.Empty("f4")})
    (finding,) = check_location(str(path))
    assert (finding.name, "rewards 0" in finding.message) == ("unequal-lengths", True)
    with pytest.raises(DatasetError, match=r"different lengths.*rewards 0"):
        load_transition_dataset("hdf5", dataset_path=path)


def test_a_known_field_of_python_objects_is_a_finding(tmp_path, episodes):
    path = save(tmp_path / "a.npz", {**episodes([30]), "rewards": np.array([None] * 30)})
    (finding,) = check_location(str(path))
    assert finding.name == "unreadable"
    assert "'rewards' holds Python objects" in finding.message


def test_check_knows_what_our_own_files_say_beside_their_arrays(tmp_path, episodes):
    fields = {key: value[::-1] for key, value in episodes([50, 50]).items()}
    del fields["truncations"]
    TransitionDataset(**fields).save(tmp_path / "a.npz")
    assert "no-episode-ends" in names(check_location(str(tmp_path / "a.npz")))


def test_one_episode_with_its_final_observation_is_fine(tmp_path, episodes):
    fields = episodes([30])
    path = np.concatenate([fields["obs"], fields.pop("next_obs")[-1:]])
    save(tmp_path / "a.npz", {**fields, "obs": path})
    assert check_location(str(tmp_path / "a.npz")) == []


# --- observations for prediction ---


@pytest.mark.parametrize("name", ["a.npz", "a.hdf5", "a.pt"])
@pytest.mark.parametrize(
    ("shape", "expected"), [((6,), (6, 1)), ((6, 2), (6, 2)), ((6, 1, 2), (6, 2))]
)
def test_observations_take_the_shapes_that_training_takes(tmp_path, name, shape, expected):
    values = np.arange(np.prod(shape), dtype=np.float64).reshape(shape)
    path = save(tmp_path / name, {"observations": values, "gamma": 0.9})
    found = read_observations(str(path))
    assert (found.shape, found.dtype) == (expected, np.float32)
    assert found.ravel().tolist() == values.ravel().tolist()


def test_observations_of_named_datasets_are_read():
    assert read_observations("builtin:pendulum/expert-v0").shape == (20_000, 3)


def nan_at(row):
    values = np.zeros((6, 2))
    values[row, 1] = np.nan
    return values


@pytest.mark.parametrize(
    ("obs", "message"),
    [
        (0.5, "'obs' is a single value"),
        (np.array({"position": [1.0]}), "'obs' holds Python objects"),
        (np.array(["a", "b"]), "'obs' holds type <U1; only numbers can be read"),
        (np.ones((2, 2), complex), "'obs' holds type complex128; only numbers can be read"),
        (np.zeros((2, 8, 8, 3), np.uint8), "image observations are not supported"),
        (np.zeros((0, 3)), "'obs' has no rows"),
        (nan_at(4), r"a\.npz: 'obs' has nan at row 4"),
        (np.full((2, 2), 1e39), "'obs' has inf at row 0"),
    ],
)
def test_observations_that_cannot_be_used_are_named(tmp_path, obs, message):
    np.savez(tmp_path / "a.npz", obs=obs)
    with pytest.raises(DatasetError, match=message):
        read_observations(str(tmp_path / "a.npz"))


def test_observations_in_a_dict_are_refused_by_name(tmp_path):
    torch.save({"obs": {"position": torch.ones(3)}}, tmp_path / "a.pt")
    with pytest.raises(DatasetError, match="'obs' holds Python objects"):
        read_observations(str(tmp_path / "a.pt"))
