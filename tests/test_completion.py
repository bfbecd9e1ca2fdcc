"""A shell completes verbs, packaged configurations and algorithms, without waiting for PyTorch."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from rl_training.cli import completion
from rl_training.experiment import list_algorithm_specs, packaged_configs

SCRIPT = """
import atexit, sys
atexit.register(lambda: sys.stderr.write(" ".join({"torch", "gymnasium", "numpy"} & set(sys.modules))))
from rl_training.cli.main import main
sys.exit(main([]))
"""


def complete(*words: str) -> list[str]:
    """Ask as the function in a bash does that `--install-completion` has written there."""
    settings = {
        "_RL_TRAINING_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(["rl-training", *words]),
        "COMP_CWORD": str(len(words)),
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == "", "imported while a key is pressed"
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "answers"),
    [
        (["re"], ["resume", "report"]),
        (["train", "td3_bc/pen"], ["td3_bc/pendulum"]),
        (["data", "c"], ["check", "convert", "collect"]),
    ],
)
def test_a_shell_completes_verbs_and_packaged_configurations(
    words: list[str], answers: list[str]
) -> None:
    assert complete(*words) == answers


def test_names_are_those_of_the_registry() -> None:
    assert completion.algorithms("") == [spec.name for spec in list_algorithm_specs()]
    assert completion.configs("") == packaged_configs()
    assert completion.configs_and_algorithms("td3_b")[0] == "td3_bc"
    assert completion.configs("./td3") == []  # the shell offers files


def test_the_completion_of_a_shell_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    script = "import shellingham; shellingham.detect_shell = lambda: ('bash', '/bin/bash')\n"
    script += "from rl_training.cli.main import main; main(['--show-completion'])"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert "_RL_TRAINING_COMPLETE=complete_bash" in done.stdout
    assert "complete -o default" in done.stdout  # files, where no name fits
