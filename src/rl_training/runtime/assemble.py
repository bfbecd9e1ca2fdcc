"""Assembly of a run from its parts, new or resumed, and of the policy of a checkpoint."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from rl_training.algorithms.base import Algorithm, TrainingState
from rl_training.algorithms.registry import get_algorithm_spec
from rl_training.config import CheckpointError, ConfigError, Problem
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.transitions.normalizer import ObservationNormalizer
from rl_training.engine import CapturedEngine, EagerEngine
from rl_training.envs.errors import closed_after_error
from rl_training.runs.layout import check_output_dir
from rl_training.runtime.checkpoints.directories import find_checkpoint
from rl_training.runtime.checkpoints.format import Checkpoint, read_checkpoint
from rl_training.runtime.checkpoints.manifest import damaged, state_of
from rl_training.runtime.config.train_config import TrainConfig, without_removed_options
from rl_training.runtime.evaluation.validation import Validator
from rl_training.runtime.experience.build import build_experience
from rl_training.runtime.loop.budget import note_last_round
from rl_training.runtime.loop.callback import Callback, check_callbacks
from rl_training.runtime.loop.divergence import diverged_networks
from rl_training.runtime.loop.state import TrainerState
from rl_training.runtime.policy import Policy
from rl_training.runtime.prepare import (
    SavedPreparation,
    TrainingData,
    check_environment,
    load_and_split,
    prepare,
    prepare_online,
)
from rl_training.runtime.run import Run
from rl_training.runtime.seeding import stream_seed
from rl_training.runtime.trust import check_trusted, trust
from rl_training.spec import ProblemSpec

log = logging.getLogger("rl_training")
SMALL_NETWORKS = 2**26  # weights, 256 MB
_IDENTITY = ("sha256", "validation")  # of the dataset of a checkpoint


def pick_device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.ones(1, device=device).sum().item()  # also fails for `meta`, which holds no numbers
    except (RuntimeError, AssertionError, NotImplementedError):
        raise ConfigError([Problem(("device",), _unusable(name))]) from None
    return device


def _unusable(device: str) -> str:
    if device.split(":")[0] != "cuda":
        return f"{device!r} is not usable here; write cpu, cuda, cuda:0 or auto"
    count = torch.cuda.device_count()
    there = f"it sees {count} (cuda:0 to cuda:{count - 1})" if count else "it sees none"
    return f"{device!r} needs a GPU that PyTorch can use, and {there}; write device=cpu or auto"


def build_algorithm(config: TrainConfig, spec: ProblemSpec) -> Algorithm[Any]:
    return get_algorithm_spec(config.algo).algorithm(
        spec,
        config.groups.algorithm,
        seed=stream_seed(config.seed, "init"),
        update_seed=stream_seed(config.seed, "update"),
        device=pick_device(config.device),
    )


def load_policy(checkpoint: Checkpoint, config: TrainConfig) -> Policy:
    """Load the policy of a checkpoint, without data or environment, on any machine."""
    spec = ProblemSpec.from_dict(checkpoint.manifest["spec"])
    _check_size(checkpoint, config)
    with state_of(checkpoint.path):
        policy = build_policy(config.replace(device="cpu"), spec, _saved_normalizer(checkpoint))
        policy.algorithm.load_networks(checkpoint.tensors)
        policy.algorithm.update_count = int(checkpoint.manifest["algorithm"]["update_count"])
    _refuse_not_finite(checkpoint, policy.algorithm)
    return policy


def _check_size(checkpoint: Checkpoint, config: TrainConfig) -> None:
    """Refuse options for huge networks, larger than the saved ones, before memory is taken for them.

    Small ones are compared when they are loaded: an algorithm need not use its `hidden_sizes`.
    """
    options = config.groups.algorithm.model_dump()
    claimed = _claimed(options)
    if options.get("policy_algo") is not None:  # a network of its own inside
        inner = get_algorithm_spec(options["policy_algo"]).config(**options["policy_options"])
        claimed = max(claimed, _claimed(inner.model_dump()))
    saved = sum(tensor.numel() for tensor in checkpoint.tensors.values())
    if claimed > max(saved, SMALL_NETWORKS):
        raise damaged(
            checkpoint.path,
            f"it has {saved:,} numbers, and its options ask for at least {claimed:,}",
        )


def _claimed(options: Mapping[str, Any]) -> int:
    """Count the weights that the networks of these options have at least."""
    widths = options.get("hidden_sizes", ())
    critic = _weights(options.get("critic_hidden_sizes", widths)) + options.get("num_quantiles", 1)
    return int(max(_weights(widths), critic * options.get("num_critics", 1)))


def _weights(widths: Sequence[int]) -> int:
    """Count the weights between hidden layers, and at least one before each."""
    return len(widths) + sum(below * above for below, above in pairwise(widths))


def _refuse_not_finite(checkpoint: Checkpoint, algorithm: Algorithm[Any]) -> None:
    networks = diverged_networks(algorithm)
    if networks:
        raise damaged(checkpoint.path, f"not finite: {', '.join(networks)}")


def build_policy(
    config: TrainConfig, spec: ProblemSpec, normalizer: ObservationNormalizer | None
) -> Policy:
    """Build a policy with its initial weights."""
    seed = stream_seed(config.seed, "evaluation")
    return Policy(build_algorithm(config, spec), normalizer, seed=seed)


def _saved_normalizer(checkpoint: Checkpoint) -> ObservationNormalizer | None:
    prefix = "normalizer."
    saved = {
        k.removeprefix(prefix): v for k, v in checkpoint.tensors.items() if k.startswith(prefix)
    }
    return ObservationNormalizer.from_state_dict(saved) if saved else None


def checkpoint_config(checkpoint: Checkpoint) -> TrainConfig:
    """Read the configuration of a checkpoint.

    A checkpoint outside a run directory does not say where to write: a run that goes on from it
    is created in `runs`, like any other.
    """
    try:
        values = without_removed_options(checkpoint.manifest["config"])
        if checkpoint.run_dir is None:
            values = {key: value for key, value in values.items() if key != "output_dir"}
        return TrainConfig(**values)
    except KeyError as error:
        raise CheckpointError(f"{checkpoint.path}: its config lacks {error}") from None
    except AttributeError:
        raise CheckpointError(f"{checkpoint.path}: its algo_kwargs are not a mapping") from None
    except ConfigError as error:
        raise CheckpointError(f"{checkpoint.path}: {error}") from None


def new_run(
    config: TrainConfig,
    *,
    callbacks: Iterable[Callback] = (),
    dataset: TransitionDataset | None = None,
    directory: Path | None = None,
) -> Run:
    """Check everything that a run needs and build the run; nothing is written yet.

    It begins in `directory`, or in a new one in `output_dir`.
    """
    trust(config.env_id)
    callbacks = check_callbacks(callbacks)
    check_output_dir(config.output_dir if directory is None else directory)
    config = config.with_absolute_paths()
    _refuse_dataset(config, dataset)
    starts = config.groups.replay.learning_starts
    if config.regime != "offline" and starts >= config.total_timesteps:
        log.warning(
            "learning_starts is %d and total_timesteps %d: nothing is learned from what is collected; "
            "lower the first or raise the second",
            starts, config.total_timesteps,
        )  # fmt: skip
    note_last_round(config)
    if config.regime == "online":
        data = prepare_online(config)
    else:
        data = prepare(config, *load_and_split(config, dataset))
    run = assemble(config, data, callbacks)
    run.directory = directory
    return run


def _refuse_dataset(config: TrainConfig, dataset: TransitionDataset | None) -> None:
    if dataset is not None and config.regime == "online":
        raise ConfigError(f"{config.algo} collects its own data and takes no dataset")


def resumed_run(
    checkpoint: Checkpoint,
    config: TrainConfig,
    *,
    callbacks: Iterable[Callback] = (),
    dataset: TransitionDataset | None = None,
) -> Run:
    """Build a run in exactly the state of a checkpoint."""
    check_trusted(config.env_id, checkpoint.path)
    _check_size(checkpoint, config)
    callbacks = check_callbacks(callbacks)
    manifest = checkpoint.manifest
    spec = ProblemSpec.from_dict(manifest["spec"])
    _refuse_dataset(config, dataset)
    if config.regime == "online":
        data = prepare_online(config, spec)
    else:
        if config.regime == "offline_to_online":
            check_environment(config, spec)
        saved = SavedPreparation(
            spec,
            _saved_normalizer(checkpoint),
            manifest["reward_scale"],
            shaped_log=_shapes_log(checkpoint, config),
        )
        data = prepare(config, *load_and_split(config, dataset, saved=saved), saved=saved)
    if any(data.source.get(key) != manifest["dataset"].get(key) for key in _IDENTITY):
        raise CheckpointError(
            f"{checkpoint.path} was trained on other data than {data.source['source']} is now, "
            "so the run cannot go on as the same run"
        )
    run = assemble(config, data, callbacks)
    run.checkpoint = checkpoint
    tensors = checkpoint.tensors
    with closed_after_error(run.experience.close), state_of(checkpoint.path):
        run.algorithm.load_training_state(TrainingState(tensors, manifest["algorithm"]))
        run.experience.load_state_dict(TrainingState(tensors, manifest.get("experience", {})))
        run.state.load_progress(manifest["progress"])
        run.state.spans.load(manifest.get("seconds", {}))
        _refuse_not_finite(checkpoint, run.algorithm)
    run.state.phase = run.experience.phase
    run.state.mid_step = run.experience.updates_due > 0
    return run


def _shapes_log(checkpoint: Checkpoint, config: TrainConfig) -> bool:
    """Tell if logged rewards are shaped; they were not before checkpoints said so."""
    said = checkpoint.manifest["dataset"].get("shaped")
    if said or config.groups.env.training.reward.is_identity:
        return True
    log.warning(
        "%s is of a version whose env_kwargs.wrappers.reward left the rewards of a log as they were, "
        "and the run goes on that way: train anew to learn from one scale",
        checkpoint.path,
    )
    return False


def assemble(config: TrainConfig, data: TrainingData, callbacks: Iterable[Callback] = ()) -> Run:
    """Build a run on prepared data, with untrained networks."""
    policy = build_policy(config, data.spec, data.normalizer)
    algorithm = policy.algorithm
    eager = config.groups.controls.stepper == "eager"
    algorithm.engine = EagerEngine() if eager else CapturedEngine()
    validator = _validator(config, data, algorithm)
    experience = build_experience(config, data, algorithm)
    state = TrainerState(algorithm, phase=experience.phase)
    return Run(config, data, algorithm, policy, experience, state, validator, tuple(callbacks))


def _validator(
    config: TrainConfig, data: TrainingData, algorithm: Algorithm[Any]
) -> Validator | None:
    """Build the judge on held-out episodes; refuse to watch a metric that this learner lacks."""
    if data.dataset is None or data.dataset.held_out is None:
        return None
    seed = stream_seed(config.seed, "validation")
    validator = Validator(algorithm, data.dataset.held_out, data.dataset.learning, seed=seed)
    watched, _ = config.groups.controls.best_metric()
    if watched.startswith("validation/") and watched not in validator.names:
        measured = ", ".join(validator.names)
        message = f"is not measured for {config.algo} here (measured: {measured})"
        raise ConfigError([Problem(("algo_kwargs", "early_stopping", "metric"), message)])
    return validator


def open_checkpoint(
    path: str | Path, *, policy_only: bool = False
) -> tuple[Checkpoint, TrainConfig]:
    checkpoint = read_checkpoint(find_checkpoint(path), policy_only=policy_only)
    return checkpoint, checkpoint_config(checkpoint)
