"""Held-out episodes: never learned from, the same for the same data and seed, judged at evaluations."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rl_training.algorithms import get_algorithm_spec, list_algorithm_specs
from rl_training.algorithms.base import Algorithm
from rl_training.config import CheckpointError, ConfigError, RunError
from rl_training.data import TransitionDataset
from rl_training.data.support import Support
from rl_training.runtime import TrainConfig, resume, train
from rl_training.runtime.config.controls import VALIDATION_METRICS
from rl_training.runtime.evaluation.evaluator import Evaluator
from rl_training.runtime.evaluation.validation import Validator
from rl_training.runtime.loop.progress import ProgressCallback
from rl_training.runtime.loop.state import TrainerState
from rl_training.runtime.prepare import TrainingData, load_and_split, prepare
from tests.support.algorithms import SPECS
from tests.support.data import make_fields
from tests.support.runs import assert_same_run, killed_run, metrics_of, tensors_of

GAMMA = 0.99
HELD = {"validation_fraction": 0.2}


def numbered_log(rows: int = 400, first: int = 1, action_dim: int = 1) -> dict[str, Any]:
    """A log whose rewards are the numbers of its rows, so that a row can be told in any batch."""
    rewards = np.arange(first, first + rows, dtype=np.float32)
    return {**make_fields(rows, action_dim=action_dim, seed=first), "rewards": rewards}


def prepared(config: TrainConfig, **fields: Any) -> TrainingData:
    dataset = TransitionDataset.from_dict({**numbered_log(), **fields})
    return prepare(config, *load_and_split(config, dataset))


def validation_rows(run_dir: Path) -> list[dict[str, Any]]:
    return [row for row in metrics_of(run_dir) if any("validation/" in name for name in row)]


# -- the split --------------------------------------------------------------------------------


def test_the_split_is_whole_episodes_and_the_same_for_the_same_seed(small_config: Any) -> None:
    config = small_config(algo_kwargs={**HELD, "normalize_rewards": True})
    data, again = prepared(config), prepared(config)
    other = prepared(config.replace(seed=1))
    assert data.source == again.source
    assert data.source["validation"] != other.source["validation"]
    assert data.source["validation"]["episodes"] == 4  # of 20
    assert data.dataset is not None
    assert data.dataset.held_out is not None
    held = data.dataset.held_out.rewards / data.reward_scale
    assert len(held) == 80
    assert torch.equal(held.view(4, 20).diff(dim=1).round(), torch.ones(4, 19))


def test_everything_measured_is_of_the_training_part(small_config: Any) -> None:
    config = small_config(
        algo_kwargs={**HELD, "top_fraction": 0.5, "normalize_rewards": True}, env_id=None
    )
    training, held_out = load_and_split(config, TransitionDataset.from_dict(numbered_log()))
    assert held_out is not None
    assert (len(training.episode_starts), len(held_out.episode_starts)) == (8, 4)
    data, alone = prepare(config, training, held_out), prepare(config, training)
    assert data.normalizer is not None
    assert alone.normalizer is not None
    assert torch.equal(data.normalizer.mean, alone.normalizer.mean)
    assert data.reward_scale == alone.reward_scale
    assert (data.spec, data.facts) == (alone.spec, alone.facts)
    assert data.dataset is not None
    assert data.dataset.held_out is not None
    # held-out rows are in the same units
    expected = (held_out.obs - data.normalizer.mean) / data.normalizer.std
    torch.testing.assert_close(data.dataset.held_out.obs, expected)
    torch.testing.assert_close(data.dataset.held_out.rewards, held_out.rewards * data.reward_scale)


@pytest.mark.parametrize(
    ("regime", "options"),
    [
        ("offline", {}),
        ("offline_to_online", {"offline_batch_ratio": 0.5}),
        ("offline_to_online", {"offline_batch_ratio": "pooled"}),
    ],
)
def test_no_held_out_row_is_ever_in_a_batch(
    regime: str,
    options: dict[str, Any],
    small_config: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also not of a mixture whose parts are drawn by their weights."""
    parts = []
    for number, first in enumerate((1, 1001)):
        path = tmp_path / f"{number}.npz"
        np.savez(path, **numbered_log(200, first))
        parts.append({"kind": "npz", "path": str(path), "weight": 1 + number})
    if regime != "offline":
        options = {**options, "regime": regime, "offline_pretrain_updates": 30}
        options |= {"learning_starts": 5}
    config = small_config(
        env_id=None if regime == "offline" else "Pendulum-v1",
        eval_episodes=0,
        total_timesteps=60,
        algo_kwargs={
            **HELD,
            "dataset_kind": None,
            "dataset_path": None,
            "dataset_mix": parts,
            **options,
        },
    )
    training, held_out = load_and_split(config)
    assert held_out is not None
    learned: set[float] = set()
    update = Algorithm.update

    def note(self: Any, batch: Any) -> Any:
        learned.update(batch.rewards.tolist())
        return update(self, batch)

    monkeypatch.setattr(Algorithm, "update", note)
    train(config)
    logged = {reward for reward in learned if reward > 0}  # those of Pendulum are not
    assert logged <= set(training.rewards.tolist())
    assert not learned & set(held_out.rewards.tolist())
    assert len(logged) > 250


def test_training_draws_what_it_draws_without_validation(small_config: Any) -> None:
    config = small_config("iql", algo_kwargs=HELD)
    training, _ = load_and_split(config)
    plain = small_config("iql", algo_kwargs={"dataset_kind": None, "dataset_path": None})
    first, second = train(config), train(plain, dataset=training)
    tensors, others = (tensors_of(result.checkpoint_path) for result in (first, second))
    assert all(torch.equal(tensors[name], others[name]) for name in others)


# -- metrics ----------------------------------------------------------------------------------


def learner_and_data(
    name: str, kind: str, **options: Any
) -> tuple[Any, TransitionDataset, TransitionDataset]:
    spec = get_algorithm_spec(name)
    fields = make_fields(action_dim=SPECS[kind].action_width)
    if kind == "discrete":
        fields["actions"] = np.random.default_rng(0).integers(0, SPECS[kind].action_dim, 400)
    held_out, training = TransitionDataset.from_dict(fields).split(0.2, seed=0)
    config = spec.config(hidden_sizes=(8, 8), **options)
    return spec.algorithm(SPECS[kind], config, seed=3), held_out, training


LEARNERS = [
    (spec.name, kind)
    for spec in list_algorithm_specs()
    if spec.regimes != ("online",)
    for kind in spec.action_kinds
]


@pytest.mark.parametrize(("name", "kind"), LEARNERS)
def test_every_learner_from_logs_is_measured_without_its_random_streams(
    name: str, kind: str
) -> None:
    learner, held_out, training = learner_and_data(name, kind)
    before = learner.generator.get_state()
    validator = Validator(learner, held_out, training, seed=0)
    metrics = validator.run()
    assert metrics == validator.run()
    assert tuple(metrics) == validator.names
    assert np.isfinite(list(metrics.values())).all()
    assert torch.equal(before, learner.generator.get_state())
    stochastic = hasattr(learner.actor, "log_prob")
    expected = {"validation/action_distance", "validation/unlike_share"}
    expected |= {"validation/log_prob"} if stochastic else set()
    if name != "bc":
        expected |= set(VALIDATION_METRICS) - {"validation/log_prob"}
    assert set(metrics) == expected


def test_metrics_of_continuous_actions_are_what_they_say() -> None:
    learner, held_out, training = learner_and_data("iql", "continuous", gamma=GAMMA)
    metrics = Validator(learner, held_out, training, seed=5).run()
    errors, logged, own, likelihood, distance, initial = [], [], [], [], [], []
    for row in range(len(held_out)):
        obs, action = held_out.obs[row : row + 1], held_out.actions[row : row + 1]
        with torch.no_grad():
            q = learner.critic(obs, action)[:, 0]
            target = held_out.rewards[row]
            if not held_out.terminations[row]:  # a truncated row bootstraps
                target = target + GAMMA * learner.value(held_out.next_obs[row : row + 1])[0, 0]
            mean, log_std = learner.actor(obs)
            policy_q = learner.critic(obs, mean)[:, 0]
            normal = torch.distributions.Normal(mean, log_std.exp().expand_as(mean))
        errors.append((q - target).square().mean())
        logged.append(q.mean())
        own.append(policy_q.mean())
        likelihood.append(normal.log_prob(action).sum())
        distance.append((mean - action).square().mean())
        if row % 20 == 0:
            initial.append(policy_q.mean())
    support = Support.measure(training, 5)
    unlike = support.unlike(held_out.obs, learner.act(held_out.obs)).float().mean()
    expected = {
        "td_error": torch.stack(errors).mean(),
        "log_prob": torch.stack(likelihood).mean(),
        "action_distance": torch.stack(distance).mean(),
        "logged_q": torch.stack(logged).mean(),
        "policy_q": torch.stack(own).mean(),
        "initial_value": torch.stack(initial).mean(),
        "unlike_share": unlike,
    }
    measured = {name.removeprefix("validation/"): value for name, value in metrics.items()}
    assert measured == pytest.approx({k: float(v) for k, v in expected.items()}, rel=1e-4)


def test_metrics_of_discrete_actions_are_what_they_say() -> None:
    learner, held_out, training = learner_and_data("crr", "discrete", gamma=GAMMA)
    metrics = Validator(learner, held_out, training, seed=5).run()
    with torch.no_grad():
        q = learner.critic(held_out.obs)  # (critics, rows, choices)
        next_q = learner.target_critic(held_out.next_obs).amin(0)
        values = (learner.target_actor(held_out.next_obs).exp() * next_q).sum(1)
        log_probs = learner.actor(held_out.obs)
    rows = torch.arange(len(held_out))
    logged, chosen = q[:, rows, held_out.actions], log_probs.argmax(1)
    target = held_out.rewards + GAMMA * (1 - held_out.terminations) * values
    expected = {
        "td_error": (logged - target).square().mean(),
        "log_prob": log_probs[rows, held_out.actions].mean(),
        "action_distance": 1 - (chosen == held_out.actions).float().mean(),
        "logged_q": logged.mean(),
        "policy_q": q[:, rows, chosen].mean(),
        "initial_value": q[:, rows, chosen][:, ::20].mean(),
        "unlike_share": Support.measure(training, 5).unlike(held_out.obs, chosen).float().mean(),
    }
    measured = {name.removeprefix("validation/"): value for name, value in metrics.items()}
    assert measured == pytest.approx({k: float(v) for k, v in expected.items()}, rel=1e-4)


# -- in a run ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algo", "options"),
    [
        ("iql", {}),
        ("td3_bc", {"regime": "offline_to_online", "offline_pretrain_updates": 20}),
    ],
)
def test_killed_and_resumed_is_the_uninterrupted_run(
    algo: str, options: dict[str, Any], pendulum_config: Any
) -> None:
    stopping = {"metric": "validation_td_error", "mode": "min", "patience": 50}
    config = pendulum_config(algo, algo_kwargs={**HELD, **options, "early_stopping": stopping})
    whole = train(config)
    run_dir = killed_run(config, 33)
    resume(run_dir)
    assert_same_run(whole.run_dir, run_dir)
    rows = validation_rows(run_dir)
    assert [row["step"] for row in rows] == (
        [15, 30, 40] if algo == "iql" else [15, 20, 30, 45, 60]
    )
    # scores of the environment are in the same row, and `best` follows the metric that is watched
    assert all("eval/return_mean" in row for row in rows)
    best = min(rows, key=lambda row: row["validation/td_error"])
    assert (run_dir / "checkpoints/best").resolve().name == f"step_{best['step']}"


def test_a_failed_evaluation_leaves_no_second_row(
    pendulum_config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = pendulum_config(algo_kwargs=HELD)
    whole = train(config)
    run, calls = Evaluator.run, []

    def fail_second(self: Evaluator, *args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise RunError("the environment broke")
        return run(self, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(Evaluator, "run", fail_second)
        with pytest.raises(RunError, match="the environment broke"):
            train(config)
    (run_dir,) = {*Path(config.output_dir).glob("*")} - {whole.run_dir}
    resume(run_dir)
    assert_same_run(whole.run_dir, run_dir)


def test_early_stopping_and_best_work_without_an_environment(
    small_config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = iter([3.0, 2.0, float("nan"), 4.0, 1.0])
    monkeypatch.setattr(Validator, "run", lambda self: {"validation/td_error": next(scores)})
    stopping = {"metric": "validation/td_error", "mode": "min", "patience": 2}
    config = small_config(
        total_timesteps=100,
        algo_kwargs={**HELD, "eval_interval": 10, "early_stopping": stopping},
    )
    assert config.env_id is None
    result = train(config)
    assert result.stop_reason is not None
    assert "validation/td_error has not improved for 2 evaluations" in result.stop_reason
    assert [row["step"] for row in validation_rows(result.run_dir)] == [10, 20, 30, 40]
    assert (result.run_dir / "checkpoints/best").resolve().name == "step_20"


def test_without_a_metric_to_watch_there_is_no_best(small_config: Any) -> None:
    result = train(small_config(algo_kwargs={**HELD, "eval_interval": 10}))
    assert len(validation_rows(result.run_dir)) == 4
    assert not (result.run_dir / "checkpoints/best").exists()
    assert "validation/td_error" in result.metrics


@pytest.mark.parametrize(
    ("metrics", "line"),
    [
        ({"validation/td_error": 0.5}, "x 5/9  validation/td_error 0.5"),
        ({"validation/log_prob": -1.5}, "x 5/9  validation/log_prob -1.5"),
        (
            {"eval/return_mean": 3.0, "eval/return_std": 1.0, "validation/unlike_share": 0.25},
            "x 5/9  return 3.0 ± 1.0  validation/unlike_share 0.25",
        ),
    ],
)
def test_progress_shows_the_score_that_there_is(metrics: dict[str, float], line: str) -> None:
    stream = io.StringIO()
    state = TrainerState(type("Learner", (), {"name": "x"})(), global_step=5)
    ProgressCallback(9, stream).on_eval_end(state, metrics)
    assert stream.getvalue() == f"{line}\n"


# -- refusals ---------------------------------------------------------------------------------


def test_data_that_cannot_be_split_is_refused(small_config: Any, tmp_path: Path) -> None:
    config = small_config(algo_kwargs=HELD)
    fields = make_fields()
    order = np.random.default_rng(0).permutation(400)
    shuffled = {name: fields[name][order] for name in fields if name != "truncations"}
    with pytest.raises(ConfigError, match=r"validation_fraction.*where they end.*'truncations'"):
        load_and_split(config, TransitionDataset.from_dict(shuffled))
    single = {name: values[:15] for name, values in fields.items()}
    with pytest.raises(ConfigError, match=r"validation_fraction.*at least two episodes.*has 1"):
        load_and_split(config, TransitionDataset.from_dict(single))
    parts = []
    for number, rows in enumerate((20, 400)):
        np.savez(tmp_path / f"{number}.npz", **make_fields(rows))
        parts.append({"kind": "npz", "path": str(tmp_path / f"{number}.npz")})
    mixed = {"dataset_kind": None, "dataset_path": None, "dataset_mix": parts}
    config = small_config(algo_kwargs={"validation_fraction": 0.95, **mixed})
    with pytest.raises(ConfigError, match="all episodes of a part of dataset_mix"):
        load_and_split(config)


@pytest.mark.parametrize(
    ("algo", "options", "message"),
    [
        ("bc", {**HELD, "metric": "td_error"},
         "metric: is not measured for bc here .measured: validation/action_distance, "),
        ("td3_bc", {**HELD, "metric": "log_prob"}, "is not measured for td3_bc here"),
        ("td3_bc", {"metric": "td_error"}, "metric: is measured on held-out episodes: set valid"),
        ("td3_bc", {**HELD, "metric": "td_eror"}, "did you mean 'validation/td_error'"),
        ("sac", {"metric": "td_error"}, "of a dataset, and sac has none"),
        ("sac", HELD, "validation_fraction: is for datasets, but sac collects"),
        ("bc", {"validation_fraction": 1.0}, "validation_fraction: must be < 1"),
        ("bc", {"validation_fraction": 0.0}, "validation_fraction: must be > 0"),
    ],
)  # fmt: skip
def test_mistakes_are_refused_before_training(
    algo: str, options: dict[str, Any], message: str, small_config: Any, tmp_path: Path
) -> None:
    options = dict(options)
    if "metric" in options:
        options["early_stopping"] = {"metric": f"validation/{options.pop('metric')}"}
    with pytest.raises(ConfigError, match=message):
        train(small_config(algo, algo_kwargs=options))
    assert not (tmp_path / "runs").exists()


def test_a_changed_held_out_row_is_noticed_on_resume(small_config: Any, log_file: Path) -> None:
    config = small_config(algo_kwargs=HELD)
    run_dir = killed_run(config, 25)
    fields = make_fields()
    _, held_out = load_and_split(config)
    assert held_out is not None
    changed = int((torch.from_numpy(fields["rewards"]) == held_out.rewards[3]).nonzero()[0])
    fields["rewards"][changed] += 1
    np.savez(log_file, **fields)
    with pytest.raises(CheckpointError, match="was trained on other data"):
        resume(run_dir)


def test_a_critic_that_cannot_be_asked_is_named(small_config: Any) -> None:
    learner, held_out, training = learner_and_data("td3_bc", "continuous")
    learner.critic = torch.nn.Linear(3, 7)
    with pytest.raises(
        ConfigError, match=r"validation_fraction: td3_bc cannot be judged.*q_values"
    ):
        Validator(learner, held_out, training, seed=0)
