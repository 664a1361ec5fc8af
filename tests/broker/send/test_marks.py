"""The marks of a property text, and of a batch's messages joined, beside the table of words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.send.marks import (
    DELAY,
    FIFO,
    HALF,
    L_MARK,
    LITE,
    PRIORITY,
    RESERVED,
    WORDS,
    marks_of,
    marks_of_items,
    message_type,
)
from store.reserved_properties import MARK, OTHER_MARK, reserved_in
from store.reserved_properties import RESERVED as RESERVED_NAMES

_PIECES = (
    *WORDS.values(),
    *(word[:-1] for word in WORDS.values()),
    *("DELAY", "TIMER_DELAY_MS\x01", "INNER_", "INNER_MULTI_QUEUE_OFFSET\x01", "POP_CK\x01"),
    *(f"{name}\x01" for name in sorted(RESERVED_NAMES)),
    *("R", "L", "\x01", "\x02", "ä", "KEYS\x01k"),
)
texts = st.lists(st.one_of(st.sampled_from(_PIECES), st.text(max_size=3)), max_size=6).map("".join)


def by_the_table(text: str) -> int:
    marks = sum(mark for mark, word in WORDS.items() if word in text)
    return marks | (RESERVED if reserved_in(text) else 0)


@given(text=texts)
def test_a_text_has_the_marks_whose_words_it_holds(text: str) -> None:
    assert marks_of(text) == by_the_table(text)


@given(items=st.lists(texts, max_size=4))
def test_no_mark_of_a_message_is_missed_in_a_batch(items: list[str]) -> None:
    encoded = [text.encode() for text in items]
    found = marks_of_items(b"".join(encoded), encoded)
    own = 0
    for text in items:
        own |= by_the_table(text)
    assert found & own == own
    assert found == by_the_table("".join(items)) & ~RESERVED | own & RESERVED


@pytest.mark.parametrize("word", WORDS.values())
def test_every_word_has_a_letter_by_which_it_is_looked_for(word: str) -> None:
    """A new one that has none would not be found in a text without them."""
    assert L_MARK in word or MARK in word or OTHER_MARK in word


@pytest.mark.parametrize(
    ("marks", "counted_as"),
    [
        (0, "normal"),
        (DELAY | HALF | RESERVED, "normal"),
        (LITE, "lite"),
        (LITE | PRIORITY, "priority"),
        (LITE | PRIORITY | FIFO, "fifo"),
    ],
)
def test_what_a_message_is_counted_as(marks: int, counted_as: str) -> None:
    assert message_type(marks) == counted_as
