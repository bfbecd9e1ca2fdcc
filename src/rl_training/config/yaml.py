"""Safe YAML: `1e-3` is a number, a repeated key is an error, and no tag runs code."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

from rl_training.config.errors import ConfigError


class _YamlLoader(yaml.SafeLoader):
    """Safe YAML in which `1e-3` is a number and a key given twice is an error."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys = [
            self.construct_object(key, deep=True)
            for key, _ in node.value
            if key.tag != "tag:yaml.org,2002:merge"  # << may repeat what it overrides
        ]
        for key in keys:
            if keys.count(key) > 1:
                line = node.start_mark.line + 1
                raise ConfigError(f"{key!r} is given twice in the mapping at line {line}")
        return super().construct_mapping(node, deep)


# YAML 1.1 wants a dot and a sign in exponents, so PyYAML alone reads 1e-3 as text.
_YamlLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:[0-9][0-9_]*)(?:\.[0-9_]*)?(?:[eE][-+]?[0-9]+)$"),
    list("-+0123456789"),
)


def parse_yaml(text: str, source: str = "YAML") -> Any:
    """Parse YAML text into plain data; no tag can construct anything else."""
    try:
        return yaml.load(text, Loader=_YamlLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "not YAML"
        raise ConfigError(f"{source} is not valid YAML{where}: {problem}") from None


def dump_yaml(value: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(value), sort_keys=False, allow_unicode=True)
