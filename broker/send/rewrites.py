"""Rewrites: what a broker changes of a message that a client sends alone, before it is checked.

Pure; the loop thread of `remoting`. A row says which messages it looks at, by their marks, and what
becomes of their properties and their queue. The general path asks every row that looks at a
message, in the order of the table (SendRecords); the hot loops leave each such message to it
(SendRules.left_marks), so that no row can be missed there. Batches are stored as they come, as in
RocketMQ. Knows no log and no answer.

Tested by tests/broker/send/test_rewrites.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from broker.append.send_properties import find_property, without_property
from broker.send.marks import PRIORITY, marks_of

PRIORITY_PROPERTY: Final = "_SYS_MSG_PRIORITY_"
"""Which of the topic's queues a message is stored in; 0 or more."""
_SHARDING_KEY: Final = "__SHARDINGKEY"
_DELAYS: Final = ("DELAY", "TIMER_DELIVER_MS", "TIMER_DELAY_SEC", "TIMER_DELAY_MS")
_NUMBER: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
_MOST_DIGITS: Final = 40
_MAX_INT: Final = (1 << 31) - 1


class Sent(NamedTuple):
    """A message as the rows see it."""

    text: str
    """Its properties."""
    queue_id: int
    topic: str
    write_queues: int
    """Of its topic, at least 1."""
    may_move: bool
    """Whether its queue may be another than it was sent to."""


class Rewrite(NamedTuple):
    """A row: what it makes of a message with one of these marks."""

    marks: int
    change: Callable[[Sent], Sent]


def _in_queue_of_priority(sent: Sent) -> Sent:
    """A message of type PRIORITY goes to the queue of its priority, whatever queue it names and
    whatever its topic is for; any other type loses the property (5.4's SendMessageProcessor). A
    priority that is no number, or less than 0, counts for nothing."""
    priority = _priority_of(sent.text)
    if priority is None:
        return sent
    if has_other_type(sent.text):
        return sent._replace(text=without_property(sent.text, PRIORITY_PROPERTY))
    if not sent.may_move:
        return sent
    return sent._replace(queue_id=min(priority, sent.write_queues - 1))


REWRITES: Final = (Rewrite(PRIORITY, _in_queue_of_priority),)
"""In the order in which they are asked."""


def rewritten(sent: Sent, rewrites: Iterable[Rewrite] = REWRITES) -> Sent:
    """What becomes of a message."""
    marks = marks_of(sent.text)
    for row in rewrites:
        if row.marks & marks:
            sent = row.change(sent)
    return sent


def has_other_type(text: str) -> bool:
    """Whether a message is of a type that comes before PRIORITY in RocketMQ's TopicMessageType, of
    which each message has one: TRANSACTION, DELAY or FIFO."""
    if (find_property(text, "TRAN_MSG") or "").lower() == "true":
        return True
    return any(find_property(text, name) for name in (*_DELAYS, _SHARDING_KEY))


def _priority_of(text: str) -> int | None:
    """Of a message whose priority counts, the number (as Java's NumberUtils.toInt)."""
    value = find_property(text, PRIORITY_PROPERTY)
    if value is None or len(value) > _MOST_DIGITS or not _NUMBER.fullmatch(value):
        return None
    number = int(value)
    return number if 0 <= number <= _MAX_INT else None
