"""Execution of one run: the training loop with its callbacks, in a directory, with checkpoints."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rl_training.algorithms.base import Algorithm
from rl_training.config import RunError
from rl_training.envs.errors import closed_afterwards
from rl_training.runs.layout import CHECKPOINTS, step_directories, write_result
from rl_training.runs.lock import RunLock
from rl_training.runs.metadata import package_versions
from rl_training.runs.metrics import MetricsWriter
from rl_training.runtime.checkpoints.callback import CheckpointCallback
from rl_training.runtime.checkpoints.directories import find_checkpoint
from rl_training.runtime.checkpoints.format import Checkpoint, Contents
from rl_training.runtime.checkpoints.manifest import state_of
from rl_training.runtime.checkpoints.rollback import RollbackCallback
from rl_training.runtime.checkpoints.store import Checkpoints
from rl_training.runtime.config.choices import default_schedules
from rl_training.runtime.config.train_config import TrainConfig
from rl_training.runtime.controls import build_control_callbacks
from rl_training.runtime.evaluation.callback import EvaluationCallback
from rl_training.runtime.evaluation.evaluator import EvaluationError, Evaluator
from rl_training.runtime.evaluation.validation import Validator
from rl_training.runtime.experience.collector import CollectError, PolicyError
from rl_training.runtime.experience.protocols import Experience
from rl_training.runtime.loop.callback import Callback, CallbackList
from rl_training.runtime.loop.divergence import (
    BatchInspector,
    DivergedError,
    DivergedRunError,
    refuse_diverged,
)
from rl_training.runtime.loop.interrupt import Interrupt, InterruptCallback, StepGuard
from rl_training.runtime.loop.logging import LoggingCallback, MetricsLog
from rl_training.runtime.loop.machine import using_machine
from rl_training.runtime.loop.progress import ProgressCallback
from rl_training.runtime.loop.state import TrainerState, TrainResult
from rl_training.runtime.loop.stop_reasons import INTERRUPTED
from rl_training.runtime.loop.watcher import Watcher
from rl_training.runtime.policy import Policy
from rl_training.runtime.prepare import TrainingData
from rl_training.runtime.run_directory import open_run_directory
from rl_training.runtime.seeding import episode_seeds
from rl_training.runtime.trainer import Trainer
from rl_training.runtime.trust import resume_command

log = logging.getLogger("rl_training")


@dataclass
class Run:
    """Parts of one run, put together; `execute` trains it to its budget."""

    config: TrainConfig
    data: TrainingData
    algorithm: Algorithm[Any]
    policy: Policy
    experience: Experience
    state: TrainerState
    validator: Validator | None = None  # with held-out episodes
    user_callbacks: Sequence[Callback] = ()
    checkpoint: Checkpoint | None = None  # the one to go on from
    continues: bool = True  # as the same run; otherwise as a new one with its networks
    lock: RunLock | None = None  # of the directory to go on in; a new one is made without it
    directory: Path | None = None  # to begin in, instead of a new one in `output_dir`
    watcher: Watcher | None = None  # while it is executed

    def execute(self, *, progress_bar: bool = False) -> TrainResult:
        """Train until something requests a stop."""
        if progress_bar:
            watched, _ = self.config.groups.controls.best_metric()
            progress = ProgressCallback(self.config.budget, watched=watched)
            self.user_callbacks = [*self.user_callbacks, progress]
        interrupt = Interrupt()
        with ExitStack() as stack:
            stack.enter_context(using_machine(self.config.groups.controls.torch_threads))
            stack.enter_context(interrupt.listening())
            guard = StepGuard(interrupt, self.config.groups.replay.env_step_timeout)
            stack.enter_context(guard.listening())
            stack.enter_context(closed_afterwards(self.experience.close))
            self.experience.guard_with(guard)
            evaluator = self._evaluator(guard)
            if evaluator is not None:
                stack.enter_context(closed_afterwards(evaluator.close))
            began = self.state.progress()
            run_dir = stack.enter_context(
                open_run_directory(
                    self.config,
                    self.data,
                    self.checkpoint,
                    lock=self.lock,
                    directory=self.directory,
                    made_progress=lambda: self.state.progress() != began,
                )
            )
            self.state.run_dir = run_dir
            writer = MetricsWriter(run_dir, self.config.groups.controls.tensorboard)
            stack.callback(writer.close)
            try:
                self._train(run_dir, writer, evaluator, interrupt)
            except (DivergedError, PolicyError) as error:
                raise DivergedRunError(self._divergence(error, run_dir)) from None
            reason = self.state.stop_reason
            if reason != INTERRUPTED:
                seconds = self.state.spans.totals()
                step, warnings = self.state.global_step, self._warnings()
                write_result(run_dir, step, reason, writer.latest, seconds, warnings)
        last = run_dir / CHECKPOINTS / find_checkpoint(run_dir).name
        return TrainResult(run_dir, last, dict(writer.latest), reason, self._warnings())

    def _warnings(self) -> tuple[str, ...]:
        """List what was said about the data and about learning from it."""
        watched = () if self.watcher is None else self.watcher.warnings.values()
        return (*self.data.warnings, *watched)

    def _train(
        self,
        run_dir: Path,
        writer: MetricsWriter,
        evaluator: Evaluator | None,
        interrupt: Interrupt,
    ) -> None:
        """Run the loop; should an environment fail, all that was learned is saved."""
        checkpoints = Checkpoints(
            run_dir / CHECKPOINTS,
            lambda: self.contents(callbacks, writer.position()),  # the callbacks below
            keep=self.config.groups.controls.keep_checkpoints,
            replay=None if self.checkpoint is None else self.checkpoint.replay,
        )
        callbacks = self._callbacks(writer, evaluator, checkpoints, InterruptCallback(interrupt))
        began = self.state.progress()
        inspect = BatchInspector(self.state, run_dir) if log.isEnabledFor(logging.DEBUG) else None
        try:
            if self.checkpoint is not None:
                if self.continues:
                    with state_of(self.checkpoint.path):
                        callbacks.load_state_dict(self.checkpoint.manifest["callbacks"])
                writer.cut_back(self.checkpoint.manifest["metrics_position"], self.checkpoint.step)
            Trainer(self.experience, self.state, callbacks, inspect).run()
        except (CollectError, EvaluationError) as error:
            if self.checkpoint is None and self.state.progress() == began:
                raise RunError(str(error)) from error.__cause__  # there is nothing to save
            step = self.state.global_step
            # the last tick saved the run as it was before its final row of metrics and evaluation,
            # and a resume makes both again
            is_final = isinstance(error, EvaluationError) and self.state.should_stop
            if not (is_final and checkpoints.has(step)):
                checkpoints.save(step)
            raise RunError(
                f"{error}\nthe run up to step {step} is saved; "
                f"to go on: {resume_command(run_dir, self.config.env_id)}"
            ) from error.__cause__
        finally:
            callbacks.close()

    def _divergence(self, error: RunError, run_dir: Path) -> str:
        """Say what diverged, and which checkpoint is intact."""
        if isinstance(error, PolicyError):
            state, action = self.state, ("the policy's action", math.nan)
            error = DivergedError(state.algorithm, state.global_step, state.update_count, action)
        intact = step_directories(run_dir / CHECKPOINTS)
        if not intact:
            return f"{error}\nno checkpoint was written before"
        return f"{error}\nthe last good checkpoint is {intact[-1]}, and nothing later was saved"

    def _callbacks(
        self,
        writer: MetricsWriter,
        evaluator: Evaluator | None,
        checkpoints: Checkpoints,
        interrupt: InterruptCallback,
    ) -> CallbackList:
        """List the callbacks in the order of a tick: log, evaluate, steer, the user's, save."""
        config = self.config
        after_evaluation: list[Callback] = [
            *self._controls(checkpoints),
            *self._watchers(),
            interrupt,
            *self.user_callbacks,
            CheckpointCallback(
                checkpoints, config.checkpoint_interval, *config.groups.controls.best_metric()
            ),
        ]
        listeners = CallbackList(after_evaluation)
        log_metrics = MetricsLog(writer, listeners)
        self.state.write_metrics = partial(log_metrics.write_quietly, self.state)
        callbacks: list[Callback] = [
            LoggingCallback(log_metrics, config.log_interval, self.experience.report)
        ]
        if evaluator is not None or self.validator is not None:
            callbacks.append(
                EvaluationCallback(
                    evaluator,
                    episode_seeds(config.seed, "evaluation", config.eval_episodes),
                    config.groups.controls.eval_interval,
                    log_metrics,
                    listeners,
                    validator=self.validator,
                    # a run that an offline one becomes is compared with where that one ended
                    evaluates_first=not self.continues,
                )
            )
        return CallbackList([*callbacks, *after_evaluation])

    def _controls(self, checkpoints: Checkpoints) -> list[Callback]:
        config = self.config
        callbacks = build_control_callbacks(
            config.groups.controls,
            total_timesteps=config.budget,
            default_schedules=default_schedules(config.spec, config.regime),
        )
        drop = config.groups.offline_to_online.rollback_on_drop
        if drop is not None:
            callbacks.append(RollbackCallback(drop, checkpoints, self.policy))
        return callbacks

    def _watchers(self) -> list[Callback]:
        """Compare learning with what the data allows, if there is data."""
        options = self.config.groups.algorithm
        if self.data.facts is None:
            return []
        self.watcher = Watcher(
            self.data.facts,
            gamma=getattr(options, "gamma", None),
            entropy_in_targets=getattr(options, "backup_entropy", False),
            eval_episodes=self.config.eval_episodes,
            remedies=self.algorithm.remedies,
        )
        return [self.watcher]

    def _evaluator(self, guard: StepGuard) -> Evaluator | None:
        if self.config.eval_episodes == 0:
            return None
        if self.config.env_id is None:
            validated = self.validator is not None
            log.info(
                "no environment: the policy is %s; `rl-training eval RUN --env ID` scores it in one",
                "judged on held-out episodes" if validated else "not evaluated (validation_fraction "
                "would hold out episodes to judge it on)",
            )  # fmt: skip
            return None
        return Evaluator(self.policy, self.config.env_id, self.config.groups.env, guard=guard)

    def contents(self, callbacks: Callback, metrics_position: int) -> Contents:
        """Capture everything that this run is; networks that have diverged are refused."""
        refuse_diverged(self.state)
        learner = self.algorithm.training_state()
        experience = self.experience.state_dict()
        progress = self.state.progress()
        if self.state.stop_reason == INTERRUPTED:
            progress |= {"should_stop": False, "stop_reason": None}
        manifest = {
            "config": self.config.as_dict(),
            "spec": self.data.spec.as_dict(),
            "progress": progress,
            "algorithm": learner.values,
            "callbacks": callbacks.state_dict(),
            "reward_scale": self.data.reward_scale,
            "dataset": self.data.source,
            "experience": experience.values,
            "metrics_position": metrics_position,
            "seconds": self.state.spans.totals(),
            "versions": package_versions(),
        }
        tensors = {**learner.tensors, **experience.tensors}
        if self.policy.normalizer is not None:
            normalizer = self.policy.normalizer.state_dict()
            tensors |= {f"normalizer.{key}": value for key, value in normalizer.items()}
        return Contents(manifest, tensors, self.experience.replay)
