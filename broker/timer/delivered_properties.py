"""The properties and the record of a message that leaves the timer wheel. Pure, any thread.

Corresponds to TimerMessageStore.convert of RocketMQ.
"""

from __future__ import annotations

from typing import Final

from store.commit_log import Record
from store.message import Message
from store.message_codec import STORE_HOST_V6_FLAG
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


def delivered_record(
    message: Message, queue_id: int, properties: bytes, store_host_flag: int
) -> Record:
    """The record that is put for a message of the timer topic. store_host_flag: of the log."""
    return Record(
        queue_id=queue_id,
        flag=message.flag,
        sys_flag=message.sys_flag & ~STORE_HOST_V6_FLAG | store_host_flag,
        born_timestamp=message.born_timestamp,
        born_host=message.born_host,
        reconsume_times=message.reconsume_times,
        prepared_transaction_offset=message.prepared_transaction_offset,
        body=message.body,
        properties=properties,
    )


def _without(properties: bytes, name: bytes) -> bytes:
    pairs = (pair for pair in properties.split(b"\x02") if pair)
    return b"\x02".join(pair for pair in pairs if not pair.startswith(name + b"\x01"))
