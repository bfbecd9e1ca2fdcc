"""Fitted Q evaluation as a run of its own: begun, resumed where it was interrupted, and read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rl_training.algorithms.base import Terms
from rl_training.algorithms.fqe import FQEAlgorithm
from rl_training.config import Options, option
from rl_training.data.transitions.batch import Batch
from rl_training.ope.fit_runs import finished_run
from rl_training.ope.judged_log import JudgedLog, Numbers
from rl_training.ope.judged_policy import JudgedPolicy, in_pieces
from rl_training.runs.layout import METRICS
from rl_training.runs.reading import read_rows
from rl_training.runtime.assemble import assemble, load_policy, open_checkpoint
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.config.train_config import TrainConfig
from rl_training.runtime.experience.episode_bootstrap import resample_counts
from rl_training.runtime.loop.state import TrainerState
from rl_training.runtime.prepare import TrainingData
from rl_training.runtime.run import Run
from rl_training.runtime.seeding import stream_seed

DRAWS = 16  # actions per state, for the value of a state to a policy that draws them
LOOKS = 20  # times that the estimate is logged while it is fitted
VALUE = "ope/value"


class FitOptions(Options):
    """Options of fitted Q evaluation."""

    updates: int = option(10_000, "gradient updates of every fit", ge=LOOKS)
    members: int = option(10, "members of the ensemble, each a bootstrap replicate", ge=2, le=1_000)
    hidden_sizes: tuple[int, ...] = option((128, 128), "width of each hidden layer of the critics")
    batch_size: int = option(256, "transitions per update", ge=1)
    learning_rate: float = option(1e-3, "Adam's learning rate", gt=0)
    tau: float = option(0.1, "share of the critics in each target update", gt=0, le=1)
    seed: int = option(0, "seed of weights, batches and bootstrap samples", ge=0)


@dataclass(frozen=True)
class FittedValues:
    """An ensemble of fitted values, in the log's units."""

    algorithm: FQEAlgorithm
    options: FitOptions
    log: JudgedLog
    data: TrainingData
    counts: Numbers  # (episodes, members): occurrences in each member's bootstrap sample
    run_dir: Path
    trace: Numbers  # estimates while it was fitted, the last one at the end

    def initial(self) -> Numbers:
        """Values of the episodes' first states, (members, episodes)."""
        batches = self._batches(self.log.starts)
        return np.concatenate([self._values(batch.obs) for batch in batches], 1)

    def final(self) -> Numbers:
        """Values of the states after the episodes' last rows, (members, episodes)."""
        batches = self._batches(self.log.last)
        return np.concatenate([self._values(batch.next_obs) for batch in batches], 1)

    def along(self) -> tuple[Numbers, Numbers, Numbers]:
        """Values of logged actions, states and next states, means over the members, all (rows,)."""
        logged, states, next_states = [], [], []
        for batch in self._batches(np.arange(len(self.log.rewards))):
            logged.append(self._scaled(self.algorithm.logged_values(batch)).mean(0))
            states.append(self._values(batch.obs).mean(0))
            next_states.append(self._values(batch.next_obs).mean(0))
        return np.concatenate(logged), np.concatenate(states), np.concatenate(next_states)

    def log_probs(self, policy: JudgedPolicy) -> Numbers | None:
        """Log-probabilities (rows,) of the logged actions; None if the policy has no density."""
        assert self.data.dataset is not None
        raw, learning, pieces = self.data.dataset.raw, self.data.dataset.learning, []
        for rows in in_pieces(len(raw)):
            index = torch.arange(rows.start, rows.stop)
            piece = policy.log_probs(raw.gather(index).obs, learning.gather(index).actions)
            if piece is None:
                return None
            pieces.append(piece.double().numpy())
        return np.concatenate(pieces)

    def replicates(self, per_episode: Numbers) -> Numbers:
        """Weighted means over episodes, (members,), each over its member's bootstrap sample."""
        return (per_episode * self.counts.T).sum(1) / self.counts.sum(0)

    def _batches(self, rows: Any) -> list[Batch]:
        assert self.data.dataset is not None
        learning = self.data.dataset.learning
        return [learning.gather(rows[piece]) for piece in in_pieces(len(rows))]

    def _values(self, obs: Tensor) -> Numbers:
        return self._scaled(mean_values(self.algorithm, obs))

    def _scaled(self, values: Tensor) -> Numbers:
        return values.double().numpy() / self.log.value_scale


@torch.no_grad()
def mean_values(algorithm: FQEAlgorithm, obs: Tensor) -> Tensor:
    """Values of states to every member, (members, batch); draws have a stream of their own."""
    generator = torch.Generator(algorithm.device).manual_seed(0)
    draws = DRAWS if algorithm.draws_actions else 1
    values = [
        algorithm.values(algorithm.critic, obs, algorithm.choices(obs, generator))
        for _ in range(draws)
    ]
    return torch.stack(values).mean(0)


class ValueTrace(Callback):
    """Logs the estimate at equal distances, so that one that still moves is noticed."""

    def __init__(self, obs: Tensor, updates: int, scale: float) -> None:
        self.obs, self.every, self.scale = obs, updates // LOOKS, scale

    def on_update_end(self, state: TrainerState, terms: Terms) -> None:
        if state.update_count % self.every == 0:
            value = mean_values(state.algorithm, self.obs.to(state.algorithm.device)).mean()
            state.log({VALUE: value.item() / self.scale})


def fit_values(
    log: JudgedLog,
    data: TrainingData,
    policy: JudgedPolicy | None,
    options: FitOptions,
    output_dir: Path,
    *,
    progress_bar: bool = False,
) -> FittedValues:
    """Fit the values of a policy, or without one of the behaviour; an earlier fit is taken or resumed."""
    config = fit_config(log, data, policy, options, output_dir)
    assert data.dataset is not None
    initial = data.dataset.learning.gather(log.starts).obs
    callbacks = [ValueTrace(initial, config.total_timesteps, log.value_scale)]

    def begin() -> Run:
        run = assemble(config, data, callbacks)
        if policy is not None:
            assert isinstance(run.algorithm, FQEAlgorithm)
            run.algorithm.judge(policy.algorithm, policy.normalizer, data.normalizer)
        return run

    run_dir = finished_run(
        config, begin, dataset=log.dataset, callbacks=callbacks, progress_bar=progress_bar
    )
    algorithm = load_policy(*open_checkpoint(run_dir, policy_only=True)).algorithm
    assert isinstance(algorithm, FQEAlgorithm)
    seed = stream_seed(config.seed, "data")
    rows = read_rows(run_dir / METRICS)
    return FittedValues(
        algorithm,
        options,
        log,
        data,
        resample_counts(len(log.starts), options.members, seed).double().numpy(),
        run_dir,
        np.array([row[VALUE] for row in rows if VALUE in row]),
    )


def fit_config(
    log: JudgedLog,
    data: TrainingData,
    policy: JudgedPolicy | None,
    options: FitOptions,
    output_dir: Path,
) -> TrainConfig:
    """Describe the fit so that another policy, log or option makes another run."""
    judged: Mapping[str, Any] = {}
    if policy is not None:
        judged = {
            "policy_algo": policy.algorithm.name,
            "policy_options": policy.algorithm.config.model_dump(mode="json"),
            "policy_sha256": policy.sha256,
            "stochastic": policy.stochastic,
        }
    low, high = (bound * log.value_scale for bound in log.possible_values)
    return TrainConfig(
        algo="fqe",
        seed=options.seed,
        total_timesteps=options.updates,
        output_dir=str(output_dir),
        device="cpu",
        eval_episodes=0,
        log_interval=max(1, options.updates // LOOKS),
        checkpoint_interval=max(1, options.updates // 5),
        algo_kwargs={
            **options.model_dump(
                mode="json", include={"hidden_sizes", "batch_size", "learning_rate", "tau"}
            ),
            **judged,
            "num_critics": options.members,
            "gamma": log.gamma,
            "reward_scale": log.value_scale,
            "clip_actions": log.clips_actions,
            "initial_value": float(log.returns_to_go.mean()) * log.value_scale,
            "lowest_value": low if np.isfinite(low) else None,
            "highest_value": high if np.isfinite(high) else None,
            "log_sha256": log.dataset.sha256,
            "tensorboard": False,
            "keep_checkpoints": 2,
        },
    )
