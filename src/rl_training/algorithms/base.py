"""Algorithms: named networks, one loss for each, and an order of updates.

A loss function takes `(nets, batch, noise, config)` and returns a dict of scalars, of which
`<network>_loss` trains `<network>`. It is pure: it reads its arguments and the networks' tensors,
draws no random number, reads no tensor's value and branches on no data. Terms that several losses
share are handed to them as a further argument, `shared`.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Generic, TypeVar, get_args, get_origin

import torch
from torch import Tensor, nn

from rl_training.algorithms import state as training
from rl_training.algorithms.configs import ActorCriticConfig, AlgorithmConfig
from rl_training.algorithms.losses import (
    NO_NOISE,
    Noise,
    TermsFunction,
    call,
    checked,
    inputs_of,
)
from rl_training.algorithms.state import TrainingState
from rl_training.algorithms.valuing import Valuing
from rl_training.config import ConfigError, Problem
from rl_training.data.offline_to_online_config import OfflineToOnlineConfig
from rl_training.data.replay_config import ReplayConfig, name_options
from rl_training.data.transitions.batch import Batch
from rl_training.engine import (
    EagerEngine,
    Engine,
    FusedAdam,
    Gradients,
    Inputs,
    Terms,
    UnusedParametersError,
    polyak_average,
)
from rl_training.engine.adam import step_with
from rl_training.spec import ProblemSpec

__all__ = [
    "ActorCriticConfig",
    "Algorithm",
    "AlgorithmConfig",
    "Noise",
    "Terms",
    "TrainingState",
    "target_of",
]

ConfigT = TypeVar("ConfigT", bound=AlgorithmConfig)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the global stream, which initial weights are drawn from, and restore it afterwards."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


def target_of(network: nn.Module) -> Any:
    """Copy a network as a target, which no optimizer moves; named `target_<network>`, it follows."""
    return copy.deepcopy(network).requires_grad_(False)


class Algorithm(Valuing, Generic[ConfigT]):
    """A learner: `build` names its networks, `losses` says what trains them, in update order."""

    name: ClassVar[str] = ""
    config_class: ClassVar[type[AlgorithmConfig]]
    losses: ClassVar[dict[str, TermsFunction]] = {}
    # defaults of the options; learners from logs normalise observations, whatever their units
    normalizes_observations: ClassVar[bool] = False
    normalizes_rewards: ClassVar[bool] = False  # for a method whose options assume such rewards
    # cut episodes go on with the worst reward in `batch.returns`, instead of ending there
    returns_are_lower_bounds: ClassVar[bool] = False
    schedules: ClassVar[dict[str, str]] = {}  # learning-rate decay by network
    # what to change first, in words, if advantage weights saturate ("weights"), values explode
    # ("values") or the policy leaves the data ("policy")
    remedies: ClassVar[dict[str, str]] = {}
    continuous_options: ClassVar[frozenset[str]] = frozenset()  # not read with discrete actions
    discrete_options: ClassVar[frozenset[str]] = frozenset()  # not read with continuous actions
    replay: ClassVar[type[ReplayConfig]] = ReplayConfig  # its own defaults: replay_options(...)
    # likewise: offline_to_online_options(...)
    offline_to_online: ClassVar[type[OfflineToOnlineConfig]] = OfflineToOnlineConfig
    joint_updates: ClassVar[bool] = False  # one batch holds the rows of a whole round of updates
    gives_priorities: ClassVar[bool] = False  # sets `priorities` and reads the batch's weights
    # each of `num_critics` members learns from its own bootstrap sample of a log's episodes: the
    # batch's weights are (batch, members)
    bootstraps_episodes: ClassVar[bool] = False
    online_progress: float | None = None  # share of the steps gone by, once it collects
    priorities: Tensor | None = None  # (B,) errors of the last batch, for prioritised replay

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for base in getattr(cls, "__orig_bases__", ()):
            if get_origin(base) is Algorithm:
                cls.config_class = get_args(base)[0]
        for group in ("replay", "offline_to_online"):
            name_options(cls, group)
        if not cls.losses:
            raise TypeError(f"{cls.__name__} has no losses: losses = {{'actor': actor_loss, ...}}")
        if not hasattr(cls, "config_class"):
            raise TypeError(f"{cls.__name__} must derive from Algorithm[YourConfig]")

    def __init__(
        self,
        spec: ProblemSpec,
        config: ConfigT | None = None,
        *,
        seed: int = 0,
        update_seed: int | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__()
        self.engine: Engine = EagerEngine()
        self.spec = spec
        self.config: ConfigT = config if config is not None else self.config_class()  # type: ignore[assignment]
        self.device = torch.device(device)
        self._refuse_unread_options()
        with seeded(seed):
            self.build(spec, self.config)
        self.to(self.device)
        self.generator = torch.Generator(self.device)
        self.generator.manual_seed(seed if update_seed is None else update_seed)
        self.update_count = 0
        self._parameters_of = {name: list(getattr(self, name).parameters()) for name in self.losses}
        self.optimizers = {name: self.build_optimizer(name) for name in self.losses}
        self._tracked = self._pair_targets()

    def _refuse_unread_options(self) -> None:
        """Refuse options that are set, but not read for this kind of actions."""
        fields, kind = type(self.config).model_fields, self.spec.action_kind
        of_others = self.continuous_options if kind == "discrete" else self.discrete_options
        unread = [
            name for name in sorted(of_others) if getattr(self.config, name) != fields[name].default
        ]
        if unread:
            message = f"has no part in {self.name} for {kind} actions"
            raise ConfigError([Problem(("algo_kwargs", name), message) for name in unread])

    @classmethod
    def needs_next_actions(cls, config: Any) -> bool:
        """Tell if batches must hold the action that the data took next."""
        del config
        return False

    @classmethod
    def needs_returns(cls, config: Any) -> bool:
        """Tell if batches must hold the returns to go that episodes really gave."""
        del config
        return False

    def build(self, spec: ProblemSpec, config: ConfigT) -> None:
        """Create the networks as attributes; `target_<name>` follows `<name>`."""
        raise NotImplementedError(f"{type(self).__name__} must define build(spec, config)")

    def build_optimizer(self, name: str) -> torch.optim.Optimizer:
        return FusedAdam(self._parameters_of[name], self.config.network_learning_rate(name))

    # -- updates ------------------------------------------------------------------------------

    def update(self, batch: Batch) -> Terms:
        """Make one gradient update; returns detached scalars that nobody has waited for."""
        terms = self.update_step(batch)
        # past nn.Module, which first looks whether it is a parameter
        self.__dict__["update_count"] += self.updates_in(batch)
        return terms

    def updates_in(self, batch: Batch) -> int:
        """Count the updates that a batch is for."""
        return max(1, len(batch) // self.config.batch_size) if self.joint_updates else 1

    def update_step(self, batch: Batch) -> Terms:
        """Minimise every loss once, in order; override where a method differs in order."""
        terms: Terms = {}
        for name in self.losses:
            terms |= self.minimize(name, batch)
        return terms

    def minimize(
        self, name: str, batch: Batch, noise: Noise = NO_NOISE, shared: Terms | None = None
    ) -> Terms:
        """Take one optimizer step on a network's loss; `shared` terms go on to the loss."""

        def loss(inputs: Inputs) -> tuple[Tensor, Terms]:
            terms = call(self.losses[name], self, batch, noise, shared, inputs)
            return checked(name, terms)[f"{name}_loss"], terms

        parameters, max_norm = (
            self._parameters_of[name],
            getattr(self.config, "max_grad_norm", None),
        )
        try:
            result = self.engine.gradients(
                name,
                loss,
                parameters,
                inputs_of(batch, noise, shared),
                with_norm=max_norm is not None,
            )
        except UnusedParametersError as error:
            names = [key for key, _ in getattr(self, name).named_parameters()]
            unused = ", ".join(names[position] for position in error.positions)
            raise RuntimeError(f"{name}_loss does not depend on {name}'s {unused}") from None
        self._step(name, result, max_norm)
        return result.terms

    def evaluate(self, function: TermsFunction, batch: Batch, noise: Noise = NO_NOISE) -> Terms:
        """Evaluate, without gradient, terms that several losses share."""

        def values(inputs: Inputs) -> Terms:
            return call(function, self, batch, noise, None, inputs)

        return self.engine.values(
            f"{function.__module__}.{function.__qualname__}", values, inputs_of(batch, noise, None)
        )

    def _step(self, name: str, result: Gradients, max_norm: float | None) -> None:
        optimizer = self.optimizers[name]
        if isinstance(optimizer, FusedAdam):
            optimizer.apply(result.gradients, max_norm, result.norm)
        else:
            step_with(optimizer, self._parameters_of[name], result.gradients, max_norm)

    def track_targets(self, tau: float) -> None:
        """Polyak averaging: move every `target_<name>` towards `<name>`."""
        polyak_average(*self._tracked, tau)

    def standard_normal(self, like: Tensor) -> Tensor:
        """Draw N(0, 1) numbers from the update stream, the only randomness inside an update."""
        return torch.randn(like.shape, generator=self.generator, device=self.device)

    def standard_uniform(self, like: Tensor) -> Tensor:
        """Draw U[0, 1) numbers from the update stream."""
        return torch.rand(like.shape, generator=self.generator, device=self.device)

    def parameters_of(self, name: str) -> list[nn.Parameter]:
        """Parameters that the loss of a network trains, in the order of their gradients."""
        return self._parameters_of[name]

    def set_learning_rate_factor(self, name: str, factor: float) -> None:
        """Scale a network's configured learning rate; schedules call this."""
        rate = self.config.network_learning_rate(name) * factor
        for group in self.optimizers[name].param_groups:
            group["lr"] = rate

    def _pair_targets(self) -> tuple[list[Tensor], list[Tensor]]:
        targets: list[Tensor] = []
        sources: list[Tensor] = []
        for name, module in self.named_children():
            if name.startswith("target_"):
                source = getattr(self, name.removeprefix("target_"))
                targets += module.parameters()
                sources += source.parameters()
        return targets, sources

    # -- state --------------------------------------------------------------------------------

    def training_state(self) -> TrainingState:
        return training.training_state(self)

    def load_training_state(self, state: TrainingState) -> None:
        training.load_training_state(self, state)

    def load_networks(self, tensors: dict[str, Tensor]) -> None:
        training.load_networks(self, tensors)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "config" or isinstance(value, nn.Module):
            self.engine.forget()  # captured losses read the former one

    def _apply(self, *args: Any, **kwargs: Any) -> Any:
        moved = super()._apply(*args, **kwargs)  # type: ignore[no-untyped-call]
        self.engine.forget()
        return moved

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        result = super().load_state_dict(*args, **kwargs)
        self.engine.forget()
        return result
