"""Probabilities of the logging policy: read in any spelling, carried by every view and file, never in a batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.support.data import make_fields

from rl_training.config import DatasetError
from rl_training.data import TransitionDataset, load_transition_dataset, mix_transition_datasets
from rl_training.data.checks.dataset_checks import check_fields
from rl_training.data.packing.names import SPELLINGS
from rl_training.data.rewriting import read_choices


def _fields(*, discrete: bool = False, **extra: Any) -> dict[str, Any]:
    fields = make_fields(100)
    if discrete:
        fields["actions"] = np.arange(100) % 3
    return {**fields, **extra}


LOGS = -np.linspace(0.1, 3, 100)


@pytest.mark.parametrize("spelling", SPELLINGS["behavior_log_probs"])
def test_log_probabilities_are_read_in_every_spelling(spelling: str) -> None:
    dataset = TransitionDataset.from_dict(_fields(**{spelling: LOGS[:, None]}))
    assert dataset.behavior_log_probs is not None
    np.testing.assert_allclose(dataset.behavior_log_probs, LOGS, rtol=1e-6)


@pytest.mark.parametrize("spelling", SPELLINGS["behavior_probs"])
def test_probabilities_are_read_as_their_logarithm(spelling: str) -> None:
    dataset = TransitionDataset.from_dict(_fields(discrete=True, **{spelling: np.exp(LOGS)}))
    assert dataset.behavior_log_probs is not None
    np.testing.assert_allclose(dataset.behavior_log_probs, LOGS, rtol=1e-6)


@pytest.mark.parametrize(
    ("field", "value", "discrete", "message"),
    [
        ("propensity", 0.0, True, "has 0 at row 7; a probability of a logged choice must be above 0 and at most 1"),
        ("propensity", 1.2, True, "has 1.2 at row 7"),
        ("propensity", -0.1, False, "has -0.1 at row 7; a probability of a logged action must be above 0 and finite"),
        ("propensity", np.nan, False, "has nan at row 7"),
        ("logp", 0.3, True, "has 0.3 at row 7; a log-probability of a logged choice must be finite and at most 0"),
        ("logp", -np.inf, False, "has -inf at row 7; a log-probability of a logged action must be finite"),
    ],
)  # fmt: skip
def test_impossible_probability_is_an_error_with_its_row(
    field: str, value: float, discrete: bool, message: str
) -> None:
    values = np.full(100, 0.5) if field == "propensity" else LOGS.copy()
    values[7] = value
    with pytest.raises(DatasetError, match=f"{field!r} {message}"):
        TransitionDataset.from_dict(_fields(discrete=discrete, **{field: values}))


def test_density_above_1_is_fine_until_actions_are_read_as_choices() -> None:
    fields = _fields(propensity=np.full(100, 1.5))
    fields["actions"] = (np.arange(100) % 3).astype(np.float32)
    dataset = TransitionDataset.from_dict(fields)
    with pytest.raises(DatasetError, match="at row 0; a log-probability of a logged choice"):
        read_choices(dataset)


def test_sure_choice_may_be_rounded_above_1() -> None:
    dataset = TransitionDataset.from_dict(_fields(discrete=True, pscore=np.full(100, 1.000001)))
    assert dataset.behavior_log_probs is not None
    assert (dataset.behavior_log_probs == 0).all()


def test_probabilities_of_all_choices_are_a_note_and_two_fields_an_error() -> None:
    dataset = TransitionDataset.from_dict(_fields(action_probs=np.full((100, 3), 1 / 3)))
    assert dataset.behavior_log_probs is None
    assert "ignored fields: action_probs" in dataset.notes
    with pytest.raises(DatasetError, match="twice, as 'logp' and 'pscore'"):
        TransitionDataset.from_dict(_fields(logp=LOGS, pscore=np.exp(LOGS)))


@pytest.mark.parametrize("ending", ["npz", "pt", "hdf5"])
@pytest.mark.parametrize("in_memory", [True, False])
def test_files_and_memory_maps_carry_them(ending: str, in_memory: bool, tmp_path: Path) -> None:
    if ending == "hdf5":
        pytest.importorskip("h5py")
    path = tmp_path / f"log.{ending}"
    whole = TransitionDataset.from_dict(_fields(logp=LOGS))
    part, _ = whole.split(0.5, seed=0)
    part.save(path)
    loaded = load_transition_dataset(ending, path, in_memory=in_memory)
    assert loaded.in_memory is in_memory
    assert part.behavior_log_probs is not None
    assert loaded.behavior_log_probs is not None
    assert 0 < len(loaded) < 100
    assert torch.equal(loaded.behavior_log_probs, part.behavior_log_probs)
    assert np.array_equal(loaded.episode_starts, part.episode_starts)
    again = load_transition_dataset(ending, path, in_memory=in_memory)  # from the cache
    assert again.behavior_log_probs is not None
    assert torch.equal(again.behavior_log_probs, loaded.behavior_log_probs)


def test_views_choose_the_same_rows_of_them() -> None:
    rewards = np.arange(100, dtype=np.float32)
    dataset = TransitionDataset.from_dict(_fields(logp=-rewards) | {"rewards": rewards})
    view = (
        dataset.top_episodes(0.4)
        .with_action_scaling(-2, 2)
        .with_next_actions()
        .with_valid_next_actions()
    )
    assert view.behavior_log_probs is not None
    assert len(view) < 40
    assert torch.equal(-view.behavior_log_probs, view.rewards)


def test_rows_that_are_dropped_while_packing_take_theirs_along() -> None:
    """D4RL's sequences lose their truncated rows."""
    fields = _fields(logp=-np.arange(100.0)) | {"rewards": np.arange(100.0)}
    del fields["next_obs"]
    dataset = TransitionDataset.from_dict(fields)
    assert len(dataset) < 100
    assert dataset.behavior_log_probs is not None
    assert torch.equal(-dataset.behavior_log_probs, dataset.rewards)


def test_mixtures_have_them_if_all_parts_do() -> None:
    part = TransitionDataset.from_dict(_fields(logp=LOGS))
    mixed = mix_transition_datasets([part, part])
    assert mixed.behavior_log_probs is not None
    np.testing.assert_allclose(mixed.behavior_log_probs, np.tile(LOGS, 2), rtol=1e-6)
    mixed = mix_transition_datasets([part, TransitionDataset.from_dict(_fields(), "other.npz")])
    assert mixed.behavior_log_probs is None
    assert "dropped behavior_log_probs: other.npz has none" in mixed.notes


def test_batches_and_digest_are_those_of_a_log_without_them() -> None:
    given, plain = (
        TransitionDataset.from_dict(_fields(logp=LOGS)),
        TransitionDataset.from_dict(_fields()),
    )
    assert given.layout == plain.layout
    assert given.sha256 == plain.sha256
    assert given.sample(8).fields().keys() == plain.sample(8).fields().keys()


def test_summary_has_their_range_and_check_finds_placeholders() -> None:
    assert TransitionDataset.from_dict(_fields()).describe()["behavior_log_probs"] is None
    summary = TransitionDataset.from_dict(_fields(logp=LOGS)).describe()["behavior_log_probs"]
    assert summary == pytest.approx({"min": -3, "mean": LOGS.mean(), "max": -0.1})

    def levels(discrete: bool, value: float) -> list[str]:
        findings = check_fields(_fields(discrete=discrete, propensity=np.full(100, value)))
        return [finding.level for finding in findings if finding.name == "constant-behavior-probs"]

    assert levels(discrete=True, value=0.5) == ["warning"]
    assert levels(discrete=True, value=1 / 3) == []
    assert levels(discrete=False, value=0.5) == ["info"]
