import numpy as np
import pytest
import torch

from rl_training.config import DatasetError
from rl_training.data import TransitionDataset, mix_transition_datasets


def labelled(episodes, reward, lengths, **more):
    fields = episodes(lengths, **more)
    fields["rewards"] = np.full(sum(lengths), reward, np.float32)
    return TransitionDataset.from_dict(fields, f"part {reward:g}")


def share_of(dataset, reward, count=20_000):
    batch = dataset.sample(count, generator=torch.Generator().manual_seed(0))
    return (batch.rewards == reward).float().mean().item()


def test_weights_are_shares_of_a_batch(episodes):
    mixture = mix_transition_datasets(
        [labelled(episodes, 1.0, [90]), labelled(episodes, 2.0, [10])], [1, 3]
    )
    assert share_of(mixture, 2.0) == pytest.approx(0.75, abs=0.02)


def test_without_weights_every_row_is_equally_likely(episodes):
    mixture = mix_transition_datasets(
        [labelled(episodes, 1.0, [90]), labelled(episodes, 2.0, [10])]
    )
    assert share_of(mixture, 2.0) == pytest.approx(0.1, abs=0.02)


def test_shares_hold_in_subsets_and_in_mixtures_of_mixtures(episodes):
    inner = mix_transition_datasets(
        [labelled(episodes, 1.0, [5] * 9), labelled(episodes, 2.0, [5] * 4)], [1, 3]
    )
    first, _ = inner.split(0.6, seed=0)
    assert share_of(first, 2.0) == pytest.approx(0.75, abs=0.02)
    outer = mix_transition_datasets([inner, labelled(episodes, 3.0, [7])], [1, 1])
    assert share_of(outer, 3.0) == pytest.approx(0.5, abs=0.02)
    assert share_of(outer, 2.0) == pytest.approx(0.375, abs=0.02)
    best = inner.top_episodes(0.2)  # only rows of the second part are left
    assert share_of(best, 2.0) == 1


def test_a_join_is_a_cut_and_not_a_termination(episodes):
    fields = episodes([4])
    fields["truncations"][:] = False  # an open episode
    part = TransitionDataset(**fields)
    mixture = mix_transition_datasets([part, part]).with_next_actions()
    assert mixture.terminations.sum() == 0
    assert mixture.truncations.tolist() == [0, 0, 0, 1, 0, 0, 0, 0]
    assert mixture.next_action_valid.tolist() == [1, 1, 1, 0, 1, 1, 1, 0]
    assert mixture.episode_lengths.tolist() == [4, 4]


def test_transforms_of_the_parts_are_kept(episodes):
    first = labelled(episodes, 1.0, [4]).with_reward_transform(scale=5)
    second = labelled(episodes, 2.0, [4]).with_action_scaling(-2, 2).top_episodes(1)
    mixture = mix_transition_datasets([first, second])
    assert mixture.rewards.tolist() == [5] * 4 + [2] * 4
    assert torch.equal(mixture.actions, torch.cat([first.actions, second.actions]))


def test_next_actions_stay_only_if_every_part_has_them(episodes):
    plain = labelled(episodes, 1.0, [4])
    carrying = labelled(episodes, 2.0, [4]).with_next_actions()
    both = mix_transition_datasets([carrying, carrying])
    assert both.next_action_valid.tolist() == [1, 1, 1, 0] * 2
    mixture = mix_transition_datasets([plain, carrying])
    assert mixture.next_actions is None
    assert "dropped next actions: part 1 has none" in mixture.notes


def test_unknown_boundaries_of_one_part_make_all_unknown(episodes):
    fields = {key: value[::7] for key, value in episodes([70]).items()}
    del fields["truncations"]
    mixture = mix_transition_datasets([labelled(episodes, 1.0, [4]), TransitionDataset(**fields)])
    assert mixture.boundaries == "unknown"
    assert len(mixture) == 14


def test_discrete_parts_have_the_larger_number_of_choices(episodes):
    parts = [TransitionDataset(**{**episodes([3]), "actions": a}) for a in ([0, 1, 0], [0, 5, 0])]
    assert mix_transition_datasets(parts).num_actions == 6


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"obs_dim": 4}, "cannot mix part 1 and part 2: obs_dim is 3 and 4"),
        ({"act_dim": 1}, "action_width is 2 and 1"),
        ({"discrete": True}, "discrete is False and True"),
    ],
)
def test_parts_that_do_not_fit_are_named(episodes, other, message):
    with pytest.raises(DatasetError, match=message):
        mix_transition_datasets(
            [labelled(episodes, 1.0, [4]), labelled(episodes, 2.0, [4], **other)]
        )


def test_bad_weights_are_refused(episodes):
    part = labelled(episodes, 1.0, [4])
    with pytest.raises(DatasetError, match="2 datasets need 2 weights, got 1"):
        mix_transition_datasets([part, part], [1])
    with pytest.raises(DatasetError, match="weights must be greater than 0"):
        mix_transition_datasets([part, part], [1, 0])
    with pytest.raises(DatasetError, match="at least one dataset"):
        mix_transition_datasets([])
