"""Safe YAML: `1e-3` is a number, a repeated key is an error, no tag runs code, and no text is a bomb.

A configuration is small. Text, nesting and the number of values are bounded, with every alias counted as
what it stands for, so that a few lines of aliases cannot fill the memory.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

from rl_training.config.errors import ConfigError

MAX_TEXT = 1 << 20  # characters
MAX_DEPTH = 50
MAX_VALUES = 20_000  # keys count, too
_MAX_NUMBER = (
    100  # characters; Python takes quadratic time for long ones, and refuses to print them
)
_TAG = "tag:yaml.org,2002:"


class _YamlLoader(yaml.SafeLoader):
    """PyYAML's safe loader for plain data, in bounded time and memory."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._depth = 0
        self._values = 0
        self._sizes: dict[yaml.Node, int] = {}  # values below each composed node, and itself

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
        is_alias = self.check_event(yaml.AliasEvent)
        before = self._values
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _problem(f"nested more than {MAX_DEPTH} deep", mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        if node is None:
            return None
        if is_alias and node not in self._sizes:
            raise _problem("an alias stands inside of what it names", mark)
        self._values += self._sizes[node] if is_alias else 1
        if self._values > MAX_VALUES:
            raise _problem(f"more than {MAX_VALUES:,} values", mark)
        if not is_alias:
            self._sizes[node] = self._values - before
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        given: set[Any] = set()
        for key_node, _ in node.value:
            if key_node.tag == f"{_TAG}merge":  # << may repeat what it overrides
                continue
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, (list, dict)):
                raise _problem(f"{_shown(key)} cannot be a key", key_node.start_mark)
            if key in given:
                line = node.start_mark.line + 1
                raise ConfigError(f"{_shown(key)} is given twice in the mapping at line {line}")
            given.add(key)
        return super().construct_mapping(node, deep)

    def construct_scalar(self, node: Any) -> Any:
        value = super().construct_scalar(node)
        if node.tag in (f"{_TAG}int", f"{_TAG}float") and len(value) > _MAX_NUMBER:
            raise _problem(f"a number of {len(value):,} characters", node.start_mark)
        if re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]", value):
            raise _problem("control characters are not allowed in text", node.start_mark)
        return value


def _problem(what: str, mark: Any) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=what, problem_mark=mark)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."


# YAML 1.1 wants a dot and a sign in exponents, so PyYAML alone reads 1e-3 as text.
_YamlLoader.add_implicit_resolver(
    f"{_TAG}float",
    re.compile(r"^[-+]?(?:[0-9][0-9_]*)(?:\.[0-9_]*)?(?:[eE][-+]?[0-9]+)$"),
    list("-+0123456789"),
)
# No option is a date: 2024-01-01 is text, such as the name of a directory.
_YamlLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != f"{_TAG}timestamp"]
    for first, resolvers in _YamlLoader.yaml_implicit_resolvers.items()
}
for _name in ("timestamp", "binary", "set", "omap", "pairs"):  # not plain data
    _YamlLoader.add_constructor(f"{_TAG}{_name}", _YamlLoader.construct_undefined)  # type: ignore[type-var]


def parse_yaml(text: str, source: str = "YAML") -> Any:
    """Parse YAML text into plain data; no tag can construct anything else."""
    if len(text) > MAX_TEXT:
        raise ConfigError(
            f"{source} has {len(text):,} characters; a configuration has at most {MAX_TEXT:,}"
        )
    try:
        return yaml.load(text, Loader=_YamlLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        # A reader error, such as a NUL, has a reason and a position instead of a problem and a mark.
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "not YAML"
        if "'\\t'" in problem:
            problem = "a tab; indent with spaces"
        raise ConfigError(f"{source} is not valid YAML{where}: {problem}") from None
    except ConfigError:
        raise
    # A tag such as !!int or !!bool before something else fails in the conversion.
    except (ValueError, LookupError, TypeError, ArithmeticError, RecursionError) as error:
        raise ConfigError(f"{source} is not valid YAML: {_shown(error)}") from None


def dump_yaml_value(value: Any) -> str:
    """Write one value in one line."""
    text: str = yaml.safe_dump(value, default_flow_style=True, width=10_000, allow_unicode=True)
    return text.removesuffix("\n...\n").strip()


def dump_yaml(value: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(value), sort_keys=False, allow_unicode=True)
