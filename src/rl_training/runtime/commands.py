"""Commands on a configuration or a run: train, resume, fine-tune online."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rl_training.algorithms.registry import list_algorithm_specs
from rl_training.config import ConfigError
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.envs.env_config import reward_wrappers_of
from rl_training.runs.layout import (
    CHECKPOINTS,
    METRICS,
    finished_step,
    result_warnings,
    step_directories,
)
from rl_training.runs.matching import check_is_run_of, newest_run_of
from rl_training.runs.reading import latest_metrics, read_rows
from rl_training.runtime.assemble import (
    checkpoint_config,
    new_run,
    open_checkpoint,
    resumed_run,
)
from rl_training.runtime.checkpoints.directories import find_checkpoint
from rl_training.runtime.checkpoints.format import Checkpoint
from rl_training.runtime.config.train_config import TrainConfig
from rl_training.runtime.loop import stop_reasons
from rl_training.runtime.loop.budget import Budget
from rl_training.runtime.loop.callback import Callback
from rl_training.runtime.loop.state import TrainerState, TrainResult
from rl_training.runtime.run import Run
from rl_training.runtime.run_directory import claim
from rl_training.runtime.trust import trust

log = logging.getLogger("rl_training")
# options of the offline part only, which the online part does not inherit; its policy has its bounds
OFFLINE_OPTIONS = (
    "regime", "max_updates", "max_epochs", "learning_rate_schedule", "warmup_steps", "early_stopping",
    "action_low", "action_high",
)  # fmt: skip


def train(
    config: TrainConfig,
    *,
    callbacks: Iterable[Callback] = (),
    dataset: TransitionDataset | None = None,
    progress_bar: bool = False,
    auto_resume: bool = False,
) -> TrainResult:
    """Train from the beginning, into a new run directory.

    With `auto_resume` the newest run of the same configuration in `output_dir` goes on instead, if
    there is one with a checkpoint; if it is complete, its result is returned. A scheduler can then
    start an interrupted job again with the same command.
    """
    trust(config.env_id)
    if auto_resume:
        earlier = newest_run_of(config.with_absolute_paths().as_dict(), config.output_dir)
        if earlier is not None:
            log.info("%s has this configuration: going on with it", earlier)
            opened = open_run(earlier, accept_stop=True, callbacks=callbacks, dataset=dataset)
            return _executed(opened, progress_bar)
    run = new_run(config, callbacks=callbacks, dataset=dataset)
    return run.execute(progress_bar=progress_bar)


def train_in(
    run_dir: Path,
    config: TrainConfig,
    *,
    callbacks: Iterable[Callback] = (),
    dataset: TransitionDataset | None = None,
) -> TrainResult:
    """Train in a directory of this name: begin there, go on with the run in it, or return its result.

    The same call therefore makes the same run, however often it is killed in between.
    """
    trust(config.env_id)
    if step_directories(run_dir / CHECKPOINTS):
        check_is_run_of(run_dir, config.with_absolute_paths().as_dict())
        opened = open_run(run_dir, accept_stop=True, callbacks=callbacks, dataset=dataset)
        return _executed(opened, progress_bar=False)
    run = new_run(config, callbacks=callbacks, dataset=dataset, directory=run_dir)
    return run.execute()


def resume(
    path: str | Path,
    *,
    total_timesteps: int | None = None,
    ignore_stop: bool = False,
    callbacks: Iterable[Callback] = (),
    dataset: TransitionDataset | None = None,
    online: bool = False,
    env_id: str | None = None,
    trust_env: bool = False,
    progress_bar: bool = False,
) -> TrainResult:
    """Go on from a checkpoint, exactly as if the run had never been interrupted.

    With `online` an offline run is fine-tuned in an environment for `total_timesteps` steps, as a
    new run. `trust_env` allows the checkpoint to name an environment `module:Name`.
    """
    if online:
        run = open_online(
            path,
            total_timesteps,
            env_id=env_id,
            trust_env=trust_env,
            callbacks=callbacks,
            dataset=dataset,
        )
        return run.execute(progress_bar=progress_bar)
    opened = open_run(
        path,
        total_timesteps=total_timesteps,
        ignore_stop=ignore_stop,
        env_id=env_id,
        trust_env=trust_env,
        callbacks=callbacks,
        dataset=dataset,
    )
    return _executed(opened, progress_bar)


def _executed(opened: Run | TrainResult, progress_bar: bool) -> TrainResult:
    if isinstance(opened, TrainResult):
        return opened
    return opened.execute(progress_bar=progress_bar)


def open_run(
    path: str | Path,
    *,
    total_timesteps: int | None = None,
    ignore_stop: bool = False,
    accept_stop: bool = False,
    env_id: str | None = None,
    trust_env: bool = False,
    callbacks: Iterable[Callback] = (),
    dataset: TransitionDataset | None = None,
) -> Run | TrainResult:
    """Build the run of a checkpoint, or return its result if nothing is left to do.

    A run that stopped early has something left only with `ignore_stop` or a larger total;
    `accept_stop` makes that its result instead of an error.
    """
    claimed = claim(path)
    try:
        checkpoint = claimed.checkpoint
        config = _extended(checkpoint_config(checkpoint), checkpoint, total_timesteps)
        if env_id not in (None, config.env_id):
            raise ConfigError("another --env is for --online: a run goes on in its own environment")
        _refuse_going_back(path, config, checkpoint, total_timesteps)
        trust(env_id, config.env_id if trust_env else None)
        reason = _ending(checkpoint, config, ignore_stop)
        if reason is not None and stop_reasons.is_early(reason) and not accept_stop:
            raise ConfigError(
                f"{path} stopped at step {checkpoint.step} ({reason}); to go on, pass "
                f"--ignore-stop, or --total-timesteps larger than "
                f"{checkpoint.manifest['config']['total_timesteps']}"
            )
        if reason is not None:
            opened: Run | TrainResult = _result(checkpoint, path, reason)
        else:
            opened = resumed_run(checkpoint, config, callbacks=callbacks, dataset=dataset)
            opened.state.clear_stop()
    except BaseException:
        claimed.release()
        raise
    if isinstance(opened, TrainResult):
        claimed.release()
    else:
        opened.lock = claimed.lock
    return opened


def _extended(
    config: TrainConfig, checkpoint: Checkpoint, total_timesteps: int | None
) -> TrainConfig:
    """Raise the total; a smaller budget that has ended the run is lifted."""
    if total_timesteps is None:
        return config
    reason = checkpoint.manifest["progress"]["stop_reason"]
    kwargs = {key: value for key, value in config.algo_kwargs.items() if key != reason}
    return config.replace(total_timesteps=total_timesteps, algo_kwargs=kwargs)


def _refuse_going_back(
    path: str | Path, config: TrainConfig, checkpoint: Checkpoint, total_timesteps: int | None
) -> None:
    if total_timesteps is not None and config.budget < checkpoint.step:
        raise ConfigError(
            f"{path} is at step {checkpoint.step} already, beyond {total_timesteps}: pass a larger "
            "total_timesteps, or an earlier checkpoint to branch off from"
        )


def _ending(checkpoint: Checkpoint, config: TrainConfig, ignore_stop: bool) -> str | None:
    """Return why nothing is left to do: an early stop, or a budget that is spent."""
    progress = checkpoint.manifest["progress"]
    reason: str | None = progress["stop_reason"]
    if progress["should_stop"] and stop_reasons.is_early(reason):
        larger = config.total_timesteps > checkpoint.manifest["config"]["total_timesteps"]
        return None if ignore_stop or larger else reason
    if _has_spent_budget(config, progress) and _is_finished(checkpoint):
        return reason or stop_reasons.TOTAL_TIMESTEPS
    return None


def _result(checkpoint: Checkpoint, path: str | Path, reason: str) -> TrainResult:
    log.warning(
        "%s is complete at step %d (%s); pass a larger --total-timesteps to go on",
        path, checkpoint.step, reason,
    )  # fmt: skip
    run_dir = checkpoint.run_dir or checkpoint.path
    warnings = result_warnings(run_dir)
    return TrainResult(run_dir, checkpoint.path, _last_metrics(checkpoint), reason, warnings)


def open_online(
    path: str | Path,
    total_timesteps: int | None,
    *,
    env_id: str | None = None,
    trust_env: bool = False,
    callbacks: Iterable[Callback] = (),
    dataset: TransitionDataset | None = None,
) -> Run:
    """Build a run that fine-tunes the networks of an offline run online."""
    checkpoint, config = open_checkpoint(path)
    if total_timesteps is None:
        raise ConfigError("--online needs --total-timesteps: how many environment steps to take")
    if config.regime != "offline" or "offline_to_online" not in config.spec.regimes:
        able = [
            s.name
            for s in list_algorithm_specs()
            if {"offline", "offline_to_online"} <= {*s.regimes}
        ]
        raise ConfigError(
            f"{path} is {config.regime} training of {config.algo}; what can go on online is offline "
            f"training of {', '.join(able)}"
        )
    kwargs = {key: value for key, value in config.algo_kwargs.items() if key not in OFFLINE_OPTIONS}
    kwargs |= {
        "regime": "offline_to_online",
        "offline_pretrain_updates": checkpoint.manifest["progress"]["update_count"],
    }
    trust(env_id, config.env_id if trust_env else None)
    if env_id is None and config.env_id is None:
        raise ConfigError(f"{path} was trained without an environment; name one: --env ID")
    env_kwargs = config.env_kwargs
    if env_id not in (None, config.env_id):  # options of one environment mean nothing to another
        env_kwargs = reward_wrappers_of(env_kwargs)
    config = config.replace(
        env_id=env_id or config.env_id,
        env_kwargs=env_kwargs,
        total_timesteps=total_timesteps,
        algo_kwargs=kwargs,
    )
    run = resumed_run(checkpoint, config, callbacks=callbacks, dataset=dataset)
    run.state.clear_stop()
    run.continues = False
    return run


def _is_finished(checkpoint: Checkpoint) -> bool:
    """Tell whether the run came to its end, final evaluation included, after this checkpoint."""
    if checkpoint.run_dir is None:
        return True
    newest = find_checkpoint(checkpoint.run_dir)
    return newest != checkpoint.path or finished_step(checkpoint.run_dir) == checkpoint.step


def _has_spent_budget(config: TrainConfig, progress: dict[str, Any]) -> bool:
    state = TrainerState(algorithm=None)
    state.load_progress(progress)
    return Budget.of(config.groups.controls, config.budget).spent(state) is not None


def _last_metrics(checkpoint: Checkpoint) -> dict[str, float]:
    if checkpoint.run_dir is None:
        return {}
    return latest_metrics(read_rows(checkpoint.run_dir / METRICS))
