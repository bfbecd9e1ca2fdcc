"""Judging policies by a log: cards, rankings, and the verbs that print them."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.support.data import make_fields

from rl_training import ope
from rl_training.api import train
from rl_training.cli.main import main
from rl_training.config import ConfigError, DatasetError, RunError
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.ope.fitted_q import fit_values
from rl_training.ope.judged_policy import JudgedPolicy
from rl_training.ope.judging import open_log
from rl_training.ope.selecting import Ranking
from rl_training.runtime.config.train_config import TrainConfig

QUICK = ope.FitOptions(updates=40, members=3, hidden_sizes=(8,), batch_size=16)
WORDS = ["--updates", "40", "--members", "3", "--hidden-sizes", "8", "-q"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A log, and runs of a deterministic and a stochastic policy trained on it."""
    directory = tmp_path_factory.mktemp("runs")
    log = directory / "log.npz"
    np.savez(log, **make_fields())
    paths = {"log": log}
    for algo in ("td3_bc", "awac"):
        config = TrainConfig(
            algo=algo,
            total_timesteps=20,
            checkpoint_interval=10,
            output_dir=str(directory / "runs"),
            algo_kwargs={
                "dataset_kind": "npz", "dataset_path": str(log), "hidden_sizes": [8],
                "tensorboard": False,
            },
        )  # fmt: skip
        paths[algo] = train(config).run_dir
    return paths


def test_a_card_names_policy_log_estimates_and_verdict(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    card = ope.judge(runs["td3_bc"], runs["log"], options=QUICK, output_dir=tmp_path)
    facts = json.loads(json.dumps(card.as_dict(), allow_nan=False))
    assert facts["policy"]["algo"] == "td3_bc"
    assert facts["policy"]["trained_on_this_log"]
    assert facts["log"]["episodes"] == 20
    assert facts["log"]["cut_episodes"] == 10
    fields = make_fields()
    powers = 0.99 ** np.arange(20)
    returns = (fields["rewards"].reshape(20, 20) * powers).sum(1)
    terminated = returns[::2]  # of which nothing is missing
    assert facts["pictures"]["behaviour_returns"][::2] == pytest.approx(terminated, rel=1e-4)
    assert facts["estimates"][0]["low"] < facts["estimates"][0]["value"]
    weighing = [estimate for estimate in facts["estimates"] if estimate["name"] != "fqe"]
    assert all(not estimate["applies"] and "density" in estimate["reason"] for estimate in weighing)


def test_a_stochastic_policy_is_weighed_and_a_deterministic_one_cannot_be_drawn_from(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    card = ope.judge(runs["awac"], runs["log"], stochastic=True, options=QUICK, output_dir=tmp_path)
    assert card.policy["acts"] == "stochastic"
    weighted = card.estimate("wdr")
    assert weighted.effective_sample_size is not None
    assert weighted.estimate is not None or weighted.reason
    assert card.behaviour_model is not None
    with pytest.raises(ConfigError, match="leave out --stochastic"):
        ope.judge(runs["td3_bc"], runs["log"], stochastic=True, output_dir=tmp_path)


def test_held_out_episodes_are_judged_by_alone(runs: dict[str, Path], tmp_path: Path) -> None:
    options = {
        "dataset_kind": "npz", "dataset_path": str(runs["log"]), "hidden_sizes": [8],
        "tensorboard": False, "validation_fraction": 0.3,
    }  # fmt: skip
    config = TrainConfig(
        algo="bc", total_timesteps=10, output_dir=str(tmp_path / "runs"), algo_kwargs=options
    )
    run, fits = train(config).run_dir, {"options": QUICK, "output_dir": tmp_path / "fits"}
    whole = ope.judge(run, runs["log"], **fits)
    assert whole.policy["trained_on_this_log"]
    apart = ope.judge(run, runs["log"], held_out=True, **fits)
    assert (apart.log["episodes"], apart.policy["trained_on_this_log"]) == (6, False)
    other = TransitionDataset.from_dict(make_fields(seed=5))
    with pytest.raises(ConfigError, match="not the log"):
        ope.judge(run, other, held_out=True, **fits)
    with pytest.raises(ConfigError, match="without validation_fraction"):
        ope.judge(runs["td3_bc"], runs["log"], held_out=True, **fits)
    with pytest.raises(ConfigError, match="different held-out episodes"):
        ope.select([run, runs["awac"]], runs["log"], held_out=True, **fits)


def test_ends_that_look_wrong_are_noted_on_the_card(runs: dict[str, Path], tmp_path: Path) -> None:
    fields = make_fields()
    limits = {"terminations": np.arange(1, 401) % 20 == 0, "truncations": np.zeros(400)}
    log = tmp_path / "limit.npz"
    np.savez(log, **{**fields, **limits})
    card = ope.judge(runs["td3_bc"], log, options=QUICK, output_dir=tmp_path / "fits")
    assert any("after exactly 20 steps, which looks like a time limit" in n for n in card.notes)
    assert any(f"data check {log}" in note for note in card.notes)


def test_what_cannot_be_judged_is_refused_in_words_of_the_command(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    fields = make_fields()
    dataset = TransitionDataset.from_dict(fields)
    fit = fit_values(
        *open_log(dataset, JudgedPolicy.load(runs["awac"]), 0.9), None, QUICK, tmp_path / "fits"
    )
    with pytest.raises(ConfigError, match="is a fit of `rl-training ope`, not a policy"):
        ope.judge(fit.run_dir, dataset, stochastic=True)
    for gamma in (float("nan"), 1.5):
        with pytest.raises(ConfigError, match="gamma must be from 0 to 1"):
            ope.judge(runs["awac"], dataset, gamma=gamma)
    choices = TransitionDataset.from_dict({**fields, "actions": np.arange(400) % 2})
    with pytest.raises(DatasetError, match="discrete, but those of the policy are continuous"):
        ope.judge(runs["awac"], choices)
    huge = TransitionDataset.from_dict({**fields, "rewards": np.full(400, 3e38)})
    with pytest.raises(DatasetError, match="rewards reach 3e\\+38"):
        ope.judge(runs["awac"], huge)
    identity = {"validation": {"sha256": "0"}}  # a checkpoint may say anything
    forged = replace(JudgedPolicy.load(runs["awac"]), identity=identity)
    with pytest.raises(ConfigError, match="without validation_fraction"):
        forged.held_out(dataset)


def test_a_part_of_a_mixture_has_been_seen(runs: dict[str, Path]) -> None:
    policy = replace(JudgedPolicy.load(runs["awac"]), identity={"source": "first.npz + log.npz"})
    assert policy.has_seen(TransitionDataset.from_dict(make_fields(), "log.npz"))
    assert not policy.has_seen(TransitionDataset.from_dict(make_fields(), "g.npz"))


def test_a_log_of_another_problem_is_refused(runs: dict[str, Path], tmp_path: Path) -> None:
    dataset = TransitionDataset.from_dict(make_fields(obs_dim=4))
    with pytest.raises(DatasetError, match="observations"):
        ope.judge(runs["td3_bc"], dataset, output_dir=tmp_path)
    fields = make_fields()
    other_units = TransitionDataset.from_dict({**fields, "actions": 2 * fields["actions"]})
    with pytest.raises(DatasetError, match="outside the bounds"):
        ope.judge(runs["td3_bc"], other_units, output_dir=tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_ranking_puts_the_best_first_and_says_how_far_it_is_ahead(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    steps = [runs["td3_bc"] / "checkpoints" / name for name in ("step_10", "step_20")]
    ranking = ope.select([*steps, runs["awac"]], runs["log"], options=QUICK, output_dir=tmp_path)
    values = [card.estimate("fqe").estimate.value for card in ranking.cards]  # type: ignore[union-attr]
    assert values == sorted(values, reverse=True)
    assert ranking.gap is not None
    assert ranking.gap.value == pytest.approx(values[0] - values[1])
    assert len(list(tmp_path.iterdir())) == 4  # the behaviour is fitted once
    with pytest.raises(ConfigError, match="did you mean 'wdr'"):
        ope.select(steps, runs["log"], by="wd")


def test_best_is_never_a_policy_that_cannot_be_trusted(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    def card(verdict: Any, value: float, trusted: bool = True) -> ope.ScoreCard:
        bounds = ope.Interval(value, value - 1, value + 1)
        estimate = ope.CardEstimate("fqe", bounds, bounds, trusted=trusted)
        return ope.ScoreCard({}, {}, 0.9, 0.9, bounds, [estimate], {}, verdict, [])

    doubtful, sound = card("do not trust this", 9.0), card("worse", 1.0)
    assert Ranking("fqe", [doubtful, sound], None).best is sound
    few_episodes = card("better than the log", 9.0, trusted=False)  # by another estimator
    assert Ranking("fqe", [few_episodes, sound], None).best is sound
    ahead = ope.Interval(8.0, 7.0, 9.0)
    assert not Ranking("fqe", [few_episodes, sound], ahead).is_clear
    assert Ranking("fqe", [card("worse", 9.0), sound], ahead).is_clear
    with pytest.raises(RunError, match="none of 1 policies"):
        _ = Ranking("fqe", [doubtful], None).best


def test_the_verbs_print_cards_and_a_path_for_scripts(
    runs: dict[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    common = ["--dataset", str(runs["log"]), *WORDS]
    assert main(["ope", str(runs["td3_bc"]), *common]) == 0
    printed = capsys.readouterr().out
    assert "verdict     " in printed
    assert "fitted Q evaluation" in printed
    assert main(["ope", str(runs["td3_bc"]), *common, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] in printed
    monkeypatch.setattr("rl_training.ope.verdict.judge_evidence", lambda *_: ("worse", []))
    monkeypatch.setattr("rl_training.ope.judging.judge_evidence", lambda *_: ("worse", []))
    every = [str(runs["td3_bc"]), "--all-checkpoints", *common]
    assert main(["select", *every, "--best"]) == 0
    best = capsys.readouterr().out.strip()
    assert Path(best).name in ("step_10", "step_20")
    twice = [str(runs["td3_bc"]), str(runs["td3_bc"] / "checkpoints" / "step_20")]
    assert main(["select", *twice, *common, "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["policies"]) == 1
    assert main(["select", *every, "--json"]) == 0
    ranking = json.loads(capsys.readouterr().out)
    assert ranking["policies"][0]["policy"]["path"] == best
    assert main(["ope", str(runs["td3_bc"]), "x", *common, "--html", "a.html"]) == 2


def test_a_page_that_cannot_be_written_is_refused_before_the_fit(
    runs: dict[str, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    words = ["ope", str(runs["td3_bc"]), "--dataset", str(runs["log"]), *WORDS, "--html"]
    assert main([*words, "file/card.html"]) == 2
    assert "--html 'file'" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert main([*words, "card.html"]) == 2
    assert "rl-training[report]" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
