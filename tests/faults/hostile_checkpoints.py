"""Hostile checkpoints and run directories."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save
from torch import Tensor

from rl_training.files import sha256_of
from rl_training.runs.layout import step_directories
from rl_training.runtime.checkpoints.manifest import sealed
from tests.faults.support.hostile import SPECIALS, Attack, put_special

RESUME = ["resume", "FILE", "--total-timesteps", "50"]
READS = [["predict", "FILE", "--obs", "[1,0,0]"], ["eval", "FILE", "--episodes", "1"], RESUME]
COLLECT = ["data", "collect", "--checkpoint", "FILE", "--steps", "5", "--output", "OUT.npz"]
REPORT = ["report", "FILE"]
WRONG = [None, True, -1, 2**70, 1e300, "x", [], {}, [[]], {"x": 1}]


def newest(run: Path) -> Path:
    return step_directories(run / "checkpoints")[-1]


def resealed(run: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the manifest and give it a right checksum, as an attacker would."""
    path = newest(run) / "manifest.json"
    values = json.loads(path.read_text())
    change(values)
    path.write_bytes(sealed(values))


def checkpoint_attacks(run: Path) -> Iterator[Attack]:
    yield from _environment_attacks()
    yield from deep_attacks(run)
    names = sorted(str(p.relative_to(newest(run))) for p in newest(run).rglob("*.safetensors"))
    for name in ("manifest.json", "replay", *names):
        for special in SPECIALS:
            build = partial(_special_in_checkpoint, name, special)
            yield Attack(f"checkpoint {name}: {special}", build, READS, needs_run=True)
    manifest = json.loads((newest(run) / "manifest.json").read_text())
    for key in sorted(manifest):
        for number, value in enumerate(WRONG):
            if number % 3 == len(key) % 3:  # a third of all, spread over keys
                yield Attack(
                    f"manifest {key}: value {number}", partial(_set, key, value), READS, True
                )
    for name in ("../../victim", "/etc/passwd", "0-9/../../x", "\x1b[2J"):
        yield Attack(f"manifest file {name!r}", partial(_named_file, name), READS, True)
        yield Attack(f"manifest segment {name!r}", partial(_named_segment, name), READS, True)
    for size in (2**40, 2**70, -1):
        yield Attack(f"manifest bytes {size}", partial(_sized, size), READS, True)
    for text in ("[" * 100_000, '{"a":' * 100_000, "1" * 5_000_000, '{"schema": 1e999}', "\x1b[2J"):
        yield Attack(f"manifest text {text[:5]!r} {len(text)}", partial(_text, text), READS, True)


def deep_attacks(run: Path) -> Iterator[Attack]:
    """Odd values below the top of a manifest, and tensors that do not fit, all with right checksums."""
    manifest = json.loads((newest(run) / "manifest.json").read_text())
    paths = [
        path for key in ("progress", "callbacks", "experience") for path in _paths(manifest, key)
    ]
    for position, path in enumerate(paths):
        value = WRONG[position % len(WRONG)]
        name = f"manifest {'/'.join(map(str, path))}: {value!r}"
        yield Attack(name, partial(_set_deep, path, value), [RESUME], needs_run=True)
    for name, change in TENSORS.items():
        for file in ("model", "optimizer", "state"):
            build = partial(_tensors, f"{file}.safetensors", change)
            yield Attack(f"{file}.safetensors: {name}", build, READS, needs_run=True)
    for key, value in {"hidden_sizes": [60_000] * 9, "buffer_capacity": 10**9}.items():
        build = partial(_option, key, value)
        yield Attack(f"manifest option {key}", build, READS, needs_run=True)


def _paths(values: Any, *path: Any) -> Iterator[tuple[Any, ...]]:
    for key in path[-1:]:
        value = values[key]
        yield path
        if isinstance(value, dict):
            for below in value:
                yield from _paths(value, *path, below)


def _set_deep(path: tuple[Any, ...], value: Any, place: Path, victim: Path, canary: Path) -> Path:
    def change(manifest: dict[str, Any]) -> None:
        for key in path[:-1]:
            manifest = manifest[key]
        manifest[path[-1]] = value

    resealed(place, change)
    return newest(place)


def _option(key: str, value: Any, place: Path, victim: Path, canary: Path) -> Path:
    resealed(place, lambda m: m["config"]["algo_kwargs"].update({key: value}))
    return newest(place)


TENSORS: dict[str, Callable[[Tensor], Tensor]] = {
    "short": lambda tensor: tensor.reshape(-1)[:1],
    "empty": lambda tensor: tensor.reshape(-1)[:0],
    "flat": lambda tensor: tensor.reshape(-1),
    "doubles": lambda tensor: tensor.double(),
    "bytes": lambda tensor: tensor.to(torch.uint8),
    "nan": lambda tensor: tensor * float("nan"),
}


def _tensors(
    name: str, change: Callable[[Tensor], Tensor], place: Path, victim: Path, canary: Path
) -> Path:
    path = newest(place) / name
    content = save({key: change(value).clone() for key, value in load_file(path).items()})
    path.write_bytes(content)
    entry = {"sha256": sha256_of(content), "bytes": len(content)}
    resealed(place, lambda m: m["files"].update({name: entry}))
    return newest(place)


def _environment_attacks() -> Iterator[Attack]:
    for env_id, kwargs in (
        ("os:system", {"command": "touch CANARY"}),
        ("subprocess:getoutput", {"cmd": "touch CANARY"}),
        ("subprocess:Popen", {"args": ["touch", "CANARY"]}),
        ("shutil:rmtree", {"path": "VICTIM"}),
        ("payload:Env", {}),
    ):
        build = partial(_environment, env_id, kwargs)
        yield Attack(f"checkpoint env_id {env_id}", build, [*READS, COLLECT], needs_run=True)


def _environment(env_id: str, kwargs: Any, place: Path, victim: Path, canary: Path) -> Path:
    # a module beside the run, in case the current directory is searched
    code = f"open({str(canary)!r}, 'w')\n"
    (place / "payload.py").write_text(code)
    (newest(place) / "payload.py").write_text(code)
    text = json.dumps(kwargs).replace("CANARY", str(canary)).replace("VICTIM", str(victim))
    resealed(place, lambda m: m["config"].update(env_id=env_id, env_kwargs=json.loads(text)))
    return place


def _special_in_checkpoint(name: str, special: str, place: Path, victim: Path, _: Path) -> Path:
    put_special(newest(place) / name, special, victim)
    return newest(place)


def _set(key: str, value: Any, place: Path, victim: Path, canary: Path) -> Path:
    resealed(place, lambda manifest: manifest.update({key: value}))
    return newest(place)


def _named_file(name: str, place: Path, victim: Path, canary: Path) -> Path:
    resealed(place, lambda m: m["files"].update({name: m["files"]["model.safetensors"]}))
    return newest(place)


def _named_segment(name: str, place: Path, victim: Path, canary: Path) -> Path:
    resealed(place, lambda m: m["replay"]["segments"][0].update(start=name))
    return newest(place)


def _sized(size: int, place: Path, victim: Path, canary: Path) -> Path:
    resealed(place, lambda m: m["files"]["model.safetensors"].update(bytes=size))
    return newest(place)


def _text(text: str, place: Path, victim: Path, canary: Path) -> Path:
    (newest(place) / "manifest.json").write_text(text)
    return newest(place)


def run_directory_attacks() -> Iterator[Attack]:
    """Everything in a run directory that is written, read or locked, as something else."""
    for name in (
        ".lock", ".lock.pid", "metrics.jsonl", "config.yaml", "checkpoints", "result.json", "metadata.json",
        "progress.csv", "evaluations.npz", "checkpoints/last", "checkpoints/best",
    ):  # fmt: skip
        for special in SPECIALS:
            build = partial(_special_in_run, name, special)
            yield Attack(f"run {name}: {special}", build, [REPORT, *READS], needs_run=True)
    for name in ("tensorboard", "debug", "checkpoints/step_50"):
        for special in SPECIALS:
            build = partial(_special_in_run, name, special)
            yield Attack(f"run {name}: {special}", build, [REPORT, RESUME], needs_run=True)
    for row in (
        '"eval/x": "high"',
        '"eval/x": [1]',
        '"eval/x": 1' + "0" * 400,
        '"eval/\\ud800": 1',
    ):
        build = partial(_row, row)
        yield Attack(f"run metrics.jsonl: {row[:20]}", build, [REPORT, RESUME], needs_run=True)


def _row(row: str, place: Path, victim: Path, canary: Path) -> Path:
    path = place / "metrics.jsonl"
    path.write_text(f'{{"step": 1, {row}}}\n{path.read_text()}')
    return place


def _special_in_run(name: str, special: str, place: Path, victim: Path, canary: Path) -> Path:
    put_special(place / name, special, victim)
    return place
