"""The properties of a message that leaves the timer wheel, or is put off. Pure, any thread.

Corresponds to TimerMessageStore.convert of RocketMQ.
"""

from __future__ import annotations

from typing import Final

from broker.append.room_waits import LONGEST_ROOM_WAIT_MS, room_wait_ms
from store.message_properties import PROPERTIES_LIMIT, append_properties, find_property
from store.timer.timer_log import MAGIC_ROLL, TimerUnit

ROLL_TIMES: Final = "TIMER_ROLL_TIMES"
_ROLL_TIMES: Final = ROLL_TIMES.encode()
_OUT_MS: Final = b"TIMER_OUT_MS"
_DIGITS: Final = 9
"""Of a number of rolls; Java reads an int."""


def delivered_properties(properties: bytes, unit: TimerUnit, now_ms: int) -> bytes:
    """The properties of a message that leaves the wheel. As in RocketMQ, REAL_TOPIC, REAL_QID and
    TIMER_OUT_MS stay in them.

    Never longer than PROPERTIES_LIMIT where `properties` are not: what does not fit is left out,
    the times first, then the number of rolls. A message that was taken is delivered.
    """
    times = b"TIMER_ENQUEUE_MS\x01%d\x02TIMER_DEQUEUE_MS\x01%d" % (unit.write_time_ms, now_ms)
    names = [b"TIMER_ENQUEUE_MS", b"TIMER_DEQUEUE_MS"]
    rolls = b""
    if unit.rolls:
        rolls = b"%s\x01%d" % (_ROLL_TIMES, _rolls(find_property(properties, _ROLL_TIMES)) + 1)
        names.append(_ROLL_TIMES)
    for name in names:
        if name in properties:
            properties = _without(properties, name)
    for more in (times + b"\x02" + rolls if rolls else times, rolls):
        longer = append_properties(properties, more)
        if len(longer) <= PROPERTIES_LIMIT:
            return longer
    return properties


def put_off_properties(properties: bytes, unit: TimerUnit, now_ms: int, precision_ms: int) -> bytes:
    """Those of a due message that goes back to the timer topic, since there is no room for the
    queue that it would make: as of one that rolls, with a later TIMER_OUT_MS. What has no room for
    the number of rolls waits longest."""
    rolling = unit._replace(magic=unit.magic | MAGIC_ROLL)
    properties = delivered_properties(properties, rolling, now_ms)
    times = _rolls(find_property(properties, _ROLL_TIMES))
    wait_ms = room_wait_ms(times) if times else LONGEST_ROOM_WAIT_MS
    out_ms = (now_ms + wait_ms) // precision_ms * precision_ms
    return append_properties(_without(properties, _OUT_MS), b"%s\x01%d" % (_OUT_MS, out_ms))


def _rolls(text: bytes | None) -> int:
    """How often it was stored anew on its way; 0 for what no broker has written."""
    return int(text) if text is not None and text.isdigit() and len(text) <= _DIGITS else 0


def _without(properties: bytes, name: bytes) -> bytes:
    pairs = (pair for pair in properties.split(b"\x02") if pair)
    return b"\x02".join(pair for pair in pairs if not pair.startswith(name + b"\x01"))
