"""Inner batches (5.x): one record that holds the messages of a whole batch.

Pure functions, any thread. Such a record has INNER_BATCH_FLAG in its sysFlag, the batch as its
client sent it (batch_codec.py) as its body, and the properties

    INNER_NUM   how many messages it holds (1 to 32767)
    INNER_BASE  the queue offset of the first of them, which is the record's queueOffset, too

It belongs to a topic with batch consume queues (queue.type=BatchCQ) and uses up as many queue
offsets as it holds messages. NEED_UNWRAP_FLAG asks clients to unpack it. Corresponds to RocketMQ's
MessageSysFlag, HookUtils.checkInnerBatch, CommitLog.getMessageNum and setBatchSizeIfNeeded.
"""

from __future__ import annotations

import re
from typing import Final

from store.errors import MessageIllegalError
from store.message_properties import NAME_END, PAIR_END, append_properties, find_property

NEED_UNWRAP_FLAG: Final = 1 << 6
INNER_BATCH_FLAG: Final = 1 << 7
INNER_NUM: Final = b"INNER_NUM"
INNER_BASE: Final = b"INNER_BASE"
MOST_INNER_MESSAGES: Final = 32_767
"""RocketMQ counts them in a Java short."""
LARGEST_BASE_PAIR: Final = len(INNER_BASE) + 2 + 19
"""Bytes that `with_base` adds at most."""
_NUMBER: Final = re.compile(rb"\d{1,18}")


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


def inner_num(sys_flag: int, properties: bytes) -> int:
    """How many queue offsets a record uses up."""
    if not sys_flag & INNER_BATCH_FLAG:
        return 1
    number = _number(properties, INNER_NUM)
    return number if number is not None and 1 <= number <= MOST_INNER_MESSAGES else 1


def prepare_inner_batch(properties: bytes) -> bytes:
    """The properties of an inner batch as a client sent them, without INNER_BASE. Raises
    MessageIllegalError: INNER_NUM is no number from 1 to 32767."""
    if find_property(properties, INNER_NUM) is not None:
        number = _number(properties, INNER_NUM)
        if number is None or not 1 <= number <= MOST_INNER_MESSAGES:
            raise MessageIllegalError(
                "the message is illegal: the property INNER_NUM of an inner batch is not a "
                f"number from 1 to {MOST_INNER_MESSAGES}"
            )
    if find_property(properties, INNER_BASE) is None:
        return properties
    pairs = properties.split(PAIR_END)
    return PAIR_END.join(pair for pair in pairs if not pair.startswith(INNER_BASE + NAME_END))


def with_base(properties: bytes, queue_offset: int) -> bytes:
    """The properties of an inner batch that was given its place."""
    return append_properties(properties, b"%b\x01%d" % (INNER_BASE, queue_offset))


def inner_place(properties: bytes) -> tuple[int, int] | None:
    """(queue offset, number of messages) of an inner batch with these properties; None: they do
    not say both, and the record counts as one message at its queueOffset."""
    base, number = _number(properties, INNER_BASE), _number(properties, INNER_NUM)
    if base is None or number is None or not 1 <= number <= MOST_INNER_MESSAGES:
        return None
    return base, number


def _number(properties: bytes, name: bytes) -> int | None:
    text = find_property(properties, name)
    return int(text) if text is not None and _NUMBER.fullmatch(text) else None
