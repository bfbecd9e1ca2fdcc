import numpy as np
import pytest

from rl_training.config import DatasetError
from rl_training.data.checks.dataset_checks import Finding, check_dataset, check_fields, is_wrong
from rl_training.data.offline_dataset import TransitionDataset


def clean(episodes: int = 4, length: int = 25, seed: int = 0) -> dict[str, np.ndarray]:
    """A dataset without faults: episodes of one length that are truncated."""
    rng = np.random.default_rng(seed)
    size = episodes * length
    path = rng.normal(size=(episodes, length + 1, 3)).astype(np.float32)
    truncations = np.zeros(size, bool)
    truncations[length - 1 :: length] = True
    return {
        "obs": path[:, :-1].reshape(size, 3).copy(),
        "actions": rng.uniform(-0.95, 0.95, (size, 2)).astype(np.float32),
        "rewards": rng.normal(size=size).astype(np.float32),
        "next_obs": path[:, 1:].reshape(size, 3).copy(),
        "terminations": np.zeros(size, bool),
        "truncations": truncations,
    }


def check(fields: dict[str, np.ndarray], **bounds: float) -> list[Finding]:
    return check_dataset(TransitionDataset(**fields), **bounds)


def only(findings: list[Finding]) -> Finding:
    assert len(findings) == 1, findings
    assert findings[0].fix
    return findings[0]


def test_clean_data_gives_nothing():
    assert check(clean()) == []
    assert check(clean(), action_low=-1.0, action_high=1.0) == []
    assert check_fields(clean(), "log.npz") == []


def test_only_errors_and_warnings_are_wrong():
    assert not is_wrong([Finding("info", "x", "", None, "")])
    assert is_wrong([Finding("warning", "x", "", None, "")])
    assert is_wrong([Finding("error", "x", "", None, "")])


# --- raw files ---


@pytest.mark.parametrize(
    ("value", "name", "words"),
    [
        (np.nan, "nan", "'rewards' has NaN in 2 rows: rows 7, 9"),
        (-np.inf, "infinite", "'rewards' has an infinite value in 2 rows: rows 7, 9"),
        (1e39, "overflow", "'rewards' has a value too large for float32 in 2 rows: rows 7, 9"),
    ],
)
def test_values_that_cannot_be_loaded_are_counted(value, name, words):
    fields = clean()
    fields["rewards"] = fields["rewards"].astype(np.float64)
    fields["rewards"][[7, 9]] = value
    finding = only(check_fields(fields, "log.npz"))
    assert (finding.level, finding.name, finding.row) == ("error", name, 7)
    assert finding.message == words


def test_every_field_with_nan_is_reported_under_its_own_name():
    fields = clean()
    fields["observations"] = fields.pop("obs")
    fields["observations"][3, 1] = np.nan
    fields["actions"][5] = np.nan
    found = {(finding.message.split()[0], finding.row) for finding in check_fields(fields, "x")}
    assert found == {("'observations'", 3), ("'actions'", 5)}


def test_unequal_lengths_name_every_length():
    fields = clean()
    fields["rewards"] = fields["rewards"][:-2]
    finding = only(check_fields(fields, "x"))
    assert finding.name == "unequal-lengths"
    assert "obs 100" in finding.message
    assert "rewards 98" in finding.message
    assert finding.row == 98


def test_missing_field_is_a_finding_not_an_exception():
    fields = clean()
    del fields["actions"]
    finding = only(check_fields(fields, "log.npz"))
    assert finding.name == "unreadable"
    assert "log.npz has no 'actions'" in finding.message


def test_field_given_twice_is_a_finding():
    finding = only(check_fields({**clean(), "observations": clean()["obs"]}, "log.npz"))
    assert "gives 'obs' twice" in finding.message


def test_dones_alone_come_back_as_a_note_without_a_warning(recwarn):
    fields = clean()
    fields["dones"] = fields.pop("truncations")
    del fields["terminations"]
    findings = check_fields(fields, "x")
    assert any(finding.name == "note" and "dones" in finding.message for finding in findings)
    assert not recwarn.list


# --- observations and order ---


def test_constant_observation_column_is_named():
    fields = clean()
    fields["obs"][:, 1] = fields["next_obs"][:, 1] = 0.5
    finding = only(check(fields))
    assert (finding.level, finding.name) == ("info", "constant-observation")
    assert finding.message == "observation column 1 is always 0.5"


def test_several_constant_columns_share_one_finding():
    fields = clean()
    fields["obs"][:, :2] = fields["next_obs"][:, :2] = 0.5
    assert only(check(fields)).message == "observation columns 0, 1 never change"


def test_observations_that_never_change_at_all_are_a_warning():
    fields = clean()
    fields["obs"][:] = fields["next_obs"][:] = 0.5
    finding = only(check(fields))
    assert (finding.level, finding.name) == ("warning", "constant-observation")
    assert finding.message == "observation columns 0, 1, 2 never change"


def test_broken_sequence_inside_an_episode_names_the_row():
    fields = clean()
    fields["next_obs"][11] += 1
    finding = only(check(fields))
    assert (finding.level, finding.name, finding.row) == ("error", "broken-sequence", 11)


def test_next_observation_at_an_episode_end_may_differ():
    fields = clean()
    fields["next_obs"][24] += 1
    assert check(fields) == []


def test_rows_listed_are_limited():
    fields = clean()
    fields["next_obs"][[1, 3, 5, 7, 9]] += 1
    dataset = TransitionDataset(**fields)
    [finding] = check_dataset(dataset, max_findings_rows=2)
    assert finding.message.endswith("at rows 1, 3 and 3 more")


def test_data_without_episode_ends_is_reported():
    fields = clean(episodes=1)
    fields["truncations"][:] = False
    assert only(check(fields)).name == "no-episode-ends"


def test_shuffled_data_without_truncations_has_unknown_episodes():
    fields = clean()
    order = np.random.default_rng(0).permutation(100)
    fields = {name: values[order] for name, values in fields.items() if name != "truncations"}
    findings = check(fields)
    assert [finding.name for finding in findings if is_wrong([finding])] == ["no-episode-ends"]


# --- time limits ---


def test_equal_episodes_that_all_terminate_look_like_a_time_limit():
    fields = clean()
    fields["terminations"], fields["truncations"] = fields["truncations"], fields["terminations"]
    finding = only(check(fields))
    assert (finding.level, finding.name, finding.row) == ("warning", "time-limit", 24)
    assert "4 of 4 episodes end after exactly 25 steps" in finding.message


def test_time_limit_among_early_ends_is_noticed():
    fields = clean(episodes=10, length=60)
    fields["terminations"], fields["truncations"] = fields["truncations"], fields["terminations"]
    fields["terminations"][[20, 90, 200]] = True
    finding = only(check(fields))
    assert finding.name == "time-limit"
    assert "7 of 13" in finding.message


def test_one_cut_episode_does_not_hide_a_time_limit():
    fields = clean(episodes=10)
    fields["terminations"], fields["truncations"] = fields["truncations"], fields["terminations"]
    fields["terminations"][99], fields["truncations"][99] = False, True
    finding = only(check(fields))
    assert (finding.name, finding.row) == ("time-limit", 24)
    assert "9 of 10 episodes end after exactly 25 steps" in finding.message


def test_a_last_episode_that_is_cut_short_does_not_hide_a_time_limit():
    fields = clean(episodes=3)
    fields["terminations"], fields["truncations"] = fields["truncations"], fields["terminations"]
    fields = {name: values[:60].copy() for name, values in fields.items()}
    fields["truncations"][-1] = True
    assert "2 of 3 episodes" in only(check(fields)).message


def test_ends_that_are_mostly_truncations_are_no_time_limit():
    fields = clean(episodes=10)
    fields["terminations"][[24, 49]], fields["truncations"][[24, 49]] = True, False
    assert check(fields) == []


def test_one_terminating_episode_is_no_time_limit():
    fields = clean(episodes=1)
    fields["terminations"], fields["truncations"] = fields["truncations"], fields["terminations"]
    assert check(fields) == []


def test_episodes_of_different_length_may_terminate():
    fields = clean()
    fields["terminations"][[5, 40, 71]] = True
    assert check(fields) == []


# --- actions ---


def test_constant_action_column_is_named():
    fields = clean()
    fields["actions"][:, 1] = 0.25
    finding = only(check(fields))
    assert finding.name == "constant-action"
    assert finding.message == "action column 1 is always 0.25"


def test_choice_that_never_varies_is_a_constant_action():
    fields = clean()
    fields["actions"] = np.ones(100, np.int64)
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


def test_without_bounds_large_actions_are_other_units():
    fields = clean()
    fields["actions"] *= 40
    assert check(fields) == []


def test_saturated_actions_are_a_share_of_one_column():
    fields = clean()
    fields["actions"][:30, 1] = 1.0
    finding = only(check(fields, action_low=-1.0, action_high=1.0))
    assert (finding.name, finding.row) == ("saturated-actions", 0)
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


# --- rewards ---


@pytest.mark.parametrize(
    ("reward", "terminates", "level"),
    [(1.0, True, "info"), (-1.0, False, "info"), (0.0, True, "warning"), (0.0, False, "warning")],
)
def test_constant_reward_is_a_warning_only_if_it_is_zero(reward, terminates, level):
    fields = clean()
    fields["rewards"][:] = reward
    fields["terminations"][[5, 40, 71]] = terminates
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
    fields["terminations"][[5, 40, 71]] = True
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


# --- duplicates ---


def test_repeated_row_is_found():
    fields = clean()
    for name in ("obs", "actions", "rewards", "next_obs"):
        fields[name][60] = fields[name][10]
    names = {finding.name: finding for finding in check(fields)}
    assert names["duplicate-rows"].row == 60
    assert "1 of 100 transitions" in names["duplicate-rows"].message


def test_rows_that_differ_in_one_value_are_not_repeated():
    fields = clean()
    fields["obs"][:] = fields["next_obs"][:] = np.array([1, 2, 3])
    fields["actions"][:] = 0.5
    assert not any("duplicate" in finding.name for finding in check(fields))


def test_repeated_episode_is_reported_once_as_an_episode():
    fields = clean()
    for values in fields.values():
        values[75:] = values[25:50]
    finding = only(check(fields))
    assert (finding.name, finding.row) == ("duplicate-episodes", 75)
    assert "1 of 4 episodes" in finding.message


def test_repeated_steps_of_a_grid_world_are_information():
    fields = clean()
    cells = np.eye(3, dtype=np.float32)[np.random.default_rng(0).integers(3, size=101)]
    fields["obs"], fields["next_obs"] = cells[:-1], cells[1:]
    fields["actions"] = np.arange(100) % 2
    fields["rewards"] = cells[1:, 0].copy()
    finding = only(check(fields))
    assert (finding.name, finding.level) == ("duplicate-rows", "info")


def test_worst_findings_come_first():
    fields = clean()
    fields["actions"][:, 1] = 0.25
    fields["next_obs"][11] += 1
    assert [finding.level for finding in check(fields)] == ["error", "warning"]
