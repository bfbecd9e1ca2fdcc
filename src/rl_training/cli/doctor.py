"""`doctor`: check the installation and the machine."""

from __future__ import annotations

import importlib.util
import os
import platform
from pathlib import Path

import typer

from rl_training import api
from rl_training.api import machine
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
    problems = []
    say(f"python      {platform.python_version()} on {platform.platform()}")
    for name, number in api.package_versions().items():
        say(f"{name:11} {number}")
    say(f"device      {machine.default_device()}")
    for title, text in thread_lines():
        say(f"{title:11} {text}")
    cache = machine.dataset_cache()
    nearest = next(path for path in (cache, *cache.parents) if path.exists())
    writable = os.access(nearest, os.W_OK)
    say(f"cache       {cache}{'' if writable else '  NOT WRITABLE: set RL_TRAINING_CACHE'}")
    if not writable:
        problems.append("cache")
    here = os.access(Path.cwd(), os.W_OK)
    say(f"runs        {Path.cwd() / 'runs'}{'' if here else '  NOT WRITABLE: pass --output-dir'}")
    for extra, module in EXTRAS.items():
        installed = importlib.util.find_spec(module) is not None
        answer = "yes" if installed else f"no   pip install rl-training[{extra}]"
        say(f"extra       {extra:12} {answer}")
    algorithms = machine.build_algorithms()
    say(f"algorithms  {', '.join(algorithms)}")
    problems += [f"{name} ({error})" for name, error in algorithms.items() if error is not None]
    say("all is well" if not problems else f"problems: {', '.join(problems)}")
    if problems:
        raise typer.Exit(1)
