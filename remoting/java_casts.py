"""Casts JSON values as fastjson 1.2 does when the Java field has another type.

Pure functions, any thread: the one place with the rules for loosely typed values of peers. Each
takes a parsed JSON value that is not null and returns the field's value, or None where Java leaves
the field unset; ValueError where Java throws. Used for bodies, and for malformed JSON headers.
Checked against the real fastjson by tests/interop/test_loose_bodies.py.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

from remoting.remoting_serializable import MAX_DEPTH, JsonError, dumps_java

_INTEGER_TEXT: Final = re.compile(r"[+-]?\d+(?:\.0*)?")
_NO_VALUE: Final = frozenset(("", "null", "NULL"))
"""Text that leaves a number or a boolean unset."""

_BOOLEANS: Final[Mapping[str, bool]] = {
    **dict.fromkeys(("true", "1", "y", "t"), True),
    **dict.fromkeys(("false", "0", "n", "f"), False),
}
_MAX_DIGITS: Final = 20
"""Maximum digits before the decimal point; more do not fit a long."""


def _json_text(value: Any) -> str:
    """A JSON value as Java turns it into a string: text as it is, anything else as JSON.

    Raises JsonError when it is nested deeper than MAX_DEPTH.
    """
    if isinstance(value, str):
        return value
    # msgspec takes what the stack takes: on Python 3.14 that is 20,000 levels.
    if _is_too_deep(value):
        raise JsonError("nested too deep")
    return dumps_java(value).decode()


def _is_too_deep(value: Any) -> bool:
    """Level by level, so that the answer is the same whatever the stack takes."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [item for one in level for item in _inside(one) if isinstance(item, dict | list)]
        if not level:
            return False
    return True


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def cast_string(value: Any) -> str:
    """Text unchanged; a number with its digits, anything else as JSON text."""
    if isinstance(value, str):
        return value
    if isinstance(value, Decimal):
        return str(value)
    return _json_text(value)


def cast_int(value: Any, bound: int) -> int | None:
    """An int or a long in -bound <= value < bound. Fractions are truncated, commas in text
    removed."""
    if isinstance(value, str):
        if value in _NO_VALUE:
            return None
        number = int(value) if value.isdecimal() else _number_in(value)
    else:
        number = _whole_number(value)
    if not -bound <= number < bound:
        raise ValueError(f"{number!s:.60} is out of range")
    return number


def cast_bool(value: Any) -> bool | None:
    """A boolean; a number is true if it is 1 after truncation."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        if value in _NO_VALUE:
            return None
        if value.lower() in _BOOLEANS:
            return _BOOLEANS[value.lower()]
    elif isinstance(value, int | float | Decimal):
        return cast_int(value, 2**31) == 1
    raise ValueError(f"{_json_text(value):.60} is not a boolean")


def cast_float(value: Any) -> float | None:
    """A double; None if it is not finite, which Java would write as null."""
    if isinstance(value, str):
        if value in _NO_VALUE:
            return None
        value = value.replace(",", "")
    elif not isinstance(value, int | float | Decimal):
        raise ValueError(f"{_json_text(value):.60} is not a number")
    try:
        number = float(value)
    except OverflowError:
        return None
    except ValueError as error:
        raise ValueError(f"{value:.60} is not a number") from error
    return number if math.isfinite(number) else None


def cast_enum(value: Any, names: Sequence[str]) -> str | None:
    """One of `names`, which have Java's order: by name (case-insensitive) or by ordinal.

    None for any other text, including a number in quotes.
    """
    if isinstance(value, str):
        return _find_name(value, names)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(names):
        return names[value]
    raise ValueError(f"{_json_text(value):.60} is not one of the {len(names)} values")


def _find_name(text: str, names: Sequence[str]) -> str | None:
    if text in names:
        return text
    upper = text.upper()
    return upper if upper in names else None


def _number_in(text: str) -> int:
    plain = text.replace(",", "")
    if _INTEGER_TEXT.fullmatch(plain) is None:
        raise ValueError(f"{text:.60} is not an integer")
    return int(plain.partition(".")[0])


def _whole_number(value: Any) -> int:
    """A number of any kind, truncated; true is 1."""
    if isinstance(value, int):
        return int(value)
    if isinstance(value, Decimal):
        if value.adjusted() > _MAX_DIGITS:
            raise ValueError(f"{value!s:.60} is out of range")
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return int(value)
    raise ValueError(f"{_json_text(value):.60} is not an integer")
