"""A stored message as the record by which the broker stores it once more. Pure, any thread.

What is delivered from timers and delay levels, committed, or kept waiting, is another record with
the message's own fields; only its store host is this broker's.
"""

from __future__ import annotations

from store.message import Message
from store.message_codec import STORE_HOST_V6_FLAG, CheckedRecord
from store.record import Record


def record_again(
    message: Message | CheckedRecord | Record,
    queue_id: int,
    properties: bytes,
    store_host_flag: int,
    *,
    sys_flag: int | None = None,
    prepared_transaction_offset: int | None = None,
) -> Record:
    """A record of a stored message that is stored once more, by this broker. sys_flag and
    prepared_transaction_offset: those of the message unless they are given. store_host_flag: of
    the log."""
    flag = message.sys_flag if sys_flag is None else sys_flag
    prepared = prepared_transaction_offset
    return Record(
        queue_id=queue_id,
        flag=message.flag,
        sys_flag=flag & ~STORE_HOST_V6_FLAG | store_host_flag,
        born_timestamp=message.born_timestamp,
        born_host=message.born_host,
        reconsume_times=message.reconsume_times,
        prepared_transaction_offset=(
            message.prepared_transaction_offset if prepared is None else prepared
        ),
        body=message.body,
        properties=properties,
    )
