"""A search makes the same trials whatever ends first and however often it is killed."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.fake_trials import DriverKilled, FakeExecutor

from rl_training.config import CheckpointError, ConfigError, OutputError, RunError
from rl_training.reports.statistics import iqm
from rl_training.runs.search_record import SearchRecord, read_search
from rl_training.runtime import TrainConfig
from rl_training.sweeps import RunOptions, Search, TuneResult, tune
from rl_training.sweeps.search_replay import search_in

CONFIG = {
    "algo": "td3_bc",
    "env_id": "Pendulum-v1",
    "total_timesteps": 1_000,
    "algo_kwargs": {
        "dataset_kind": "random",
        "eval_interval": 100,
        "learning_rate": 0.5,  # a bad start
        "bc_alpha": 90.0,
    },
}
SPACE = {
    "axes": {
        "learning_rate": {"log_uniform": [1e-5, 1.0]},
        "bc_alpha": {"uniform": [0.0, 100.0]},
        "batch_size": {"integer": [16, 256]},
        "hidden_sizes": [[8], [16, 16]],
    }
}


def score(config: Mapping[str, Any], share: float) -> float:
    """Best at a learning rate of 1e-3 and an alpha of 10; grows while a run goes on; seeds differ."""
    options = config["algo_kwargs"]
    distance = abs(math.log10(options["learning_rate"]) + 3) + abs(options["bc_alpha"] - 10) / 30
    return -distance - (1 - share) * 0.5 + 0.01 * (config["seed"] % 7)


def make_search(**settings: Any) -> Search:
    config = settings.pop("config", CONFIG)
    space = settings.pop("space", SPACE)
    return Search(config, space, **{"seeds": (1, 2, 3), "fresh_seeds": 2, **settings})


def run_tune(
    directory: Path,
    executor: FakeExecutor | None = None,
    *,
    trials: int = 12,
    jobs: int = 3,
    search: Search | None = None,
    **settings: Any,
) -> TuneResult:
    executor = FakeExecutor(score) if executor is None else executor
    options = RunOptions(jobs, retries=0, make_executor=lambda: executor)
    search = make_search(**settings) if search is None else search
    return tune(search, directory, trials=trials, options=options)


def facts(record: SearchRecord) -> dict[str, Any]:
    """What a search has found out, without how often it was asked to go on."""
    return {**record.as_dict(), "wanted": None}


@pytest.mark.parametrize("sampler", ["tpe", "random", "cmaes"])
def test_it_finds_a_better_configuration_than_a_bad_start(sampler: str, tmp_path: Path) -> None:
    result = run_tune(tmp_path / "search", trials=20, sampler=sampler)
    assert len(result.record.trials) == 20
    start, best = result.record.trials[0], result.best
    assert best is not None
    assert start.values == {
        "learning_rate": 0.5, "bc_alpha": 90.0, "batch_size": 256, "hidden_sizes": [256, 256],
    }  # fmt: skip
    assert best.value > start.value + 2
    assert best.value == max(trial.value for trial in result.record.trials)


@pytest.mark.parametrize("sampler", ["tpe", "random", "cmaes"])
def test_a_search_that_is_killed_at_any_moment_goes_on_with_the_same_trials(
    sampler: str, tmp_path: Path
) -> None:
    # beyond the first ten trials, which TPE draws at random
    settings = {"sampler": sampler, "trials": 14, "seeds": (1, 2)}
    whole = run_tune(tmp_path / "whole", **settings)
    for number, killed_after in enumerate((0, 13, 24, 29)):
        directory = tmp_path / f"killed{number}"
        executor = FakeExecutor(score, killed_after=killed_after, all_die=number % 2 == 0)
        with pytest.raises(DriverKilled):
            run_tune(directory, executor, **settings)
        assert facts(run_tune(directory, **settings).record) == facts(whole.record)


def test_a_search_that_is_killed_again_and_again_ends_equal(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"pruner": "median", "trials": 15, "seeds": (1, 2)}
    whole = run_tune(tmp_path / "whole", **settings)
    assert {trial.state for trial in whole.record.trials} == {"complete", "pruned"}
    kills = 0
    while True:
        executor = FakeExecutor(score, killed_after=6, order=kills, all_die=kills % 2 == 0)
        try:
            again = run_tune(tmp_path / "killed", executor, **settings)
        except DriverKilled:
            kills += 1
            continue
        break
    assert kills > 5
    assert facts(again.record) == facts(whole.record)


@pytest.mark.parametrize("pruner", ["none", "median", "hyperband"])
def test_it_makes_no_difference_who_ends_first(pruner: str, tmp_path: Path) -> None:
    searches = [
        run_tune(tmp_path / str(order), FakeExecutor(score, order=order), trials=15, pruner=pruner)
        for order in (1, 2)
    ]
    assert facts(searches[0].record) == facts(searches[1].record)
    # nor how many run side by side later, as the size of rounds stays
    directory = tmp_path / "resumed"
    run_tune(directory, trials=6, pruner=pruner)
    resumed = run_tune(directory, trials=15, jobs=1, pruner=pruner)
    with pytest.raises(OutputError, match="round_size"):
        run_tune(directory, trials=15, round_size=4, pruner=pruner)
    assert facts(resumed.record) == facts(searches[0].record)


def test_a_larger_number_of_trials_goes_on_as_if_it_had_been_so_from_the_beginning(
    tmp_path: Path,
) -> None:
    whole = run_tune(tmp_path / "whole", trials=14, jobs=4)
    for trials in (5, 6, 11, 14):  # rounds of 4 that are cut
        raised = run_tune(tmp_path / "raised", trials=trials, jobs=4)
        assert len(raised.record.trials) == trials
    assert facts(raised.record) == facts(whole.record)
    executor = FakeExecutor(score)
    assert facts(run_tune(tmp_path / "raised", executor, trials=14).record) == facts(whole.record)
    assert executor.started == [], "nothing is trained twice"


def test_the_honest_score_is_of_seeds_that_the_search_did_not_use(tmp_path: Path) -> None:
    executor = FakeExecutor(score)
    result = run_tune(tmp_path / "search", executor, seeds=(4, 7), fresh_seeds=5, trials=4)
    fresh, best = result.record.fresh, result.best
    assert fresh is not None
    assert best is not None
    assert tuple(fresh.seeds) == (8, 9, 10, 11, 12)
    assert {task.config["seed"] for task in executor.started[-5:]} == set(fresh.seeds)
    config = search_in(tmp_path / "search").configure(best.values)
    expected = [score({**config.as_dict(), "seed": seed}, 1.0) for seed in fresh.seeds]
    assert list(fresh.seeds.values()) == pytest.approx(expected)
    assert fresh.iqm == pytest.approx(iqm(expected))
    assert fresh.low is not None
    assert fresh.low <= fresh.iqm <= fresh.high
    # the search's own score is another number
    assert best.value == pytest.approx(iqm(list(best.seeds.values())))
    assert set(best.seeds) == {4, 7}


def test_the_best_configuration_is_one_that_can_be_trained(tmp_path: Path) -> None:
    result = run_tune(tmp_path / "search")
    values = yaml.safe_load((tmp_path / "search" / "best.yaml").read_text())
    best = TrainConfig(**values)
    assert result.best is not None
    assert best.algo_kwargs.items() >= result.best.values.items()
    assert best.output_dir == "runs"


def test_a_failed_seed_fails_its_trial_and_the_search_goes_on(tmp_path: Path) -> None:
    def fails(config: Mapping[str, Any]) -> bool:
        return config["seed"] == 2 and config["algo_kwargs"]["learning_rate"] > 0.01

    result = run_tune(tmp_path / "search", FakeExecutor(score, fails=fails), trials=15)
    failed = [trial for trial in result.record.trials if trial.state == "failed"]
    assert failed
    assert failed[0].number == 0
    assert all(t.reason == "seed 2: the simulator broke" and t.value is None for t in failed)
    assert result.best is not None
    assert result.best.values["learning_rate"] <= 0.01


def test_it_gives_up_if_the_first_trials_all_fail(tmp_path: Path) -> None:
    executor = FakeExecutor(score, fails=lambda _: True)
    with pytest.raises(RunError, match=r"all 12 trials failed; trial 0: seed 1: the simulator"):
        run_tune(tmp_path / "search", executor, trials=40)
    assert len(read_search(tmp_path / "search").trials) == 12


def test_a_point_that_is_no_configuration_fails_without_a_run(tmp_path: Path) -> None:
    kwargs = {"num_critics": 6, "subset_size": 2, "eval_interval": 500}
    result = run_tune(
        tmp_path / "search",
        FakeExecutor(lambda config, share: -config["algo_kwargs"]["subset_size"] * share),
        config={**CONFIG, "algo": "redq", "algo_kwargs": kwargs},
        # 6 critics and 6 of them go together, and so do 2 and 2, but not 2 and 6
        space={"axes": {"num_critics": {"integer": [2, 6]}, "subset_size": {"integer": [1, 6]}}},
        sampler="random",
        trials=15,
    )
    failed = [trial for trial in result.record.trials if trial.state == "failed"]
    assert 0 < len(failed) < 15
    for trial in failed:
        assert trial.values["subset_size"] > trial.values["num_critics"]
        assert "subset_size" in trial.reason
        assert trial.runs == ()


def test_equal_points_share_their_runs(tmp_path: Path) -> None:
    executor = FakeExecutor(lambda config, share: config["algo_kwargs"]["batch_size"] * share)
    result = run_tune(
        tmp_path / "search",
        executor,
        space={"axes": {"batch_size": [32, 64]}},
        sampler="random",
        trials=9,
    )
    assert len(executor.started) == 3 * 3 + 2  # 32, 64 and the start, and two fresh seeds
    assert {trial.value for trial in result.record.trials} == {32.0, 64.0, 256.0}
    assert result.best is not None
    assert result.best.number == 0, "a start outside of the space is a trial like any other"


def test_options_with_conditions_are_suggested_where_they_hold(tmp_path: Path) -> None:
    space = {
        "axes": {
            "weight_type": ["exp", "binary"],
            "beta": {"log_uniform": [0.1, 10], "when": {"weight_type": "exp"}},
        }
    }
    result = run_tune(
        tmp_path / "search",
        FakeExecutor(lambda config, share: config["algo_kwargs"].get("beta", 0.0)),
        config={
            **CONFIG,
            "algo": "crr",
            "algo_kwargs": {"dataset_kind": "random", "eval_interval": 500},
        },
        space=space,
        trials=16,
    )
    kinds = {trial.values["weight_type"] for trial in result.record.trials}
    assert kinds == {"exp", "binary"}
    for trial in result.record.trials:
        assert ("beta" in trial.values) == (trial.values["weight_type"] == "exp")


def test_a_time_budget_ends_the_call_between_rounds(tmp_path: Path) -> None:
    run_tune(tmp_path / "search", trials=3)
    options = RunOptions(3, make_executor=lambda: FakeExecutor(score))
    result = tune(make_search(), tmp_path / "search", trials=30, timeout=0.0, options=options)
    assert len(result.record.trials) == 3
    assert result.record.fresh is not None
    assert result.record.wanted == 30


def test_the_journal_is_one_that_optuna_reads_without_state_of_samplers(tmp_path: Path) -> None:
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    directory = tmp_path / "search"
    result = run_tune(directory, trials=9, sampler="cmaes")
    journal = directory / "optuna.journal"
    assert "cma" not in journal.read_text(), "its state is a pickle"
    study = optuna.load_study(
        study_name="rl-training", storage=JournalStorage(JournalFileBackend(str(journal)))
    )
    assert [trial.value for trial in study.trials[1:]] == [
        t.value for t in result.record.trials[1:]
    ]
    # a line that a crash has cut off, and a journal that is gone, harm nothing
    journal.write_bytes(journal.read_bytes()[:-20])
    longer = run_tune(directory, trials=12, sampler="cmaes")
    assert longer.record.trials[:9] == result.record.trials
    study = optuna.load_study(
        study_name="rl-training", storage=JournalStorage(JournalFileBackend(str(journal)))
    )
    assert len(study.trials) == 12


# -- what is refused ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"metric": "eval/retrun_mean"}, "did you mean 'eval/return_mean'"),
        ({"metric": "eval/return_std"}, "Say --mode max or --mode min"),
        ({"metric": "eval/shaped_return_mean"}, "only env_kwargs.wrappers.reward"),
        ({"metric": "validation/td_error"}, "set validation_fraction"),
        ({"metric": "train/actr_loss"}, "did you mean 'train/actor_loss'"),
        ({"metric": "ope/fqe"}, "needs one log that the configuration names"),
        ({"metric": "train/actor_loss", "pruner": "median"}, "needs a metric of evaluations"),
        ({"config": {**CONFIG, "eval_episodes": 0}}, "eval_episodes is 0"),
        ({"config": {**CONFIG, "env_id": None}}, "env_id is null"),
        ({"pruner": "median", "space": {"axes": {"eval_interval": [100, 200]}}}, "axes.eval_interval"),
        ({"pruner": "hyperband", "config": {**CONFIG, "total_timesteps": 50}}, "no evaluation lies"),
        ({"space": {"axes": {"seed": [1, 2]}}}, "axes.seed: is set by the search itself"),
        ({"space": {"axes": {}}}, "axes: must have at least 1"),
        ({"space": {"axis": {"tau": [0.1]}}}, "axis: unknown key; did you mean 'axes'"),
        ({"space": "nowhere.yaml"}, "no space file or packaged space 'nowhere.yaml'"),
        ({"space": {"axes": {"tau": {"uniform": [2, 1]}}}}, "low must be below high"),
        ({"seeds": (1, 1)}, "seeds: must be distinct"),
        ({"sampler": "cmaes", "space": {"axes": {"tau": [0.1, 0.2]}}}, "cmaes needs two or more"),
        ({"sampler": "grid"}, "sampler: expected one of 'tpe', 'random', 'cmaes'"),
    ],
)  # fmt: skip
def test_a_wrong_description_is_refused_before_anything_is_made(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        make_search(**settings)
    assert message in str(caught.value)


def test_impossible_values_of_every_axis_are_found_before_the_first_run(tmp_path: Path) -> None:
    space = {"axes": {"tau": {"uniform": [0.1, 2.0]}, "gama": [0.9], "bc_alpha": [1.0, -1.0]}}
    executor = FakeExecutor(score)
    with pytest.raises(ConfigError) as caught:
        run_tune(tmp_path / "search", executor, space=space)
    lines = str(caught.value).splitlines()
    assert len(lines) == 3
    assert "must be <= 1" in lines[0]
    assert "(at tau=2.0)" in lines[0]
    assert "did you mean 'gamma'" in lines[1]
    assert "(at bc_alpha=-1.0)" in lines[2]
    assert not (tmp_path / "search").exists()
    assert executor.started == []


def test_a_metric_that_the_environment_does_not_report_ends_the_search_at_once(
    tmp_path: Path,
) -> None:
    executor = FakeExecutor(score)
    with pytest.raises(ConfigError, match="eval/success_rate is not measured"):
        run_tune(tmp_path / "search", executor, metric="eval/success_rate")
    assert len(executor.started) == 9, "one round"


def test_another_search_in_the_same_directory_is_refused(tmp_path: Path) -> None:
    directory = tmp_path / "search"
    run_tune(directory, trials=3)
    with pytest.raises(OutputError, match=r"other settings \(sampler, seeds\)"):
        run_tune(directory, trials=3, sampler="random", seeds=(1,))
    assert run_tune(directory, trials=3, fresh_seeds=4).record.fresh.seeds.keys() == {4, 5, 6, 7}
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    with pytest.raises(OutputError, match="holds something else than a search"):
        run_tune(tmp_path / "other", trials=3)


def test_a_sampler_that_suggests_otherwise_is_an_error_that_names_both_versions(
    tmp_path: Path,
) -> None:
    directory = tmp_path / "search"
    run_tune(directory, trials=6)
    record = read_search(directory)
    changed = replace(record.trials[4], params={**record.trials[4].params, "bc_alpha": 3.0})
    trials = (*record.trials[:4], changed, *record.trials[5:])
    replace(record, versions={"optuna": "3.6.1"}, trials=trials).write(directory)
    with pytest.raises(CheckpointError) as caught:
        run_tune(directory, trials=9)
    assert "trial 4 would be another one today" in str(caught.value)
    assert "optuna 3.6.1" in str(caught.value)
    assert str(caught.value).count("optuna") == 2


@pytest.mark.parametrize(
    "damage",
    [
        lambda values: "[",
        lambda values: json.dumps([1]),
        lambda values: json.dumps({**values, "schema": 7}),
        lambda values: json.dumps({**values, "trials": {}}),
        lambda values: json.dumps({**values, "trials": [*values["trials"][1:]]}),
        lambda values: json.dumps({**values, "settings": {"metric": 1, "mode": "max"}}),
        lambda values: json.dumps({**values, "wanted": 0}),
        lambda values: json.dumps(
            {**values, "settings": {**values["settings"], "axes": {"tau": 3}}}
        ),
        lambda values: json.dumps({**values, "settings": {**values["settings"], "round_size": -1}}),
        lambda values: json.dumps(changed_trial(values, runs=["../outside"])),
        lambda values: json.dumps(changed_trial(values, runs=[".."])),
        lambda values: json.dumps(changed_trial(values, value=None)),
        lambda values: json.dumps(changed_trial(values, value=float("nan"))),
        lambda values: json.dumps(changed_trial(values, state="won")),
        lambda values: json.dumps(changed_trial(values, seeds={"one": 1.0})),
        lambda values: json.dumps({**values, "fresh": {**values["fresh"], "number": 99}}),
        lambda values: json.dumps({**values, "importance": {"tau": "much"}}),
    ],
)
def test_a_damaged_record_is_one_line(damage: Any, tmp_path: Path) -> None:
    directory = tmp_path / "search"
    run_tune(directory, trials=3)
    record = directory / "tune.json"
    record.write_text(damage(json.loads(record.read_text())))
    executor = FakeExecutor(score)
    with pytest.raises((CheckpointError, ConfigError, OutputError)) as caught:
        tune(
            search_in(directory),
            directory,
            trials=6,
            options=RunOptions(3, make_executor=lambda: executor),
        )
    assert len(str(caught.value).splitlines()) == 1
    assert executor.started == []


def changed_trial(values: dict[str, Any], **changes: Any) -> dict[str, Any]:
    first, *others = values["trials"]
    return {**values, "trials": [{**first, **changes}, *others]}


def test_a_damaged_list_of_runs_decides_nothing(tmp_path: Path) -> None:
    directory = tmp_path / "search"
    whole = run_tune(tmp_path / "whole", trials=9)
    run_tune(directory, trials=3)
    (directory / "trials.json").write_text('{"trials": [{"name": "../../etc"}]}')
    assert facts(run_tune(directory, trials=9).record) == facts(whole.record)


def test_a_strangers_search_does_not_import_a_module(tmp_path: Path) -> None:
    directory = tmp_path / "search"
    run_tune(directory, trials=3)
    values = json.loads((directory / "tune.json").read_text())
    values["settings"]["config"]["env_id"] = "evil_module:Name"
    (directory / "tune.json").write_text(json.dumps(values))
    with pytest.raises(ValueError, match="--trust-env"):
        search_in(directory)
