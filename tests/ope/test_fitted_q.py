"""Fitted Q evaluation: targets, bootstrap samples, convergence, exact resume."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.support.data import make_fields
from tests.support.runs import metrics_of, tensors_of

from rl_training.algorithms.fqe import FQEAlgorithm, FQEConfig, fqe_critic_loss
from rl_training.algorithms.registry import get_algorithm_spec, list_algorithm_specs
from rl_training.config import CheckpointError, DatasetError, RunError
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.transitions.normalizer import ObservationNormalizer
from rl_training.ope import FitOptions
from rl_training.ope.fit_runs import FitInterruptedError
from rl_training.ope.fitted_q import ValueTrace, fit_values
from rl_training.ope.judged_log import JudgedLog
from rl_training.ope.judged_policy import JudgedPolicy
from rl_training.ope.judging import open_log
from rl_training.runs.lock import RunLock
from rl_training.runtime.experience.episode_bootstrap import EpisodeBootstrap
from rl_training.runtime.policy import Policy
from rl_training.spec import ProblemSpec

SPEC = ProblemSpec(3, "continuous", 2, (-1.0, -1.0), (1.0, 1.0))
QUICK = FitOptions(updates=40, members=3, hidden_sizes=(8,), batch_size=16)


def policy_of(name: str, spec: ProblemSpec = SPEC, **options: Any) -> Policy:
    known = get_algorithm_spec(name)
    config = known.config(**{"hidden_sizes": (8,), **options})
    return Policy(
        known.algorithm(spec, config, seed=3), ObservationNormalizer([1.0] * 3, [2.0] * 3)
    )


def fit(
    output_dir: Path,
    options: FitOptions = QUICK,
    stochastic: bool = False,
    fields: dict[str, Any] | None = None,
) -> Any:
    judged = JudgedPolicy.of(policy_of("sac"), stochastic=stochastic)
    log, data = open_log(TransitionDataset.from_dict(fields or make_fields()), judged, 0.9)
    return fit_values(log, data, judged, options, output_dir)


def test_each_member_has_a_target_of_its_own_and_only_termination_ends_it() -> None:
    terms = fqe_critic_loss(
        q_values=torch.tensor([[1.0, 2.0], [3.0, 4.0]]),
        rewards=torch.tensor([1.0, 1.0]),
        terminations=torch.tensor([0.0, 1.0]),
        next_values=torch.tensor([[10.0, 10.0], [20.0, 20.0]]),
        gamma=0.5,
        weights=torch.tensor([[1.0, 0.0], [2.0, 1.0]]),
    )
    # errors: member 0: 1 - 6, 2 - 1 (counted twice); member 1: 3 - 11 (not in its sample), 4 - 1
    assert terms["critic_loss"].item() == pytest.approx((25 + 2 * 1 + 0 * 64 + 9) / 2)


def test_next_values_stay_within_what_the_rewards_allow(tmp_path: Path) -> None:
    fitted = fit(tmp_path)
    assert fitted.log.possible_values[0] < 0 < fitted.log.possible_values[1]
    algorithm, batch = fitted.algorithm, fitted.data.dataset.learning.gather(range(8))
    bound = fitted.log.possible_values[1] * fitted.log.value_scale
    with torch.no_grad():  # a member that has diverged
        algorithm.target_critic.biases[-1].fill_(1e6)
    target = (batch.rewards + 0.9 * (1 - batch.terminations) * bound).mean()
    terms = algorithm.update(batch)
    assert terms["target_q_mean"].item() == pytest.approx(target.item(), rel=1e-5)


def test_the_critics_see_the_actions_of_the_judged_policy_whatever_it_normalises_with() -> None:
    for name in ("td3", "sac"):
        policy = policy_of(name)
        config = FQEConfig(
            policy_algo=name,
            policy_options=policy.algorithm.config.model_dump(mode="json"),
            num_critics=2,
            hidden_sizes=(4,),
        )
        normalizer = ObservationNormalizer([0.5, -1.0, 3.0], [0.1, 1.0, 7.0])
        fqe = FQEAlgorithm(SPEC, config)
        fqe.judge(policy.algorithm, policy.normalizer, normalizer)
        obs = torch.randn(16, 3)
        expected = JudgedPolicy.of(policy).actions(obs)
        actions = fqe.choices(normalizer(obs), fqe.generator)["actions"]
        assert torch.allclose(actions, expected, atol=1e-5)


def test_rows_of_an_episode_share_the_weights_of_its_bootstrap_samples() -> None:
    dataset = TransitionDataset.from_dict(make_fields())
    bootstrap = EpisodeBootstrap(dataset, members=5, seed=1)
    assert torch.equal(bootstrap.counts.sum(0), torch.full((5,), 20.0))
    batch = bootstrap.sample(64, torch.Generator().manual_seed(0), "cpu")
    assert batch.weights is not None
    rows = [int((dataset.obs == obs).all(1).nonzero()) for obs in batch.obs]
    assert torch.equal(batch.weights, bootstrap.counts[torch.tensor(rows) // 20])


def two_state_chain(episodes: int = 40) -> TransitionDataset:
    """State 0 pays 1 and goes on to 1 or stays; 1 pays 2 and terminates by action 1, else is cut."""
    rng = np.random.default_rng(0)
    rows: dict[str, list[Any]] = {key: [] for key in ("s", "a", "r", "n", "d", "t")}
    for _ in range(episodes):
        state = 0
        for step in range(8):
            action = int(rng.integers(2))
            following, reward, done = (action, 1.0, False) if state == 0 else (1, 2.0, action == 1)
            values = (state, action, reward, following, done, step == 7 and not done)
            for key, value in zip(rows, values, strict=True):
                rows[key].append(value)
            if done:
                break
            state = following
    eye = np.eye(2, dtype=np.float32)
    return TransitionDataset.from_dict(
        {
            "obs": eye[rows["s"]], "actions": np.array(rows["a"]), "rewards": np.array(rows["r"]),
            "next_obs": eye[rows["n"]], "terminations": np.array(rows["d"]),
            "truncations": np.array(rows["t"]),
        }
    )  # fmt: skip


def test_values_of_a_table_are_those_of_dynamic_programming(tmp_path: Path) -> None:
    spec = ProblemSpec(2, "discrete", 2)
    known = get_algorithm_spec("bc")
    learner = known.algorithm(spec, known.config(hidden_sizes=()))
    with torch.no_grad():  # probabilities 0.8 and 0.2 in both states
        weight, bias = learner.actor.net.parameters()
        weight.zero_()
        bias.copy_(torch.tensor([0.8, 0.2]).log())
    gamma = 0.8
    # v1 = 2 + 0.8 γ v1 (action 0 goes on), v0 = 1 + γ (0.8 v0 + 0.2 v1)
    v1 = 2 / (1 - 0.8 * gamma)
    v0 = (1 + 0.2 * gamma * v1) / (1 - 0.8 * gamma)
    judged = JudgedPolicy.of(Policy(learner), stochastic=True)
    log, data = open_log(two_state_chain(), judged, gamma)
    options = FitOptions(updates=1_500, members=2, hidden_sizes=(), learning_rate=0.02)
    values = fit_values(log, data, judged, options, tmp_path)
    assert values.initial().mean() == pytest.approx(v0, rel=0.02)
    assert values.log.cut.any()
    # the behaviour: uniform actions
    w1 = 2 / (1 - 0.5 * gamma)
    w0 = (1 + 0.5 * gamma * w1) / (1 - 0.5 * gamma)
    behaviour = fit_values(log, data, None, options, tmp_path)
    assert behaviour.initial().mean() == pytest.approx(w0, rel=0.1)


def slightly_outside() -> dict[str, Any]:
    """A log with an action that lies a little outside of the policy's bounds."""
    fields = make_fields()
    fields["actions"][3, 0] = 1.05
    return fields


@pytest.mark.parametrize(
    ("stochastic", "fields"), [(False, None), (True, None), (False, slightly_outside())]
)
def test_an_interrupted_fit_ends_as_one_that_was_not(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    stochastic: bool,
    fields: dict[str, Any] | None,
) -> None:
    whole = fit(tmp_path / "whole", stochastic=stochastic, fields=fields)
    usual = ValueTrace.on_update_end

    def interrupting(self: ValueTrace, state: Any, terms: Any) -> None:
        usual(self, state, terms)
        if state.update_count == 21:
            state.interrupt()

    with monkeypatch.context() as patch:
        patch.setattr(ValueTrace, "on_update_end", interrupting)
        with pytest.raises(FitInterruptedError, match="the same command goes on"):
            fit(tmp_path / "broken", stochastic=stochastic, fields=fields)
    resumed = fit(tmp_path / "broken", stochastic=stochastic, fields=fields)
    first, second = (tensors_of(f.run_dir / "checkpoints/last") for f in (whole, resumed))
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert metrics_of(whole.run_dir) == metrics_of(resumed.run_dir)
    assert np.array_equal(whole.initial(), resumed.initial())


def test_a_finished_fit_is_taken_again_and_another_policy_or_log_gets_its_own(
    tmp_path: Path,
) -> None:
    first = fit(tmp_path)
    assert fit(tmp_path).run_dir == first.run_dir
    assert fit(tmp_path, QUICK.model_copy(update={"seed": 1})).run_dir != first.run_dir
    judged = JudgedPolicy.of(policy_of("td3"))
    fields = make_fields()
    for change in (0.0, 0.1):
        dataset = TransitionDataset.from_dict({**fields, "rewards": fields["rewards"] + change})
        fit_values(*open_log(dataset, judged, 0.9), judged, QUICK, tmp_path)
    assert len(list(tmp_path.iterdir())) == 4


def test_a_fit_of_another_process_is_left_to_it(
    tmp_path: Path,
) -> None:
    """Two policies judged at once by one log would both fit its behaviour."""
    whole = fit(tmp_path)
    (whole.run_dir / "result.json").unlink()
    with RunLock(whole.run_dir):
        other = fit(tmp_path)
    assert other.run_dir != whole.run_dir
    assert np.array_equal(whole.initial(), other.initial())


def test_drawing_actions_for_the_trace_leaves_the_fit_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    traced = fit(tmp_path / "traced", stochastic=True)
    monkeypatch.setattr(ValueTrace, "on_update_end", lambda *_: None)
    plain = fit(tmp_path / "plain", stochastic=True)
    assert np.array_equal(traced.initial(), plain.initial())
    assert len(traced.trace) == 20


def test_fqe_without_a_policy_is_refused_and_is_no_choice_for_users() -> None:
    assert "fqe" not in [spec.name for spec in list_algorithm_specs()]
    config = FQEConfig(policy_algo="td3", num_critics=2, hidden_sizes=(4,))
    fqe = FQEAlgorithm(SPEC, config)
    batch = TransitionDataset.from_dict(make_fields()).sample(8)
    with pytest.raises(RunError, match="rl-training ope CHECKPOINT"):
        fqe.update(batch)


def test_huge_networks_of_a_judged_policy_are_refused_before_memory_is_taken(
    tmp_path: Path,
) -> None:
    from rl_training.runtime.assemble import load_policy, open_checkpoint

    fitted = fit(tmp_path)
    checkpoint, config = open_checkpoint(fitted.run_dir, policy_only=True)
    kwargs = dict(config.algo_kwargs)
    kwargs["policy_options"] = {**kwargs["policy_options"], "hidden_sizes": [65_536, 65_536]}
    with pytest.raises(CheckpointError, match="its options ask for at least"):
        load_policy(checkpoint, config.replace(algo_kwargs=kwargs))


def test_a_log_without_episodes_or_with_one_is_refused() -> None:
    fields = make_fields()
    unknown = {k: v for k, v in fields.items() if k != "truncations"}
    rows = np.random.default_rng(0).permutation(len(fields["rewards"]))
    shuffled = TransitionDataset.from_dict({k: v[rows] for k, v in unknown.items()})
    with pytest.raises(DatasetError, match="boundaries are unknown"):
        JudgedLog(shuffled, 0.9)
    single = {k: v[:20] for k, v in fields.items()}
    with pytest.raises(DatasetError, match="one episode"):
        JudgedLog(TransitionDataset.from_dict(single), 0.9)
    with pytest.raises(DatasetError, match="gamma 1"):
        JudgedLog(TransitionDataset.from_dict(fields), 1.0)


@pytest.mark.parametrize("kind", ["continuous", "discrete"])
def test_a_policy_that_draws_by_its_critic_is_no_deterministic_one(kind: str) -> None:
    spec = SPEC if kind == "continuous" else ProblemSpec(3, "discrete", 4)
    judged = JudgedPolicy.of(policy_of("crr", spec, critic_weighted_policy=True))
    assert not judged.is_deterministic
    obs = torch.randn(5, 3)
    if kind == "continuous":
        assert judged.log_probs(obs, torch.zeros(5, 2)) is None
        assert "critic" in judged.reason_without_density
        config = FQEConfig(
            policy_algo="crr", policy_options={"critic_weighted_policy": True}, num_critics=2
        )
        assert FQEAlgorithm(spec, config).draws_actions
        return
    choices = [judged.log_probs(obs, torch.full((5,), choice)) for choice in range(4)]
    probabilities = torch.stack(choices).exp()  # type: ignore[arg-type]
    assert bool((probabilities > 0).all())  # exact ones, not those of a draw
    torch.testing.assert_close(probabilities.sum(0), torch.ones(5, dtype=torch.float64))
