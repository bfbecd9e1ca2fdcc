"""Check of every node of a cluster before anything starts."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from rl_training.config import OutputError, first_line
from rl_training.sweeps.cluster.connection import alive_nodes, node_label
from rl_training.sweeps.cluster.node import NodeCheck, problem_here

PROBE_SECONDS = 60.0  # for a node to start a process and answer
_TOKEN = ".seen-by-all-"
_SHOWN = 3  # nodes that an error names


@contextmanager
def visible_token(directory: Path) -> Iterator[str]:
    """Context of a file in a directory, by which other machines tell that they see the same one."""
    for lock in directory.glob(f"{_TOKEN}*.lock"):  # of drivers that were killed
        with suppress(Timeout), FileLock(lock, timeout=0):
            _remove(directory, lock.stem)
    token = f"{_TOKEN}{secrets.token_hex(8)}"
    try:
        with FileLock(directory / f"{token}.lock"):
            (directory / token).write_text(token, encoding="utf-8")
            yield token
    finally:
        _remove(directory, token)


def _remove(directory: Path, token: str) -> None:
    for path in directory.glob(f"{token}*"):
        path.unlink(missing_ok=True)


def check_nodes(ray: Any, check: NodeCheck) -> None:
    """Ask every node what it lacks; an error names the nodes and says what to do."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    nodes = alive_nodes(ray)
    probe = ray.remote(num_cpus=0, max_retries=0)(problem_here)
    asked = {
        probe.options(
            scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        ).remote(check): node
        for node in nodes
    }
    answered, _ = ray.wait(list(asked), num_returns=len(asked), timeout=PROBE_SECONDS)
    problems: dict[str, list[Mapping[str, Any]]] = {}
    for reference, node in asked.items():
        problem = _answer(ray, reference) if reference in answered else _silence()
        if problem:
            problems.setdefault(problem, []).append(node)
    if problems:
        raise OutputError("\n".join(_sentence(*entry) for entry in problems.items()))


def _answer(ray: Any, reference: Any) -> str:
    try:
        answer: str = ray.get(reference)
    except ray.exceptions.RayError as error:
        text = str(error)
        if "No module named" in text:
            module = text.rsplit("No module named", 1)[1].split()[0]
            return f"has no module {module} where Ray runs: install rl-training there, with the same extras"
        return f"could not be asked ({first_line(error)})"
    except RuntimeError as error:  # Ray could not import the function there
        return f"cannot run this version of rl-training ({first_line(error)})"
    return answer


def _silence() -> str:
    return f"did not answer within {PROBE_SECONDS:g} s: remove it from the cluster, or wait until it has room"


def _sentence(problem: str, nodes: Sequence[Mapping[str, Any]]) -> str:
    names = ", ".join(map(node_label, nodes[:_SHOWN]))
    if len(nodes) > _SHOWN:
        names += f" and {len(nodes) - _SHOWN} more"
    return f"node {names} {problem}"
