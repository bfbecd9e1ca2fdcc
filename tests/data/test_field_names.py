"""What the fields of other libraries are read as, and what is refused."""

import numpy as np
import pytest
import torch

from rl_training.config import DatasetError
from rl_training.data import TransitionDataset


def rename(fields, **names):
    return {names.get(key, key): value for key, value in fields.items()}


@pytest.mark.parametrize(
    "names",
    [
        {"obs": "observations", "next_obs": "next_observations", "terminations": "terminals",
         "truncations": "timeouts"},
        {"obs": "Observation", "actions": "ACTION", "rewards": "reward", "next_obs": "next_state",
         "terminations": "terminated", "truncations": "truncated"},
        {"obs": "states", "next_obs": "next_states", "truncations": "timeout"},
    ],
)  # fmt: skip
def test_spellings_of_other_libraries_mean_the_same(episodes, names):
    fields = episodes([4, 3], terminal=[True, False])
    ours = TransitionDataset(**fields)
    theirs = TransitionDataset.from_dict(rename(fields, **names))
    assert theirs.sha256 == ours.sha256
    assert theirs.boundaries == "given"


def test_masks_say_what_terminates_and_terminals_where_a_trajectory_ends(episodes):
    fields = episodes([4, 3], terminal=[True, False])
    masks = 1.0 - fields["terminations"]
    ends = fields["terminations"] | fields["truncations"]
    del fields["truncations"]
    dataset = TransitionDataset.from_dict({**fields, "masks": masks, "terminations": ends})
    assert dataset.terminations.nonzero().flatten().tolist() == [3]
    assert dataset.truncations.nonzero().flatten().tolist() == [6]


def test_a_done_that_the_time_limit_caused_is_no_termination(episodes):
    fields = episodes([4, 3], terminal=[True, False])
    dones = fields.pop("terminations") | fields["truncations"]
    dataset = TransitionDataset.from_dict(
        {**rename(fields, truncations="timeouts"), "dones": dones}
    )
    assert dataset.terminations.nonzero().flatten().tolist() == [3]
    assert dataset.truncations.nonzero().flatten().tolist() == [6]


def test_dones_alone_are_terminations_and_a_warning_says_so(episodes):
    fields = episodes([4, 3])
    fields["dones"] = fields.pop("truncations")
    del fields["terminations"]
    with pytest.warns(UserWarning, match="'dones' is read as terminations"):
        dataset = TransitionDataset.from_dict(fields)
    assert dataset.terminations.sum() == 2
    assert any("dones" in note for note in dataset.notes)


def test_dones_alone_do_not_claim_to_mark_every_end(episodes):
    fields = episodes([4, 3, 2], terminal=[True, False, True])
    del fields["truncations"]
    fields["dones"] = fields.pop("terminations")
    with pytest.warns(UserWarning, match="'dones'"):
        dataset = TransitionDataset.from_dict(fields)
    assert dataset.boundaries == "derived"
    assert dataset.episode_lengths.tolist() == [4, 3, 2]
    del fields["next_obs"]
    with (
        pytest.warns(UserWarning, match="'dones'"),
        pytest.raises(DatasetError, match="has no 'next_obs'"),
    ):
        TransitionDataset.from_dict(fields)


def test_dones_beside_terminations_give_the_truncations(episodes):
    fields = episodes([4, 3], terminal=[True, False])
    fields["dones"] = fields.pop("truncations") | fields["terminations"]
    dataset = TransitionDataset.from_dict(fields)
    assert dataset.truncations.nonzero().flatten().tolist() == [6]
    assert dataset.boundaries == "given"


@pytest.mark.parametrize("ids", [[0, 0, 0, 0, 7, 7, 7], ["a"] * 4 + ["b"] * 3])
def test_a_change_of_episode_id_without_termination_is_a_truncation(episodes, ids):
    fields = episodes([4, 3])
    del fields["truncations"]
    dataset = TransitionDataset.from_dict({**fields, "episode": ids})
    assert dataset.truncations.nonzero().flatten().tolist() == [3]
    assert dataset.boundaries == "given"


def test_without_next_observations_and_boundaries_the_error_says_what_to_add(episodes):
    fields = episodes([5])
    with pytest.raises(DatasetError, match=r"has no 'next_obs'.*'truncations' or 'episode_ids'"):
        TransitionDataset.from_dict({**fields, "next_obs": None, "truncations": None})


def test_a_missing_field_is_named_with_what_was_found(episodes):
    fields = episodes([5])
    del fields["terminations"]
    with pytest.raises(DatasetError) as caught:
        TransitionDataset.from_dict(fields, "logs.npz")
    assert str(caught.value) == (
        "logs.npz has no 'terminations' (found: actions, next_obs, obs, rewards, truncations). "
        "Add it (all zeros if episodes never terminate)."
    )


def test_a_misspelled_field_is_suggested(episodes):
    fields = rename(episodes([5]), rewards="rewrds")
    with pytest.raises(DatasetError, match="Rename 'rewrds' to 'rewards'"):
        TransitionDataset.from_dict(fields)


def test_one_field_under_two_spellings_is_an_error_that_names_both(episodes):
    fields = episodes([5])
    with pytest.raises(DatasetError, match="twice, as 'terminations' and 'terminals'"):
        TransitionDataset.from_dict({**fields, "terminals": fields["terminations"]})


def test_unknown_fields_are_ignored_and_listed(episodes):
    dataset = TransitionDataset.from_dict({**episodes([5]), "qpos": np.zeros((9, 2))})
    assert "ignored fields: qpos" in dataset.notes


def test_columns_are_squeezed_and_flat_fields_get_one(episodes):
    fields = episodes([5], obs_dim=1, act_dim=1)
    wide = TransitionDataset(**fields)
    flat = TransitionDataset.from_dict(
        {
            "obs": fields["obs"][:, 0],
            "actions": fields["actions"][:, 0],
            "rewards": fields["rewards"][:, None],
            "next_obs": fields["next_obs"][:, None],  # (N, 1, d): one SB3 environment
            "terminations": fields["terminations"][:, None].astype(float),
            "truncations": fields["truncations"].astype(int).tolist(),
        }
    )
    assert flat.sha256 == wide.sha256
    assert flat.actions.shape == (5, 1)


@pytest.mark.parametrize("shape", [(5,), (5, 1)])
def test_whole_number_actions_of_one_column_are_discrete(episodes, shape):
    fields = episodes([5])
    fields["actions"] = np.array([0, 3, 1, 0, 2]).reshape(shape)
    dataset = TransitionDataset(**fields)
    assert dataset.discrete
    assert dataset.num_actions == 4
    assert dataset.actions.tolist() == [0, 3, 1, 0, 2]


def test_lists_and_tensors_are_fine(episodes):
    fields = episodes([5])
    for convert in (torch.from_numpy, np.ndarray.tolist):
        dataset = TransitionDataset(**{key: convert(value) for key, value in fields.items()})
        assert torch.equal(dataset.obs, torch.from_numpy(fields["obs"]))


def edited(fields, key, row, value):
    changed = fields[key].astype(float) if fields[key].dtype == bool else fields[key].copy()
    changed[row] = value
    return {**fields, key: changed}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: edited(f, "rewards", 17, np.nan), "'rewards' has nan at row 17"),
        (lambda f: edited(f, "obs", (18, 1), np.inf), "'obs' has inf at row 18"),
        (lambda f: {**f, "rewards": np.full(20, 1e300)}, "'rewards' has inf at row 0"),
        (lambda f: edited(f, "terminations", 3, 2), "'terminations' must be 0 or 1, got 2.0 at row 3"),
        (lambda f: edited(f, "truncations", 4, np.nan), "'truncations' must be 0 or 1, got nan at row 4"),
        (lambda f: {**f, "rewards": f["rewards"][:-1]}, "different lengths: obs 20, actions 20, rewards 19"),
        (lambda f: {**f, "obs": np.zeros((20, 8, 8, 3), np.uint8)},
         r"'obs' has shape \(20, 8, 8, 3\), expected .rows, width.: image observations"),
        (lambda f: {**f, "obs": np.zeros((4, 5, 3))}, "put the rows of all episodes one below the other"),
        (lambda f: {**f, "next_obs": f["next_obs"][:, :2]}, "'next_obs' has width 2, but 'obs' has 3"),
        (lambda f: {**f, "rewards": np.array([None] * 20)}, "'rewards' holds Python objects"),
        (lambda f: {**f, "rewards": ["1"] * 20}, "'rewards' holds type <U1"),
        (lambda f: {**f, "obs": [[1], [1, 2]] * 10}, "'obs' holds Python objects"),
        (lambda f: {**f, "rewards": np.zeros((20, 2))}, "'rewards' must be one number per row"),
        (lambda f: {**f, "rewards": 1}, "'rewards' is a single value"),
        (lambda f: {**f, "actions": np.full(20, -1)}, "'actions' has -1 at row 0: "
         r"whole numbers are discrete actions and count from 0\. Subtract the smallest from all of them"),
        (lambda f: {**f, "actions": np.full(20, 1 << 40)}, "too many choices"),
        (lambda f: {**f, "actions": np.zeros((20, 3), int)}, "multi-discrete actions are not supported"),
        (lambda f: {key: value[:0] for key, value in f.items()}, "data has no transitions"),
        (lambda f: {**f, "obs": np.zeros((20, 0))}, "need at least one column|width"),
    ],
)  # fmt: skip
def test_bad_values_are_named(episodes, change, message):
    with pytest.raises(DatasetError, match=message):
        TransitionDataset.from_dict(change(episodes([20])))


def test_the_validity_of_next_actions_must_be_a_flag(episodes):
    fields = episodes([20])
    valid = np.ones(20)
    valid[6] = 0.5
    more = {"next_actions": fields["actions"], "next_action_valid": valid}
    with pytest.raises(
        DatasetError, match=r"data: 'next_action_valid' must be 0 or 1, got 0\.5 at row 6"
    ):
        TransitionDataset.from_dict({**fields, **more})


def test_large_finite_values_are_not_mistaken_for_infinite_ones(episodes):
    fields = episodes([20])
    fields["rewards"][:] = 3e38
    assert TransitionDataset(**fields).rewards[0] == np.float32(3e38)


def test_given_next_actions_are_carried_and_not_valid_where_an_episode_ends(episodes):
    fields = episodes([3, 3], terminal=[True, False])
    dataset = TransitionDataset(**fields, next_actions=fields["actions"] + 1)
    assert torch.equal(dataset.next_actions, torch.from_numpy(fields["actions"] + 1))
    assert dataset.next_action_valid.tolist() == [1, 1, 0, 1, 1, 0]
    assert dataset.with_next_actions() is dataset


def test_given_next_actions_are_not_valid_where_a_cut_was_derived(episodes):
    fields = episodes([3, 4, 2], terminal=[True, False, False])
    del fields["truncations"]
    dataset = TransitionDataset(**fields, next_actions=fields["actions"] + 1)
    assert dataset.boundaries == "derived"
    assert dataset.next_action_valid.tolist() == [1, 1, 0, 1, 1, 1, 0, 1, 1]


def test_given_next_actions_of_sequences_stay_valid_before_a_dropped_row(episodes):
    fields = episodes([3, 4], terminal=[True, False])
    more = {"next_obs": None, "next_actions": fields["actions"] + 1}
    dataset = TransitionDataset.from_dict({**fields, **more})
    assert dataset.next_action_valid.tolist() == [1, 1, 0, 1, 1, 1]


def test_a_file_may_say_that_a_next_action_is_valid_after_a_cut(episodes):
    fields = episodes([3, 3], terminal=[True, False])
    more = {"next_actions": fields["actions"] + 1, "next_action_valid": [1, 1, 0, 1, 1, 1]}
    dataset = TransitionDataset.from_dict({**fields, **more})
    assert dataset.next_action_valid.tolist() == [1, 1, 0, 1, 1, 1]
