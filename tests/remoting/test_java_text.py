"""Single values as Java writes them; the expected texts were written by fastjson 1.2.83."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting.java_text import browser_string, java_double, java_string, to_java_escapes

ALL_LOW = "".join(map(chr, range(0x20)))
ALL_LOW_ESCAPED = (
    r"\u0000\u0001\u0002\u0003\u0004\u0005\u0006\u0007\b\t\n\u000B\f\r\u000E\u000F"
    r"\u0010\u0011\u0012\u0013\u0014\u0015\u0016\u0017\u0018\u0019\u001A\u001B\u001C\u001D"
    r"\u001E\u001F"
)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        (ALL_LOW, ALL_LOW_ESCAPED),
        (" !\"#'/\\~", " !\\\"#'/\\\\~"),
        ("\x7f\x80\x9f\xa0\xff", "\\u007F\\u0080\\u009F\xa0\xff"),
        ("\u2027\u2028\u2029\u202a", "\u2027\\u2028\\u2029\u202a"),
        ("中\U0001f600", "中\U0001f600"),
        ("a\\u001f", "a\\\\u001f"),
        ("\\\x1f\\", "\\\\\\u001F\\\\"),
    ],
)
def test_default_escapes(text: str, written: str) -> None:
    assert java_string(text) == f'"{written}"'


@pytest.mark.parametrize(
    ("text", "written"),
    [
        (ALL_LOW, ALL_LOW_ESCAPED),
        (" !\"#'/\\~", " !\\\"#'\\/\\\\~"),
        ("\x7f\x80\x9f\xa0\xff", "\\u007F\\u0080\\u009F\\u00A0\\u00FF"),
        ("\u2028中\U0001f600", "\\u2028\\u4E2D\\uD83D\\uDE00"),
    ],
)
def test_browser_escapes(text: str, written: str) -> None:
    assert browser_string(text) == f'"{written}"'


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_both_forms_mean_the_text(text: str) -> None:
    assert json.loads(java_string(text)) == text
    assert json.loads(browser_string(text)) == text


def test_nothing_to_do_costs_no_copy() -> None:
    text = b'{"a":"b\\u0001"}'
    assert to_java_escapes(text) is text


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (1e7, "1.0E7"),
        (1.5e-5, "1.5E-5"),
        (123456789.25, "1.2345678925E8"),
        (1e300, "1.0E300"),
        (float("nan"), "null"),
        (float("inf"), "null"),
        (0.001, "0.001"),
        (1234567.0, "1234567.0"),
        (9999999.999, "9999999.999"),
        (9.999e-4, "9.999E-4"),
        (-12345678.5, "-1.23456785E7"),
        (1e16, "1.0E16"),
        (1.25e22, "1.25E22"),
    ],
)
def test_doubles(value: float, written: str) -> None:
    assert java_double(value) == written


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_doubles_mean_the_number(value: float) -> None:
    assert float(java_double(value)) == value
