"""Last rows of episodes: next observations of another episode, padding, flags one row off."""

import numpy as np
import pytest

from rl_training.data import TransitionDataset
from rl_training.data.checks.dataset_checks import check_dataset, check_fields, is_wrong
from rl_training.data.rewriting import repair_dataset

LENGTH, EPISODES = 30, 12
ENDS = np.arange(1, EPISODES + 1) * LENGTH - 1


def walks(length: int = LENGTH, episodes: int = EPISODES) -> dict[str, np.ndarray]:
    """Random walks that start anywhere: truncated, with their true last observations."""
    rng = np.random.default_rng(0)
    path = rng.normal(scale=0.1, size=(episodes, length + 1, 3)).cumsum(axis=1)
    path = (path + rng.normal(scale=3, size=(episodes, 1, 3))).astype(np.float32)
    size = episodes * length
    return {
        "obs": path[:, :-1].reshape(size, 3),
        "actions": rng.uniform(-0.95, 0.95, (size, 2)).astype(np.float32),
        "rewards": rng.normal(size=size).astype(np.float32),
        "next_obs": path[:, 1:].reshape(size, 3),
        "terminations": np.zeros(size, bool),
        "truncations": np.arange(1, size + 1) % length == 0,
    }


def shifted(**changes: np.ndarray) -> dict[str, np.ndarray]:
    """The same walks, their observations shifted by one row over the whole file."""
    fields = walks()
    fields["next_obs"] = np.append(fields["obs"][1:], fields["next_obs"][-1:], axis=0)
    return {**fields, **changes}


def findings(fields: dict[str, np.ndarray]) -> list[tuple[str, str, int | None]]:
    return [(f.level, f.name, f.row) for f in check_fields(fields) if f.name != "note"]


def test_true_last_observations_are_not_suspected():
    assert findings(walks()) == []


def test_the_first_observation_of_the_next_episode_is_no_next_observation():
    [finding] = check_fields(shifted())
    assert (finding.level, finding.name, finding.row) == ("error", "shifted-next-obs", LENGTH - 1)
    assert finding.message.startswith(
        "11 of 12 episodes have in their last row the first observation of the next episode"
    )
    assert "data convert IN OUT.npz --repair" in finding.fix
    assert "mark" not in finding.fix


def test_another_precision_does_not_hide_the_shift():
    fields = shifted()
    doubles = fields["next_obs"].astype(np.float64) * (1 + 1e-7)
    assert findings({**fields, "next_obs": doubles}) == findings(fields)


def test_episode_ids_and_a_roll_of_the_rows_are_seen_through_too():
    fields = shifted(truncations=None, episode_ids=np.arange(360) // LENGTH)
    assert findings(fields) == [("error", "shifted-next-obs", LENGTH - 1)]
    rolled = walks()
    rolled["next_obs"] = np.roll(rolled["obs"], -1, axis=0)
    [finding] = check_fields(rolled)
    assert finding.message.startswith("12 of 12 episodes")  # the last one has the file's first row


def test_a_shift_at_terminated_rows_is_harmless():
    fields = walks()
    ragged = np.arange(360) % LENGTH >= np.arange(360) // LENGTH  # episodes of 30, 29, 28, ... rows
    fields = {name: values[ragged] for name, values in fields.items()}
    fields["next_obs"][:-1] = fields["obs"][1:]
    fields["terminations"], fields["truncations"] = fields["truncations"], fields["terminations"]
    [finding] = check_fields(fields)
    assert (finding.level, finding.name, finding.row) == ("info", "shifted-next-obs", LENGTH - 1)
    assert "nothing is bootstrapped" in finding.fix


def test_a_time_limit_with_a_shift_is_not_to_be_marked_as_truncation():
    fields = shifted()
    fields["terminations"], fields["truncations"] = fields["truncations"], fields["terminations"]
    [finding] = check_fields(fields)
    assert finding.name == "time-limit"
    assert "11 of these rows have lost their next observation" in finding.message
    assert "--repair" in finding.fix
    assert "do not just mark them" in finding.fix


def test_derived_boundaries_are_looked_at_where_each_episode_lost_its_first_row():
    fields = shifted()
    keep = np.arange(360) % LENGTH != 0
    fields = {name: values[keep] for name, values in fields.items() if name != "truncations"}
    dataset = TransitionDataset(**fields)
    assert dataset.boundaries == "derived"
    names = [f.name for f in check_dataset(dataset) if is_wrong([f])]
    assert names == ["shifted-next-obs"]


def test_time_limits_that_are_nowhere_marked_show_as_jumps():
    fields = shifted()
    del fields["truncations"]
    found = {finding.name: finding for finding in check_fields(fields)}
    assert found["missing-time-limits"].row == LENGTH - 1
    assert "every 30 rows" in found["missing-time-limits"].message


@pytest.mark.parametrize("value", ["copy", "zeros"])
def test_padding_is_no_next_observation(value):
    fields = walks()
    fields["next_obs"][ENDS] = fields["obs"][ENDS] if value == "copy" else 0
    assert findings(fields) == [("error", "padded-next-obs", LENGTH - 1)]


def test_pieces_of_one_long_episode_are_left_alone():
    fields = walks(length=360, episodes=1)
    fields["truncations"][ENDS] = True
    assert findings(fields) == [("info", "continued-episodes", LENGTH - 1)]


def test_states_of_a_grid_world_may_come_again():
    rng = np.random.default_rng(0)
    fields = walks()
    cells = np.eye(4, dtype=np.float32)[rng.integers(4, size=361)]
    fields["obs"], fields["next_obs"] = cells[:-1], cells[1:].copy()
    fields["next_obs"][ENDS] = np.eye(4, dtype=np.float32)[rng.integers(4, size=EPISODES)]
    names = {name for _, name, _ in findings(fields)}
    assert names <= {"duplicate-rows"}


@pytest.mark.parametrize(("offset", "word"), [(1, "late"), (-1, "early")])
def test_flags_one_row_off_are_named_as_such(offset, word):
    fields = walks()
    fields["truncations"] = np.roll(fields["truncations"], offset)
    [finding] = [f for f in check_fields(fields) if f.level == "error"]
    assert finding.name == "broken-sequence"
    assert finding.message.endswith(f"ends are marked one row too {word}")


@pytest.mark.parametrize("kind", ["terminations", "truncations"])
def test_one_kind_of_flags_one_row_off_is_named(kind):
    fields = walks()
    terminal = np.isin(np.arange(360), ENDS[::2])
    fields["terminations"], fields["truncations"] = terminal, fields["truncations"] & ~terminal
    fields[kind] = np.roll(fields[kind], 1)
    [finding] = [f for f in check_fields(fields) if f.level == "error"]
    assert finding.name == "broken-sequence"
    assert finding.message.endswith(f"{kind} are marked one row too late")
    assert finding.fix == f"move {kind} one row up"


# --- order of rows ---


def test_rows_out_of_order_are_not_to_be_marked_as_ends():
    fields, order = walks(), np.random.default_rng(0).permutation(360)
    shuffled = {name: values[order] for name, values in fields.items()}
    backwards = {**fields, "next_obs": np.roll(fields["obs"], 1, axis=0)}
    twice = {name: np.repeat(values, 2, axis=0) for name, values in fields.items()}
    for log, words in (
        (shuffled, "sort the rows"),
        (backwards, "read from the next row"),
        (twice, "sort the rows"),
    ):
        [finding] = [f for f in check_fields(log) if f.level == "error"]
        assert finding.name == "broken-sequence"
        assert words in finding.fix
        assert "mark" not in finding.fix


def test_episodes_in_pieces_are_to_be_sorted():
    fields = walks()
    del fields["truncations"]
    fields["episode_ids"] = np.arange(360) // LENGTH
    actors = np.arange(360).reshape(EPISODES, LENGTH).T.ravel()  # a row of each in turn
    mixed = {name: values[actors] for name, values in fields.items()}
    [finding] = [f for f in check_fields(mixed) if f.name != "note"]
    assert (finding.level, finding.name, finding.row) == ("error", "scattered-episodes", EPISODES)
    assert "12 episodes are in 360 pieces" in finding.message
    order = np.argsort(mixed["episode_ids"], kind="stable")  # as the advice has it
    assert findings({name: values[order] for name, values in mixed.items()}) == []
    [note] = TransitionDataset.from_dict(mixed).notes
    assert note == "12 episode ids are in 360 pieces of rows, each read as an episode"


def test_joined_logs_may_number_their_episodes_alike():
    fields = walks()
    fields["episode_ids"] = np.arange(360) // LENGTH % 6
    assert findings(fields) == []


@pytest.mark.parametrize("every", [True, False])
def test_terminated_rows_that_go_on_are_a_warning(every):
    fields = walks(length=60)  # random walks are slow, so that rows that follow are close
    ends = fields.pop("truncations")
    fields["terminations"] = np.ones(720, bool) if every else ~ends
    [finding] = [f for f in check_fields(fields) if f.name != "note"]
    assert (finding.level, finding.name, finding.row) == ("warning", "continued-terminations", 0)
    assert "after 708 terminated rows" in finding.message
    assert "'masks'" in finding.fix
    fields["masks"] = fields.pop("terminations")
    if not every:  # as the advice has it
        np.testing.assert_array_equal(TransitionDataset.from_dict(fields).terminations > 0, ends)


def test_decisions_of_one_step_may_all_terminate():
    rng = np.random.default_rng(0)
    fields = walks()
    fields["obs"] = rng.normal(size=(360, 3)).astype(np.float32)
    fields["next_obs"] = np.roll(fields["obs"], -1, axis=0)
    fields["terminations"], fields["truncations"] = np.ones(360, bool), np.zeros(360, bool)
    assert findings(fields) == []


def test_units_of_any_size_are_compared_alike():
    fields = shifted()
    tiny = {name: fields[name] * np.float32(1e-9) for name in ("obs", "next_obs")}
    assert findings({**fields, **tiny}) == findings(fields)
    fields = walks()
    del fields["truncations"]
    tiny = {name: fields[name] * np.float32(1e-9) for name in ("obs", "next_obs")}
    assert "derived 11 truncations" in TransitionDataset.from_dict({**fields, **tiny}).notes[0]


def test_a_last_step_that_stands_still_by_chance_is_no_padding():
    fields = walks()
    still = [7, 100, LENGTH - 1]  # one of them at the end of an episode
    fields["next_obs"][still] = fields["obs"][still]
    fields["obs"][[8, 101]] = fields["obs"][[7, 100]]
    assert not any(name == "padded-next-obs" for _, name, _ in findings(fields))


# --- repair ---


def rows_of(dataset: TransitionDataset) -> np.ndarray:
    return np.concatenate([piece.numpy() for piece in dataset.pieces()])


@pytest.mark.parametrize("kind", ["truncations", "episode_ids", "terminations"])
def test_repair_drops_exactly_the_rows_that_are_lost(kind, caplog):
    fields = shifted()
    if kind == "terminations":  # a time limit
        fields["terminations"], fields["truncations"] = (
            fields["truncations"],
            fields["terminations"],
        )
    if kind == "episode_ids":
        fields["truncations"], fields["episode_ids"] = None, np.arange(360) // LENGTH
    broken = TransitionDataset.from_dict(fields)
    with caplog.at_level("INFO", "rl_training"):
        repaired = repair_dataset(broken)
    lost = ENDS[:-1]
    expected = rows_of(broken)
    expected[lost - 1, broken.layout.truncation] = 1
    assert np.array_equal(rows_of(repaired), np.delete(expected, lost, axis=0))
    assert repaired.episode_lengths.tolist() == [LENGTH - 1] * 11 + [LENGTH]
    assert "dropped 11 of 360 rows, the last ones of episodes 0, 1, 2 and 8 more" in caplog.text
    assert not is_wrong(check_dataset(repaired))


def test_repair_says_when_there_is_nothing_to_do(caplog):
    dataset = TransitionDataset(**walks())
    with caplog.at_level("INFO", "rl_training"):
        assert repair_dataset(dataset) is dataset
    assert "nothing to repair" in caplog.text


def test_repair_leaves_terminated_rows_alone():
    ragged = np.arange(360) % 47 == 46
    fields = shifted(terminations=ragged)
    repaired = repair_dataset(TransitionDataset(**fields))
    assert int(repaired.terminations.sum()) == ragged.sum()
    assert len(repaired) == 360 - int((fields["truncations"] & ~ragged)[:-1].sum())


def test_an_episode_of_one_lost_row_goes_without_cutting_the_one_before():
    fields = shifted()
    fields["truncations"][LENGTH] = True  # the second episode is this row alone
    repaired = repair_dataset(TransitionDataset(**fields))
    assert repaired.episode_lengths[:2].tolist() == [LENGTH - 1, LENGTH - 2]


# --- the last episode ---


@pytest.mark.parametrize("rows", [360, 350])
def test_an_open_episode_does_not_depend_on_where_boundaries_come_from(rows):
    fields = {name: values[:rows] for name, values in walks().items()}
    ids = {**fields, "truncations": None, "episode_ids": np.arange(rows) // LENGTH}
    derived = {**fields, "truncations": None}
    answers = {
        TransitionDataset.from_dict(f).describe()["open_episode"] for f in (fields, ids, derived)
    }
    assert answers == {rows == 350}
