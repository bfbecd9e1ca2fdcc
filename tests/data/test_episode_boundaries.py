"""Episode ends that the fields do not state: derived from breaks, or from sequences of rows."""

import numpy as np
import pytest
import torch

from rl_training.config import DatasetError
from rl_training.data import TransitionDataset


def test_truncations_are_derived_where_rows_do_not_follow_on(episodes):
    fields = episodes([4, 3, 2], terminal=[True, False, False])
    del fields["truncations"]
    dataset = TransitionDataset(**fields)
    assert dataset.boundaries == "derived"
    assert dataset.truncations.nonzero().flatten().tolist() == [6]
    assert dataset.episode_lengths.tolist() == [4, 3, 2]
    assert any("derived 1 truncation" in note for note in dataset.notes)


def test_rounding_between_rows_is_not_a_boundary(episodes):
    fields = episodes([6])
    del fields["truncations"]
    fields["next_obs"] = fields["next_obs"] * np.float32(1 + 2e-7)
    assert TransitionDataset(**fields).episode_lengths.tolist() == [6]


def test_shuffled_rows_have_unknown_boundaries(episodes):
    fields = episodes([50, 50])
    del fields["truncations"]
    order = np.random.default_rng(0).permutation(100)
    dataset = TransitionDataset(**{key: value[order] for key, value in fields.items()})
    assert dataset.boundaries == "unknown"
    assert dataset.truncations.sum() == 0
    with pytest.raises(DatasetError, match="episode boundaries are unknown"):
        dataset.episode_returns  # noqa: B018


def test_sequences_take_the_next_row_and_drop_rows_without_one(episodes):
    fields = episodes([4, 3, 2], terminal=[True, False, False])
    actions = fields["actions"]
    del fields["next_obs"]
    dataset = TransitionDataset.from_dict(fields)
    kept = [0, 1, 2, 3, 4, 5, 7]  # 6 and 8 were cut off and nothing follows them
    assert dataset.obs.numpy().tolist() == fields["obs"][kept].tolist()
    assert torch.equal(dataset.next_obs[[0, 1, 2, 4, 5, 6]],
                       torch.from_numpy(fields["obs"][[1, 2, 3, 5, 6, 8]]))  # fmt: skip
    assert dataset.next_obs.isfinite().all()
    assert dataset.terminations.nonzero().flatten().tolist() == [3]
    assert dataset.episode_lengths.tolist() == [4, 2, 1]
    assert any("dropped 2 rows" in note for note in dataset.notes)
    # The dropped row still gave its action to the row before it.
    assert dataset.next_action_valid.tolist() == [1, 1, 1, 0, 1, 1, 1]
    assert dataset.next_actions[5].tolist() == actions[6].tolist()


def test_a_sequence_that_just_stops_loses_only_its_last_row(episodes):
    fields = episodes([5])
    fields["truncations"][:] = False
    del fields["next_obs"]
    dataset = TransitionDataset.from_dict(fields)
    assert len(dataset) == 4
    assert dataset.truncations.sum() == 0
    assert dataset.describe()["open_episode"]


def test_sequences_of_single_rows_have_nothing_to_learn_from(episodes):
    fields = episodes([1, 1, 1])
    with pytest.raises(DatasetError, match="data has no row with a next observation"):
        TransitionDataset.from_dict({**fields, "next_obs": None})


def test_one_more_observation_than_actions_is_one_episode(episodes):
    fields = episodes([5])
    path = np.concatenate([fields["obs"], fields["next_obs"][-1:]])
    dataset = TransitionDataset.from_dict({**fields, "obs": path, "next_obs": None})
    assert torch.equal(dataset.next_obs, torch.from_numpy(fields["next_obs"]))
    assert len(dataset) == 5


@pytest.mark.parametrize("terminal", [True, False])
def test_one_more_observation_than_actions_cannot_be_several_episodes(episodes, terminal):
    fields = episodes([3, 2], terminal=[terminal, False])
    path = np.concatenate([fields["obs"], fields["next_obs"][-1:]])
    with pytest.raises(DatasetError) as caught:
        TransitionDataset.from_dict({**fields, "obs": path, "next_obs": None}, "a.npz")
    assert str(caught.value) == (
        "a.npz: 'obs' is one longer than the other fields, which means one episode and its final "
        "observation, but row 2 ends an episode before that. Add 'next_obs', or leave out the last "
        "observation: 'truncations' then say which rows have none."
    )


def test_a_change_of_episode_id_is_an_end_of_one_more_observation_too(episodes):
    fields = episodes([5])
    path = np.concatenate([fields["obs"], fields["next_obs"][-1:]])
    more = {"obs": path, "next_obs": None, "truncations": None, "episode_ids": [0, 0, 1, 1, 1]}
    with pytest.raises(DatasetError, match="row 1 ends an episode"):
        TransitionDataset.from_dict({**fields, **more})


def test_sequences_that_lose_no_row_do_not_say_so(episodes):
    fields = episodes([4, 3], terminal=[True, True])
    dataset = TransitionDataset.from_dict({**fields, "next_obs": None})
    assert dataset.notes == ("next_obs is the next row's obs",)
    shorter = TransitionDataset.from_dict({**episodes([4]), "next_obs": None})
    assert shorter.notes == ("next_obs is the next row's obs; dropped 1 row that has none",)
