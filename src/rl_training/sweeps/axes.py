"""Axes of a sweep or search: the values that one key of the configuration takes.

tau: [0.005, 0.01]                                     every value
learning_rate: {log_uniform: [1e-5, 1e-3]}             drawn, evenly over its logarithm
gamma: {uniform: [0.9, 0.999]}                         drawn
num_critics: {integer: [2, 10]}                        drawn, both ends included
batch_size: {log_integer: [64, 1024]}
hidden_sizes: {choice: [[64, 64], [256, 256]]}         drawn from a list
expectile: {uniform: [0.6, 0.9], when: {algo: iql}}    only where the configuration has algo: iql
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, cast, get_args

import numpy as np

from rl_training.config import ConfigError, Problem, unknown_key

RangeKind = Literal["uniform", "log_uniform", "integer", "log_integer"]
Kind = Literal["values", "choice", "uniform", "log_uniform", "integer", "log_integer"]
_RANGES = get_args(RangeKind)
_LISTS = ("values", "choice")
BASE = "base"  # axis over base configurations


@dataclass(frozen=True)
class Axis:
    """Values of one key, listed (`options`) or a range (`low` to `high`)."""

    key: str
    kind: Kind
    options: tuple[Any, ...] = ()
    low: float = 0.0
    high: float = 0.0
    when: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

    @property
    def is_drawn(self) -> bool:
        return self.kind != "values"

    @property
    def is_log(self) -> bool:
        return self.kind in ("log_uniform", "log_integer")

    @property
    def is_whole(self) -> bool:
        return self.kind in ("integer", "log_integer")

    def extremes(self) -> tuple[Any, ...]:
        """Return values that are valid only if all are: every option, or both ends."""
        if self.options:
            return self.options
        return (int(self.low), int(self.high)) if self.is_whole else (self.low, self.high)

    def draw(self, seed: int, number: int) -> Any:
        """Draw value `number`; it depends on nothing but the seed, the number and the key."""
        words = [seed, number, zlib.crc32(self.key.encode())]
        share = float(np.random.default_rng(np.random.SeedSequence(words)).random())
        if self.options:
            return self.options[int(share * len(self.options))]
        if self.is_whole:
            if self.is_log:
                low, high = math.log(self.low - 0.5), math.log(self.high + 0.5)
                value = round(math.exp(low + share * (high - low)))
            else:
                value = int(self.low) + int(share * (self.high - self.low + 1))
            return min(max(value, int(self.low)), int(self.high))
        if self.is_log:
            low, high = math.log(self.low), math.log(self.high)
            return self.readable(math.exp(low + share * (high - low)))
        return self.readable(self.low + share * (self.high - self.low))

    def readable(self, value: float) -> float:
        """Round a value of a range to as many digits as people read and copy."""
        return min(max(float(f"{value:.6g}"), self.low), self.high)

    def applies_to(self, values: Mapping[str, Any]) -> bool:
        """Tell if the conditions hold; `values` are the keys of a configuration, dotted and bare."""
        return all(values.get(key) in allowed for key, allowed in self.when.items())


def parse_axes(axes: Mapping[str, Any], source: str = "axes") -> tuple[Axis, ...]:
    """Parse the axes of a file; a `ConfigError` names everything that is wrong with them."""
    parsed: list[Axis] = []
    problems: list[Problem] = []
    for key, value in axes.items():
        try:
            parsed.append(parse_axis(str(key), value))
        except ConfigError as error:
            problems += [problem.under(source, str(key)) for problem in error.problems]
    names = {axis.key for axis in parsed}
    for axis in parsed:
        position = [other.key for other in parsed].index(axis.key)
        late = [key for key in axis.when if key in names - {a.key for a in parsed[:position]}]
        problems += [
            Problem((source, axis.key, "when"), f"{key} must come before {axis.key} in the file")
            for key in late
        ]
    if problems:
        raise ConfigError(problems)
    return tuple(parsed)


def parse_axis(key: str, value: Any) -> Axis:
    """Parse the values of one key: a list, or a mapping with one of the kinds and perhaps `when`."""
    if isinstance(value, list | tuple):
        value = {"values": value}
    if not isinstance(value, Mapping):
        raise ConfigError(
            f"expected a list of values or a range such as {{uniform: [0, 1]}}, got {value!r}"
        )
    kinds = [kind for kind in (*_LISTS, *_RANGES) if kind in value]
    extra = [str(name) for name in value if name not in (*_LISTS, *_RANGES, "when")]
    if extra:
        raise ConfigError(
            [Problem((extra[0],), unknown_key(extra[0], [*_LISTS, *_RANGES, "when"]))]
        )
    if len(kinds) != 1:
        raise ConfigError(f"needs one of {', '.join((*_LISTS, *_RANGES))}; it has {len(kinds)}")
    kind = kinds[0]
    when = _conditions(value.get("when"))
    if kind in _LISTS:
        return Axis(key, cast(Kind, kind), _listed(kind, value[kind]), when=when)
    low, high = _range(cast(RangeKind, kind), value[kind])
    return Axis(key, cast(Kind, kind), low=low, high=high, when=when)


def _listed(kind: str, values: Any) -> tuple[Any, ...]:
    if not isinstance(values, list | tuple) or not values:
        raise ConfigError(
            [Problem((kind,), f"must be a list with at least one value, got {values!r}")]
        )
    repeated = [value for at, value in enumerate(values) if value in values[:at]]
    if repeated:
        raise ConfigError([Problem((kind,), f"lists {repeated[0]!r} twice")])
    return tuple(values)


def _range(kind: RangeKind, ends: Any) -> tuple[float, float]:
    def wrong(message: str) -> ConfigError:
        return ConfigError([Problem((kind,), message)])

    is_pair = isinstance(ends, list | tuple) and len(ends) == 2
    if not is_pair or not all(type(end) in (int, float) and math.isfinite(end) for end in ends):
        raise wrong(f"must be [low, high], two numbers, got {ends!r}")
    low, high = ends
    if not low < high:
        raise wrong(f"low must be below high, got [{low}, {high}]")
    if kind in ("log_uniform", "log_integer") and low <= 0:
        raise wrong(f"needs numbers above 0, got {low}")
    if kind in ("integer", "log_integer") and not (
        float(low).is_integer() and float(high).is_integer()
    ):
        raise wrong(f"needs whole numbers, got [{low}, {high}]")
    return float(low), float(high)


def _conditions(when: Any) -> dict[str, tuple[Any, ...]]:
    if when is None:
        return {}
    if not isinstance(when, Mapping) or not when:
        raise ConfigError(
            [Problem(("when",), f"must be a mapping such as {{algo: iql}}, got {when!r}")]
        )
    return {
        str(key): tuple(value)
        if isinstance(value, Sequence) and not isinstance(value, str)
        else (value,)
        for key, value in when.items()
    }
