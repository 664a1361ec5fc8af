"""Messages that are stored in a system topic first: delayed messages and half messages.

Pure functions on properties. A message that consumers must not see yet is stored in a system topic,
with its real topic and queue in two properties; when it is due it is appended again to its real
topic. Follows the put of delayed messages in CommitLog.asyncPutMessage and
TransactionalMessageBridge.parseHalfMessageInner of RocketMQ.

Delays of 5.x that name a time instead of a level (TIMER_...) are the business of broker/timer; only
their properties are known here, since a delay level goes before them.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from broker.append.send_properties import append_pairs, find_property, without_property
from broker.topic.system_topics import SCHEDULE_TOPIC, TRANS_HALF_TOPIC
from remoting.errors import RequestError
from remoting.response_code import ResponseCode
from store.message_codec import TRANSACTION_COMMIT, TRANSACTION_MASK
from store.message_properties import PROPERTIES_LIMIT
from store.message_properties import find_property as find_raw_property

DELAY: Final = "DELAY"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QUEUE_ID: Final = "REAL_QID"
TRANSACTION_PREPARED: Final = "TRAN_MSG"
TIMER_MARK: Final = "TIMER_DE"
"""Occurs in the properties of every message with a 5.x delay."""
TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
TIMER_OUT_MS: Final = "TIMER_OUT_MS"
"""Slot of a message in the timer topic; one that is not there and has it was delivered from it."""
HALF_ROOM: Final = 128
"""Bytes of properties that a half leaves free: for TRANSACTION_CHECK_TIMES (35 bytes with its
number) and TRAN_PREPARED_QUEUE_OFFSET (47) of its copies, or for TIMER_OUT_MS (33) of its commit.
Without them it could neither be checked nor begin to wait, though its send was answered."""
_TIMER_PROPERTIES: Final = (TIMER_DELIVER_MS, TIMER_DELAY_MS, TIMER_DELAY_SEC)
_LEVEL: Final = re.compile(r"[+-]?[0-9]{1,9}")
_QUEUE_ID_DIGITS: Final = 9


class Diversion(NamedTuple):
    """Where and how a diverted message is stored."""

    topic: str
    queue_id: int
    sys_flag: int
    properties: str


def delay_level(properties: str, sys_flag: int, max_level: int) -> int:
    """The requested delay level of a message, at most `max_level`; 0 for none.

    A message that is prepared or rolled back in a transaction has none. Raises RequestError for
    a level that is not a number.
    """
    if DELAY not in properties or sys_flag & TRANSACTION_MASK not in (0, TRANSACTION_COMMIT):
        return 0
    text = find_property(properties, DELAY)
    if not text:
        return 0
    if not _LEVEL.fullmatch(text):
        raise RequestError(
            ResponseCode.MESSAGE_ILLEGAL,
            f"the message is illegal: its property DELAY is {text[:40]!r}, expected a level from 1 "
            f"to {max_level} (messageDelayLevel)",
        )
    return max(0, min(int(text), max_level))


def asks_for_timer(properties: str) -> bool:
    """Whether a message names the time of its delivery, and has not been delivered by a timer."""
    if TIMER_MARK not in properties or find_property(properties, TIMER_OUT_MS):
        return False
    return any(find_property(properties, name) for name in _TIMER_PROPERTIES)


def without_timer(properties: str) -> str:
    """`properties` without the 5.x delay properties."""
    if TIMER_MARK in properties:
        for name in _TIMER_PROPERTIES:
            properties = without_property(properties, name)
    return properties


def is_half(properties: str) -> bool:
    """Whether a send is a half message (prepared transaction)."""
    mark = find_property(properties, TRANSACTION_PREPARED)
    return mark is not None and mark.lower() == "true"


def divert_delayed(
    topic: str, queue_id: int, sys_flag: int, properties: str, level: int
) -> Diversion:
    """Divert to the schedule topic, which has a queue for each level, starting with level 1 in
    queue 0.

    The level takes precedence over a 5.x delay, which is dropped (HookUtils of 5.3.3).
    """
    text = without_timer(without_property(properties, DELAY))
    text = append_pairs(text, f"{DELAY}\x01{level}")
    return Diversion(SCHEDULE_TOPIC, level - 1, sys_flag, with_home(text, topic, queue_id))


def divert_half(topic: str, queue_id: int, sys_flag: int, properties: str) -> Diversion:
    """Divert to the half topic: one queue, without the transaction bits, so that it gets a queue
    offset.

    A delay is dropped: diverting twice would lose the message's topic (as in RocketMQ). Raises
    RequestError for properties without HALF_ROOM.
    """
    text = with_home(without_property(properties, DELAY), topic, queue_id)
    if (size := len(text.encode())) > PROPERTIES_LIMIT - HALF_ROOM:
        raise RequestError(
            ResponseCode.MESSAGE_ILLEGAL,
            f"the message is illegal: properties of {size} bytes (limit "
            f"{PROPERTIES_LIMIT - HALF_ROOM} of a transactional message, which gets "
            "more on its way)",
        )
    return Diversion(TRANS_HALF_TOPIC, 0, sys_flag & ~TRANSACTION_MASK, text)


def home_of(properties: bytes) -> tuple[str, int] | None:
    """The real topic and queue of a diverted message; None if its properties lack them."""
    topic = find_raw_property(properties, REAL_TOPIC.encode())
    queue_id = find_raw_property(properties, REAL_QUEUE_ID.encode())
    if not topic or not queue_id or not queue_id.isdigit() or len(queue_id) > _QUEUE_ID_DIGITS:
        return None
    return str(topic, "utf-8", "replace"), int(queue_id)


def with_home(properties: str, topic: str, queue_id: int) -> str:
    """`properties` with the real topic and queue of a diverted message."""
    text = without_property(without_property(properties, REAL_TOPIC), REAL_QUEUE_ID)
    return append_pairs(text, f"{REAL_TOPIC}\x01{topic}\x02{REAL_QUEUE_ID}\x01{queue_id}")
