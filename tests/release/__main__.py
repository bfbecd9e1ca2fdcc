"""`make release-check`: does the wheel that is built from the sdist train, predict and pass `doctor`?

It is installed with the constraints into a fresh environment and used there, both in a temporary directory. The exit
code is 0 only if everything worked. Needs the package index, unlike the tests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from tests.release.build import ROOT, build_release

TRAIN = ["train", "td3_bc/pendulum", "total_timesteps=50", "eval_episodes=1", "--output-dir", "runs", "--json"]  # fmt: skip


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="rl-training-release-") as name:
        directory = Path(name)
        release = build_release(directory / "dist")
        _say(f"built      {release.sdist.name}, {release.wheel.name}")
        venv.create(directory / "venv", with_pip=True)
        pip = [str(directory / "venv/bin/python"), "-m", "pip", "--disable-pip-version-check"]
        constraints = str(ROOT / "constraints.txt")
        _run([*pip, "install", "--quiet", "-c", constraints, str(release.wheel)], directory)
        _run([*pip, "check"], directory)
        _say("installed  into a fresh environment")
        _use(directory)
    _say("the release works")
    return 0


def _use(directory: Path) -> None:
    command = str(directory / "venv/bin/rl-training")
    _run([command, "doctor"], directory)
    _say("doctor     all is well")
    (run,) = json.loads(_run([command, *TRAIN], directory))["runs"]
    _say(f"trained    {run['run']}")
    text = _run([command, "predict", run["run"], "--obs", "[1, 0, 0]", "--json"], directory)
    (action,) = json.loads(text)["actions"]
    _say(f"predicted  {action}")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _run(command: list[str], directory: Path) -> str:
    """Run a command in the directory, without the repository in sight, and return its output."""
    settings = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    settings["RL_TRAINING_CACHE"] = str(directory / "cache")
    done = subprocess.run(
        command, cwd=directory, env=settings, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{' '.join(command)} returned {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
