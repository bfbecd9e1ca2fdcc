"""Managed classes: an algorithm with its configuration, its run and its policy in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, NoReturn, TypeVar

from numpy.typing import ArrayLike, NDArray

from rl_training.algorithms.registry import AlgorithmSpec, get_algorithm_spec
from rl_training.config import CheckpointError, ConfigError, OutputError, Problem, RunError
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.runtime.assemble import load_policy, new_run, open_checkpoint
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.checkpoints.format import Checkpoint, copy_checkpoint
from rl_training.runtime.commands import open_online, open_run
from rl_training.runtime.config.files import load_config
from rl_training.runtime.config.train_config import TrainConfig
from rl_training.runtime.policy import Policy
from rl_training.runtime.scoring import evaluate_policy
from rl_training.runtime.trainer import TrainResult
from rl_training.runtime.trust import trust

ManagedT = TypeVar("ManagedT", bound="ManagedAlgorithm")


class ManagedAlgorithm:
    """Train, evaluate, predict, save and load one algorithm."""

    algo: ClassVar[str]

    def __init__(self, config: TrainConfig, *others: NoReturn, **options: NoReturn) -> None:
        if others or options or not isinstance(config, TrainConfig):
            raise ConfigError(self._wrong_arguments(config, *others, **options))
        if config.algo != self.algo:
            message = f"is {config.algo!r}, but {type(self).__name__} trains {self.algo!r}"
            raise ConfigError([Problem(("algo",), message)])
        self.config = config
        self._policy: Policy | None = None
        self._checkpoint: Path | None = None

    @classmethod
    def from_config(cls: type[ManagedT], name: str | Path, **overrides: Any) -> ManagedT:
        """Make one from a file or a packaged configuration: `from_config("td3_bc/pendulum", seed=3)`."""
        return cls(load_config(name, overrides))

    @classmethod
    def load(cls: type[ManagedT], path: str | Path, *, trust_env: bool = False) -> ManagedT:
        """Load a checkpoint or a run directory; `learn` then goes on exactly where it was.

        `trust_env` allows the checkpoint to name an environment `module:Name`, which `learn` and
        `evaluate` then import. `predict` needs no environment.
        """
        checkpoint, config = open_checkpoint(path, policy_only=True)
        if config.algo != cls.algo:
            raise CheckpointError(
                f"{path} is a checkpoint of {config.algo!r}, not of {cls.algo!r}; "
                "rl_training.load(path) takes any"
            )
        return cls._of(checkpoint, config, trust_env)

    @classmethod
    def _of(
        cls: type[ManagedT], checkpoint: Checkpoint, config: TrainConfig, trust_env: bool
    ) -> ManagedT:
        if trust_env:
            trust(config.env_id)
        managed = cls(config)
        managed._policy = load_policy(checkpoint, config)
        managed._checkpoint = checkpoint.path
        return managed

    def learn(
        self,
        *steps: NoReturn,
        total_timesteps: int | None = None,
        dataset: TransitionDataset | None = None,
        callbacks: Iterable[Callback] = (),
        ignore_stop: bool = False,
        progress_bar: bool = False,
        online: bool = False,
        env_id: str | None = None,
    ) -> TrainResult:
        """Train to the budget; after `load` or an earlier `learn`, go on from there.

        With `online` an offline policy is fine-tuned in an environment for `total_timesteps` steps.
        """
        if steps:
            raise ConfigError(
                f"learn takes its budget by name: learn(total_timesteps={steps[0]!r})"
            )
        if dataset is not None and not isinstance(dataset, TransitionDataset):
            raise ConfigError(f"dataset must be a TransitionDataset, got {dataset!r}")
        _check_env_id(env_id)
        total = self.config.total_timesteps if total_timesteps is None else total_timesteps
        if online:
            self._trained("learn(online=True)")
            assert self._checkpoint is not None
            run = open_online(
                self._checkpoint,
                total_timesteps,
                env_id=env_id,
                callbacks=callbacks,
                dataset=dataset,
            )
        elif env_id is not None:
            raise ConfigError("env_id is for online=True; otherwise it belongs into the config")
        elif self._checkpoint is None:
            self.config = self.config.replace(total_timesteps=total)
            run = new_run(self.config, callbacks=callbacks, dataset=dataset)
        else:
            opened = open_run(
                self._checkpoint,
                total_timesteps=total_timesteps,
                ignore_stop=ignore_stop,
                callbacks=callbacks,
                dataset=dataset,
            )
            if isinstance(opened, TrainResult):
                return opened
            run = opened
        result = run.execute(progress_bar=progress_bar)
        self.config, self._policy = run.config, run.policy
        self._checkpoint = result.checkpoint_path.absolute()
        return result

    def evaluate(
        self,
        num_episodes: int = 10,
        *,
        seed: int | None = None,
        env_id: str | None = None,
        deterministic: bool = True,
    ) -> dict[str, float]:
        """Score the policy on the unshaped reward, over initial states that training never saw."""
        _check_env_id(env_id)
        return evaluate_policy(
            self._trained("evaluate"),
            self.config,
            num_episodes=num_episodes,
            seed=seed,
            env_id=env_id,
            deterministic=deterministic,
            source=self._checkpoint or "the configuration",
        ).metrics()

    def predict(
        self, obs: ArrayLike | Mapping[str, Any], *, deterministic: bool = True
    ) -> NDArray[Any]:
        """Return actions in environment units, for one observation or a batch."""
        if self._policy is None:
            self._trained("predict")
        assert self._policy is not None
        return self._policy.predict(obs, deterministic=deterministic)

    def save(self, path: str | Path) -> Path:
        """Copy the newest checkpoint to `path`, complete enough to go on training from."""
        self._trained("save")
        assert self._checkpoint is not None
        target = Path(path).expanduser()
        if target.exists() and not (target / "manifest.json").exists():
            raise OutputError(f"{target} exists and is not a checkpoint; choose another path")
        try:
            copy_checkpoint(self._checkpoint, target)
        except OSError as error:
            raise OutputError(f"cannot save to {target}: {error}") from None
        return target

    def _trained(self, verb: str) -> Policy:
        if self._policy is None:
            name = type(self).__name__
            raise RunError(f"call learn() or {name}.load(path) before {verb}()")
        return self._policy

    def _wrong_arguments(self, config: Any, *others: Any, **options: Any) -> str:
        """Say how to make one; a policy name with an environment is Stable-Baselines3's way."""
        name = type(self).__name__
        if isinstance(config, TrainConfig):
            return f"{name} takes a TrainConfig alone: options go into its algo_kwargs"
        if not isinstance(config, str) or not (others or options):
            return f"{name} takes a TrainConfig, got {config!r}; see {name}.from_config for names"
        environment = next(iter(others), options.get("env"))
        spec = getattr(environment, "spec", None)  # of a gymnasium.Env
        env_id = environment if isinstance(environment, str) else getattr(spec, "id", "...")
        return (
            f"{name} takes a TrainConfig, which names the environment instead of holding it:\n"
            f"{name}(TrainConfig(algo={self.algo!r}, env_id={env_id!r}, algo_kwargs={{...}})); "
            "networks: hidden_sizes in algo_kwargs"
        )

    def __repr__(self) -> str:
        trained = "untrained" if self._policy is None else f"{self._checkpoint}"
        return f"{type(self).__name__}({self.config.env_id or 'logs'}, {trained})"


def _check_env_id(env_id: Any) -> None:
    """Refuse an environment in the place of its id, as Stable-Baselines3 would take it."""
    if env_id is not None and not isinstance(env_id, str):
        raise ConfigError(
            f"env_id names an environment, registered or module:Class; got {env_id!r}"
        )


_MANAGED: dict[str, type[ManagedAlgorithm]] = {}


def managed_class(spec: AlgorithmSpec) -> type[ManagedAlgorithm]:
    """Managed class of a registration; made once, so that it is always the same object."""
    if spec.name not in _MANAGED:
        _MANAGED[spec.name] = type(
            spec.class_name,
            (ManagedAlgorithm,),
            {"algo": spec.name, "__doc__": spec.summary, "__module__": "rl_training.api"},
        )
    return _MANAGED[spec.name]


def load(path: str | Path, *, trust_env: bool = False) -> ManagedAlgorithm:
    """Load a checkpoint or a run directory of any algorithm; `trust_env` as in `ManagedAlgorithm.load`.

    The algorithm of a plugin has to be registered before: `load_plugin(file)`.
    """
    checkpoint, config = open_checkpoint(path, policy_only=True)
    return algorithm(config.algo)._of(checkpoint, config, trust_env)


def algorithm(name: str) -> type[ManagedAlgorithm]:
    """Managed class of an algorithm by its registered name."""
    return managed_class(get_algorithm_spec(name))
