"""Property texts: finding, dropping, appending; against the map that Java would build."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.append.send_properties import (
    append_pairs,
    find_property,
    find_unique_key,
    stored_properties,
    without_property,
)

CLUSTER = "CLUSTER\x01c"
_word = st.text(st.sampled_from("ABWAITé\u2028 "), min_size=1, max_size=6)
_name = st.one_of(
    st.sampled_from(["WAIT", "AWAIT", "WAITA", "CLUSTER", "A", "UNIQ_KEY", "AUNIQ_KEY"]), _word
)
_value = st.one_of(st.sampled_from(["true", "true1"]), _word)
_pairs = st.lists(st.tuples(_name, _value), max_size=6)
_tail = st.sampled_from(["", "\x02"])


def text_of(pairs: list[tuple[str, str]], tail: str = "") -> str:
    return "\x02".join(f"{name}\x01{value}" for name, value in pairs) + (tail if pairs else "")


def pairs_of(text: str) -> list[tuple[str, str]]:
    return [tuple(p.split("\x01", 1)) for p in text.split("\x02") if "\x01" in p]  # type: ignore[misc]


@given(pairs=_pairs, tail=_tail, name=_name)
def test_find_is_the_map_lookup(pairs: list[tuple[str, str]], tail: str, name: str) -> None:
    assert find_property(text_of(pairs, tail), name) == dict(pairs).get(name)


@given(pairs=_pairs, tail=_tail)
def test_the_unique_key_is_a_property_like_others(pairs: list[tuple[str, str]], tail: str) -> None:
    assert find_unique_key(text_of(pairs, tail)) == dict(pairs).get("UNIQ_KEY")


@given(pairs=_pairs, tail=_tail, name=_name)
def test_without_drops_the_name_and_nothing_else(
    pairs: list[tuple[str, str]], tail: str, name: str
) -> None:
    left = without_property(text_of(pairs, tail), name)
    assert pairs_of(left) == [pair for pair in pairs if pair[0] != name]
    assert not left.startswith("\x02")
    assert "\x02\x02" not in left


@given(pairs=_pairs, tail=_tail)
def test_what_is_stored_for_a_single_send(pairs: list[tuple[str, str]], tail: str) -> None:
    stored = stored_properties(text_of(pairs, tail), CLUSTER)
    kept = [pair for pair in pairs if pair[0] not in ("WAIT", "CLUSTER")]
    assert pairs_of(stored) == [*kept, ("CLUSTER", "c")]
    assert stored.endswith(CLUSTER)
    assert "\x02\x02" not in stored
    assert not stored.startswith("\x02")


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("", "A", None),
        ("A\x01b", "A", "b"),
        ("XA\x01b", "A", None),
        ("XA\x01b\x02A\x01c", "A", "c"),
        ("A\x01b\x02XA\x01c", "A", "b"),
        ("A\x01b\x02A\x01c", "A", "c"),
        ("A\x01", "A", ""),
        ("A", "A", None),
        ("K\x01A\x01b", "A", None),
        ("A\x01b\x02", "A", "b"),
    ],
)
def test_find(text: str, name: str, value: str | None) -> None:
    assert find_property(text, name) == value


@pytest.mark.parametrize(
    ("text", "pairs", "joined"),
    [
        ("", "A\x01b", "A\x01b"),
        ("K\x01v", "A\x01b", "K\x01v\x02A\x01b"),
        ("K\x01v\x02", "A\x01b", "K\x01v\x02A\x01b"),
    ],
)
def test_append(text: str, pairs: str, joined: str) -> None:
    assert append_pairs(text, pairs) == joined


@pytest.mark.parametrize("text", ["A\x01\x02", "A\x01b\x02", "BA\x01", "\x02A\x01\x01"])
def test_a_text_of_nothing_but_the_name_takes_one_pass(text: str) -> None:
    """A second a megabyte and more when each pair moved all that follows it."""
    many = text * (1_000_000 // len(text))
    began_s = time.thread_time()
    without_property(many, "A")
    find_property(many, "A")
    stored_properties(many.replace("A", "WAIT"), CLUSTER)
    took_s = time.thread_time() - began_s
    assert took_s < 2
