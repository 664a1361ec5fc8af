"""broker.filter.selector_values: texts as Java's numbers, and who is greater than whom."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.filter.selector_values import (
    NotComparable,
    Number,
    NumberKind,
    compare,
    compare_in_order,
    compare_numbers,
    read_double,
)

INT = Number(NumberKind.INT, 5)
LONG = Number(NumberKind.LONG, 2**31)
DOUBLE = Number(NumberKind.DOUBLE, 5.0)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("-0", 0),
        ("+5", 5),
        ("0000000000000000000000005", 5),
        ("0" * 30_000, 0),
        ("-2147483648", -(2**31)),
        ("2147483647", 2**31 - 1),
        ("٥", 5),
    ],
)
def test_ints(text: str, value: int) -> None:
    assert INT.read(text) == value


@pytest.mark.parametrize(
    "text",
    [
        *[
            "",
            "+",
            "-",
            "x",
            "5.0",
            "5L",
            "1_0",
            "+-5",
            "2147483648",
            "-2147483649",
            "𝟓",
            "0x5",
            "1e1",
        ],
        " 5",
        "5 ",
        "9" * 30_000,
    ],
)
def test_no_ints(text: str) -> None:
    with pytest.raises(NotComparable):
        INT.read(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [("9223372036854775807", 2**63 - 1), ("-9223372036854775808", -(2**63)), ("7", 7)],
)
def test_longs(text: str, value: int) -> None:
    assert LONG.read(text) == value


@pytest.mark.parametrize("text", ["9223372036854775808", "-9223372036854775809", "1.0"])
def test_no_longs(text: str) -> None:
    with pytest.raises(NotComparable):
        LONG.read(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5.0),
        (" \t5\n", 5.0),
        ("5.", 5.0),
        (".5", 0.5),
        ("-1.5e3", -1500.0),
        ("1E+2", 100.0),
        ("5d", 5.0),
        ("5.5F", 5.5),
        ("1e999999999999", math.inf),
        ("Infinity", math.inf),
        ("-Infinity", -math.inf),
        ("+Infinity", math.inf),
        ("0x1p3", 8.0),
        ("-0X.8P1f", -1.0),
        ("0x1.p0", 1.0),
        ("0x1p99999999999999999999", math.inf),
        ("-0x1p99999999999999999999", -math.inf),
        ("0x1p-99999999999999999999", 0.0),
    ],
)
def test_doubles(text: str, value: float) -> None:
    assert read_double(text) == value
    assert DOUBLE.read(text) == value


@pytest.mark.parametrize("text", ["NaN", "+NaN", "-NaN"])
def test_not_a_number(text: str) -> None:
    assert math.isnan(read_double(text))


@pytest.mark.parametrize(
    "text",
    [
        *["", ".", "e5", "5e", "5e+", "1_0", "nan", "inf", "infinity", "0x5", "0xp1", "5dd", "٥"],
        " ",
        "5\u00a0",
        "1" * 30_000 + "x",
    ],
)
def test_no_doubles(text: str) -> None:
    with pytest.raises(NotComparable):
        read_double(text)


ASCENDING = [-math.inf, -1.5, -0.0, 0.0, 4.9e-324, 1.0, math.inf, math.nan]


def test_the_order_of_doubles_is_javas() -> None:
    for at, left in enumerate(ASCENDING):
        for place, right in enumerate(ASCENDING):
            assert compare_numbers(left, right) == (at > place) - (at < place), (left, right)


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_integers_are_compared_exactly(left: int, right: int) -> None:
    assert compare_numbers(left, right) == (left > right) - (left < right)


def test_an_integer_beside_a_double_is_rounded() -> None:
    assert compare_numbers(2**62 + 1, float(2**62)) == 0
    assert compare_numbers(float(2**62), 2**62 + 1) == 0


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [
        ("x", "x", True),
        ("x", "X", False),
        ("5", INT, True),
        (INT, "5", True),
        ("5.0", DOUBLE, True),
        ("TRUE", True, True),
        ("tRuE", True, True),
        ("yes", False, True),
        ("false", True, False),
        (True, True, True),
        (True, False, False),
        (True, INT, False),
        (INT, True, False),
        (INT, DOUBLE, True),
        (INT, LONG, False),
    ],
)
def test_equality(left: str | bool | Number, right: str | bool | Number, equal: bool) -> None:
    assert (compare(left, right) == 0) is equal


@pytest.mark.parametrize(
    ("left", "right"),
    [(True, "true"), ("5.0", INT), (INT, "5.0"), ("x", DOUBLE), ("2147483648", INT)],
)
def test_not_comparable(left: str | bool | Number, right: str | bool | Number) -> None:
    with pytest.raises(NotComparable):
        compare(left, right)


def test_two_texts_are_ordered_as_doubles() -> None:
    assert compare_in_order("9", "10") == -1
    assert compare_in_order("1e2", "100") == 0
    assert compare_in_order("5", INT) == 0
    with pytest.raises(NotComparable):
        compare_in_order("a", "b")
