"""Environments whose code the user allows to run.

An `env_id` of the form `module:Name` imports a module. In a configuration that the user trains it is the user's
word. In a checkpoint it is the word of whoever wrote the file, so it is followed only if the user has
named the same environment in this process: by training it, as an explicit environment, or by `trust_env`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from rl_training.config import EnvError

if TYPE_CHECKING:
    from rl_training.envs.env_config import EnvConfig
    from rl_training.runtime.config.train_config import TrainConfig

# gymnasium's bridges to old gym pass the id in their `env_id` argument on, which may again name a module
_BRIDGES = re.compile(r"GymV(21|26)Environment(-v\d+)?")
_named: set[str] = set()


def runs_named_code(env_id: str | None) -> bool:
    """Tell whether building the environment may import a module that its id or arguments name."""
    return env_id is not None and (":" in env_id or _BRIDGES.fullmatch(env_id) is not None)


def resume_command(run_dir: Path, env_id: str | None) -> str:
    """Command that goes on with a run of this environment."""
    return f"rl-training resume {run_dir}{' --trust-env' if runs_named_code(env_id) else ''}"


def trust(*env_ids: str | None) -> None:
    """Remember environments that the user has named in this process."""
    _named.update(env_id for env_id in env_ids if env_id is not None)


def check_trusted(env_id: str | None, source: str | Path) -> None:
    """Refuse an environment that only a file has named. Nothing has been imported before this."""
    if env_id is None or not runs_named_code(env_id) or env_id in _named:
        return
    module, colon, _ = env_id.partition(":")
    what = f"the module {module!r}" if colon else "what its arguments name"
    raise EnvError(
        f"{source} names the environment {env_id!r}, which would import {what} and run its code\n"
        f"if you trust it, pass --trust-env (trust_env=True in Python), or name it: --env {env_id}"
    )


def choose_env(
    config: TrainConfig, env_id: str | None, source: str | Path
) -> tuple[str, EnvConfig | None]:
    """Choose the environment that a trained policy acts in, and its options.

    Args:
        config: Configuration of the policy.
        env_id: Environment that the user has named, if any; else that of the configuration.
        source: Origin of the configuration, for the error if its environment is not trusted.
    """
    trust(env_id)
    chosen = env_id or config.env_id
    if chosen is None:
        raise EnvError("the policy was trained without an environment; name one: --env ID")
    check_trusted(chosen, source)
    # the options of one environment mean nothing to another
    return chosen, config.groups.env if chosen == config.env_id else None
