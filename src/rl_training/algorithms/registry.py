"""Registry of algorithms. A file in this package, an entry point or a plugin file adds to it.

An algorithm registers itself with `@register(name)`; nothing else has to be edited.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from rl_training.config import ConfigError, Problem, suggest
from rl_training.imports import search_working_directory

if TYPE_CHECKING:
    from rl_training.algorithms.base import Algorithm, AlgorithmConfig

Regime = Literal["offline", "online", "offline_to_online"]
ActionKind = Literal["continuous", "discrete"]
ENTRY_POINT_GROUP = "rl_training.algorithms"
_NOT_ALGORITHMS = {
    "acting", "argument_checks", "base", "configs", "delayed", "losses", "registry", "soft", "state",
    "targets", "valuing",
}  # fmt: skip


@dataclass(frozen=True)
class AlgorithmSpec:
    """An algorithm as the rest of the package sees it."""

    name: str
    algorithm: type[Algorithm[Any]]
    config: type[AlgorithmConfig]
    regimes: tuple[Regime, ...]
    action_kinds: tuple[ActionKind, ...]
    listed: bool = True  # false for what learns no policy of its own

    @property
    def class_name(self) -> str:
        """The name of the managed class: `TD3BC` for `TD3BCAlgorithm`."""
        return self.algorithm.__name__.removesuffix("Algorithm")

    @property
    def summary(self) -> str:
        """The first line of the algorithm's file."""
        documentation = sys.modules[self.algorithm.__module__].__doc__ or ""
        return documentation.strip().split("\n")[0]


_SPECS: dict[str, AlgorithmSpec] = {}
_discovered = False
AlgorithmT = TypeVar("AlgorithmT", bound="type[Algorithm[Any]]")


def register(
    name: str,
    *,
    regimes: tuple[Regime, ...] = ("offline",),
    action_kinds: tuple[ActionKind, ...] = ("continuous",),
    listed: bool = True,
) -> Callable[[AlgorithmT], AlgorithmT]:
    """Make a learner known under `name`; its class is called `<Name>Algorithm`.

    One that is not `listed` is no choice for users: the package itself trains it.
    """

    def decorate(algorithm: AlgorithmT) -> AlgorithmT:
        earlier = _SPECS.get(name)
        if earlier is not None and earlier.algorithm.__module__ != algorithm.__module__:
            raise ConfigError(
                f"algorithm {name!r} is registered twice: in {earlier.algorithm.__module__} "
                f"and in {algorithm.__module__}"
            )
        if not algorithm.__name__.endswith("Algorithm"):
            raise ConfigError(
                f"the learner registered as {name!r} is called {algorithm.__name__}; "
                f"its name must end in 'Algorithm'"
            )
        _SPECS[name] = AlgorithmSpec(
            name, algorithm, algorithm.config_class, tuple(regimes), tuple(action_kinds), listed
        )
        algorithm.name = name
        return algorithm

    return decorate


def discover() -> None:
    """Import every algorithm file of this package and every installed plugin, once."""
    global _discovered
    if _discovered:
        return
    import rl_training.algorithms as package

    for module in pkgutil.iter_modules(package.__path__):
        if module.name not in _NOT_ALGORITHMS:
            importlib.import_module(f"rl_training.algorithms.{module.name}")
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        entry.load()
    _discovered = True


def load_plugin(plugin: str) -> None:
    """Import a plugin: a Python file, or the name of an importable module."""
    search_working_directory()
    path = Path(plugin)
    if path.suffix != ".py":
        try:
            importlib.import_module(plugin)
        except ModuleNotFoundError as error:
            if error.name is not None and plugin.startswith(error.name):
                raise ConfigError(f"--plugin {plugin}: no such module or .py file") from None
            raise
        return
    if not path.is_file():
        raise ConfigError(f"--plugin {plugin}: no such file")
    name = f"rl_training_plugin_{path.stem}"
    specification = importlib.util.spec_from_file_location(name, path.resolve())
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    try:
        specification.loader.exec_module(module)
    except ConfigError:
        raise
    except Exception as error:  # whatever the user's own code does wrong
        reason = str(error).split("\n")[0]
        raise ConfigError(f"--plugin {plugin}: {type(error).__name__}: {reason}") from error


def list_algorithm_specs() -> list[AlgorithmSpec]:
    discover()
    return [_SPECS[name] for name in sorted(_SPECS) if _SPECS[name].listed]


def get_algorithm_spec(name: str) -> AlgorithmSpec:
    discover()
    if name not in _SPECS:
        known = [spec.name for spec in list_algorithm_specs()]
        names = ", ".join(known)
        hint = (
            suggest(name, known)
            or f" (known: {names}; --plugin FILE, or load_plugin(FILE), adds your own)"
        )
        raise ConfigError([Problem(("algo",), f"unknown algorithm {name!r}{hint}")])
    return _SPECS[name]
