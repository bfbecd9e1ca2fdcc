"""Our side: the trainer's own loop over batches, with logging and evaluation left out."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.speed.problem import BATCH, BLANK_ENV, HIDDEN, Fields, Problem
from benchmarks.speed.timing import Contestant
from rl_training.data import TransitionDataset
from rl_training.runtime import TrainConfig
from rl_training.runtime.assemble import new_run
from rl_training.runtime.callbacks import Callback, CallbackList
from rl_training.runtime.controls import build_control_callbacks
from rl_training.runtime.run import Run
from rl_training.runtime.trainer import Trainer, TrainerState

FOREVER = 10**9
Options = dict[str, Any]


class StopAfter(Callback):
    """Lets the trainer's loop make so many updates."""

    limit = 0

    def on_update_end(self, state: TrainerState, terms: Any) -> None:
        if state.update_count >= self.limit:
            state.request_stop("enough")


def offline_run(
    algo: str, dataset: TransitionDataset, *, batch: int = BATCH, width: int = HIDDEN[0]
) -> Run:
    """A run put together as for training."""
    options: Options = {
        "action_low": -1.0,
        "action_high": 1.0,
        "normalize_rewards": False,
        "batch_size": batch,
        "hidden_sizes": (width, width),
    }
    if algo == "cql":
        options["cql_alpha"] = 10.0
    return new_run(_config(algo, options), dataset=dataset)


def online_run(algo: str, fields: Fields, options: Options | None = None) -> Run:
    """A run whose replay is full, and that only has updates to make."""
    run = new_run(_config(algo, {**_online_options(fields), **(options or {})}, BLANK_ENV))
    _fill_replay(run, fields)
    return run


def rlpd_run(fields: Fields, dataset: TransitionDataset, critic_updates: int = 20) -> Run:
    """The same with logged data beside the replay; a tick has so many updates of the critics."""
    options = {**_online_options(fields), "gradient_updates_per_step": critic_updates}
    run = new_run(_config("rlpd", options, BLANK_ENV), dataset=dataset)
    _fill_replay(run, fields)
    return run


def contestant(run: Run, unit: int = 1) -> Contestant:
    """The trainer's loop; `unit` is the updates after which the work repeats."""
    stop = StopAfter()
    state = run.state
    trainer = Trainer(run.experience, state)
    trainer.callbacks = CallbackList(
        [
            *build_control_callbacks(
                run.config.groups.controls,
                total_timesteps=run.config.total_timesteps,
                default_schedules=run.algorithm.schedules,
            ),
            stop,
        ]
    )

    def train(updates: int) -> None:
        stop.limit = state.update_count + updates
        state.should_stop, state.stop_reason = False, None
        trainer.run()

    return Contestant(train, unit)


def offline(problem: Problem, algo: str, unit: int = 1) -> Contestant:
    return contestant(offline_run(algo, problem.dataset), unit)


def online(problem: Problem, algo: str, unit: int = 1, **options: Any) -> Contestant:
    return contestant(online_run(algo, problem.fields, options), unit)


def rlpd(problem: Problem) -> Contestant:
    """Twenty critic updates and one of the actor, all in one tick."""
    return contestant(rlpd_run(problem.fields, problem.dataset), unit=20)


def _config(algo: str, options: Options, env_id: str | None = None) -> TrainConfig:
    return TrainConfig(
        algo=algo, env_id=env_id, total_timesteps=FOREVER, device="cpu", algo_kwargs=options
    )


def _online_options(fields: Fields) -> Options:
    return {
        "batch_size": BATCH,
        "hidden_sizes": HIDDEN,
        "buffer_capacity": len(fields["rewards"]),
        "learning_starts": 0,
    }


def _fill_replay(run: Run, fields: Fields) -> None:
    experience: Any = run.experience
    buffer, layout = experience.buffer, experience.buffer.layout
    rows = buffer.new_rows(len(fields["rewards"]))
    rows[:, layout.obs] = fields["observations"]
    rows[:, layout.actions] = fields["actions"]
    rows[:, layout.next_obs] = fields["next_observations"]
    rows[:, layout.reward] = fields["rewards"]
    rows[:, layout.termination] = fields["terminals"]
    rows[:, layout.truncation] = fields["timeouts"]
    buffer.add_rows(rows, np.zeros(len(rows), np.int64))
    experience.updates_due = FOREVER
