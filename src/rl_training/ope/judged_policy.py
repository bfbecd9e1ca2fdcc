"""The policy that is judged: its networks, how it acts, and what it was trained on."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rl_training.algorithms.base import Algorithm
from rl_training.config import ConfigError
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.offline_mixers import MIXED
from rl_training.data.transitions.normalizer import ObservationNormalizer
from rl_training.runtime.assemble import load_policy, open_checkpoint
from rl_training.runtime.config.train_config import TrainConfig
from rl_training.runtime.policy import Policy
from rl_training.runtime.seeding import stream_seed
from rl_training.spec import ProblemSpec


@dataclass(frozen=True)
class JudgedPolicy:
    """A trained policy, acting by its modes or, if `stochastic`, by drawing."""

    algorithm: Algorithm[Any]
    normalizer: ObservationNormalizer | None
    stochastic: bool = False
    path: Path | None = None
    config: TrainConfig | None = None  # of its training; None for a policy in memory
    identity: dict[str, Any] = field(default_factory=dict)  # of the data that it was trained on

    @classmethod
    def load(cls, path: str | Path, *, stochastic: bool = False) -> JudgedPolicy:
        """Load a checkpoint, or the last one of a run."""
        checkpoint, config = open_checkpoint(path, policy_only=True)
        if config.algo == "fqe":
            raise ConfigError(
                f"{path} is a fit of `rl-training ope`, not a policy: name the run that it judged"
            )
        policy = load_policy(checkpoint, config)
        identity = checkpoint.manifest.get("dataset")
        return cls(
            policy.algorithm,
            policy.normalizer,
            stochastic,
            checkpoint.path,
            config,
            identity if isinstance(identity, dict) else {},
        )

    @classmethod
    def of(cls, policy: Policy, *, stochastic: bool = False) -> JudgedPolicy:
        """Judge a policy in memory."""
        return cls(policy.algorithm, policy.normalizer, stochastic)

    @property
    def spec(self) -> ProblemSpec:
        return self.algorithm.spec

    @property
    def gamma(self) -> float:
        """Discount that it was trained with; 0.99 if it knows none."""
        return float(getattr(self.algorithm.config, "gamma", 0.99))

    @property
    def is_deterministic(self) -> bool:
        """True if it always takes the same action in a state, as asked or because it cannot draw."""
        if self.stochastic:
            return not hasattr(self.algorithm.actor, "log_prob")
        return not self.algorithm.draws_without_exploring

    @property
    def sha256(self) -> str:
        """Digest of everything that its actions depend on."""
        kind = (self.algorithm.name, self.stochastic, self.spec)
        digest = hashlib.sha256(repr(kind).encode())
        tensors = dict(self.algorithm.state_dict())
        if self.normalizer is not None:
            tensors |= {f"normalizer.{k}": v for k, v in self.normalizer.state_dict().items()}
        for name in sorted(tensors):
            digest.update(name.encode() + tensors[name].cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()

    def has_seen(self, dataset: TransitionDataset) -> bool:
        """Tell if it has learned from this log, by content or by name; never from held-out episodes."""
        saved = self.identity.get("validation")
        if isinstance(saved, dict) and saved.get("sha256") == dataset.sha256:
            return False
        if self.identity.get("sha256") == dataset.sha256:
            return True
        return dataset.source in str(self.identity.get("source")).split(MIXED)

    def held_out(self, dataset: TransitionDataset) -> TransitionDataset:
        """Episodes of its log that it has not learned from."""
        saved = self.identity.get("validation")
        fraction = None if self.config is None else self.config.groups.dataset.validation_fraction
        if self.config is None or fraction is None or not isinstance(saved, dict):
            raise ConfigError(
                f"{self.path or 'the policy'} was trained without validation_fraction: no episode was "
                "held out"
            )
        part, _ = dataset.split(fraction, stream_seed(self.config.seed, "validation"))
        if part.sha256 != saved.get("sha256"):
            raise ConfigError(
                f"{dataset.source} is not the log that {self.path} was trained on, so that its held-out "
                "episodes are not in it"
            )
        return part

    def inputs(self, obs: Tensor) -> Tensor:
        """Normalise observations as in its training."""
        return obs if self.normalizer is None else self.normalizer(obs)

    def actions(self, obs: Tensor, *, seed: int = 0) -> Tensor:
        """Actions in observations of the log, in [-1, 1] or numbered from 0."""
        generator = torch.Generator().manual_seed(seed)
        return self.algorithm.act(self.inputs(obs), explore=self.stochastic, generator=generator)

    def log_probs(self, obs: Tensor, actions: Tensor) -> Tensor | None:
        """Log-probabilities of the log's actions; None if they are continuous and it has no density."""
        inputs = self.inputs(obs)
        if self.spec.action_kind == "discrete":
            chosen = self.algorithm.choice_probabilities(inputs, explore=self.stochastic)
            return chosen.gather(1, actions.unsqueeze(1)).squeeze(1).double().log()
        return self.algorithm.log_prob(inputs, actions) if self.stochastic else None

    @property
    def reason_without_density(self) -> str:
        """Reason why importance weighting does not apply where `log_probs` is None."""
        if self.is_deterministic:
            return "a deterministic policy of continuous actions has no density to weigh with"
        return "a policy whose critic chooses among draws has no density to weigh with"


def in_pieces(rows: int, size: int = 8_192) -> list[slice]:
    """Cut a number of rows into slices that fit into memory."""
    return [slice(start, min(start + size, rows)) for start in range(0, rows, size)]
