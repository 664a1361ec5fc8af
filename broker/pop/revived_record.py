"""The copy of a popped message that goes to its group's retry topic. Pure, any thread."""

from __future__ import annotations

from typing import Final

from store.message import Message
from store.message_codec import BORN_HOST_V6_FLAG, STORE_HOST_V6_FLAG
from store.message_properties import PROPERTIES_LIMIT, append_properties, find_property
from store.record import Record, one_time_more

_FIRST_POP_TIME: Final = b"1ST_POP_TIME"


def revived_record(
    message: Message, pop_time_ms: int, store_host: bytes, store_host_flag: int
) -> Record:
    """The copy: hosts are this broker, so their flags are, too."""
    properties = message.properties
    if not message.reconsume_times or find_property(properties, _FIRST_POP_TIME) is None:
        more = b"%b\x01%d" % (_FIRST_POP_TIME, pop_time_ms)
        longer = append_properties(properties, more)
        properties = longer if len(longer) <= PROPERTIES_LIMIT else properties
    flags = message.sys_flag & ~(BORN_HOST_V6_FLAG | STORE_HOST_V6_FLAG)
    if store_host_flag:
        flags |= store_host_flag | BORN_HOST_V6_FLAG
    return Record(
        queue_id=0,
        flag=message.flag,
        sys_flag=flags,
        born_timestamp=message.born_timestamp,
        born_host=store_host,
        reconsume_times=one_time_more(message.reconsume_times),
        prepared_transaction_offset=0,
        body=message.body,
        properties=properties,
    )
