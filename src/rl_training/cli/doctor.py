"""`doctor`: what this machine has, and what is missing."""

from __future__ import annotations

import importlib.util
import os
import platform
from pathlib import Path

import typer

from rl_training.cli.console import say
from rl_training.cli.threads import thread_lines

EXTRAS = {
    "minari": "minari",
    "hdf5": "h5py",
    "mujoco": "mujoco",
    "box2d": "Box2D",
    "robotics": "gymnasium_robotics",
    "tensorboard": "tensorboard",
    "video": "moviepy",
}


def doctor() -> None:
    """Check the installation; exit code 1 if something needed does not work."""
    import torch

    from rl_training.data.packing.cache import cache_dir
    from rl_training.runs.metadata import package_versions

    problems = []
    say(f"python      {platform.python_version()} on {platform.platform()}")
    for name, number in package_versions().items():
        say(f"{name:11} {number}")
    say(f"device      {'cuda' if torch.cuda.is_available() else 'cpu'}")
    for title, text in thread_lines():
        say(f"{title:11} {text}")
    cache = cache_dir()
    nearest = next(place for place in (cache, *cache.parents) if place.exists())
    writable = os.access(nearest, os.W_OK)
    say(f"cache       {cache}{'' if writable else '  NOT WRITABLE: set RL_TRAINING_CACHE'}")
    if not writable:
        problems.append("cache")
    here = os.access(Path.cwd(), os.W_OK)
    say(f"runs        {Path.cwd() / 'runs'}{'' if here else '  NOT WRITABLE: pass --output-dir'}")
    for extra, module in EXTRAS.items():
        found = importlib.util.find_spec(module) is not None
        say(
            f"extra       {extra:12} {'yes' if found else f'no   pip install rl-training[{extra}]'}"
        )
    algorithms = _check_algorithms(problems)
    say(f"algorithms  {algorithms}")
    say("all is well" if not problems else f"problems: {', '.join(problems)}")
    if problems:
        raise typer.Exit(1)


def _check_algorithms(problems: list[str]) -> str:
    """Make every algorithm once: a broken plugin shows here, not after an hour."""
    from rl_training.experiment import list_algorithm_specs
    from rl_training.spec import ProblemSpec

    spec = ProblemSpec(3, "continuous", 1, (-1.0,), (1.0,))
    names = []
    for known in list_algorithm_specs():
        names.append(known.name)
        try:
            known.algorithm(spec)
        except Exception as error:
            problems.append(f"{known.name} ({error})")
    return ", ".join(names)
