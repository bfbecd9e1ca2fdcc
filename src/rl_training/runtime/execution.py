"""One run, put together: where it is written, what watches it, how it is saved."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from rl_training.algorithms.base import Algorithm
from rl_training.config import RunError
from rl_training.runtime.callbacks import Callback, CallbackList
from rl_training.runtime.checkpointing import (
    STEP_PREFIX,
    Checkpoint,
    drop_older_replays,
    find_checkpoint,
    point,
    read_checkpoint,
    read_step,
    remove_leftovers,
    step_directories,
    write_checkpoint,
)
from rl_training.runtime.collector import CollectError
from rl_training.runtime.controls import build_control_callbacks
from rl_training.runtime.datasets import TrainingData
from rl_training.runtime.evaluation import Evaluation, EvaluationCallback, Evaluator
from rl_training.runtime.experience import Experience
from rl_training.runtime.loggers import LoggingCallback, MetricsWriter
from rl_training.runtime.memory import keep_freed_memory
from rl_training.runtime.policy import Policy
from rl_training.runtime.rollback import RollbackCallback
from rl_training.runtime.runs import (
    RESULT,
    create_run_dir,
    locked,
    naming_the_place,
    note_resume,
    package_versions,
    write_result,
    write_run_files,
)
from rl_training.runtime.saving import CheckpointCallback, InterruptCallback
from rl_training.runtime.seeding import episode_seeds
from rl_training.runtime.train_config import TrainConfig
from rl_training.runtime.trainer import INTERRUPTED, Trainer, TrainerState, TrainResult

log = logging.getLogger("rl_training")


@contextmanager
def using_machine(config: TrainConfig) -> Iterator[None]:
    """PyTorch's threads and memory, as training wants them."""
    threads = torch.get_num_threads()
    torch.set_num_threads(config.groups.controls.torch_threads)
    keep_freed_memory()
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@dataclass(frozen=True)
class Session:
    """A run while it is trained."""

    trainer: Trainer
    writer: MetricsWriter

    def result(self) -> TrainResult:
        """What it left behind, once it is over."""
        state = self.trainer.state
        assert state.run_dir is not None
        last = state.run_dir / "checkpoints" / find_checkpoint(state.run_dir).name
        return TrainResult(state.run_dir, last, dict(self.writer.latest), state.stop_reason)


@dataclass
class Run:
    """One run, put together: `execute` trains it to its budget."""

    config: TrainConfig
    data: TrainingData
    algorithm: Algorithm[Any]
    policy: Policy
    experience: Experience
    state: TrainerState
    user_callbacks: Sequence[Callback] = ()
    checkpoint: Checkpoint | None = None  # what it goes on from
    continues: bool = True  # whether as the same run
    stacked_seeds: Sequence[int] = ()  # trained side by side with it, its own among them

    def execute(self) -> TrainResult:
        interrupt = InterruptCallback()
        with using_machine(self.config), self.session(interrupt) as session, interrupt.listening():
            session.trainer.run()
        return session.result()

    @contextmanager
    def session(self, interrupt: InterruptCallback) -> Iterator[Session]:
        """All that surrounds the training loop, which is up to the caller."""
        evaluator = self._evaluator()
        run_dir, is_new = self._choose_run_dir()
        self.state.run_dir = run_dir
        try:
            with locked(run_dir), naming_the_place(run_dir):
                self._open(run_dir, is_new)
                writer = MetricsWriter(run_dir, self.config.groups.controls.tensorboard)
                trainer = Trainer(self.experience, self.state)
                trainer.callbacks = self._callbacks(trainer, writer, evaluator, interrupt)
                with self._watched(trainer, writer):
                    yield Session(trainer, writer)
                step, reason = self.state.global_step, self.state.stop_reason
                if reason != INTERRUPTED:
                    write_result(run_dir, step, reason, writer.latest)
        except BaseException:
            if is_new and not step_directories(run_dir / "checkpoints"):
                shutil.rmtree(run_dir)  # nothing in it is worth keeping
            raise

    @contextmanager
    def _watched(self, trainer: Trainer, writer: MetricsWriter) -> Iterator[None]:
        """Callbacks go on where they were, and are closed whatever happens.

        An environment that fails ends the run, but nothing that was learned is lost.
        """
        try:
            if self.checkpoint is not None:
                if self.continues:
                    trainer.callbacks.load_state_dict(self.checkpoint.manifest["callbacks"])
                writer.cut_back(self.checkpoint.manifest["metrics_position"], self.checkpoint.step)
            yield
        except CollectError as error:
            assert self.state.run_dir is not None
            step = self.state.global_step
            checkpoints = self.state.run_dir / "checkpoints"
            self.save(checkpoints / f"{STEP_PREFIX}{step}", trainer.callbacks, writer.position())
            point(checkpoints, "last", step)
            drop_older_replays(checkpoints)
            raise RunError(
                f"{error}\nthe run up to step {step} is saved; "
                f"to go on: rl-training resume {self.state.run_dir}"
            ) from error.__cause__
        finally:
            trainer.callbacks.close()
            self.experience.close()

    def save(self, directory: Path, callbacks: Callback, metrics_position: int) -> None:
        """Everything that this run is, as a checkpoint."""
        learned = self.algorithm.training_state()
        collected = self.experience.state_dict()
        progress = self.state.progress()
        if self.state.stop_reason == INTERRUPTED:
            progress |= {"should_stop": False, "stop_reason": None}
        manifest = {
            "config": self.config.as_dict(),
            "spec": self.data.spec.as_dict(),
            "progress": progress,
            "algorithm": learned.values,
            "callbacks": callbacks.state_dict(),
            "reward_scale": self.data.reward_scale,
            "dataset": self.data.source,
            "experience": collected.values,
            "metrics_position": metrics_position,
            "versions": package_versions(),
        }
        tensors = {**learned.tensors, **collected.tensors}
        if self.policy.normalizer is not None:
            saved = self.policy.normalizer.state_dict()
            tensors |= {f"normalizer.{key}": value for key, value in saved.items()}
        write_checkpoint(directory, manifest, tensors)

    def _callbacks(
        self,
        trainer: Trainer,
        writer: MetricsWriter,
        evaluator: Evaluator | None,
        interrupt: InterruptCallback,
    ) -> CallbackList:
        config, controls, state = self.config, self.config.groups.controls, self.state

        def report(evaluation: Evaluation, metrics: dict[str, float]) -> None:
            writer.write(state, metrics)
            writer.write_evaluation(state, evaluation)
            trainer.callbacks.on_eval_end(state, {**writer.latest, **metrics})

        def save(directory: Path) -> None:
            self.save(directory, trainer.callbacks, writer.position())

        assert state.run_dir is not None
        callbacks: list[Callback] = [
            LoggingCallback(writer, config.log_interval, self.experience.report)
        ]
        if evaluator is not None:
            seeds = episode_seeds(config.seed, "evaluation", config.eval_episodes)
            # a run that an offline one becomes is compared with where that one ended
            first = not self.continues
            callbacks.append(
                EvaluationCallback(
                    evaluator, seeds, controls.eval_interval, report, evaluates_first=first
                )
            )
        callbacks += build_control_callbacks(
            controls,
            total_timesteps=config.budget,
            default_schedules=self.algorithm.schedules if config.regime == "offline" else {},
        )
        drop = config.groups.bridge.rollback_on_drop
        if drop is not None:
            callbacks.append(RollbackCallback(drop, self._return_to))
        callbacks += [interrupt, *self.user_callbacks]
        checkpoints = state.run_dir / "checkpoints"
        callbacks.append(
            CheckpointCallback(
                checkpoints, save, config.checkpoint_interval, controls.keep_checkpoints
            )
        )
        return CallbackList(callbacks)

    def _return_to(self, step: int) -> None:
        """Take the networks of an earlier checkpoint back."""
        assert self.state.run_dir is not None
        path = self.state.run_dir / "checkpoints" / f"{STEP_PREFIX}{step}"
        self.algorithm.load_networks(read_checkpoint(path, policy_only=True).tensors)
        self.policy.refresh()

    def _evaluator(self) -> Evaluator | None:
        if self.config.env_id is None:
            log.info(
                "no environment: the policy is not evaluated; `rl-training eval` needs an env_id"
            )
            return None
        if self.config.eval_episodes == 0:
            return None
        return Evaluator(self.policy, self.config.env_id, self.config.env_kwargs)

    def _choose_run_dir(self) -> tuple[Path, bool]:
        """The run's own directory, or a new one when going on from anything but its newest state."""
        config, checkpoint = self.config, self.checkpoint
        if checkpoint is None:
            return create_run_dir(config.output_dir, config.algo, config.env_id, config.seed), True
        earlier = checkpoint.run_dir
        if earlier is not None and self.continues:
            steps = step_directories(earlier / "checkpoints")
            if steps and read_step(steps[-1]) <= checkpoint.step:
                return earlier, False
        place = config.output_dir if earlier is None else earlier.parent
        run_dir = create_run_dir(place, config.algo, config.env_id, config.seed)
        log.info("%s stays as it is; going on in %s", checkpoint.path, run_dir)
        return run_dir, True

    def _open(self, run_dir: Path, is_new: bool) -> None:
        """Write what describes the run; a branch takes along what it has behind it."""
        config, checkpoint = self.config.as_dict(), self.checkpoint
        if checkpoint is not None and not is_new:
            remove_leftovers(run_dir / "checkpoints")
            (run_dir / RESULT).unlink(missing_ok=True)
            note_resume(run_dir, config, checkpoint.path)
            return
        facts: dict[str, Any] = {}
        if self.data.dataset is not None:
            raw = self.data.dataset.raw
            facts["dataset"] = {**raw.describe(), "sha256": raw.sha256}
        if self.stacked_seeds:
            facts["stacked_seeds"] = list(self.stacked_seeds)
        if checkpoint is not None:
            facts["branched_from"] = str(checkpoint.path)
            _copy_history(checkpoint, run_dir)
        write_run_files(run_dir, config, facts)


def _copy_history(checkpoint: Checkpoint, run_dir: Path) -> None:
    if checkpoint.run_dir is None:
        return
    for name in ("metrics.jsonl", "evaluations.npz"):
        if (checkpoint.run_dir / name).exists():
            shutil.copy(checkpoint.run_dir / name, run_dir)
    remembered = checkpoint.manifest["callbacks"].get("CheckpointCallback.0", {})
    best = f"{STEP_PREFIX}{remembered.get('best_step')}"
    if (checkpoint.run_dir / "checkpoints" / best).is_dir():
        shutil.copytree(checkpoint.run_dir / "checkpoints" / best, run_dir / "checkpoints" / best)
