"""Messages that are first stored elsewhere: delayed ones and halves of transactions.

Pure text work. A message that must not be seen by its consumers yet is stored in a topic of the
broker, its own topic and queue in two properties; when its time has come it is appended again to
where it belongs. Follows the put of delayed messages in CommitLog.asyncPutMessage and
TransactionalMessageBridge.parseHalfMessageInner of the original.

Delays of 5.x that name a time instead of a level (TIMER_...) are refused everywhere, as by a
RocketMQ 5.3.3 whose timer wheel is off: stored as they are, they would be delivered at once.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from broker.append.send_properties import append_pairs, find_property, without_property
from broker.topic.system_topics import SCHEDULE_TOPIC, TRANS_HALF_TOPIC
from remoting.errors import RequestError
from remoting.response_code import ResponseCode
from store.message_codec import TRANSACTION_COMMIT, TRANSACTION_MASK
from store.message_properties import find_property as find_raw_property

DELAY: Final = "DELAY"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QUEUE_ID: Final = "REAL_QID"
TRANSACTION_PREPARED: Final = "TRAN_MSG"
TIMER_MARK: Final = "TIMER_DE"
"""Part of every text that asks for a delay of 5.x."""
_TIMER_PROPERTIES: Final = ("TIMER_DELIVER_MS", "TIMER_DELAY_MS", "TIMER_DELAY_SEC")
_TIMER_OVER: Final = "TIMER_OUT_MS"
"""What a timer wheel has delivered has it: its time is over."""
_TIMER_REFUSAL: Final = "accurate timer message is not enabled, timerWheelEnable is false"
_LEVEL: Final = re.compile(r"[+-]?[0-9]{1,9}")
_QUEUE_ID_DIGITS: Final = 9


class Diversion(NamedTuple):
    """Where and how a message is stored for now."""

    topic: str
    queue_id: int
    sys_flag: int
    properties: str


def delay_level(properties: str, sys_flag: int, max_level: int) -> int:
    """The delay level that a message asks for, at most `max_level`; 0: none.

    A message that is prepared or rolled back in a transaction has none. Raises RequestError for
    a level that is no number.
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


def refuse_timer(properties: str) -> None:
    """Raises RequestError for a message that asks for a delay of 5.x and for no level."""
    if TIMER_MARK not in properties or find_property(properties, _TIMER_OVER):
        return
    if any(find_property(properties, name) for name in _TIMER_PROPERTIES):
        raise RequestError(ResponseCode.SYSTEM_ERROR, _TIMER_REFUSAL)


def without_timer(properties: str) -> str:
    """`properties` without the wish for a delay of 5.x."""
    if TIMER_MARK in properties:
        for name in _TIMER_PROPERTIES:
            properties = without_property(properties, name)
    return properties


def is_half(properties: str) -> bool:
    """Whether a send is the prepared half of a transaction."""
    mark = find_property(properties, TRANSACTION_PREPARED)
    return mark is not None and mark.lower() == "true"


def divert_delayed(
    topic: str, queue_id: int, sys_flag: int, properties: str, level: int
) -> Diversion:
    """Store for `level` in the schedule topic: a queue for each level, from level 1 in queue 0.

    The level goes before a delay of 5.x, which is dropped (HookUtils of 5.3.3).
    """
    text = without_timer(without_property(properties, DELAY))
    text = append_pairs(text, f"{DELAY}\x01{level}")
    return Diversion(SCHEDULE_TOPIC, level - 1, sys_flag, _with_home(text, topic, queue_id))


def divert_half(topic: str, queue_id: int, sys_flag: int, properties: str) -> Diversion:
    """Store as a half: one queue, without the transaction bits, so that it gets a queue offset.

    A delay goes: two diversions would lose the message's topic (so in the original).
    """
    text = _with_home(without_property(properties, DELAY), topic, queue_id)
    return Diversion(TRANS_HALF_TOPIC, 0, sys_flag & ~TRANSACTION_MASK, text)


def home_of(properties: bytes) -> tuple[str, int] | None:
    """Topic and queue that a diverted message belongs to; None when its properties do not say."""
    topic = find_raw_property(properties, REAL_TOPIC.encode())
    queue_id = find_raw_property(properties, REAL_QUEUE_ID.encode())
    if not topic or not queue_id or not queue_id.isdigit() or len(queue_id) > _QUEUE_ID_DIGITS:
        return None
    return str(topic, "utf-8", "replace"), int(queue_id)


def _with_home(properties: str, topic: str, queue_id: int) -> str:
    text = without_property(without_property(properties, REAL_TOPIC), REAL_QUEUE_ID)
    return append_pairs(text, f"{REAL_TOPIC}\x01{topic}\x02{REAL_QUEUE_ID}\x01{queue_id}")
