"""Body of REGISTER_BROKER (103), plain and compressed. Sans I/O, any thread.

Compressed: a zlib stream of
    int32 length | DataVersion as JSON
    int32 number of topics | per topic: int32 length | "name read write perm filterType"
    int32 length | list of filter servers as JSON
5.x adds a sixth word, the attributes as JSON, to each topic, and at the end
    int32 number of static topics | per topic: int32 length | its TopicQueueMappingInfo as JSON
order and topicSysFlag are lost in this format.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field, replace
from struct import Struct
from typing import Any, Final

from remoting.body.data_version import DataVersion
from remoting.body.json_bean import JsonBean
from remoting.body.topic_config import TopicConfig, TopicConfigSerializeWrapper, TopicFilterType
from remoting.body.topic_queue_mapping import TopicQueueMappingInfo
from remoting.errors import BodyError
from remoting.mq_version import V3_0_11, V5_0_0
from remoting.remoting_serializable import JsonError, dumps_java, loads_lenient

MAX_INFLATED: Final = 32 * 1024 * 1024
"""Largest size in bytes of an inflated body: some 500,000 topics. A frame of 16 MiB could hold 1000
times as much."""

COMPRESSION_LEVEL: Final = 9
INT32: Final = Struct(">i")
assert INT32.size == 4


def body_crc32(body: bytes) -> int:
    """bodyCrc32 of the bytes as sent: CRC-32 without its top bit (Java: UtilAll.crc32)."""
    return zlib.crc32(body) & 0x7FFFFFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBrokerBody(JsonBean):
    """The topics of a broker and their data version."""

    topic_config_serialize_wrapper: TopicConfigSerializeWrapper = field(
        default_factory=TopicConfigSerializeWrapper
    )
    filter_server_list: list[str] = field(default_factory=list)

    def encode(self, compressed: bool = False) -> bytes:
        """The body as sent; the compressed form is that of 4.9.8, with five words per topic, so it
        cannot hold static topics."""
        if not compressed:
            return self.to_json_bytes()
        wrapper = self.topic_config_serialize_wrapper
        topics = wrapper.topic_config_table.values()
        parts = [_block(wrapper.data_version.to_json_bytes()), INT32.pack(len(topics))]
        parts += (_block(_topic_words(topic).encode()) for topic in topics)
        parts.append(_block(dumps_java(self.filter_server_list)))
        return zlib.compress(b"".join(parts), COMPRESSION_LEVEL)


def decode_register_broker_body(
    body: bytes, *, compressed: bool, version: int
) -> RegisterBrokerBody:
    """Parse the body of a registration sent by a broker of MQVersion ordinal `version`.

    No body means no topics, version 0. Before V3_0_11 the body is the topic table alone. Raises
    BodyError for an invalid body.
    """
    if not body:
        return RegisterBrokerBody()
    if version < V3_0_11:
        wrapper = TopicConfigSerializeWrapper.from_json_bytes(body)
        return RegisterBrokerBody(topic_config_serialize_wrapper=wrapper)
    if not compressed:
        return RegisterBrokerBody.from_json_bytes(body)
    try:
        return _decode_inflated(_Blocks(_inflate(body)), has_mappings=version >= V5_0_0)
    except JsonError as error:
        raise BodyError("RegisterBrokerBody", f"invalid JSON: {error}") from error
    except (ValueError, zlib.error) as error:
        raise BodyError("RegisterBrokerBody", str(error)) from error


def _block(data: bytes) -> bytes:
    return INT32.pack(len(data)) + data


def _topic_words(topic: TopicConfig) -> str:
    return (
        f"{topic.topic_name} {topic.read_queue_nums} {topic.write_queue_nums} "
        f"{topic.perm} {topic.topic_filter_type}"
    )


def _inflate(body: bytes) -> bytes:
    inflater = zlib.decompressobj()
    data = inflater.decompress(body, MAX_INFLATED)
    if not inflater.eof:
        if len(data) >= MAX_INFLATED:
            raise ValueError(f"inflates to more than {MAX_INFLATED} bytes")
        raise ValueError("the zlib stream is truncated")
    return data


class _Blocks:
    """Reads int32 and length-prefixed blocks sequentially. Owned by: its caller."""

    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    @property
    def at_end(self) -> bool:
        return self._position == len(self._data)

    def next_int(self) -> int:
        if len(self._data) - self._position < INT32.size:
            raise ValueError(f"ends at byte {self._position}")
        number: int = INT32.unpack_from(self._data, self._position)[0]
        self._position += INT32.size
        if number < 0:
            raise ValueError(f"length {number} before byte {self._position}")
        return number

    def next_block(self) -> bytes:
        length = self.next_int()
        start = self._position
        if length > len(self._data) - start:
            raise ValueError(f"a block at byte {start} claims {length} bytes, fewer are left")
        self._position = start + length
        return self._data[start : self._position]


def _decode_inflated(blocks: _Blocks, *, has_mappings: bool) -> RegisterBrokerBody:
    data_version = DataVersion.from_json(loads_lenient(blocks.next_block()))
    topics = (_read_topic(blocks.next_block()) for _ in range(blocks.next_int()))
    table = {topic.topic_name: topic for topic in topics}
    servers = loads_lenient(blocks.next_block())
    if not isinstance(servers, list):
        raise ValueError("the filter servers are not a list")
    mappings = None
    if has_mappings and not blocks.at_end:
        infos = (
            TopicQueueMappingInfo.from_json(loads_lenient(blocks.next_block()))
            for _ in range(blocks.next_int())
        )
        mappings = {info.topic: info for info in infos} or None
    wrapper = TopicConfigSerializeWrapper(
        data_version=data_version,
        topic_config_table=table,
        topic_queue_mapping_info_map=mappings,
    )
    body = RegisterBrokerBody.from_json({"filterServerList": servers})
    return replace(body, topic_config_serialize_wrapper=wrapper)


def _read_topic(block: bytes) -> TopicConfig:
    """Parse five words, or six of a 5.x broker."""
    words = block.decode().split(" ", 5)
    if len(words) < 5:
        raise ValueError(f"topic {block!r:.80} has {len(words)} words, not 5")
    name, read, write, perm, filter_type = words[:5]
    if filter_type not in TopicFilterType.__members__:
        # Java uses valueOf here, which is stricter than its JSON parser.
        raise ValueError(f"{filter_type:.60} is not a TopicFilterType")
    topic: dict[str, Any] = {
        "topicName": name,
        "readQueueNums": read,
        "writeQueueNums": write,
        "perm": perm,
        "topicFilterType": filter_type,
    }
    if len(words) == 6:
        topic["attributes"] = loads_lenient(words[5]) or None
    return TopicConfig.from_json(topic)
