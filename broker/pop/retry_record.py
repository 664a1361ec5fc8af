"""A message of a pop retry topic as its group sees it. Pure, any thread."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from remoting.connection import Buffer
from remoting.headers.extra_info_util import ExtraInfo, build_extra_info
from store.message_codec import PHY_OFFSET_AT, decode_record, encode_record
from store.message_properties import PROPERTIES_LIMIT, append_properties, find_property
from store.put_aside import ReadBy, RecordGuard


def under_asked_topics(
    records: Iterable[memoryview], topic: str, info: ExtraInfo, queue_id: int
) -> list[Buffer]:
    """Each as `under_asked_topic`; one that raises is given as it is stored, under the retry
    topic's name."""
    guard = RecordGuard(ReadBy.POP)
    shown: list[Buffer] = []
    for record in records:
        with guard.of(int.from_bytes(record[PHY_OFFSET_AT : PHY_OFFSET_AT + 8], "big")):
            shown.append(under_asked_topic(record, topic, info, queue_id))
        if guard.failed:
            shown.append(record)
    return shown


def under_asked_topic(record: memoryview, topic: str, info: ExtraInfo, queue_id: int) -> Buffer:
    """A message of the retry topic as the group sees it: of the asked topic, with its handle. One
    whose properties have no room for that is given as it is stored, as with
    popResponseReturnActualRetryTopic: from the retry topic's name clients build the handle that
    they acknowledge."""
    message = decode_record(record, 0)[0]
    properties = message.properties
    if find_property(properties, b"POP_CK") is None:
        handle = build_extra_info(info, queue_id, message.queue_offset)
        properties = append_properties(properties, f"POP_CK\x01{handle}".encode())
        if len(properties) > PROPERTIES_LIMIT:
            return record
    return encode_record(replace(message, topic=topic, properties=properties))
