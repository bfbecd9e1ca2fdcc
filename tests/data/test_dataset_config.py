import pytest
import torch

from rl_training.config import ConfigError
from rl_training.data import DatasetConfig, ObservationNormalizer
from rl_training.data.dataset_config import DatasetMixPart
from rl_training.data.formats import list_formats


def test_defaults_mean_no_dataset_and_no_change():
    config = DatasetConfig()
    assert config.dataset_kind is None
    assert (config.reward_scale, config.reward_shift) == (1, 0)
    assert config.normalize_observations is None


@pytest.mark.parametrize(
    "keys",
    [
        {"dataset_kind": "builtin", "dataset_id": "pendulum"},
        {"dataset_kind": "random", "dataset_size": 100, "dataset_seed": 0},
        {"dataset_kind": "random"},
        {"dataset_kind": "npz", "dataset_path": "a.npz", "dataset_in_memory": False},
        {"dataset_kind": "minari", "dataset_id": "a/b-v0", "dataset_download": True},
        {
            "dataset_mix": [{"kind": "npz", "path": "a.npz", "weight": 2}],
            "dataset_in_memory": False,
        },
        {"action_low": [-1, -2], "action_high": 3},
    ],
)
def test_valid_choices_are_accepted(keys):
    DatasetConfig(**keys)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"dataset_kind": "npz"}, "dataset_kind 'npz' needs dataset_path"),
        ({"dataset_kind": "minari"}, "dataset_kind 'minari' needs dataset_id"),
        ({"dataset_kind": "builtin", "dataset_id": "a", "dataset_path": "b"},
         "dataset_path is not used by dataset_kind 'builtin'"),
        ({"dataset_kind": "npz", "dataset_path": "b", "dataset_seed": 1},
         "dataset_seed is not used by dataset_kind 'npz'"),
        ({"dataset_kind": "random", "dataset_in_memory": False}, "dataset_in_memory is not used"),
        ({"dataset_path": "b"}, "dataset_path needs dataset_kind"),
        ({"dataset_kind": "npzz"},
         "dataset_kind: unknown dataset_kind 'npzz'; did you mean 'npz'\\? .*builtin, hdf5, minari"),
        ({"dataset_kind": 3}, "dataset_kind: expected text or null, got 3"),
        ({"dataset_kind": "builtin", "dataset_id": "a", "dataset_mix": [{"kind": "random"}]},
         "either dataset_mix or dataset_kind"),
        ({"dataset_mix": []}, "dataset_mix: needs at least one dataset"),
        ({"dataset_mix": [{"kind": "random"}], "dataset_path": "b"}, "belongs inside the parts"),
        ({"dataset_mix": [{"kind": "npz"}]}, "dataset_mix.0.dataset_path: dataset_kind 'npz' needs"),
        ({"dataset_mix": [{"weight": 2.0}]}, "dataset_mix.0.dataset_kind: is required"),
        ({"dataset_mix": [{"kind": "random", "weight": 0}]}, "must be > 0"),
        ({"dataset_mix": [{"kind": "random", "dataset_kind": "npz"}]}, "given twice, also as dataset_kind"),
        ({"top_fraction": 0}, "top_fraction: must be > 0"),
        ({"top_fraction": 1.5}, "top_fraction: must be <= 1"),
        ({"reward_scale": 0}, "reward_scale: must not be 0"),
        ({"reward_clip_min": 1, "reward_clip_max": 1}, "must be less than reward_clip_max"),
        ({"action_low": 0.0}, "action_low and action_high go together"),
        ({"action_low": [0, 2], "action_high": 1}, "must be less than action_high"),
        ({"dataset_size": "many"}, "expected a whole number"),
        ({"reward_scales": 2}, "unknown key; did you mean 'reward_scale'"),
    ],
)  # fmt: skip
def test_mistakes_are_named(keys, message):
    with pytest.raises(ConfigError, match=message):
        DatasetConfig(**keys)


def test_all_mistakes_are_reported_together():
    with pytest.raises(ConfigError) as caught:
        DatasetConfig(dataset_kind="npz", dataset_id="x", reward_scale=0)
    assert len(caught.value.problems) == 3


def test_parts_of_a_mixture_accept_short_and_long_names():
    short = DatasetMixPart(kind="npz", path="a.npz", weight=2)
    assert short == DatasetMixPart(dataset_kind="npz", dataset_path="a.npz", weight=2)


def test_every_key_of_a_format_is_a_documented_option():
    assert {key for entry in list_formats() for key in entry.keys} < set(DatasetConfig.model_fields)
    assert all(field.description for field in DatasetConfig.model_fields.values())


def test_an_observation_normalizer_round_trips_through_its_state():
    normalizer = ObservationNormalizer(torch.tensor([1.0, 2.0]), torch.tensor([2.0, 4.0]))
    again = ObservationNormalizer.from_state_dict(normalizer.state_dict())
    obs = torch.tensor([[3.0, 2.0]])
    assert normalizer(obs).tolist() == again(obs).tolist() == [[1.0, 0.0]]
    assert all(value.dtype == torch.float32 for value in again.state_dict().values())
