"""Typed options, their validation, and the errors users see. Imports nothing of the package.

RLTrainingError
├── ConfigError        a key, type or value is wrong: change the configuration
├── DatasetError       the data is missing, damaged or does not fit: change the data
├── EnvError           the environment or one of its spaces is not usable: change the environment
├── CheckpointError    a checkpoint is missing, damaged or of another kind: choose another
├── OutputError        a file or directory cannot be written: choose another place
├── MissingExtraError  an optional dependency is not installed: run the pip line it names
└── RunError           training itself failed: the run directory holds what was saved
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeVar, get_args, get_origin

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator


class RLTrainingError(Exception):
    """Everything this package raises on purpose."""


class DatasetError(RLTrainingError, ValueError):
    pass


class EnvError(RLTrainingError, ValueError):
    pass


class CheckpointError(RLTrainingError, ValueError):
    pass


class OutputError(RLTrainingError, OSError):
    pass


class MissingExtraError(RLTrainingError, ImportError):
    def __init__(self, what: str, package: str, extra: str) -> None:
        super().__init__(f"{what} needs {package}: pip install 'rl-training[{extra}]'")


class RunError(RLTrainingError, RuntimeError):
    pass


class Problem(NamedTuple):
    """One thing wrong with a configuration, and where."""

    path: tuple[str, ...]
    message: str

    def under(self, *prefix: str) -> Problem:
        return Problem((*prefix, *self.path), self.message)

    def __str__(self) -> str:
        return f"{'.'.join(self.path)}: {self.message}" if self.path else self.message


class ConfigError(RLTrainingError, ValueError):
    """All problems of one configuration, in one message."""

    def __init__(self, problems: str | Sequence[Problem]) -> None:
        if isinstance(problems, str):
            problems = [Problem((), problems)]
        self.problems = tuple(problems)
        super().__init__("\n".join(map(str, self.problems)))


def suggest(word: str, candidates: Iterable[str]) -> str:
    """`; did you mean 'expectile'?` for the nearest candidate, or nothing."""
    near = difflib.get_close_matches(word.lower(), sorted(candidates), n=1, cutoff=0.6)
    return f"; did you mean {near[0]!r}?" if near else ""


def unknown_key(key: str, candidates: Iterable[str]) -> str:
    names = sorted(candidates)
    listed = ", ".join(names) if len(names) <= 20 else "see `rl-training explain ALGORITHM`"
    return f"unknown key{suggest(key, names) or f' (known: {listed})'}"


def option(
    default: Any = ...,
    doc: str = "",
    *,
    gt: float | None = None,
    ge: float | None = None,
    lt: float | None = None,
    le: float | None = None,
    min_length: int | None = None,
) -> Any:
    """A configuration field: its default, its sentence, its bounds.

    The same declaration feeds validation, `rl-training explain` and the tables of the docs.
    """
    return Field(default, description=doc, gt=gt, ge=ge, lt=lt, le=le, min_length=min_length)


def _accepts(annotation: Any, kind: type) -> bool:
    """Whether values of `kind` are among those a field is declared to hold."""
    if annotation is Any or annotation is kind:
        return True
    if get_origin(annotation) is Literal:
        return any(type(value) is kind for value in get_args(annotation))
    if get_origin(annotation) is dict:
        return False
    return any(_accepts(part, kind) for part in get_args(annotation))


class Options(BaseModel):
    """Base of every typed configuration group: frozen, nothing unknown, no silent conversion."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, validate_default=False
    )

    if not TYPE_CHECKING:  # type checkers see the field-by-field signature

        def __init__(self, **values: Any) -> None:
            try:
                super().__init__(**values)
            except ValidationError as error:
                raise ConfigError(problems_of(type(self), error)) from None

    @field_validator("*", mode="before")
    @classmethod
    def _no_silent_conversion(cls, value: Any, info: ValidationInfo) -> Any:
        # pydantic would read true as 1 and "0.5" as 0.5; a user who wrote that made a mistake.
        annotation = cls.model_fields[info.field_name or ""].annotation
        if isinstance(value, os.PathLike):
            value = os.fspath(value)
        elif type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0:
            value = value.item()
        for entry in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(entry, bool) and not _accepts(annotation, bool):
                raise ValueError(f"expected {type_name(annotation)}, got {str(entry).lower()}")
            if isinstance(entry, str) and not _accepts(annotation, str):
                raise ValueError(f"expected {type_name(annotation)}, got the text {entry!r}")
            if isinstance(entry, (int, float)) and not _accepts(annotation, type(entry)):
                whole = isinstance(entry, float) and entry.is_integer()
                if not _accepts(annotation, float) and not (whole and _accepts(annotation, int)):
                    raise ValueError(f"expected {type_name(annotation)}, got {entry!r}")
        return value


OptionsT = TypeVar("OptionsT", bound=Options)


def type_name(annotation: Any) -> str:
    """A declared type in words: `a number`, `one of 'linear', 'cosine'`."""
    words = {int: "a whole number", float: "a number", str: "text", bool: "true or false"}
    if annotation in words:
        return words[annotation]
    if annotation is type(None):
        return "null"
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return type_name(arguments[0])
    if origin is Literal:
        return "one of " + ", ".join(repr(value) for value in arguments)
    if origin in (tuple, list):
        return f"a list ({type_name(arguments[0])} each)"
    if origin is dict or isinstance(annotation, type):
        return "a mapping"
    return " or ".join(dict.fromkeys(type_name(part) for part in arguments)) or str(annotation)


def problems_of(cls: type[Options], error: ValidationError) -> list[Problem]:
    """Pydantic's report in our words, one problem per place."""
    found: dict[tuple[str, ...], list[Problem]] = {}
    for item in error.errors(include_url=False):
        # A union adds the name of the failed member to the location; keep key and list positions.
        first, *rest = item["loc"] or ("",)
        place = tuple(
            str(part) for part in (first, *rest) if part == first or isinstance(part, int)
        )
        raised = item.get("ctx", {}).get("error")
        if isinstance(raised, ConfigError):  # a nested group has already said it better
            found[place] = [problem.under(*filter(None, place)) for problem in raised.problems]
        else:
            message = _message(cls, item)
            found.setdefault(place, [Problem(tuple(filter(None, place)), message)])
    return [problem for problems in found.values() for problem in problems]


def _message(cls: type[Options], item: Any) -> str:
    kind, context, value = item["type"], item.get("ctx", {}), item.get("input")
    key = str(item["loc"][0]) if item["loc"] else ""
    field = cls.model_fields.get(key)
    if kind == "extra_forbidden":
        return unknown_key(str(item["loc"][-1]), cls.model_fields)
    if kind == "missing":
        return "is required"
    bounds = {
        "greater_than": ">",
        "greater_than_equal": ">=",
        "less_than": "<",
        "less_than_equal": "<=",
    }
    if kind in bounds:
        limit = next(iter(context.values()))
        return f"must be {bounds[kind]} {limit:g}{_full_range(field)}, got {value!r}"
    if kind in ("value_error", "assertion_error"):
        return str(context["error"])
    if kind == "too_short":
        return f"must have at least {context['min_length']} entries"
    if kind == "finite_number":
        return f"must be finite, got {value!r}"
    if field is None:
        return str(item["msg"])
    choices = [choice for choice in _literals(field.annotation) if isinstance(choice, str)]
    hint = suggest(value, choices) if isinstance(value, str) else ""
    return f"expected {type_name(field.annotation)}, got {value!r}{hint}"


def _literals(annotation: Any) -> list[Any]:
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    return [value for part in get_args(annotation) for value in _literals(part)]


def _full_range(field: Any) -> str:
    limits = {}
    for entry in getattr(field, "metadata", ()):
        for name, sign in (("gt", ">"), ("ge", ">="), ("lt", "<"), ("le", "<=")):
            if getattr(entry, name, None) is not None:
                limits[sign] = getattr(entry, name)
    if len(limits) < 2:
        return ""
    return " (range: " + ", ".join(f"{sign} {limit}" for sign, limit in limits.items()) + ")"


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
    """The value of a YAML text; never constructs anything but plain data."""
    try:
        return yaml.load(text, Loader=_YamlLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "not YAML"
        raise ConfigError(f"{source} is not valid YAML{where}: {problem}") from None


def dump_yaml(value: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(value), sort_keys=False, allow_unicode=True)
