"""Typed options, and validation errors that say what to write instead."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator
from pydantic.fields import FieldInfo

from rl_training.config.errors import ConfigError, Problem, suggest, unknown_key


def option(
    default: Any = ...,
    doc: str = "",
    *,
    gt: float | None = None,
    ge: float | None = None,
    lt: float | None = None,
    le: float | None = None,
    min_length: int | None = None,
    unset: str | None = None,
) -> Any:
    """Declare a configuration field: its default, its sentence, its bounds.

    `unset` says in words what None means. One declaration feeds validation, `rl-training explain`
    and the tables of the docs.
    """
    extra: Any = None if unset is None else {"unset": unset}
    return Field(
        default,
        description=doc,
        gt=gt,
        ge=ge,
        lt=lt,
        le=le,
        min_length=min_length,
        json_schema_extra=extra,
    )


def meaning_of_none(field: FieldInfo) -> str:
    """Return the words for an option that is not set."""
    extra = field.json_schema_extra
    return str(extra["unset"]) if isinstance(extra, dict) and "unset" in extra else "not set"


def _accepts(annotation: Any, kind: type) -> bool:
    """Return True if a field of this type can hold values of `kind`."""
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

        def __init__(self, /, **values: Any) -> None:
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
                expected = type_name(annotation)
                raise ValueError(
                    f"expected {expected}, got the text {entry!r}{_rewritten(expected, entry)}"
                )
            if isinstance(entry, (int, float)) and not _accepts(annotation, type(entry)):
                whole = isinstance(entry, float) and entry.is_integer()
                if not _accepts(annotation, float) and not (whole and _accepts(annotation, int)):
                    raise ValueError(f"expected {type_name(annotation)}, got {entry!r}")
        return value


OptionsT = TypeVar("OptionsT", bound=Options)


def type_name(annotation: Any) -> str:
    """Describe a declared type: `a number`, `one of 'linear', 'cosine'`."""
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
    """Translate pydantic's errors, at most one per location."""
    problems: dict[tuple[str, ...], list[Problem]] = {}
    for item in error.errors(include_url=False):
        # A union adds the name of the failed member to the location; keep key and list positions.
        first, *rest = item["loc"] or ("",)
        location = tuple(
            str(part) for part in (first, *rest) if part == first or isinstance(part, int)
        )
        raised = item.get("ctx", {}).get("error")
        if isinstance(raised, ConfigError):  # a nested group has already said it better
            problems[location] = [
                problem.under(*filter(None, location)) for problem in raised.problems
            ]
        else:
            message = _message(cls, item)
            problems.setdefault(location, [Problem(tuple(filter(None, location)), message)])
    return [problem for at_location in problems.values() for problem in at_location]


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


def _rewritten(expected: str, text: str) -> str:
    """Return `; write [64, 64]`, `; write 1_000` or `; write 0.5` for numbers with commas."""
    if not re.fullmatch(r"[\d.,\s\[\]()+-]+", text) or "," not in text:
        return ""
    if "list" in expected:
        return f"; write [{', '.join(part.strip() for part in text.strip(' []()').split(','))}]"
    if re.fullmatch(r"[+-]?\d{1,3}(,\d{3})+", text):
        return f"; write {text.replace(',', '_')}"
    return f"; write {text.replace(',', '.')}" if re.fullmatch(r"[+-]?\d*,\d+", text) else ""


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
