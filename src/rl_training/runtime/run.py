"""One run, put together: where it is written, what watches it, how it is saved."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rl_training.algorithms.base import Algorithm
from rl_training.config import RunError
from rl_training.runs.layout import RESULT, create_run_dir, disk_errors_named, write_result
from rl_training.runs.lock import locked
from rl_training.runs.metadata import note_resume, package_versions, write_run_files
from rl_training.runs.metrics import MetricsWriter
from rl_training.runtime.callbacks import Callback, CallbackList
from rl_training.runtime.checkpoints.callback import CheckpointCallback, InterruptCallback
from rl_training.runtime.checkpoints.format import (
    STEP_PREFIX,
    Checkpoint,
    find_checkpoint,
    read_checkpoint,
    read_step,
    remove_leftovers,
    step_directories,
)
from rl_training.runtime.config.train_config import TrainConfig
from rl_training.runtime.controls import build_control_callbacks
from rl_training.runtime.evaluation.evaluator import (
    Evaluation,
    EvaluationCallback,
    EvaluationError,
    Evaluator,
)
from rl_training.runtime.experience.collector import CollectError
from rl_training.runtime.experience.offline import Experience
from rl_training.runtime.loop.logging import LoggingCallback, metrics_row
from rl_training.runtime.loop.memory import keep_freed_memory
from rl_training.runtime.loop.rollback import RollbackCallback
from rl_training.runtime.policy import Policy
from rl_training.runtime.prepare import TrainingData
from rl_training.runtime.seeding import episode_seeds
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

    def execute(self) -> TrainResult:
        interrupt = InterruptCallback()
        with using_machine(self.config), self.session(interrupt) as session, interrupt.listening():
            session.trainer.run()
        return session.result()

    @contextmanager
    def session(self, interrupt: InterruptCallback) -> Iterator[Session]:
        """All that surrounds the training loop, which is up to the caller."""
        evaluator = self._evaluator()
        try:
            with self._in_directory() as run_dir:
                writer = MetricsWriter(run_dir, self.config.groups.controls.tensorboard)
                trainer = Trainer(self.experience, self.state)
                with self._watched(trainer, writer, evaluator, interrupt):
                    yield Session(trainer, writer)
                step, reason = self.state.global_step, self.state.stop_reason
                if reason != INTERRUPTED:
                    seconds = self.state.spans.totals()
                    write_result(run_dir, step, reason, writer.latest, seconds)
        finally:
            if evaluator is not None:
                evaluator.close()

    @contextmanager
    def _in_directory(self) -> Iterator[Path]:
        run_dir, is_new = self._choose_run_dir()
        self.state.run_dir = run_dir
        try:
            with locked(run_dir), disk_errors_named(run_dir):
                self._open(run_dir, is_new)
                yield run_dir
        except BaseException:
            if is_new and not step_directories(run_dir / "checkpoints"):
                shutil.rmtree(run_dir)  # nothing in it is worth keeping
            raise

    @contextmanager
    def _watched(
        self,
        trainer: Trainer,
        writer: MetricsWriter,
        evaluator: Evaluator | None,
        interrupt: InterruptCallback,
    ) -> Iterator[None]:
        """The trainer has its callbacks, as a checkpoint left them; they are closed in any case.

        An environment that fails ends the run, but nothing that was learned is lost.
        """
        config = self.config
        saving = CheckpointCallback(
            writer.run_dir / "checkpoints",
            lambda: self.contents(trainer.callbacks, writer.position()),
            config.checkpoint_interval,
            config.groups.controls.keep_checkpoints,
        )

        def log_metrics(metrics: Mapping[str, float]) -> None:
            with self.state.spans("log"):
                writer.write(metrics_row(self.state, metrics))
            trainer.callbacks.on_log(self.state, metrics)

        evaluation = self._evaluation(trainer, writer, evaluator, log_metrics)
        trainer.callbacks = CallbackList(
            [
                LoggingCallback(log_metrics, config.log_interval, self.experience.report),
                *evaluation,
                *self._controls(),
                interrupt,
                *self.user_callbacks,
                saving,
            ]
        )
        try:
            if self.checkpoint is not None:
                if self.continues:
                    trainer.callbacks.load_state_dict(self.checkpoint.manifest["callbacks"])
                writer.cut_back(self.checkpoint.manifest["metrics_position"], self.checkpoint.step)
            yield
        except (CollectError, EvaluationError) as error:
            saving.save(self.state)
            raise RunError(
                f"{error}\nthe run up to step {self.state.global_step} is saved; "
                f"to go on: rl-training resume {self.state.run_dir}"
            ) from error.__cause__
        finally:
            trainer.callbacks.close()
            writer.close()
            self.experience.close()

    def contents(
        self, callbacks: Callback, metrics_position: int
    ) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Everything that this run is: the manifest of a checkpoint, and its tensors."""
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
            "seconds": self.state.spans.totals(),
            "versions": package_versions(),
        }
        tensors = {**learned.tensors, **collected.tensors}
        if self.policy.normalizer is not None:
            saved = self.policy.normalizer.state_dict()
            tensors |= {f"normalizer.{key}": value for key, value in saved.items()}
        return manifest, tensors

    def _evaluation(
        self,
        trainer: Trainer,
        writer: MetricsWriter,
        evaluator: Evaluator | None,
        log_metrics: Callable[[Mapping[str, float]], None],
    ) -> list[Callback]:
        """Score the policy at every evaluation point and pass the scores on."""
        if evaluator is None:
            return []
        state = self.state

        def report(evaluation: Evaluation) -> None:
            metrics = evaluation.metrics()
            log_metrics(metrics)
            with state.spans("log"):
                writer.write_episodes(state.global_step, evaluation.returns, evaluation.lengths)
            trainer.callbacks.on_eval_end(state, {**writer.latest, **metrics})

        score = partial(evaluator.run, self._evaluation_seeds())
        interval = self.config.groups.controls.eval_interval
        # a run that an offline one becomes is compared with where that one ended
        return [EvaluationCallback(score, interval, report, evaluates_first=not self.continues)]

    def _evaluation_seeds(self) -> list[int]:
        return episode_seeds(self.config.seed, "evaluation", self.config.eval_episodes)

    def _controls(self) -> list[Callback]:
        config = self.config
        callbacks = build_control_callbacks(
            config.groups.controls,
            total_timesteps=config.budget,
            default_schedules=self.algorithm.schedules if config.regime == "offline" else {},
        )
        drop = config.groups.bridge.rollback_on_drop
        if drop is not None:
            callbacks.append(RollbackCallback(drop, self._return_to))
        return callbacks

    def _return_to(self, step: int) -> None:
        """Take the networks of an earlier checkpoint back."""
        assert self.state.run_dir is not None
        path = self.state.run_dir / "checkpoints" / f"{STEP_PREFIX}{step}"
        self.algorithm.load_networks(read_checkpoint(path, policy_only=True).tensors)
        self.policy.refresh()
        self.state.unsaved = True

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
