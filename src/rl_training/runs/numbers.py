"""Numbers of many rows of JSON at once, in array operations: grammar and rounding are those of `json.loads`.

A number of digits `m` with `k` decimals is `m / 10**k`. A long double of x86 has 64 bits and holds both exactly, so the
quotient is rounded once to 64 bits and once to the 53 of a double. Two roundings differ from one only if the first ends
halfway between two doubles. Such numbers, those with an exponent and very long ones are left to `json`.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Positions = NDArray[np.intp]

_HAS_64_BITS = np.finfo(np.longdouble).nmant == 63
_MINUS, _DOT, _ZERO, _COMMA, _BRACE = b"-.0,}"
_MOST_OTHERS = 0.2  # share of numbers; with more of them, decoding whole rows is faster
_WORD = 8  # digits that are gathered at once
_DECIMALS = 3 * _WORD
_DIGITS = 19  # of any number below 2**64
_WITHIN = int.from_bytes(b", : ", "little")  # after a number
_AT_END = int.from_bytes(b"}\n: ", "little")
_LAST = np.array([(1 << 64) - (1 << 8 * (8 - n)) for n in range(9)], "<u8")  # masks of n bytes
_LAST &= np.uint64(0x0F0F0F0F0F0F0F0F)  # digits from ASCII
_WHOLE_POWERS = np.array([10 ** min(k, _DIGITS) for k in range(_DECIMALS + 1)], np.uint64)
_POWERS = np.cumprod([1, *[10] * _DECIMALS], dtype=np.longdouble)


def parse_numbers(text: bytes, columns: int) -> tuple[Floats, NDArray[np.bool_]] | None:
    r"""Parse the values of rows, and tell which are whole numbers; both are tables.

    `text` has the rows without their names, such as `: 12, : -0.5}\n: 14, : NaN}\n`. The result is None if anything is
    not written as `json.dumps` does, or is no number, or if `json` is faster.
    """
    padded = bytes(_DECIMALS) + text + b": "
    characters = np.frombuffer(padded, np.uint8)
    separators = np.flatnonzero((characters - np.uint8(_ZERO)) > 9)
    kinds = characters[separators]
    is_end = (kinds == _COMMA) | (kinds == _BRACE)
    order = np.flatnonzero(is_end)  # among separators
    ends = separators[order]
    if len(ends) % columns or not _are_rows(padded, ends, columns):
        return None
    begins = np.append(_DECIMALS, ends[:-1] + 2) + 2
    before = separators[order - 1]
    dotted = characters[before] == _DOT
    negative = characters[begins] == _MINUS
    between = np.diff(order, prepend=_DECIMALS - 2) - 4  # of characters that are no digits
    points = np.where(dotted, before, ends)
    wholes = points - begins - negative
    decimals = ends - points - dotted
    plain = (between == dotted + negative.astype(int)) & (wholes > 0) & (dotted == (decimals > 0))
    plain &= (wholes == 1) | (characters[begins + negative] != _ZERO)
    if _HAS_64_BITS:
        values, exact = _quotients(padded, points, wholes, ends, decimals)
        np.negative(values, out=values, where=negative)
    else:
        table = text.translate(bytes.maketrans(b"}", b","), b": \n")
        values, exact = np.fromstring(table, sep=","), plain
    others = np.flatnonzero(~(plain & exact)).tolist()
    if len(others) > _MOST_OTHERS * len(ends):
        return None
    for number in others:
        value = _parse_one(padded[begins[number] : ends[number]])
        if value is None:
            return None
        values[number] = value
    return values.reshape(-1, columns), (plain & ~dotted).reshape(-1, columns)


def _are_rows(padded: bytes, ends: Positions, columns: int) -> bool:
    """Tell if the ends of numbers are followed by what belongs there."""
    following = np.ndarray((len(padded) - 3,), "<u4", padded, strides=(1,))[ends].reshape(
        -1, columns
    )
    return bool((following[:, :-1] == _WITHIN).all() and (following[:, -1] == _AT_END).all())


def _quotients(
    padded: bytes, points: Positions, wholes: Positions, ends: Positions, decimals: Positions
) -> tuple[Floats, NDArray[np.bool_]]:
    """Divide the digits before and after each point by a power of ten, and tell which quotients are correct."""
    windows = np.ndarray((len(padded) - 7,), "<u8", padded, strides=(1,))
    whole = _eight_digits(windows[points - _WORD], wholes)
    low = _eight_digits(windows[ends - _WORD], decimals)
    middle = _eight_digits(windows[ends - 2 * _WORD], decimals - _WORD)
    exact = (wholes <= _WORD) & (decimals <= _DECIMALS)
    exact &= (whole == 0) | (wholes + decimals <= _DIGITS)
    decimals = decimals.clip(0, _DECIMALS)
    numerators = whole * _WHOLE_POWERS[decimals] + middle * np.uint64(10**_WORD) + low
    (longer,) = (decimals > 2 * _WORD).nonzero()
    if longer.size:
        high = _eight_digits(windows[ends[longer] - 3 * _WORD], decimals[longer] - 2 * _WORD)
        exact[longer] &= high < 10 ** (_DIGITS - 2 * _WORD)
        numerators[longer] += high * np.uint64(10 ** (2 * _WORD))
    quotients = numerators.astype(np.longdouble) / _POWERS[decimals]
    return quotients.astype(np.float64), exact & ~_are_halfway(quotients)


def _eight_digits(words: NDArray[np.uint64], lengths: NDArray[Any]) -> NDArray[np.uint64]:
    """Read the last `lengths` of eight ASCII digits: neighbours are joined, then pairs, then fours."""
    words &= _LAST[lengths.clip(0, _WORD)]
    for factor, shift, mask in (
        (10, 8, 0x00FF00FF00FF00FF),
        (100, 16, 0x0000FFFF0000FFFF),
        (10_000, 32, 0x00000000FFFFFFFF),
    ):
        words = (words * np.uint64(factor) + (words >> np.uint64(shift))) & np.uint64(mask)
    return words


def _are_halfway(quotients: NDArray[np.longdouble]) -> NDArray[np.bool_]:
    """Tell which have a one and ten zeros in the 11 bits that a double lacks."""
    significands = quotients.view("<u8")[::2]
    return np.asarray((significands & np.uint64(0x7FF)) == 0x400)


def _parse_one(text: bytes) -> float | None:
    try:
        value = json.loads(text)
        return float(value) if type(value) in (int, float) else None
    except (ValueError, OverflowError, RecursionError):
        return None
