"""What every algorithm is: named networks, one loss for each, an order of updates.

A loss function takes `(nets, batch, noise, config)` and returns a dict of scalars, of which
`<network>_loss` trains `<network>`. It draws no random number, reads no tensor's value and
branches on no data, so that one source serves every stepper.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import (
    Annotated,
    Any,
    ClassVar,
    Generic,
    NamedTuple,
    TypeVar,
    get_args,
    get_origin,
)

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from rl_training.algorithms.stepping import (
    EagerStepper,
    FusedAdam,
    Noise,
    Stepper,
    Terms,
    TermsFunction,
)
from rl_training.config import CheckpointError, ConfigError, Options, Problem, option
from rl_training.data.offline_to_online_config import OfflineToOnlineConfig
from rl_training.data.replay_config import ReplayConfig
from rl_training.data.transitions.batch import Batch
from rl_training.models.actors import Actor
from rl_training.models.networks import NumpyFunction
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


class AlgorithmConfig(Options):
    """Options that every algorithm has."""

    batch_size: int = option(256, "transitions per gradient update", ge=1, le=10_000_000)
    learning_rate: float = option(3e-4, "Adam's learning rate", gt=0)
    hidden_sizes: tuple[Annotated[int, Field(ge=1, le=65_536)], ...] = option(
        (256, 256), "width of each hidden layer"
    )

    def network_learning_rate(self, network: str) -> float:
        """`<network>_learning_rate` where it is given, else `learning_rate`."""
        own = getattr(self, f"{network}_learning_rate", None)
        return float(self.learning_rate if own is None else own)


class ActorCriticConfig(AlgorithmConfig):
    """Options of methods that learn action values."""

    gamma: float = option(0.99, "discount per step", ge=0, le=1)
    tau: float = option(0.005, "share of the online network in each target update", gt=0, le=1)
    actor_learning_rate: float | None = option(None, "the actor's own rate", gt=0)
    critic_learning_rate: float | None = option(None, "the critics' own rate", gt=0)


ConfigT = TypeVar("ConfigT", bound=AlgorithmConfig)


class TrainingState(NamedTuple):
    """Everything needed to go on bit for bit: tensors for safetensors, values for JSON."""

    tensors: dict[str, Tensor]
    values: dict[str, Any]


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Networks take their initial weights from the global stream: lend it one, then restore."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


def target_of(network: nn.Module) -> Any:
    """An exact copy that no optimizer moves; named `target_<network>`, it is tracked."""
    return copy.deepcopy(network).requires_grad_(False)


class Algorithm(nn.Module, Generic[ConfigT]):
    """A learner: `build` names its networks, `losses` says what trains them, in update order."""

    name: ClassVar[str] = ""
    config_class: ClassVar[type[AlgorithmConfig]]
    losses: ClassVar[dict[str, TermsFunction]] = {}
    # the paper's choices, used by default
    normalizes_observations: ClassVar[bool] = False
    normalizes_rewards: ClassVar[bool] = False
    schedules: ClassVar[dict[str, str]] = {}  # learning-rate decay by network
    continuous_options: ClassVar[frozenset[str]] = frozenset()  # not read with discrete actions
    replay: ClassVar[type[ReplayConfig]] = ReplayConfig  # its own defaults: replay_options(...)
    bridge: ClassVar[type[OfflineToOnlineConfig]] = (
        OfflineToOnlineConfig  # likewise: bridge_options(...)
    )
    joint_updates: ClassVar[bool] = False  # one batch holds the rows of a whole round of updates
    follows_progress: ClassVar[bool] = False  # its losses read `online_progress`
    # Its losses read tensors that stay where they are, the config and nothing else, so that their
    # operations are always the same; a class with losses of its own says so anew.
    repeatable: ClassVar[bool] = False
    gives_priorities: ClassVar[bool] = False  # sets `priorities` and reads the batch's weights
    actor: Any
    online_progress: float | None = None  # share of the steps gone by, once it collects
    priorities: Tensor | None = None  # (B,) errors of the last batch, for prioritised replay

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for base in getattr(cls, "__orig_bases__", ()):
            if get_origin(base) is Algorithm:
                cls.config_class = get_args(base)[0]
        if "losses" in vars(cls) and "repeatable" not in vars(cls):
            cls.repeatable = False
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
        self.spec = spec
        self.config: ConfigT = config if config is not None else self.config_class()  # type: ignore[assignment]
        self.device = torch.device(device)
        self._refuse_unread_options()
        with seeded(seed):
            self.build(spec, self.config)
        self.to(self.device)
        self.generator = torch.Generator(self.device)
        self.generator.manual_seed(seed if update_seed is None else update_seed)
        self.stepper: Stepper = EagerStepper()
        self.update_count = 0
        self._parameters_of = {name: list(getattr(self, name).parameters()) for name in self.losses}
        self.optimizers = {name: self.build_optimizer(name) for name in self.losses}
        self._tracked = self._pair_targets()

    def _refuse_unread_options(self) -> None:
        """An option that the discrete form does not read must not be set."""
        fields = type(self.config).model_fields
        unread = [
            name
            for name in sorted(self.continuous_options)
            if self.spec.action_kind == "discrete"
            and getattr(self.config, name) != fields[name].default
        ]
        if unread:
            message = f"has no part in {self.name} for discrete actions"
            raise ConfigError([Problem(("algo_kwargs", name), message) for name in unread])

    @classmethod
    def needs_next_actions(cls, config: Any) -> bool:
        """Whether batches must hold the action that the data took next."""
        del config
        return False

    @classmethod
    def needs_returns(cls, config: Any) -> bool:
        """Whether batches must hold what episodes really gave after each row."""
        del config
        return False

    def build(self, spec: ProblemSpec, config: ConfigT) -> None:
        """Create the networks as attributes; `target_<name>` follows `<name>`."""
        raise NotImplementedError(f"{type(self).__name__} must define build(spec, config)")

    def build_optimizer(self, name: str) -> torch.optim.Optimizer:
        rate = self.config.network_learning_rate(name)
        return FusedAdam(self._parameters_of[name], rate)

    def update(self, batch: Batch) -> Terms:
        """One gradient update; returns detached scalars that nobody has waited for."""
        terms = self.update_step(batch)
        # past nn.Module, which first looks whether it is a parameter
        self.__dict__["update_count"] += self.updates_in(batch)
        return terms

    def updates_in(self, batch: Batch) -> int:
        """How many updates a batch is for."""
        return max(1, len(batch) // self.config.batch_size) if self.joint_updates else 1

    def update_step(self, batch: Batch) -> Terms:
        """Every loss once, in order; override where a method differs in order."""
        terms: Terms = {}
        for name in self.losses:
            terms |= self.minimize(name, batch, {})
        return terms

    def minimize(self, name: str, batch: Batch, noise: Noise) -> Terms:
        return self.stepper.minimize(self, name, batch, noise)

    def evaluate(self, function: TermsFunction, batch: Batch, noise: Noise) -> Terms:
        """What several losses need, evaluated once; it is handed to them as noise is."""
        return self.stepper.evaluate(self, function, batch, noise)

    def track_targets(self, tau: float) -> None:
        self.stepper.track(self, tau)

    def standard_normal(self, like: Tensor) -> Tensor:
        """Draw from the named update stream, the only randomness inside an update."""
        return self.draw(torch.randn, like)

    def standard_uniform(self, like: Tensor) -> Tensor:
        """The same from [0, 1)."""
        return self.draw(torch.rand, like)

    def draw(self, distribution: Callable[..., Tensor], like: Tensor) -> Tensor:
        return self.stepper.draw(self, distribution, like)

    @torch.no_grad()
    def act(
        self, obs: Tensor, *, explore: bool = False, generator: torch.Generator | None = None
    ) -> Tensor:
        """Actions in [-1, 1] for normalised observations (batch, obs_dim)."""
        actor: Actor = self.actor
        if explore:
            return actor.sample(obs, self.generator if generator is None else generator)
        return actor.mode(obs)

    def explore(
        self, obs: NDArray[np.float32], rng: np.random.Generator, progress: float
    ) -> NDArray[Any]:
        """What collecting does in states (envs, obs_dim), in the units of `act`.

        All randomness is from `rng`; `progress`, from 0 to 1, is the share of the budget gone by.
        """
        del progress
        if self.device.type == "cpu" and hasattr(self.actor, "sample_numpy"):
            return self.actor.sample_numpy(obs, rng)
        generator = torch.Generator(self.device)
        generator.manual_seed(int(rng.integers(2**63)))
        states = torch.from_numpy(obs).to(self.device)
        return self.act(states, explore=True, generator=generator).cpu().numpy()

    def best_actions(self, obs: NDArray[np.float32]) -> NDArray[Any]:
        """The policy's mode in states (envs, obs_dim), for those that explore around it."""
        if self.device.type == "cpu" and hasattr(self.actor, "mode_numpy"):
            return self.actor.mode_numpy(obs)
        return self.act(torch.from_numpy(obs).to(self.device)).cpu().numpy()

    def after_collecting(self, before: int, after: int) -> None:
        """Environment steps so far; for what counts in them and not in updates."""

    def numpy_policy(self) -> NumpyFunction | None:
        """The deterministic policy on arrays, where the actor offers one."""
        build = getattr(self.actor, "as_numpy", None)
        return None if build is None else build()

    def parameters_of(self, name: str) -> list[nn.Parameter]:
        return self._parameters_of[name]

    def tracked_parameters(self) -> tuple[list[Tensor], list[Tensor]]:
        return self._tracked

    def set_learning_rate_factor(self, name: str, factor: float) -> None:
        """Scale a network's configured learning rate; schedules call this."""
        rate = self.config.network_learning_rate(name) * factor
        for group in self.optimizers[name].param_groups:
            group["lr"] = rate

    def training_state(self) -> TrainingState:
        """Networks, optimizer moments, counters and the update stream, by name."""
        tensors = {f"networks.{key}": value for key, value in self.state_dict().items()}
        values: dict[str, Any] = {"update_count": self.update_count}
        for network, optimizer in self.optimizers.items():
            for parameter_name, parameter in getattr(self, network).named_parameters():
                for key, value in optimizer.state[parameter].items():
                    holder = tensors if isinstance(value, Tensor) else values
                    holder[f"optimizers.{network}.{parameter_name}.{key}"] = value
        tensors["rng.update"] = self.generator.get_state()
        return TrainingState(tensors, values)

    def load_training_state(self, state: TrainingState) -> None:
        self.load_networks(state.tensors)
        saved = {**state.tensors, **state.values}
        for network, optimizer in self.optimizers.items():
            for parameter_name, parameter in getattr(self, network).named_parameters():
                prefix = f"optimizers.{network}.{parameter_name}."
                optimizer.state[parameter] = {
                    key.removeprefix(prefix): value.to(self.device, copy=True)
                    if isinstance(value, Tensor)
                    else value
                    for key, value in saved.items()
                    if key.startswith(prefix)
                }
        self.generator.set_state(state.tensors["rng.update"])
        self.update_count = int(state.values["update_count"])

    def load_networks(self, tensors: dict[str, Tensor]) -> None:
        """Only what acting needs; every name and shape must be this algorithm's."""
        saved = {
            key.removeprefix("networks."): value
            for key, value in tensors.items()
            if key.startswith("networks.")
        }
        try:
            self.load_state_dict(saved)
        except RuntimeError as error:
            raise CheckpointError(
                f"the saved networks are not those of {self.name!r} with this configuration: "
                + str(error).split("\n\t")[1].strip()
            ) from None

    def _pair_targets(self) -> tuple[list[Tensor], list[Tensor]]:
        targets: list[Tensor] = []
        sources: list[Tensor] = []
        for name, module in self.named_children():
            if name.startswith("target_"):
                source = getattr(self, name.removeprefix("target_"))
                targets += module.parameters()
                sources += source.parameters()
        return targets, sources
