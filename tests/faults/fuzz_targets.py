"""Doors of the package, each with a generator of inputs that are almost right.

A target is made once per batch, from the shared directory and one of its own, and called with a
random generator per input.
"""

from __future__ import annotations

import copy
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from filelock import FileLock

from rl_training import api
from rl_training.config import parse_yaml
from rl_training.data import TransitionDataset, load_transition_dataset
from rl_training.runs.reading import read_run
from rl_training.runtime import TrainConfig
from rl_training.runtime.assemble import load_policy, open_checkpoint
from rl_training.runtime.checkpoints.directories import find_checkpoint
from rl_training.runtime.checkpoints.manifest import sealed
from rl_training.runtime.config.files import apply_overrides, parse_assignments, read_config_text
from tests.faults.support.twins import PROFILES, Twin, profile_values
from tests.support.data import make_fields

NAN, INF = float("nan"), float("inf")
# values that programs trip over
ODD: list[Any] = [
    None, True, False, 0, 1, -1, 2**31, 2**63, 2**64, 10**400, -(10**30), 0.0, -0.0, 1e-320, 1e308, NAN, INF,
    -INF, "", "x", "0", "nan", "1e-3", "null", "\x00", "\x1b[31m", "ä" * 50, "../..", "/", "a" * 5000, [],
    [[]], [None], {}, {"": 0}, {"x": {"y": 1}}, [1, "a"], [10**400], "os:system", "builtin:", "Pendulum-v1",
]  # fmt: skip


def changed(rng: random.Random, value: Any, depth: int = 0) -> Any:
    """Copy of a value with something at a random place of it removed, replaced or added."""
    if depth < 6 and isinstance(value, dict) and value and rng.random() < 0.9:
        result = dict(value)
        key = rng.choice(list(result))
        action = rng.random()
        if action < 0.1:
            del result[key]
        elif action < 0.2:
            result[str(rng.choice([*ODD, key + "s", key.upper()]))] = copy.deepcopy(rng.choice(ODD))
        else:
            result[key] = changed(rng, result[key], depth + 1)
        return result
    if depth < 6 and isinstance(value, list) and value and rng.random() < 0.7:
        items = list(value)
        index = rng.randrange(len(items))
        action = rng.random()
        if action < 0.2:
            del items[index]
        elif action < 0.3:
            items *= 2
        else:
            items[index] = changed(rng, items[index], depth + 1)
        return items
    if isinstance(value, (int, float)) and abs(value) < 1e300 and rng.random() < 0.4:
        return rng.choice([-value, value + 1, value * 1000, value // 7, value * 0.3, str(value)])
    return copy.deepcopy(rng.choice(ODD))


def changed_several_times(rng: random.Random, value: Any) -> Any:
    for _ in range(rng.choice((1, 1, 2, 4))):
        value = changed(rng, value)
    return value


def changed_bytes(rng: random.Random, content: bytes) -> bytes:
    """Copy with bits flipped, a piece cut out, doubled or replaced, or the end cut off."""
    result = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 8))):
        at, length = rng.randrange(len(result) + 1), rng.choice((1, 4, 50))
        action = rng.random()
        if action < 0.5 and at < len(result):
            result[at] ^= 1 << rng.randrange(8)
        elif action < 0.6:
            del result[at : at + length]
        elif action < 0.7:
            result[at:at] = result[at : at + length]
        elif action < 0.9:
            result[at : at + length] = rng.randbytes(length)
        else:
            del result[at:]
        if not result:
            break
    return bytes(result)


# -- configurations --------------------------------------------------------------------------------


def config_target(base: Path, work: Path) -> Callable[[random.Random], object]:
    valid = [profile_values(name, work) for name in PROFILES]

    def target(rng: random.Random) -> object:
        values = changed_several_times(rng, rng.choice(valid))
        return TrainConfig(**values) if isinstance(values, dict) else None

    return target


def overrides_target(base: Path, work: Path) -> Callable[[random.Random], object]:
    valid = [profile_values(name, work) for name in PROFILES]
    keys = sorted({key for v in valid for key in (*v, *v["algo_kwargs"], *v["env_kwargs"])})
    texts = [
        *map(str, ODD),
        "[1, 2",
        "{a: 1}",
        "&a [*a]",
        "*b",
        "!!python/name:os.system",
        "1:2:3",
        "<<",
    ]

    def target(rng: random.Random) -> object:
        words = []
        for _ in range(rng.choice((1, 1, 2, 3))):
            key = rng.choice(
                [*keys, "algo_kwargs.", ".", "env_kwargs.a.b.c", "wrappers.reward", ""]
            )
            prefix = rng.choice(("", "", "algo_kwargs.", "env_kwargs.", "seed."))
            words.append(prefix + key + rng.choice(("=", "=", "=", "", "==")) + rng.choice(texts))
        return TrainConfig(**apply_overrides(rng.choice(valid), parse_assignments(words)))

    return target


def yaml_target(base: Path, work: Path) -> Callable[[random.Random], object]:
    names = ("sac/pendulum", "td3_bc/pendulum", "her/pointgoal")
    texts = [read_config_text(name)[0].encode() for name in names]
    snippets = [b"&a [*a]", b"? ", b"!!binary x", b"!!timestamp 1", b"\t", b"%YAML 9", b"---\n", b"2001-99-99",
                b"<<: 1\n", b"? [a]\n: b\n", b"0o9", b"1_0:99", b"!!set {a, b}", b"!!float x", b"!!int ''"]  # fmt: skip

    def target(rng: random.Random) -> object:
        content = changed_bytes(rng, rng.choice(texts))
        if rng.random() < 0.3:
            at = rng.randrange(len(content) + 1)
            content = content[:at] + rng.choice(snippets) + content[at:]
        values = parse_yaml(content.decode(errors="replace"))
        if isinstance(values, dict) and all(isinstance(key, str) for key in values):
            return TrainConfig(**values)
        return None

    return target


# -- data ----------------------------------------------------------------------------------------


def odd_array(rng: random.Random, array: Any) -> Any:
    """Something that is almost this array."""
    action = rng.randrange(10)
    if action == 0:
        return copy.deepcopy(rng.choice(ODD))
    if action == 1:
        return array[: rng.randrange(len(array))]
    if action == 2:
        return array[..., None]
    if action == 3:
        return array.astype(
            rng.choice(["f8", "f2", "i8", "u1", "?", "c16", "U99", "O", "M8[s]", "S99"])
        )
    if action == 4:
        return array.tolist()
    if action == 5:
        return array.reshape(-1)
    if action == 6:
        return np.ma.masked_array(array)
    odd = np.array(array, dtype=np.float64)
    odd.flat[rng.randrange(odd.size)] = rng.choice([NAN, INF, -INF, 1e300, -1, 0.5, 2])
    return odd


def from_dict_target(base: Path, work: Path) -> Callable[[random.Random], object]:
    fields = make_fields(40)
    names = [*fields, "dones", "terminals", "timeouts", "next_actions", "infos", "", "\x1b"]

    def target(rng: random.Random) -> object:
        changed_fields: dict[Any, Any] = dict(fields)
        for _ in range(rng.choice((1, 1, 2, 3))):
            name = rng.choice(names)
            if rng.random() < 0.15:
                changed_fields.pop(name, None)
            else:
                changed_fields[name] = odd_array(rng, fields.get(name, fields["terminations"]))
        return TransitionDataset.from_dict(changed_fields).describe()

    return target


def npz_target(base: Path, work: Path) -> Callable[[random.Random], object]:
    path = work / "log.npz"
    np.savez(path, **make_fields(10))
    content = path.read_bytes()

    def target(rng: random.Random) -> object:
        path.write_bytes(changed_bytes(rng, content))
        return load_transition_dataset("npz", str(path)).describe()

    return target


# -- runs ------------------------------------------------------------------------------------------


def copied_twin(base: Path, work: Path) -> Path:
    """A finished run of this batch alone."""
    with FileLock(base / "copy.lock"):
        twin = Twin(base, "tiny", profile_values("tiny", base))
    return Path(shutil.copytree(twin.run, work / "run", symlinks=True))


def manifest_target(base: Path, work: Path) -> Callable[[random.Random], object]:
    """Manifests with a right checksum, so that what lies behind the checksum is reached."""
    step = find_checkpoint(copied_twin(base, work))
    valid = json.loads((step / "manifest.json").read_text())

    def target(rng: random.Random) -> object:
        values = changed_several_times(rng, valid)
        (step / "manifest.json").write_bytes(sealed(values if isinstance(values, dict) else {}))
        checkpoint, config = open_checkpoint(step)
        # networks as large as a stranger likes are not what is looked for here
        if config.as_dict()["algo_kwargs"].get("hidden_sizes") == [8, 8]:
            load_policy(checkpoint, config)
        return None

    return target


def run_directory_target(base: Path, work: Path) -> Callable[[random.Random], object]:
    run = copied_twin(base, work)
    step = find_checkpoint(run)
    files = [run / name for name in ("config.yaml", "metrics.jsonl", "result.json")]
    files.append(step / "manifest.json")
    contents = {path: path.read_bytes() for path in files}

    def target(rng: random.Random) -> object:
        path = rng.choice(files)
        content = contents[path]
        if rng.random() < 0.5:
            content = changed_bytes(rng, content)
        elif path.suffix == ".jsonl":
            rows = changed_several_times(rng, [json.loads(line) for line in content.splitlines()])
            lines = [json.dumps(row) for row in rows] if isinstance(rows, list) else [str(rows)]
            content = "\n".join(lines).encode()
        elif path.suffix == ".yaml":
            content = yaml.safe_dump(changed_several_times(rng, yaml.safe_load(content))).encode()
        else:
            content = json.dumps(changed_several_times(rng, json.loads(content))).encode()
        path.write_bytes(content)
        try:
            return json.dumps(read_run(run).as_dict())
        finally:
            path.write_bytes(contents[path])

    return target


def predict_target(base: Path, work: Path) -> Callable[[random.Random], object]:
    checkpoint, config = open_checkpoint(copied_twin(base, work), policy_only=True)
    policy = load_policy(checkpoint, config)
    valid = np.array([[0.1, 0.2, 0.3], [0.0, 1.0, -1.0]], np.float32)

    def target(rng: random.Random) -> object:
        obs = rng.choice([valid, valid[0]])
        for _ in range(rng.choice((1, 1, 2))):
            obs = odd_array(rng, obs) if isinstance(obs, np.ndarray) and len(obs) else obs
        if rng.random() < 0.1:
            obs = {"observation": obs, rng.choice(("desired_goal", "x")): valid}
        if rng.random() < 0.2:
            text = json.dumps(obs, default=str) if rng.random() < 0.8 else str(obs)
            obs = api.parse_observations(text)
        action = policy.predict(obs, deterministic=rng.random() < 0.8)
        assert np.isfinite(action).all(), "an action that is not a number"
        return action

    return target


TARGETS: dict[str, tuple[Callable[[Path, Path], Callable[[random.Random], object]], tuple[type[Exception], ...]]] = {
    "config": (config_target, ()),
    "overrides": (overrides_target, ()),
    "yaml": (yaml_target, ()),
    "from_dict": (from_dict_target, ()),
    "npz": (npz_target, ()),
    "manifest": (manifest_target, ()),
    "run_directory": (run_directory_target, ()),
    # an observation of another shape or type is the caller's mistake, as in NumPy
    "predict": (predict_target, (ValueError, TypeError)),
}  # fmt: skip
