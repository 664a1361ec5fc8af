"""The properties of a message that leaves the timer wheel. Pure, any thread.

Corresponds to TimerMessageStore.convert of RocketMQ.
"""

from __future__ import annotations

from typing import Final

from store.message_properties import append_properties, find_property
from store.timer.timer_log import TimerUnit

ROLL_TIMES: Final = "TIMER_ROLL_TIMES"
_ROLL_TIMES: Final = ROLL_TIMES.encode()


def delivered_properties(properties: bytes, unit: TimerUnit, now_ms: int) -> bytes:
    """The properties of a message that leaves the wheel. As in RocketMQ, REAL_TOPIC, REAL_QID and
    TIMER_OUT_MS stay in them."""
    more = b"TIMER_ENQUEUE_MS\x01%d\x02TIMER_DEQUEUE_MS\x01%d" % (unit.write_time_ms, now_ms)
    names = [b"TIMER_ENQUEUE_MS", b"TIMER_DEQUEUE_MS"]
    if unit.rolls:
        times = find_property(properties, _ROLL_TIMES) or b"0"
        more += b"\x02%s\x01%d" % (_ROLL_TIMES, int(times) + 1 if times.isdigit() else 1)
        names.append(_ROLL_TIMES)
    for name in names:
        if name in properties:
            properties = _without(properties, name)
    return append_properties(properties, more)


def _without(properties: bytes, name: bytes) -> bytes:
    pairs = (pair for pair in properties.split(b"\x02") if pair)
    return b"\x02".join(pair for pair in pairs if not pair.startswith(name + b"\x01"))
