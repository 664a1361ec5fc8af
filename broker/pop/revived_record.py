"""The copy of a popped message that goes to its group's retry topic. Pure, any thread."""

from __future__ import annotations

from typing import Final

from broker.pop.check_point import CheckPoint
from store.message import Message
from store.message_codec import BORN_HOST_V6_FLAG, STORE_HOST_V6_FLAG
from store.message_properties import PROPERTIES_LIMIT, append_properties, find_property
from store.record import Record, one_time_more

_FIRST_POP_TIME: Final = b"1ST_POP_TIME"
_ORIGIN_GROUP: Final = b"ORIGIN_GROUP"
"""Whose retry topic it is: by it brokers of 5.5 find whom to wake."""


def revived_record(
    message: Message, point: CheckPoint, store_host: bytes, store_host_flag: int
) -> Record:
    """The copy: hosts are this broker, so their flags are, too."""
    properties = message.properties
    if not message.reconsume_times or find_property(properties, _FIRST_POP_TIME) is None:
        properties = _with(properties, _FIRST_POP_TIME, b"%d" % point.pop_time_ms)
    properties = _with(properties, _ORIGIN_GROUP, point.group.encode())
    flags = message.sys_flag & ~(BORN_HOST_V6_FLAG | STORE_HOST_V6_FLAG)
    if store_host_flag:
        flags |= store_host_flag | BORN_HOST_V6_FLAG
    times = message.reconsume_times
    return Record(
        queue_id=0,
        flag=message.flag,
        sys_flag=flags,
        born_timestamp=message.born_timestamp,
        born_host=store_host,
        reconsume_times=times if point.suspends else one_time_more(times),
        prepared_transaction_offset=0,
        body=message.body,
        properties=properties,
    )


def _with(properties: bytes, name: bytes, value: bytes) -> bytes:
    """With this property, which counts for more than others of the name, if there is room. One that
    says so already stays alone: a message may come again any number of times."""
    if find_property(properties, name) == value:
        return properties
    longer = append_properties(properties, b"%b\x01%b" % (name, value))
    return longer if len(longer) <= PROPERTIES_LIMIT else properties
