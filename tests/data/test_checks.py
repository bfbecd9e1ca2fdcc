"""Findings about whole datasets: files, order of rows, time limits, duplicates."""

import numpy as np
import pytest
from tests.support.findings import check, clean, only, terminate

from rl_training.data.checks.dataset_checks import Finding, check_dataset, check_fields, is_wrong
from rl_training.data.offline_dataset import TransitionDataset


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


@pytest.mark.parametrize(
    ("center", "spread", "lost"),
    [(1e9, 10.0, True), (1e9, 1e5, False), (101_325.0, 1e-3, True), (1e6, 1.0, False),
     (273.0, 0.01, False), (1.0, 1e-15, False), (0.0, 1e-12, False)],
)  # fmt: skip
def test_column_that_float32_would_flatten_is_named(center, spread, lost):
    fields = {**clean(), "obs": clean()["obs"].astype(np.float64)}
    fields["obs"][:, 1] = center + spread * fields["obs"][:, 1]
    fields["next_obs"][:-1] = fields["obs"][1:]
    findings = [f for f in check_fields(fields, "log.npz") if f.name == "lost-precision"]
    assert len(findings) == lost
    for finding in findings:
        assert finding.level == "warning"
        assert finding.message.startswith("column 1 of 'obs' varies by")


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
    terminate(fields, [20, 90, 200])
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
    terminate(fields, [5, 40, 71])
    assert check(fields) == []


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
