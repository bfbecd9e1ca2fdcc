from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

Fields = dict[str, np.ndarray[Any, Any]]


def make_episodes(
    lengths: list[int], *, terminal: list[bool] | None = None, seed: int = 0,
    obs_dim: int = 3, act_dim: int = 2, discrete: bool = False,
) -> Fields:  # fmt: skip
    """Episodes end to end; each ends by truncation unless `terminal` says otherwise."""
    rng = np.random.default_rng(seed)
    terminal = terminal or [False] * len(lengths)
    parts: dict[str, list[Any]] = {key: [] for key in ("obs", "next_obs", "terms", "truncs")}
    for length, ends in zip(lengths, terminal, strict=True):
        path = rng.standard_normal((length + 1, obs_dim)).astype(np.float32)
        last = np.arange(length) == length - 1
        parts["obs"].append(path[:-1])
        parts["next_obs"].append(path[1:])
        parts["terms"].append(last & ends)
        parts["truncs"].append(last & (not ends))
    total = sum(lengths)
    actions = rng.integers(0, 4, total) if discrete else rng.uniform(-1, 1, (total, act_dim))
    return {
        "obs": np.concatenate(parts["obs"]),
        "actions": actions if discrete else actions.astype(np.float32),
        "rewards": rng.standard_normal(total).astype(np.float32),
        "next_obs": np.concatenate(parts["next_obs"]),
        "terminations": np.concatenate(parts["terms"]),
        "truncations": np.concatenate(parts["truncs"]),
    }


@pytest.fixture
def episodes() -> Callable[..., Fields]:
    return make_episodes


@pytest.fixture(autouse=True)
def private_cache(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """No test reads or leaves anything in the user's cache."""
    monkeypatch.setenv("RL_TRAINING_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"
