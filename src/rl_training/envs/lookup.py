"""Environments by id, with errors that say what to change.

An id is one that gymnasium knows (`Pendulum-v1`), or `module:Name`, where Name is an id that
importing the module registers, or an Env class in it. Other callables are refused: an id is text that may
come from a file, and would otherwise call any function (`os:system`).
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import re
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec, load_env_creator, parse_env_id

from rl_training.config import EnvError, MissingExtraError, suggest
from rl_training.envs.goal_envs import register_goal_envs
from rl_training.envs.plain_warnings import colour_on_terminals_only
from rl_training.imports import search_working_directory

# Named in gymnasium's own messages -> the package as people call it, and the extra that holds it.
_EXTRAS = {
    "mujoco": ("MuJoCo", "mujoco"),
    "box2d": ("Box2D", "box2d"),
    "pygame": ("pygame", "video"),
}
# gymnasium-robotics registers these when it is imported; without it they look misspelled.
_ROBOTICS = re.compile(
    r"(Fetch|PointMaze|AntMaze|AdroitHand|HandReach|HandManipulate|FrankaKitchen)"
)
# Keys of env_kwargs that never reach gymnasium, so that a misspelled one finds its name.
RESERVED_KEYS = ("wrappers", "training", "evaluation")
register_goal_envs()
colour_on_terminals_only()


def build_env(env_id: str, make_kwargs: Mapping[str, Any]) -> gym.Env[Any, Any]:
    """Build the environment by gymnasium, without wrappers of ours."""
    target = find_env(env_id)
    try:
        return gym.make(target, **make_kwargs)
    except gym.error.DependencyNotInstalled as error:
        raise _missing_dependency(env_id, error) from None
    except TypeError as error:
        unknown = re.search(r"unexpected keyword argument '(\w+)'", str(error))
        if unknown and unknown[1] in make_kwargs:
            raise EnvError(_unknown_argument(env_id, target, unknown[1])) from None
        raise EnvError(_creation_failed(env_id, error.__cause__ or error)) from error
    except Exception as error:  # the environment's own code may raise anything
        raise EnvError(_creation_failed(env_id, error)) from error


def find_env(env_id: str) -> EnvSpec | str:
    """Find what `gymnasium.make` takes for this id, or raise an EnvError."""
    if not isinstance(env_id, str) or not env_id:
        raise EnvError(f"env_id must be text such as 'Pendulum-v1', got {env_id!r}")
    if ":" not in env_id:
        if _ROBOTICS.match(env_id):
            _register_robotics()
        if not _is_registered(env_id):
            raise _unknown_id(env_id)
        return env_id
    module_name, _, name = env_id.partition(":")
    module = _import(module_name, env_id)
    entry = getattr(module, name, None)
    # A class wins over an id without version, which gymnasium would read as the latest version.
    if name in gym.registry or (not callable(entry) and _is_registered(name)):
        return name
    if not callable(entry):
        raise EnvError(_not_in_module(module, name))
    if not inspect.isclass(entry):
        raise EnvError(
            f"{env_id}: {name} is a function; env_id takes a registered id or an Env class, so register "
            f"it in Python: gymnasium.register(id='MyEnv-v0', entry_point={name})"
        )
    if not issubclass(entry, gym.Env):
        raise EnvError(
            f"{env_id} is not an environment: {name} does not inherit from gymnasium.Env"
        )
    return EnvSpec(id=name, entry_point=f"{module_name}:{name}")


def _register_robotics() -> None:
    """Register the ids of gymnasium-robotics, if it is installed."""
    if importlib.util.find_spec("gymnasium_robotics") is not None:
        gym.register_envs(importlib.import_module("gymnasium_robotics"))


def _is_registered(env_id: str) -> bool:
    """True for an id that gymnasium knows, also without its version."""
    return env_id in gym.registry or any(
        spec.version is not None and spec.id == f"{env_id}-v{spec.version}"
        for spec in gym.registry.values()
    )


def _import(module_name: str, env_id: str) -> ModuleType:
    search_working_directory()
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if not (module_name == missing or module_name.startswith(f"{missing}.")):
            raise EnvError(
                f"{env_id}: module {module_name!r} needs {missing!r}, which is not installed"
            ) from None
        raise EnvError(
            f"{env_id}: there is no module {module_name!r}; "
            "install it, or put its directory on PYTHONPATH"
        ) from None
    except Exception as error:  # a user's module may raise anything while it is imported
        raise EnvError(
            f"{env_id}: importing {module_name!r} failed: {type(error).__name__}: {error}"
        ) from error


def _unknown_id(env_id: str) -> EnvError | MissingExtraError:
    if _ROBOTICS.match(env_id) and not any(map(_ROBOTICS.match, gym.registry)):
        return MissingExtraError(env_id, "gymnasium-robotics", "robotics")
    same_name = [spec for spec in gym.registry.values() if _name(spec.id) == _name(env_id)]
    if same_name:
        versions = ", ".join(spec.id for spec in sorted(same_name, key=lambda s: s.version or 0))
        return EnvError(f"there is no environment {env_id!r}; versions that exist: {versions}")
    nearest = _nearest_id(env_id)
    register = "import the package that registers it with 'module:EnvName'"
    hint = f"did you mean {nearest!r}?" if nearest else register
    return EnvError(f"there is no environment {env_id!r}; {hint}")


def _name(env_id: str) -> str:
    return re.sub(r"-v\d+$", "", env_id)


def _nearest_id(env_id: str) -> str | None:
    """The registered id with the nearest name, in the same version if there is one."""
    by_name: dict[str, list[str]] = {}
    for registered in gym.registry:
        by_name.setdefault(_name(registered), []).append(registered)
    near = _nearest(_name(env_id), by_name)
    if near is None:
        return None
    versions = sorted(by_name[near], key=lambda registered: parse_env_id(registered)[2] or 0)
    wanted = env_id[len(_name(env_id)) :]
    return next((name for name in versions if wanted and name.endswith(wanted)), versions[-1])


def _nearest(word: str, candidates: Iterable[str]) -> str | None:
    """The candidate most like `word`, whatever the case: names of environments are CamelCase."""
    by_lower = {candidate.lower(): candidate for candidate in sorted(candidates)}
    near = difflib.get_close_matches(word.lower(), by_lower, n=1)
    return by_lower[near[0]] if near else None


def _not_in_module(module: ModuleType, name: str) -> str:
    classes = [
        key
        for key, value in vars(module).items()
        if inspect.isclass(value) and issubclass(value, gym.Env) and value is not gym.Env
    ]
    nearest = _nearest(name, classes)
    listed = f" (it has: {', '.join(classes)})" if classes else ""
    hint = f"; did you mean {nearest!r}?" if nearest else listed
    return f"module {module.__name__!r} has and registers no environment {name!r}{hint}"


def _missing_dependency(env_id: str, error: Exception) -> EnvError | MissingExtraError:
    for word, (package, extra) in _EXTRAS.items():
        if word in str(error).lower():
            return MissingExtraError(env_id, package, extra)
    return EnvError(f"{env_id} needs a package that is not installed: {_first_line(error)}")


def _unknown_argument(env_id: str, target: EnvSpec | str, key: str) -> str:
    spec = gym.spec(target) if isinstance(target, str) else target
    entry: Any = spec.entry_point
    creator = load_env_creator(entry) if isinstance(entry, str) else entry
    accepted = [
        parameter.name
        for parameter in inspect.signature(creator).parameters.values()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    ]
    hint = suggest(key, [*accepted, *RESERVED_KEYS, "max_episode_steps"]) or (
        f" (it takes: {', '.join(accepted)})" if accepted else ""
    )
    return f"env_kwargs.{key}: {env_id} takes no argument {key!r}{hint}"


def _creation_failed(env_id: str, error: BaseException) -> str:
    return f"{env_id} cannot be created: {type(error).__name__}: {_first_line(error)}"


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [""])[0]
