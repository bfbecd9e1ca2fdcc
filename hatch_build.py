"""Build hook: `[project.urls]` of a release, from the one place that knows the address.

Neither the code nor the documentation names an address; their links are relative. Whoever builds a release states
it: `RL_TRAINING_REPOSITORY=https://... python -m build`, as the workflow does with the address it runs at. Without
it the package has no URLs. A wheel takes them from the sdist that it is built from.
"""

from __future__ import annotations

import os
from typing import Any
from urllib.parse import urlsplit

from hatchling.metadata.plugin.interface import MetadataHookInterface

VARIABLE = "RL_TRAINING_REPOSITORY"


class ReleaseUrls(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        address = os.environ.get(VARIABLE, "").rstrip("/")
        metadata["urls"] = {"Repository": _checked(address)} if address else {}


def _checked(address: str) -> str:
    parts = urlsplit(address)
    if parts.scheme != "https" or not parts.hostname or "@" in parts.netloc:
        raise ValueError(
            f"{VARIABLE}={address!r}: write https://HOST/PATH, without a user or password"
        )
    return address
