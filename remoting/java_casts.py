"""What fastjson 1.2 makes of a JSON value when the Java field has another type.

Pure functions, any thread: the one place that knows how loose a peer's values may be. Each takes
a parsed JSON value that is not null and gives the field's value, or None where Java leaves the
field as it is; ValueError where Java throws. Used for bodies, and for JSON headers that are not
as they should be. Checked against the real fastjson by tests/interop/test_loose_bodies.py.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

from remoting.remoting_serializable import json_text

_INTEGER_TEXT: Final = re.compile(r"[+-]?\d+(?:\.0*)?")
_NO_VALUE: Final = frozenset(("", "null", "NULL"))
"""Text that leaves a number or a boolean as it is."""

_BOOLEANS: Final[Mapping[str, bool]] = {
    **dict.fromkeys(("true", "1", "y", "t"), True),
    **dict.fromkeys(("false", "0", "n", "f"), False),
}
_MAX_DIGITS: Final = 20
"""Before the point; more do not fit a long."""


def cast_string(value: Any) -> str:
    """Text as it is; a number with its digits, anything else as JSON text."""
    if isinstance(value, str):
        return value
    if isinstance(value, Decimal):
        return str(value)
    return json_text(value)


def cast_int(value: Any, bound: int) -> int | None:
    """An int or a long: -bound <= it < bound. Fractions are cut off, commas in text left out."""
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
    """A boolean; a number is true when it is 1 without its fraction."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        if value in _NO_VALUE:
            return None
        if value.lower() in _BOOLEANS:
            return _BOOLEANS[value.lower()]
    elif isinstance(value, int | float | Decimal):
        return cast_int(value, 2**31) == 1
    raise ValueError(f"{json_text(value):.60} is not a boolean")


def cast_float(value: Any) -> float | None:
    """A double; None for what is no finite number, which Java would write as null."""
    if isinstance(value, str):
        if value in _NO_VALUE:
            return None
        value = value.replace(",", "")
    elif not isinstance(value, int | float | Decimal):
        raise ValueError(f"{json_text(value):.60} is not a number")
    try:
        number = float(value)
    except OverflowError:
        return None
    except ValueError as error:
        raise ValueError(f"{value:.60} is not a number") from error
    return number if math.isfinite(number) else None


def cast_enum(value: Any, names: Sequence[str]) -> str | None:
    """One of `names`, which stand in Java's order: by name, whatever its case, or by ordinal.

    None for any other text, a number in quotes too.
    """
    if isinstance(value, str):
        return _find_name(value, names)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(names):
        return names[value]
    raise ValueError(f"{json_text(value):.60} is none of the {len(names)} values")


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
    """A number of any kind, true as 1, without its fraction."""
    if isinstance(value, int):
        return int(value)
    if isinstance(value, Decimal):
        if value.adjusted() > _MAX_DIGITS:
            raise ValueError(f"{value!s:.60} is out of range")
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return int(value)
    raise ValueError(f"{json_text(value):.60} is not an integer")
