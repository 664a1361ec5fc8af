"""Marks: which of the properties that mean something to a broker a message has, looked for once.

Pure, any thread. A property text is scanned for the few words that a rule or a place depends on;
what is found is a set of bits, by which the hot loops and the general path decide what has to be
looked at (rules.py). A mark says "perhaps": its word occurs, be it in a value; whoever needs to
know reads the property. One form is for a text, the other for those of a batch's messages, joined;
tests/broker/send/test_marks.py holds both to the table WORDS.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from broker.append.diverted_messages import TIMER_MARK
from store.inner_batch import INNER_NUM
from store.lmq_places import MULTI_DISPATCH
from store.reserved_properties import MARK, OTHER_MARK, any_holds_reserved, holds_reserved_pair

DELAY: Final = 1 << 0
HALF: Final = 1 << 1
TIMER: Final = 1 << 2
LIGHT: Final = 1 << 3
"""Names light queues."""
INNER: Final = 1 << 4
"""Says how many messages an inner batch holds."""
FIFO: Final = 1 << 5
"""Set by RocketMQ's clients on ordered messages."""
RESERVED: Final = 1 << 6
"""Has a property that only a broker writes."""
PRIORITY: Final = 1 << 7
"""Says which queue it belongs to."""
LITE: Final = 1 << 8
"""Names its lite topic."""
DIVERTED: Final = DELAY | HALF | TIMER
"""May have to be stored in a system topic first."""

_LIGHT_WORD: Final = MULTI_DISPATCH.decode() + "\x01"
_INNER_WORD: Final = INNER_NUM.decode() + "\x01"
WORDS: Final = {
    DELAY: "DELAY\x01",
    HALF: "TRAN_MSG\x01",
    TIMER: TIMER_MARK,
    LIGHT: _LIGHT_WORD,
    INNER: _INNER_WORD,
    FIFO: "__SHARDINGKEY\x01",
    PRIORITY: "_SYS_MSG_PRIORITY_\x01",
    LITE: "__LITE_TOPIC\x01",
}
"""What a text with a mark holds; RESERVED has a list of its own (store/reserved_properties.py)."""
L_MARK: Final = "L"
"""The letter of the words that have none of the reserved properties' marks."""
_TYPES: Final = ((FIFO, "fifo"), (PRIORITY, "priority"), (LITE, "lite"))
_RAW_LIGHT: Final = _LIGHT_WORD.encode()
_RAW_INNER: Final = _INNER_WORD.encode()
_RAW_TIMER: Final = TIMER_MARK.encode()


def marks_of(text: str) -> int:
    """The marks of a property text. Most have none of the letters of which all words hold one:
    0.1 us."""
    marks = 0
    if L_MARK in text:
        if "DELAY\x01" in text:
            marks = DELAY
        if "__LITE_TOPIC\x01" in text:
            marks |= LITE
    if MARK in text or OTHER_MARK in text:
        is_er, is_tran = "ER_" in text, "TRAN" in text
        if is_tran and "TRAN_MSG\x01" in text:
            marks |= HALF
        if is_er:
            if TIMER_MARK in text:
                marks |= TIMER
            if _LIGHT_WORD in text:
                marks |= LIGHT
            if _INNER_WORD in text:
                marks |= INNER
        if "__SHARDINGKEY\x01" in text:
            marks |= FIFO
        if "_SYS_MSG_PRIORITY_\x01" in text:
            marks |= PRIORITY
        may = is_er or is_tran or "REAL_" in text or OTHER_MARK in text or "__CRC" in text
        if may and holds_reserved_pair(text):
            marks |= RESERVED
    return marks


def message_type(marks: int) -> str:
    """What a message is counted as that is stored where it is sent to: the first that holds, as in
    RocketMQ's TopicMessageType (whose broker counts the last two as normal)."""
    return next((name for mark, name in _TYPES if mark & marks), "normal")


def marks_of_items(joined: bytes, texts: Sequence[bytes]) -> int:
    """The marks that one of a batch's messages has. joined: all their texts, with nothing between:
    a word that two neighbours make is found, too. In 1 KiB it takes 0.06 us to see that a letter is
    not there, 0.7 for a word."""
    marks = 0
    if b"L" in joined:
        if b"DELAY\x01" in joined:
            marks = DELAY
        if b"__LITE_TOPIC\x01" in joined:
            marks |= LITE
    if b"R" in joined:
        if b"TRAN_MSG\x01" in joined:
            marks |= HALF
        if _RAW_TIMER in joined:
            marks |= TIMER
        if _RAW_LIGHT in joined:
            marks |= LIGHT
        if _RAW_INNER in joined:
            marks |= INNER
        if b"__SHARDINGKEY\x01" in joined:
            marks |= FIFO
        if b"_SYS_MSG_PRIORITY_\x01" in joined:
            marks |= PRIORITY
    if any_holds_reserved(joined, texts):
        marks |= RESERVED
    return marks
