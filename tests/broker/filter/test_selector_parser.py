"""broker.filter.selector_parser and selector_nodes: the language, by its documentation, by what a
Java broker makes of the same texts, and against a second evaluator.

java_verdicts.jsonl: random expressions and what the original's parser and expressions (4.9.7, the
same as 4.9.8's) said of them: null when refused, else for each set of properties T, F, N (unknown)
or X (an exception).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.filter.selector_nodes import MAX_DEPTH
from broker.filter.selector_parser import (
    MAX_LENGTH,
    InvalidSelectorError,
    Selector,
    compile_selector,
)
from broker.filter.selector_values import NotComparable
from tests.support.every_row import check_every_row, every_row

VERDICTS = Path(__file__).with_name("java_verdicts.jsonl")


def verdict(selector: Selector, properties: dict[str, str]) -> str:
    """One of T, F, N and X."""
    try:
        value = selector.evaluate(properties.get)
    except NotComparable:
        assert selector.matches(properties) is False
        return "X"
    assert selector.matches(properties) is (value is True)
    return "N" if value is None else str(value)[0]


def verdicts() -> list[dict[str, Any]]:
    # By "\n" alone: some expressions hold other line ends.
    return [json.loads(line) for line in VERDICTS.read_text("utf-8").strip().split("\n")]


def test_java_says_the_same() -> None:
    check_every_row(verdicts(), assert_java_says_the_same, lambda case: repr(case["expression"]))


def assert_java_says_the_same(case: dict[str, Any]) -> None:
    if case["java"] is None:
        with pytest.raises(InvalidSelectorError):
            compile_selector(case["expression"])
        return
    selector = compile_selector(case["expression"])
    assert "".join(verdict(selector, each) for each in case["properties"]) == case["java"]


# -- the documented language -------------------------------------------------------------------


@every_row(
    ("expression", "properties", "expected"),
    [
        # The example of the original's documentation.
        ("(a > 10 AND a < 100) OR (b IS NOT NULL AND b=TRUE)", {"a": "50"}, "T"),
        ("(a > 10 AND a < 100) OR (b IS NOT NULL AND b=TRUE)", {"a": "5", "b": "true"}, "T"),
        ("(a > 10 AND a < 100) OR (b IS NOT NULL AND b=TRUE)", {"a": "5", "b": "no"}, "F"),
        ("(a > 10 AND a < 100) OR (b IS NOT NULL AND b=TRUE)", {}, "N"),
        ("a between 0 and 3", {"a": "0"}, "T"),
        ("a between 0 and 3", {"a": "3"}, "T"),
        ("a between 0 and 3", {"a": "4"}, "F"),
        ("a between 0 and 3", {}, "N"),
        ("a not between 0 and 3", {"a": "4"}, "T"),
        ("a not between 0 and 3", {"a": "3"}, "F"),
        ("a not between 3 and 0", {"a": "2"}, "T"),
        ("a in ('x', 'it''s')", {"a": "it's"}, "T"),
        ("a in ('x', 'y')", {"a": "X"}, "F"),
        ("a in ('x')", {}, "N"),
        ("a not in ('x')", {"a": "y"}, "T"),
        ("a not in ('x')", {"a": "x"}, "F"),
        ("a not in ('x')", {}, "N"),
        ("a is null", {}, "T"),
        ("a is null", {"a": "x"}, "F"),
        ("a Is Not Null", {"a": "x"}, "T"),
        ("a is not null", {}, "F"),
        ("TAGS is not null and TAGS='''''tag'''''", {"TAGS": "''tag''"}, "T"),
        # Names are case-sensitive, words of the language are not.
        ("A = 'x' aNd b = 'y'", {"A": "x", "b": "y"}, "T"),
        ("A = 'x'", {"a": "x"}, "N"),
        ("$a_1 = 'x'", {"$a_1": "x"}, "T"),
        ("nothing = 'x'", {"nothing": "x"}, "T"),
        # Numbers.
        ("a = 5", {"a": "5"}, "T"),
        ("a = 5", {"a": "+05"}, "T"),
        ("a = 5", {"a": "5.0"}, "X"),
        ("a = 5.0", {"a": "5"}, "T"),
        ("a > 5", {"a": "3000000000"}, "X"),
        ("a > 2147483648", {"a": "3000000000"}, "T"),
        ("a > -2147483648", {"a": "3000000000"}, "T"),
        ("a > 5L", {"a": "6"}, "T"),
        ("a > 3.1E10", {"a": "3.1415E10"}, "T"),
        ("a > 5.5", {"a": "NaN"}, "T"),
        ("a < 5.5", {"a": "-Infinity"}, "T"),
        ("5 < a", {"a": "6"}, "T"),
        ("5 = 5.0", {}, "T"),
        ("5 > 6.0", {}, "F"),
        ("- -5 = + 5", {}, "T"),
        ("a > b", {"a": "10", "b": "9"}, "T"),
        ("a > b", {"a": "x", "b": "9"}, "X"),
        ("a <= b", {"a": "1"}, "N"),
        # A minus before anything but a number gives NULL.
        ("-a = 5", {"a": "-5"}, "N"),
        ("-a > 5", {"a": "-5"}, "N"),
        ("5 > -a", {"a": "-5"}, "N"),
        ("-a is null", {"a": "5"}, "T"),
        ("-(a > 5) is null", {"a": "5"}, "T"),
        ("-(a > 5) is null", {"a": "x"}, "X"),
        # Texts.
        ("a = 'x'", {"a": "x"}, "T"),
        ("a <> 'x'", {"a": "y"}, "T"),
        ("a <> 'x'", {}, "N"),
        ("a = '5'", {"a": "5"}, "T"),
        ("'5' = 5", {}, "T"),
        ("'x' = 5", {}, "X"),
        ("a = b", {"a": "x", "b": "x"}, "T"),
        # An absent property on the left, on the right, on both sides.
        ("a = b", {"b": "x"}, "N"),
        ("a = b", {"a": "x"}, "F"),
        ("a = b", {}, "T"),
        ("a <> b", {"a": "x"}, "T"),
        # Booleans.
        ("a = TRUE", {"a": "TrUe"}, "T"),
        ("a = FALSE", {"a": "anything"}, "T"),
        ("TRUE = a", {"a": "true"}, "X"),
        ("TRUE = a", {}, "F"),
        ("TRUE = TRUE", {}, "T"),
        ("TRUE = (a = 'x')", {"a": "x"}, "T"),
        ("5 = TRUE", {}, "F"),
        ("TRUE = -5", {}, "F"),
        ("(a = 'x') = 5", {"a": "x"}, "F"),
        ("'true' = TRUE", {}, "T"),
        ("TRUE", {}, "T"),
        ("NULL", {}, "N"),
        ("NULL IS NULL", {}, "T"),
        ("a", {"a": "true"}, "F"),
        ("a", {}, "N"),
        ("NOT a", {"a": "true"}, "T"),
        # Logic with three values, in the order in which it is written.
        ("a = 'x' AND b = 'y'", {"b": "y"}, "N"),
        ("a = 'x' AND b = 'y'", {"b": "z"}, "F"),
        ("a = 'x' OR b = 'y'", {"b": "y"}, "T"),
        ("a = 'x' OR b = 'y'", {"b": "z"}, "N"),
        ("NOT (a = 'x')", {}, "N"),
        ("b = 'y' OR a > 5", {"a": "x", "b": "y"}, "T"),
        ("a > 5 OR b = 'y'", {"a": "x", "b": "y"}, "X"),
        ("a = 'x' AND b = 'y' OR c = 'z'", {"c": "z"}, "T"),
        ("a = 'x' AND (b = 'y' OR c = 'z')", {"c": "z", "a": "w"}, "F"),
        ("a = 'x' = TRUE", {"a": "x"}, "T"),
        ("a = 'x' IS NOT NULL", {}, "F"),
        # Blanks and comments.
        ("\ta\n=\r\f5", {"a": "5"}, "T"),
        ("a -- = 'x'\n = 'y' /* * / ** */", {"a": "y"}, "T"),
        ("a = --\r\n 5", {"a": "5"}, "T"),
        ("a=--5", {"a": "5"}, "T"),
    ],
)
def test_the_language(expression: str, properties: dict[str, str], expected: str) -> None:
    selector = compile_selector(expression)
    assert selector.ignored == ""
    assert verdict(selector, properties) == expected


@pytest.mark.parametrize(
    ("expression", "ignored"),
    [
        ("a = 'x' b = 'y'", "b = 'y'"),
        ("a = 'x' LIKE 'x%' ; 5", "LIKE 'x%' ; 5"),
        ("a = 'x' )", ")"),
        ("a = 'x' -- no end of line", "-- no end of line"),
        ("a = 'x' + 5", "+ 5"),
        ("a = 'x'y" + "z" * 100, "y" + "z" * 59),
    ],
)
def test_what_stands_behind_has_no_effect(expression: str, ignored: str) -> None:
    selector = compile_selector(expression)
    assert selector.ignored == ignored
    assert selector.matches({"a": "x"})
    assert not selector.matches({"a": "y"})


def test_a_number_with_a_zero_in_front_ends_behind_it() -> None:
    selector = compile_selector("a = 007")
    assert selector.ignored == "07"
    assert selector.matches({"a": "0"})


# -- refusals ----------------------------------------------------------------------------------

TOO_LONG = "a = 5 " + " " * (MAX_LENGTH - 5)
ORDER_RULE = (
    " compares numbers and properties only; compare strings, TRUE, FALSE and conditions with "
    "= and <>"
)


@every_row(
    ("expression", "message"),
    [
        ("", "the expression is incomplete"),
        (" -- c\n", "the expression is incomplete"),
        ("a = ", "the expression is incomplete"),
        ("(a = 5", "the expression is incomplete"),
        ("a and between 2 and 10", "'between' at line 1, column 7 is not allowed there"),
        ("a =\n= 5", "'=' at line 2, column 1 is not allowed there"),
        ("(a = 5 b)", "'b' at line 1, column 8 is not allowed there"),
        ("a in ()", "')' at line 1, column 7 is not allowed there"),
        ("a in (5)", "'5' at line 1, column 7 is not allowed there"),
        ("a not b", "'b' at line 1, column 7 is not allowed there"),
        ("a = NOT", "the expression is incomplete"),
        ("a is 5", "'5' at line 1, column 6 is not allowed there"),
        ("a = 5 ;", "';' at line 1, column 7 is not allowed in an expression"),
        ("a = 5 \x0b", "'\\x0b' at line 1, column 7 is not allowed in an expression"),
        ("é = 5", "'é' at line 1, column 1 is not allowed in an expression"),
        ("a = 5 /* c", "'/' at line 1, column 7 is not allowed in an expression"),
        ('a = "x"', "'\"' at line 1, column 5 is not allowed in an expression"),
        ("a = 'x", "the string starting at line 1, column 5 has no closing '"),
        ("a = 'x''", "the string starting at line 1, column 8 has no closing '"),
        ("a > 'x'", f"at its end: >{ORDER_RULE}"),
        ("a >= TRUE", f"at its end: >={ORDER_RULE}"),
        ("NULL < a", f"at its end: <{ORDER_RULE}"),
        ("(a = 5) <= b", f"at its end: <={ORDER_RULE}"),
        ("NOT a > 5", f"at its end: >{ORDER_RULE}"),
        ("a > 'x' and b = 5", f"before line 1, column 9: >{ORDER_RULE}"),
        ("a between 'x' and 'y'", f"at its end: >={ORDER_RULE}"),
        (
            "a between 10 and 9.5",
            "at its end: BETWEEN needs the smaller number first: 10 is greater than 9.5",
        ),
        ("a = NULL", "at its end: NULL cannot be compared, use IS NULL or IS NOT NULL"),
        ("NULL <> a", "at its end: NULL cannot be compared, use IS NULL or IS NOT NULL"),
        (
            "TRUE = 5",
            "at its end: TRUE and FALSE cannot be compared with a string or number on their right",
        ),
        (
            "FALSE = 'false'",
            "at its end: TRUE and FALSE cannot be compared with a string or number on their right",
        ),
        ("5", "at its end: a string or number is not a condition; compare it with something"),
        ("-a", "at its end: a string or number is not a condition; compare it with something"),
        (
            "'x' or a",
            "at its end: a string or number is not a condition; compare it with something",
        ),
        ("'x' in ('x')", "at its end: IN needs a property on its left"),
        ("-a not in ('x')", "at its end: IN needs a property on its left"),
        (
            "a > 9223372036854775808",
            "at its end: the number 9223372036854775808 is greater than 9223372036854775807",
        ),
        (
            "a > " + "1" * 5000 + "L",
            f"at its end: the number {'1' * 60} is greater than 9223372036854775807",
        ),
        ("a > 1e309", "at its end: the number 1e309 is greater than 1.7976931348623157E308"),
        ("a > 0.0", "at its end: the number 0.0 is less than 4.9E-324; write 0 for zero"),
        (
            TOO_LONG,
            f"the expression has {MAX_LENGTH + 1} characters; the limit is {MAX_LENGTH}",
        ),
    ],
)
def test_refusals(expression: str, message: str) -> None:
    with pytest.raises(InvalidSelectorError) as refused:
        compile_selector(expression)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("left", "leaf", "right"),
    [
        ("NOT ", "a", ""),
        ("- ", "5 = 5", ""),
        ("(1 = ", "a", ")"),
        ("(b = 5 AND ", "a", ")"),
    ],
)
def test_depth_is_limited(left: str, leaf: str, right: str) -> None:
    with pytest.raises(InvalidSelectorError) as refused:
        compile_selector(left * MAX_DEPTH + leaf + right * MAX_DEPTH)
    assert "conditions are nested deeper than 100 levels; flatten the expression" in str(
        refused.value
    )
    half = MAX_DEPTH // 2
    compile_selector(left * half + leaf + right * half)


def test_a_long_chain_of_comparisons_is_deep_too() -> None:
    with pytest.raises(
        InvalidSelectorError, match="nested deeper than 100 levels; flatten the expression"
    ):
        compile_selector("a" + " IS NULL" * 101)


@pytest.mark.parametrize(
    "hostile",
    [
        "(" * 8000 + "a IS NULL" + ")" * 8000,
        "+" * 16_000 + "5 = 5",
        "a IS NULL" + " OR a IS NULL" * 1200,
        "a IN ('x'" + ",'x'" * 4000 + ") OR a IS NULL",
    ],
)
def test_width_is_not_depth(hostile: str) -> None:
    """Nothing here recurses, whatever the interpreter's limit."""
    frame, used = sys._getframe(), 0
    while frame is not None:
        frame, used = frame.f_back, used + 1  # type: ignore[assignment]
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(used + 120)
    try:
        assert compile_selector(hostile).matches({})
    finally:
        sys.setrecursionlimit(limit)


def test_the_deepest_expression_can_be_asked() -> None:
    selector = compile_selector("NOT " * (MAX_DEPTH - 2) + "a IS NULL")
    assert selector.matches({})


# -- against a second evaluator ----------------------------------------------------------------

NAMES = ["a", "b", "c"]
VALUES = ["x", "5", "-7", "12", "", "3000000000", "true"]
LEAVES = st.one_of(
    st.tuples(st.just("="), st.sampled_from(NAMES), st.sampled_from(["x", "5", "true"])),
    st.tuples(st.sampled_from(["<", "<=", ">", ">=", "=="]), st.sampled_from(NAMES)).flatmap(
        lambda head: st.integers(-20, 20).map(lambda number: (*head, number))
    ),
    st.tuples(st.just("null"), st.sampled_from(NAMES)),
    st.tuples(st.just("in"), st.sampled_from(NAMES), st.lists(st.sampled_from(VALUES), min_size=1)),
    st.tuples(st.just("between"), st.sampled_from(NAMES), st.integers(-9, 0), st.integers(0, 9)),
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.tuples(st.just("and"), inner, inner),
        st.tuples(st.just("or"), inner, inner),
        st.tuples(st.just("not"), inner),
    ),
    max_leaves=12,
)


def text_of(tree: Any) -> str:
    match tree:
        case ("and" | "or" as word, left, right):
            return f"({text_of(left)}) {word} ({text_of(right)})"
        case ("not", inner):
            return f"NOT ({text_of(inner)})"
        case ("null", name):
            return f"{name} IS NULL"
        case ("in", name, values):
            return f"{name} IN ({', '.join(repr(value) for value in values)})"
        case ("between", name, low, high):
            return f"{name} BETWEEN {low} AND {high}"
        case ("=", name, value):
            return f"{name} = '{value}'"
        case (sign, name, number):
            return f"{name} {'=' if sign == '==' else sign} {number}"
    raise AssertionError(tree)


def number_of(text: str) -> int:
    number = int(text)
    if not -(2**31) <= number < 2**31:
        raise ValueError(text)
    return number


def asked(tree: Any, properties: dict[str, str]) -> bool | None:
    """The tree's value, by its definition. Raises ValueError for what cannot be compared."""
    match tree:
        case ("and", left, right):
            one = asked(left, properties)
            if one is False:
                return False
            other = asked(right, properties)
            return False if other is False else (None if None in (one, other) else True)
        case ("or", left, right):
            one = asked(left, properties)
            if one is True:
                return True
            other = asked(right, properties)
            return True if other is True else (None if None in (one, other) else False)
        case ("not", inner):
            value = asked(inner, properties)
            return None if value is None else not value
        case ("null", name):
            return name not in properties
    text = properties.get(tree[1])
    if text is None:
        return None
    match tree:
        case ("in", _, values):
            return text in values
        case ("between", _, low, high):
            return low <= number_of(text) <= high
        case ("=", _, value):
            return bool(text == value)
        case (sign, _, number):
            value = number_of(text)
            return {
                "<": value < number,
                "<=": value <= number,
                ">": value > number,
                ">=": value >= number,
                "==": value == number,
            }[sign]
    raise AssertionError(tree)


@given(TREES, st.dictionaries(st.sampled_from(NAMES), st.sampled_from(VALUES)))
def test_a_second_evaluator_says_the_same(tree: Any, properties: dict[str, str]) -> None:
    try:
        value = asked(tree, properties)
        expected = "N" if value is None else str(value)[0]
    except ValueError:
        expected = "X"
    assert verdict(compile_selector(text_of(tree)), properties) == expected


@given(st.text(alphabet="ab 'NOTANDR()=<>-+.,150LeIS/*\n\té", max_size=40))
def test_any_text_is_compiled_or_refused(text: str) -> None:
    try:
        selector = compile_selector(text)
    except InvalidSelectorError:
        return
    assert selector.matches({"a": "5", "b": "x"}) in (True, False)


@given(st.dictionaries(st.sampled_from(["a", "b"]), st.text()))
def test_asking_never_raises(properties: dict[str, str]) -> None:
    for expression in ("a > 5", "a > 5000000000", "a > 5.5", "a > b", "a = TRUE", "TRUE = a"):
        assert compile_selector(expression).matches(properties) in (True, False)
