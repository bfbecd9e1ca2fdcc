"""Findings about actions and rewards."""

import numpy as np
import pytest
import torch
from tests.support.findings import check, clean, only, terminate

from rl_training.config import DatasetError
from rl_training.data.checks.dataset_checks import check_dataset
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.rewriting import read_choices, renumber_actions

# --- actions ---


def test_constant_action_column_is_named():
    fields = clean()
    fields["actions"][:, 1] = 0.25
    finding = only(check(fields))
    assert finding.name == "constant-action"
    assert finding.message == "action column 1 is always 0.25"


def test_choice_that_never_varies_is_a_constant_action():
    fields = clean()
    fields["actions"] = np.zeros(100, np.int64)
    assert only(check(fields)).name == "constant-action"


def test_action_that_the_bounds_fix_is_only_information():
    fields = clean()
    fields["actions"][:, 1] = 0.25
    dataset = TransitionDataset(**fields)
    findings = check_dataset(dataset, action_low=[-1.0, 0.25], action_high=[1.0, 0.25])
    assert only(findings).level == "info"


def test_action_outside_the_bounds_is_an_error_with_its_row():
    fields = clean()
    fields["actions"][[17, 30], 1] = 2.5
    finding = only(check(fields, action_low=-2.0, action_high=2.0))
    assert (finding.level, finding.name, finding.row) == ("error", "action-bounds", 17)
    assert finding.message == "action 2.5 in column 1 is outside [-2, 2] at rows 17, 30"


def test_rounding_at_the_bounds_is_forgiven():
    fields = clean()
    fields["actions"][3, 0] = 1.000001
    assert check(fields, action_low=-1.0, action_high=1.0) == []


def test_without_bounds_a_little_outside_the_unit_range_asks_for_clipping():
    fields = clean()
    fields["actions"][17, 0] = 1.1
    finding = only(check(fields))
    assert (finding.name, finding.row) == ("action-bounds", 17)
    assert "clip" in finding.fix


def test_without_bounds_the_last_digit_may_be_outside_the_unit_range():
    fields = clean()
    fields["actions"][5, 0] = np.float32(1.000001)
    assert check(fields) == []


def test_without_bounds_large_actions_are_other_units():
    fields = clean()
    fields["actions"] *= 40
    assert check(fields) == []


def test_saturated_actions_are_a_share_of_one_column():
    fields = clean()
    fields["actions"][:30, 1] = 1.0
    finding = only(check(fields, action_low=-1.0, action_high=1.0))
    assert (finding.level, finding.name, finding.row) == ("info", "saturated-actions", 0)
    assert finding.message.startswith("30% of the values of action column 1 lie exactly on a bound")
    assert only(check(fields)).name == "saturated-actions"


def test_a_few_actions_at_the_bounds_are_fine():
    fields = clean()
    fields["actions"][:4, 1] = 1.0
    assert check(fields, action_low=-1.0, action_high=1.0) == []


def test_normalised_actions_under_wide_bounds_suggest_scaling():
    finding = only(check(clean(), action_low=-2.0, action_high=2.0))
    assert finding.name == "normalised-actions"
    assert "data convert --scale-actions" in finding.fix


def test_small_actions_under_wide_bounds_are_no_sign_of_normalisation():
    fields = clean()
    fields["actions"] *= 0.3
    assert check(fields, action_low=-2.0, action_high=2.0) == []


def test_unit_actions_over_narrow_bounds_suggest_scaling():
    finding = only(check(clean(), action_low=-0.4, action_high=0.4))
    assert finding.level == "error"
    assert "data convert --scale-actions" in finding.fix


@pytest.mark.parametrize(
    "bounds", [{"action_low": -1.0}, {"action_low": [0.0], "action_high": 1.0}]
)
def test_incomplete_bounds_are_refused(bounds):
    with pytest.raises(DatasetError, match="action_"):
        check(clean(), **bounds)


# --- numbers of choices ---


def test_choices_numbered_from_one_are_a_warning_until_that_is_declared():
    fields = clean()
    fields["actions"] = np.arange(100) % 4 + 1
    finding = only(check(fields))
    assert (finding.level, finding.name) == ("warning", "action-numbering")
    assert "actions go from 1 to 4" in finding.message
    assert "--first-action 1`" in finding.fix
    dataset = TransitionDataset(**fields)
    for first, count in ((1, 4), (0, 5)):
        renumbered = renumber_actions(dataset, first)
        assert check_dataset(renumbered) == []
        assert renumbered.num_actions == count
        assert int(renumbered.actions.min()) == 1 - first


def test_choices_stored_as_floats_are_a_warning():
    fields = clean()
    fields["actions"] = (np.arange(100) % 3).astype(np.float32)
    finding = only(check(fields))
    assert (finding.level, finding.name) == ("warning", "whole-number-actions")
    assert "--discrete-actions`" in finding.fix
    discrete = TransitionDataset(**fields).with_discrete_actions()
    assert check_dataset(discrete) == []
    assert (discrete.num_actions, discrete.actions.dtype) == (3, torch.int64)


@pytest.mark.parametrize("values", [[0, 0.5, 1], [0, 100], [-1, 0, 1], [0, 300, 301]])
def test_other_floats_are_not_taken_for_choices(values):
    fields = clean()
    fields["actions"] = np.resize(np.array(values, np.float32), 100)
    assert not any(finding.name == "whole-number-actions" for finding in check(fields))


@pytest.mark.parametrize("value", [0.5, -1.0, 3e7])
def test_floats_that_are_no_choices_are_not_read_as_such(value):
    fields = clean()
    fields["actions"] = np.ones(100, np.float32)
    fields["actions"][7] = value
    with pytest.raises(DatasetError, match=r"at row 7 is not a whole number from 0"):
        TransitionDataset(**fields).with_discrete_actions()


@pytest.mark.parametrize(
    ("labels", "names"),
    [([0, 1, 2, 5], []), ([0, 3, 7], ["untaken-choices"]), ([0, 1_000_000], ["untaken-choices"])],
)
def test_numbers_of_which_few_are_taken_may_be_labels(labels, names):
    fields = clean()
    fields["actions"] = np.resize(labels, 100)
    found = check(fields)
    assert [finding.name for finding in found] == names
    if found:
        numbers = np.unique(fields["actions"], return_inverse=True)[1]
        assert check({**fields, "actions": numbers}) == []  # as the advice has it


def test_one_hot_choices_are_a_warning_and_can_be_read_as_choices():
    fields = clean()
    choices = np.arange(100) * 7 % 3
    fields["actions"] = np.eye(4, dtype=np.float32)[choices]
    finding = only(check(fields))
    assert (finding.level, finding.name) == ("warning", "one-hot-actions")
    assert "--discrete-actions`" in finding.fix
    for dataset in (TransitionDataset(**fields), TransitionDataset(**fields).with_next_actions()):
        discrete = read_choices(dataset)
        assert (discrete.num_actions, discrete.action_width) == (4, 1)
        batch = discrete.gather(range(100))
        np.testing.assert_array_equal(batch.actions.flatten(), choices)
        for name in ("obs", "next_obs", "rewards", "terminations", "truncations"):
            assert torch.equal(getattr(discrete, name), getattr(dataset, name))
        if batch.next_actions is not None:
            valid = batch.next_action_valid.flatten() > 0
            following = np.roll(choices, -1)[valid.numpy()]
            np.testing.assert_array_equal(batch.next_actions.flatten()[valid], following)


# --- rewards ---


@pytest.mark.parametrize(
    ("reward", "terminates", "level"),
    [
        (1.0, True, "info"),
        (-1.0, False, "warning"),
        (0.0, True, "warning"),
        (0.0, False, "warning"),
    ],
)
def test_constant_reward_is_a_warning_unless_ends_tell_episodes_apart(reward, terminates, level):
    fields = clean()
    fields["rewards"][:] = reward
    if terminates:
        terminate(fields, [5, 40, 71])
    finding = only(check(fields))
    assert (finding.name, finding.level) == ("constant-reward", level)


def test_reward_outlier_is_named_with_clip_limits():
    fields = clean()
    fields["rewards"][33] = 5000.0
    finding = only(check(fields))
    assert (finding.name, finding.row) == ("reward-outlier", 33)
    assert "reward_clip_max" in finding.fix


def test_reward_at_the_terminal_step_may_stand_out():
    fields = clean()
    fields["rewards"][[5, 40, 71]] = 5000.0
    terminate(fields, [5, 40, 71])
    assert check(fields) == []


def test_sparse_rewards_are_no_outliers():
    fields = clean(episodes=40)
    fields["rewards"][:] = 0.0
    fields["rewards"][::200] = 1.0
    assert check(fields) == []


def test_huge_rewards_suggest_a_scale():
    fields = clean()
    fields["rewards"] *= 50_000
    finding = only(check(fields))
    assert finding.name == "reward-magnitude"
    assert finding.fix == "set reward_scale: 1e-05"


@pytest.mark.parametrize("terminates", [False, True])
def test_large_rewards_that_hardly_differ_suggest_a_shift(terminates):
    fields = clean()
    fields["rewards"] += 1e6
    if terminates:
        terminate(fields, [5, 40, 71])
    finding = only(check(fields))
    assert finding.name == "reward-magnitude"
    assert "set reward_shift: -1e+06" in finding.fix
    assert "reward_scale" not in finding.fix
    assert ("worth to terminate" in finding.fix) == terminates
