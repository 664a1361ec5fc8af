"""Builds the records of transactions (commit, op, copies of halves) and the check requests to
producers.

Pure, any thread. A half is stored in RMQ_SYS_TRANS_HALF_TOPIC, queue 0, with its real topic and
queue in two properties (diverted_messages). Its properties are kept in every copy and in the
committed message, except the few named here; so are user flag and reconsumeTimes (which RocketMQ's
copies lose). Follows EndTransactionProcessor.endMessageTransaction, TransactionalMessageBridge and
DefaultTransactionalMessageCheckListener of RocketMQ.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from broker.append.diverted_messages import home_of
from broker.append.send_properties import append_pairs, find_property, without_property
from broker.metrics.transaction_metrics import UNKNOWN_TOPIC
from remoting.headers.transaction import CheckTransactionStateRequestHeader
from store.commit_log import own_record
from store.message import Message
from store.message_codec import (
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
    encode_message_id,
    encode_record,
)
from store.record import Record
from store.record_again import record_again

TRANSACTION_GROUP: Final = "CID_RMQ_SYS_TRANS"
"""The consumer group under which the progress of the half and op queues is stored."""
HALF_QUEUE_ID: Final = 0
PRODUCER_GROUP: Final = "PGROUP"
CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
CHECK_IMMUNITY: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
_UNIQ_KEY: Final = "UNIQ_KEY"
_WAIT: Final = "WAIT"
_REMOVE_TAG: Final = "d"
_OP_PROPERTIES: Final = f"WAIT\x01true\x02TAGS\x01{_REMOVE_TAG}".encode()
_LONG: Final = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)
_LIST_SEPARATOR: Final = b","


def real_topic_of(properties: bytes) -> str:
    """The topic that a half is for, as metrics name it: UNKNOWN_TOPIC if it does not say."""
    home = home_of(properties)
    return UNKNOWN_TOPIC if home is None else home[0]


def number_in(half: Message, name: str) -> int | None:
    """The number in a property; None without the property, -1 if it is not a number."""
    text = half.find_property(name)
    if text is None:
        return None
    return int(text) if _LONG.fullmatch(text) else -1


def with_number(half: Message, name: str, value: int) -> bytes:
    """The half's properties with `name` set to `value`."""
    return _with_property(half.properties, name, str(value))


def commit_record(half: Message, queue_id: int, store_host_flag: int) -> Record:
    """The committed message, with the half's phy_offset and the commit bits in its sysFlag."""
    return committed(half, half.phy_offset, queue_id, store_host_flag)


def committed(
    half: Message | Record, phy_offset: int, queue_id: int, store_host_flag: int
) -> Record:
    """The same of a half that is stored at `phy_offset`."""
    return record_again(
        half,
        queue_id,
        half.properties,
        store_host_flag,
        sys_flag=half.sys_flag & ~TRANSACTION_MASK | TRANSACTION_COMMIT,
        prepared_transaction_offset=phy_offset,
    )


def half_copy(half: Message, properties: bytes, store_host_flag: int) -> Record:
    """A copy of the half, to be stored in queue 0 of the half topic or of the discard topic."""
    return record_again(
        half, HALF_QUEUE_ID, properties, store_host_flag, prepared_transaction_offset=0
    )


def is_copy(half: Message, original: Message) -> bool:
    """Whether a half, which says that it is a copy of `original`, can be one: both were born at the
    same ms and place, as the same message for the same queue, of the same producer group. All of
    these stay in a broker's copies, ours and Java's; who sends a half has none of them in his hand
    but his own."""
    return identity_of(half) == identity_of(original)


def identity_of(half: Message) -> tuple[object, ...]:
    """What is_copy compares."""
    names = (PRODUCER_GROUP, _UNIQ_KEY)
    home = home_of(half.properties)
    return half.born_timestamp, half.born_host, home, *map(half.find_property, names)


def op_record(half: int, now_ms: int, store_host: bytes, store_host_flag: int) -> Record:
    """The op that marks the half at offset `half` of its queue as ended."""
    return own_record(
        HALF_QUEUE_ID,
        str(half).encode(),
        _OP_PROPERTIES,
        now_ms=now_ms,
        store_host=store_host,
        store_host_flag=store_host_flag,
    )


def halves_of_op(op: Message) -> list[int]:
    """The halves that an op ends: one, or a list with commas (5.x); [] if it is not a valid op."""
    if op.find_property("TAGS") != _REMOVE_TAG:
        return []
    parts = [part for part in op.body.split(_LIST_SEPARATOR) if part]
    texts = [str(part, "ascii", "replace") for part in parts]
    return [int(text) for text in texts if _LONG.fullmatch(text) and not text.startswith("-")]


def check_header(
    half: Message, phy_offset: int, queue_offset: int, store_host: bytes
) -> CheckTransactionStateRequestHeader:
    """The header of 39: the position of the half's newest copy, and the producer's id for it."""
    unique_key = half.find_property(_UNIQ_KEY)
    return CheckTransactionStateRequestHeader(
        tran_state_table_offset=queue_offset,
        commit_log_offset=phy_offset,
        msg_id=unique_key,
        transaction_id=unique_key,
        offset_msg_id=encode_message_id(store_host, phy_offset),
    )


def check_body(
    half: Message, properties: bytes, home: tuple[str, int], phy_offset: int, queue_offset: int
) -> bytes:
    """The body of 39: the half as a record of its real topic and queue.

    Times and hosts are those of the half, the offsets those of its newest copy; WAIT is false, as
    in RocketMQ. Raises MessageIllegalError if the topic is too long.
    """
    return encode_record(
        replace(
            half,
            topic=home[0],
            queue_id=home[1],
            phy_offset=phy_offset,
            queue_offset=queue_offset,
            properties=_with_property(properties, _WAIT, "false"),
        )
    )


def _with_property(properties: bytes, name: str, value: str) -> bytes:
    text = str(properties, "utf-8", "surrogateescape")
    if find_property(text, name) is not None:
        text = without_property(text, name)
    return append_pairs(text, f"{name}\x01{value}").encode("utf-8", "surrogateescape")
