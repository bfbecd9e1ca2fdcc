"""CleanRL's update, from a checkout of CleanRL.

Its scripts train at module level, so the statements of theirs that set up and that train are taken
from the file and run as they are: what comes before the loop over environment steps once, and what the
loop does in `if global_step > args.learning_starts` for each update. Arguments are given to the first,
and the replay is filled between the two.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

from benchmarks.speed.peers_sb3 import fill_replay
from benchmarks.speed.problem import BlankEnv, Problem
from benchmarks.speed.timing import Contestant, NotMeasuredError

SCRIPTS = {"sac": "sac_continuous_action.py", "td3": "td3_continuous_action.py"}
# its default trains SAC's actor twice in every second update
OPTIONS: dict[str, dict[str, Any]] = {"sac": {"policy_frequency": 1}, "td3": {}}


def update(problem: Problem, algo: str) -> Contestant:
    if problem.settings.cleanrl is None:
        raise NotMeasuredError("needs a checkout of CleanRL: --cleanrl PATH")
    checkout = problem.settings.cleanrl
    path = checkout / "cleanrl" / SCRIPTS[algo]
    if not path.is_file():
        raise NotMeasuredError(f"{checkout} is not a checkout of CleanRL: it has no {path}")
    definitions, setting_up, training = _parts(path)
    names: dict[str, Any] = {"__name__": f"cleanrl_{algo}", "print": lambda *words: None}
    names["__file__"] = str(path)
    _run(definitions, names, checkout)
    options = {"cuda": False, "buffer_size": problem.settings.rows, **OPTIONS[algo]}
    names["tyro"] = MagicMock()
    names["tyro"].cli = lambda arguments: arguments(**options)
    names["make_env"] = lambda *ignored: BlankEnv
    _run(setting_up, names, checkout)
    fill_replay(names["rb"], problem.fields)
    names["global_step"] = 0

    def train(updates: int) -> None:
        for _ in range(updates):
            names["global_step"] += 1
            exec(training, names)  # noqa: S102  the peer's own code, from the user's own checkout

    return Contestant(train, unit=2)


def _parts(path: Path) -> tuple[Any, Any, Any]:
    """Definitions, statements before the loop, and the update inside of it, compiled."""
    module = ast.parse(path.read_text())
    *definitions, main = module.body
    if not isinstance(main, ast.If):
        raise NotMeasuredError(f"{path} does not end with its main block")
    position = next(i for i, node in enumerate(main.body) if _is_step_loop(node))
    loop: Any = main.body[position]
    (training,) = (node for node in loop.body if _is_training(node))
    return tuple(
        compile(ast.Module(list(body), []), str(path), "exec", dont_inherit=True)
        for body in (definitions, main.body[:position], training.body)
    )


def _is_step_loop(node: ast.stmt) -> bool:
    return isinstance(node, ast.For) and ast.unparse(node.target) == "global_step"


def _is_training(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).startswith("global_step > ")


def _run(code: Any, names: dict[str, Any], checkout: Path) -> None:
    """With its own packages on the path, and without those that only log."""
    stubs: dict[str, Any] = {"torch.utils.tensorboard": MagicMock(), "tyro": MagicMock()}
    hidden = {name: sys.modules[name] for name in stubs if name in sys.modules}
    sys.modules.update(stubs)
    sys.path.insert(0, str(checkout))
    try:
        exec(code, names)  # noqa: S102  likewise
    finally:
        sys.path.remove(str(checkout))
        for name in stubs:
            del sys.modules[name]
        sys.modules.update(hidden)
