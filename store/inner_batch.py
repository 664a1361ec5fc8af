"""Inner batches (5.x): one record that holds the messages of a whole batch.

Pure functions, any thread. Such a record has INNER_BATCH_FLAG in its sysFlag, the batch as its
client sent it (batch_codec.py) as its body, and the properties

    INNER_NUM   how many messages it holds (1 to 32767)
    INNER_BASE  the queue offset of the first of them, which is the record's queueOffset, too

It belongs to a topic with batch consume queues (queue.type=BatchCQ). Corresponds to RocketMQ's
MessageSysFlag and HookUtils.checkInnerBatch.
"""

from __future__ import annotations

from typing import Final

from store.message_properties import find_property

INNER_BATCH_FLAG: Final = 1 << 7
INNER_NUM: Final = b"INNER_NUM"


def inner_batch_objection(sys_flag: int, properties: bytes, *, batch_queue: bool) -> str | None:
    """Why a record must not be stored with these; None: they are right. batch_queue: whether its
    topic has batch consume queues."""
    if not sys_flag & INNER_BATCH_FLAG:
        if find_property(properties, INNER_NUM) is None:
            return None
        return "the message is illegal: it has the property INNER_NUM, but is not an inner batch"
    if not batch_queue:
        return "the message is illegal: it is an inner batch, its topic's queue.type is SimpleCQ"
    return None
