"""d3rlpy is in an environment of its own: `make parity`."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _needs_d3rlpy() -> None:
    pytest.importorskip("d3rlpy", reason="d3rlpy is not installed here: run `make parity`")
