"""When a timer message asks to be delivered, to the ms, from its record alone. Pure, any thread.

A time that the message names is that time. A delay counts from when the message was born or
stored, whichever is later: TimerHook's own reading of the clock is not in the record, and the store
time is that of the beginning of the loop's turn, some ms before it. So no message comes before its
delay is over by its record, nor by its producer's clock where that is not behind.
"""

from __future__ import annotations

from typing import Final

from broker.append.diverted_messages import REAL_TOPIC, TIMER_OUT_MS
from broker.append.send_properties import find_property
from broker.timer.delivered_properties import ROLL_TIMES
from broker.timer.timer_hook import TIMER_DELETE_KEY, asks_for_delay, find_deliver_ms
from broker.topic.system_topics import SYSTEM_TOPIC_PREFIX
from store.message_codec import RecordHead

_DIGITS: Final = 18
_DELAY: Final = "TIMER_DELAY_"
"""Begins the names of both delays."""


def find_asked_ms(record: RecordHead, precision_ms: int) -> int | None:
    """Ms since 1970 within (TIMER_OUT_MS, TIMER_OUT_MS + precision]. None where the record does not
    say it beyond doubt, and for what is to keep its slot's order (check points and acks of pop): it
    comes when its slot is over."""
    properties = str(record.properties, "utf-8", "surrogateescape")
    out = find_property(properties, TIMER_OUT_MS) or ""
    topic = find_property(properties, REAL_TOPIC)
    if not topic or topic.startswith(SYSTEM_TOPIC_PREFIX) or not _is_number(out):
        return None
    if TIMER_DELETE_KEY in properties and find_property(properties, TIMER_DELETE_KEY):
        return None
    is_delay = _DELAY in properties and asks_for_delay(properties)
    if is_delay and find_property(properties, ROLL_TIMES):
        # It was stored anew on its way: when its delay began is not in the record.
        return None
    asked_ms = find_deliver_ms(properties, max(record.born_timestamp, record.store_timestamp))
    out_ms = int(out)
    if asked_ms is None or asked_ms > out_ms + precision_ms:
        return None
    if asked_ms <= out_ms:
        return out_ms + 1 if is_delay else None
    return asked_ms


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS
