import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from rl_training.config import DatasetError
from rl_training.data.builtin import library as builtin
from rl_training.data.builtin import scripted_policies
from rl_training.data.builtin.library import BUILTIN, cache_path
from rl_training.data.checks.dataset_checks import check_dataset, is_wrong
from rl_training.data.dataset_loaders import load_transition_dataset
from rl_training.envs import infer_env_spaces

MIXED, EXPERT = "pendulum/mixed-v0", "pendulum/expert-v0"
CART_POLE, MOUNTAIN_CAR = "cartpole/mixed-v0", "mountaincar/mixed-v0"


def load_builtin(dataset_id):
    return load_transition_dataset("builtin", dataset_id=dataset_id)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RL_TRAINING_CACHE", str(tmp_path))
    return tmp_path


@pytest.fixture
def counted_builds(monkeypatch):
    """A small dataset in the registry, and how often it was built."""
    builds = []

    def build():
        builds.append(1)
        return scripted_policies.pendulum(2, [(0.5, 0.1)], seed=1)

    monkeypatch.setitem(BUILTIN, "small-v0", builtin.BuiltinDataset("", "Pendulum-v1", build))
    return builds


# --- what the datasets are ---


@pytest.mark.parametrize(
    ("dataset_id", "size", "low", "high"),
    [(MIXED, 40_000, -700, -500), (EXPERT, 20_000, -175, -145)],
)
def test_builtin_dataset_has_its_size_and_quality(cache, dataset_id, size, low, high):
    dataset = load_builtin(dataset_id)
    assert len(dataset) == size
    assert low < dataset.episode_returns.mean() < high
    assert set(dataset.episode_lengths) == {200}


def test_pendulum_data_is_in_torque_and_only_truncates(cache):
    dataset = load_builtin(MIXED)
    assert 1.9 < float(dataset.actions.abs().max()) <= 2.0
    assert not dataset.terminations.any()
    assert int(dataset.truncations.sum()) == 200


@pytest.mark.parametrize(
    ("dataset_id", "sizes", "low", "high", "limit"),
    [
        (CART_POLE, (20_000, 30_000), 100, 250, 500),
        (MOUNTAIN_CAR, (35_000, 50_000), 0, 40, 999),
    ],
)
def test_mixed_data_holds_whole_episodes_of_both_ends(cache, dataset_id, sizes, low, high, limit):
    dataset = load_builtin(dataset_id)
    lengths, ends = dataset.episode_lengths, dataset.episode_starts + dataset.episode_lengths - 1
    terminal = dataset.terminations.numpy()[ends] > 0
    assert sizes[0] < len(dataset) < sizes[1]
    assert low < dataset.episode_returns.mean() < high
    assert 5 <= terminal.sum() <= len(lengths) - 5
    assert set(lengths[~terminal]) == {limit}
    assert lengths[terminal].max() <= limit
    assert int(dataset.terminations.sum() + dataset.truncations.sum()) == len(lengths)


def test_cart_pole_terminates_by_failure_only(cache):
    dataset = load_builtin(CART_POLE)
    final = dataset.next_obs[dataset.terminations > 0].abs()
    assert dataset.discrete
    assert sorted(set(dataset.actions.tolist())) == [0, 1]
    assert bool(((final[:, 0] > 2.4) | (final[:, 2] > 0.2094)).all())


def test_mountain_car_terminates_at_the_goal_only(cache):
    dataset = load_builtin(MOUNTAIN_CAR)
    terminal = dataset.terminations > 0
    assert float(dataset.next_obs[terminal, 0].min()) >= 0.45
    assert float(dataset.rewards[terminal].min()) > 99
    assert float(dataset.rewards[~terminal].max()) <= 0
    # a share of failures, and of episodes near the best that such forces allow
    assert (dataset.episode_returns < 0).mean() > 0.3
    assert (dataset.episode_returns > 90).mean() > 0.1


def test_mixed_data_spans_poor_and_good_episodes(cache):
    returns = load_builtin(MIXED).episode_returns
    assert np.quantile(returns, 0.1) < -900
    assert np.quantile(returns, 0.9) > -250


def test_builtin_data_carries_next_actions_but_not_across_episodes(cache):
    dataset = load_builtin(EXPERT)
    np.testing.assert_array_equal(dataset.next_actions[:199], dataset.actions[1:200])
    assert int((dataset.next_action_valid == 0).sum()) == 100


@pytest.mark.parametrize("dataset_id", [MIXED, EXPERT])
def test_builtin_data_is_clean(cache, dataset_id):
    assert check_dataset(load_builtin(dataset_id), action_low=-2.0, action_high=2.0) == []


@pytest.mark.parametrize("dataset_id", [CART_POLE, MOUNTAIN_CAR])
def test_builtin_data_needs_no_change_for_its_environment(cache, dataset_id):
    spec = infer_env_spaces(BUILTIN[dataset_id].env_id)
    assert not is_wrong(check_dataset(load_builtin(dataset_id), spec=spec))


def test_unknown_id_gets_a_suggestion():
    with pytest.raises(DatasetError, match=f"no builtin dataset .*; did you mean '{MIXED}'"):
        load_builtin("pendulum/mixd-v0")
    with pytest.raises(DatasetError, match=f"known: {MIXED}, {EXPERT}"):
        load_builtin("xyz")


# --- how they are kept ---


@pytest.mark.parametrize("dataset_id", [EXPERT, CART_POLE, MOUNTAIN_CAR])
def test_two_builds_are_equal_to_the_byte(tmp_path, monkeypatch, dataset_id):
    contents = []
    for name in ("first", "second"):
        monkeypatch.setenv("RL_TRAINING_CACHE", str(tmp_path / name))
        load_builtin(dataset_id)
        contents.append(cache_path(dataset_id).read_bytes())
    assert contents[0] == contents[1]


def test_second_load_reads_the_cache(cache, counted_builds):
    first, second = load_builtin("small-v0"), load_builtin("small-v0")
    assert len(counted_builds) == 1
    assert first.sha256 == second.sha256
    assert sorted(path.name for path in (cache / "builtin").iterdir()) == [
        "small-v0.json",
        "small-v0.npz",
    ]


def _flip_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[1000] ^= 1
    path.write_bytes(bytes(content))


@pytest.mark.parametrize(
    "damage",
    [
        _flip_a_byte,
        lambda path: path.write_bytes(b""),
        lambda path: path.with_suffix(".json").write_text("{not json"),
        lambda path: path.with_suffix(".json").write_text("[]"),
        lambda path: path.with_suffix(".json").write_bytes(b"\xff\xfe"),
    ],
    ids=["flipped-byte", "emptied", "sidecar-not-json", "sidecar-list", "sidecar-binary"],
)
def test_damaged_cache_is_built_again_with_a_warning(cache, counted_builds, damage):
    before = load_builtin("small-v0")
    damage(cache_path("small-v0"))
    with pytest.warns(UserWarning, match="damaged and is built again"):
        after = load_builtin("small-v0")
    assert after.sha256 == before.sha256
    load_builtin("small-v0")
    assert len(counted_builds) == 2


def test_missing_sidecar_means_not_built_yet(cache, counted_builds, recwarn):
    load_builtin("small-v0")
    cache_path("small-v0").with_suffix(".json").unlink()
    load_builtin("small-v0")
    assert len(counted_builds) == 2
    assert not recwarn.list


def test_builders_at_the_same_time_do_not_disturb_each_other(cache, counted_builds, recwarn):
    with ThreadPoolExecutor(4) as pool:
        loaded = list(pool.map(load_builtin, ["small-v0"] * 8))
    assert len({dataset.sha256 for dataset in loaded}) == 1
    assert len(list((cache / "builtin").iterdir())) == 2
    assert not recwarn.list


def test_unwritable_cache_still_gives_the_data(tmp_path, monkeypatch, counted_builds):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RL_TRAINING_CACHE", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match="kept in memory only.*Set RL_TRAINING_CACHE"):
        assert len(load_builtin("small-v0")) == 400


def test_failed_write_leaves_no_part_file(cache, counted_builds, monkeypatch):
    def fail(*_args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.warns(UserWarning, match="No space left on device"):
        load_builtin("small-v0")
    assert list((cache / "builtin").iterdir()) == []


def test_cache_defaults_to_the_home_directory(monkeypatch, tmp_path):
    monkeypatch.delenv("RL_TRAINING_CACHE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_path(MIXED) == tmp_path / ".cache/rl_training/builtin/pendulum-mixed-v0.npz"


def test_sidecar_names_the_dataset_and_its_versions(cache, counted_builds):
    load_builtin("small-v0")
    facts = json.loads(cache_path("small-v0").with_suffix(".json").read_text())
    assert set(facts) == {"dataset_id", "sha256", "gymnasium", "numpy"}
