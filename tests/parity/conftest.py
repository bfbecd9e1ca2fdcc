"""The other libraries are in an environment of their own: `make parity`."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _needs_the_other_libraries() -> None:
    for package in ("d3rlpy", "stable_baselines3", "sb3_contrib"):
        pytest.importorskip(package, reason=f"{package} is not installed here: run `make parity`")
