"""Values of the selector language and their comparison, with Java's number parsing.

Pure functions, any thread; they know no expression and no message. A property is always a string.
The size of a number in the expression determines how a string compared with it is parsed: as a Java
int, long or double. Where Java throws an exception, NotComparable is raised, and the message does
not match. Follows ComparisonExpression.__compare of RocketMQ.
"""

from __future__ import annotations

import enum
import math
import re
from dataclasses import dataclass
from typing import Final

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
_INT_DIGITS: Final = 10
_LONG_DIGITS: Final = 19
_DECIMAL: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?")
_HEXADECIMAL: Final = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?"
)
_NAMED: Final = {
    sign + name: value
    for name in ("NaN", "Infinity")
    for sign, value in (("", float(name)), ("+", float(name)), ("-", -float(name)))
}
_TRIMMED: Final = "".join(map(chr, range(0x21)))
"""The characters that Java's String.trim removes."""


class NotComparable(Exception):
    """Two values cannot be compared: the message does not match, whatever the rest of the
    expression."""


class NumberKind(enum.Enum):
    """Java's types of a number literal."""

    INT = enum.auto()
    LONG = enum.auto()
    DOUBLE = enum.auto()


@dataclass(frozen=True, slots=True)
class Number:
    """A number in the expression."""

    kind: NumberKind
    value: int | float

    def read(self, text: str) -> int | float:
        """Parse a property's text as this number's type. Raises NotComparable."""
        if self.kind is NumberKind.DOUBLE:
            return read_double(text)
        if self.kind is NumberKind.LONG:
            return _read_integer(text, _LONG_DIGITS, LONG_MAX)
        return _read_integer(text, _INT_DIGITS, INT_MAX)


Value = str | bool | Number | None
"""A property's or literal's text, a condition's result, a number; None is NULL or "unknown"."""


def read_double(text: str) -> float:
    """Double.valueOf: surrounding blanks, `1.`, `.5e3`, `5d`, `0x1.8p3`, `NaN`, `-Infinity`.

    Raises NotComparable for text that Java rejects.
    """
    text = text.strip(_TRIMMED)
    if _DECIMAL.fullmatch(text):
        return float(text.rstrip("fFdD"))
    if text in _NAMED:
        return _NAMED[text]
    found = _HEXADECIMAL.fullmatch(text)
    if found is None:
        raise NotComparable
    try:
        return float.fromhex(found[1])
    except OverflowError:
        return -math.inf if text.startswith("-") else math.inf


def _read_integer(text: str, digits: int, limit: int) -> int:
    """Integer.valueOf and Long.valueOf: a sign and decimal digits of any script, nothing else."""
    number = text[1:] if text[:1] in ("+", "-") else text
    if not number.isdecimal() or not (number.isascii() or max(number) <= "\uffff"):
        raise NotComparable
    number = number.lstrip("0")
    if len(number) > digits:
        raise NotComparable
    value = int(number or "0")
    if text[0] == "-":
        value = -value
    if not -limit - 1 <= value <= limit:
        raise NotComparable
    return value


def compare_numbers(left: float, right: float) -> int:
    """-1, 0 or 1. Doubles in Java's order: -0.0 below 0.0, NaN the greatest and equal to NaN.

    Two ints are compared as such; an int beside a double is rounded to one first.
    """
    if isinstance(left, int) and isinstance(right, int):
        return (left > right) - (left < right)
    left, right = float(left), float(right)
    if left < right:
        return -1
    if left > right:
        return 1
    return (_rank(left) > _rank(right)) - (_rank(left) < _rank(right))


def _rank(number: float) -> float:
    """Distinguishes numbers that `<` and `>` treat as equal."""
    if math.isnan(number):
        return math.inf
    return math.copysign(1.0, number) if number == 0.0 else 0.0


def compare(left: str | bool | Number, right: str | bool | Number) -> int:
    """0 if both are equal; negative or positive for numbers, any nonzero number otherwise.

    A string compared with a number is parsed as a number of that type, one compared with TRUE or
    FALSE as a boolean. A boolean on the left of a string cannot be compared. Raises NotComparable.
    """
    if isinstance(left, Number):
        return _compare_number(left, right)
    if isinstance(left, bool):
        if isinstance(right, str):
            raise NotComparable
        return 0 if left is right else -1
    if isinstance(right, Number):
        return compare_numbers(right.read(left), right.value)
    if isinstance(right, bool):
        return 0 if (left.lower() == "true") is right else -1
    return 0 if left == right else -1


def _compare_number(left: Number, right: str | bool | Number) -> int:
    if isinstance(right, bool):
        return -1
    if isinstance(right, str):
        return compare_numbers(left.value, left.read(right))
    return compare_numbers(left.value, right.value)


def compare_in_order(left: str | Number, right: str | Number) -> int:
    """For <, <=, > and >=: negative, 0 or positive. Two strings are both parsed as doubles.

    Raises NotComparable.
    """
    if isinstance(left, str) and isinstance(right, str):
        return compare_numbers(read_double(left), read_double(right))
    return compare(left, right)
