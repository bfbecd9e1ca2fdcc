"""`doctor`: check the installation and the machine."""

from __future__ import annotations

import importlib.util
import os
import platform
from pathlib import Path
from typing import Any

import typer

from rl_training import api
from rl_training.api import machine
from rl_training.cli.console import JsonOption, say, say_json
from rl_training.cli.threads import thread_lines

EXTRAS = {
    "minari": "minari",
    "hdf5": "h5py",
    "mujoco": "mujoco",
    "box2d": "Box2D",
    "robotics": "gymnasium_robotics",
    "tensorboard": "tensorboard",
    "video": "moviepy",
    "ray": "ray",
}


def doctor(json: JsonOption = False) -> None:
    """Check the installation; exit code 1 if something needed does not work."""
    facts = _facts()
    if json:
        say_json(facts)
    else:
        _say_facts(facts)
    if facts["problems"]:
        raise typer.Exit(1)


def _facts() -> dict[str, Any]:
    cache, runs = machine.dataset_cache(), Path.cwd() / "runs"
    nearest = next(path for path in (cache, *cache.parents) if path.exists())
    facts: dict[str, Any] = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "versions": dict(api.package_versions()),
        "device": machine.default_device(),
        "threads": [{"about": title, "text": text} for title, text in thread_lines()],
        "cache": {"path": str(cache), "writable": os.access(nearest, os.W_OK)},
        "runs": {"path": str(runs), "writable": os.access(Path.cwd(), os.W_OK)},
        "extras": {
            extra: importlib.util.find_spec(module) is not None for extra, module in EXTRAS.items()
        },
        "configs": len(api.packaged_configs()),
        "installation": api.installation_problems(),
        "algorithms": {
            name: None if error is None else str(error)
            for name, error in machine.build_algorithms().items()
        },
    }
    problems = [] if facts["cache"]["writable"] else ["cache"]
    problems += ["installation"] if facts["installation"] else []
    problems += [f"{name} ({error})" for name, error in facts["algorithms"].items() if error]
    return {**facts, "problems": problems}


def _say_facts(facts: dict[str, Any]) -> None:
    say(f"python      {facts['python']} on {facts['platform']}")
    for name, number in facts["versions"].items():
        say(f"{name:11} {number}")
    say(f"device      {facts['device']}")
    for line in facts["threads"]:
        say(f"{line['about']:11} {line['text']}")
    for name, remedy in (("cache", "set RL_TRAINING_CACHE"), ("runs", "pass --output-dir")):
        directory = facts[name]
        say(
            f"{name:11} {directory['path']}{'' if directory['writable'] else f'  NOT WRITABLE: {remedy}'}"
        )
    for extra, installed in facts["extras"].items():
        answer = "yes" if installed else f"no   pip install 'rl-training[{extra}]'"
        say(f"extra       {extra:12} {answer}")
    say(f"configs     {facts['configs']} packaged")
    for problem in facts["installation"]:
        say(f"BROKEN      {problem}: install rl-training again")
    say(f"algorithms  {', '.join(facts['algorithms'])}")
    problems = facts["problems"]
    say("all is well" if not problems else f"problems: {', '.join(problems)}")
