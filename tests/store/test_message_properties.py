from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.message_properties import (
    append_properties,
    find_property,
    format_properties,
    parse_properties,
)

NAMES = st.text(st.characters(exclude_characters="\x01\x02", codec="utf-8"), min_size=1, max_size=6)
RAW = st.lists(st.sampled_from(["a", "b", "ab", "\x01", "\x02", "é"]), max_size=24).map("".join)


@given(st.dictionaries(NAMES, NAMES, max_size=6))
def test_what_is_formatted_is_parsed_back(properties: dict[str, str]) -> None:
    assert parse_properties(format_properties(properties)) == properties


@given(RAW, st.sampled_from(["a", "b", "ab", "é"]))
def test_finding_one_equals_parsing_all(text: str, name: str) -> None:
    found = find_property(text.encode(), name.encode())
    expected = parse_properties(text).get(name)
    assert (None if found is None else found.decode()) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("a\x01b", {"a": "b"}),
        ("a\x01b\x02", {"a": "b"}),
        ("\x01b", {}),
        ("a\x01", {}),
        ("ab", {}),
        ("a\x01b\x01c", {"a": "b\x01c"}),
        ("a\x01b\x02a\x01c", {"a": "c"}),
        ("\x02\x02a\x01b\x02\x02", {"a": "b"}),
    ],
)
def test_reader_is_tolerant(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


@pytest.mark.parametrize(
    ("first", "second", "joined"),
    [
        (b"", b"c\x01d", b"c\x01d"),
        (b"a\x01b", b"", b"a\x01b"),
        (b"a\x01b", b"c\x01d", b"a\x01b\x02c\x01d"),
        (b"a\x01b\x02", b"c\x01d", b"a\x01b\x02c\x01d"),
    ],
)
def test_appending_puts_one_separator(first: bytes, second: bytes, joined: bytes) -> None:
    assert append_properties(first, second) == joined
