"""Data against an environment: what does not fit is a finding, not an exception."""

import numpy as np
import pytest

from rl_training.data import TransitionDataset
from rl_training.data.checks.dataset_checks import check_dataset
from rl_training.spec import ProblemSpec

BOX = ProblemSpec(3, "continuous", 2, (-1.0, -1.0), (1.0, 1.0))
CHOICE = ProblemSpec(3, "discrete", 4)


@pytest.mark.parametrize(
    ("shape", "spec", "name", "message"),
    [
        ({"obs_dim": 5}, BOX, "observation-width",
         "observations have 5 columns, but those of the environment have 3"),
        ({"act_dim": 1}, BOX, "action-width",
         "actions have 1 column, but those of the environment have 2"),
        ({"discrete": True}, BOX, "action-kind",
         "actions are discrete, but those of the environment are continuous"),
        ({}, CHOICE, "action-kind",
         "actions are continuous, but those of the environment are discrete"),
    ],
)  # fmt: skip
def test_data_of_another_environment_is_an_error(episodes, shape, spec, name, message):
    (finding,) = check_dataset(TransitionDataset(**episodes([30, 20], **shape)), spec=spec)
    assert (finding.level, finding.name, finding.message) == ("error", name, message)
    assert finding.fix


def test_a_choice_that_the_environment_does_not_have_is_an_error(episodes):
    fields = episodes([30, 20], discrete=True)
    fields["actions"][[7, 9]] = 6
    (finding,) = check_dataset(TransitionDataset(**fields), spec=CHOICE)
    assert (finding.level, finding.name, finding.row) == ("error", "action-choices", 7)
    assert (
        finding.message == "action 6 is not among the environment's 4 choices (0 to 3) at rows 7, 9"
    )


def test_several_things_that_do_not_fit_are_all_reported(episodes):
    dataset = TransitionDataset(**episodes([30, 20], obs_dim=1, act_dim=3))
    found = {finding.name for finding in check_dataset(dataset, spec=BOX)}
    assert found == {"observation-width", "action-width"}


def test_bounds_come_from_the_environment(episodes):
    fields = episodes([30, 20])
    assert check_dataset(TransitionDataset(**fields), spec=BOX) == []
    fields["actions"][17, 1] = 2.5
    (finding,) = check_dataset(TransitionDataset(**fields), spec=BOX)
    assert (finding.name, finding.row) == ("action-bounds", 17)
    fitting = TransitionDataset(**episodes([30, 20], discrete=True))
    assert check_dataset(fitting, spec=CHOICE) == []


def test_choices_that_the_log_never_takes_are_fine(episodes):
    fields = episodes([30, 20], discrete=True)
    fields["actions"] = np.arange(50) % 2
    assert check_dataset(TransitionDataset(**fields), spec=CHOICE) == []


def test_choices_numbered_from_one_name_the_command_that_renumbers_them(episodes):
    fields = episodes([30, 20], discrete=True)
    fields["actions"] = np.arange(50) % 4 + 1
    (finding,) = check_dataset(TransitionDataset(**fields), spec=CHOICE)
    assert finding.name == "action-choices"
    assert "data convert IN OUT.npz --first-action 1`" in finding.fix


def test_whole_floats_are_the_choices_of_a_discrete_environment(episodes):
    fields = episodes([30, 20], discrete=True)
    fields["actions"] = (np.arange(50) % 4).astype(np.float32)
    (finding,) = check_dataset(TransitionDataset(**fields), spec=CHOICE)
    assert (finding.level, finding.name) == ("info", "whole-number-actions")
    fields["actions"] += 1
    names = [finding.name for finding in check_dataset(TransitionDataset(**fields), spec=CHOICE)]
    assert names == ["action-choices", "whole-number-actions"]
