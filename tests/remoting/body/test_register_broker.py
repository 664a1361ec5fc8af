"""The body of a registration in its forms; the compressed one also as Java wrote it."""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting.body import register_broker
from remoting.body.data_version import DataVersion
from remoting.body.register_broker import (
    RegisterBrokerBody,
    body_crc32,
    decode_register_broker_body,
)
from remoting.body.topic_config import TopicConfig, TopicConfigSerializeWrapper, TopicFilterType
from remoting.errors import BodyError
from remoting.mq_version import V4_9_8, V5_3_1
from tests.remoting.golden_frames import GoldenFrame, as_parameters, golden_frames

JAVA_BODIES = dict(
    line.split("\t", 1)
    for line in (Path(__file__).parent.parent / "java_bodies.txt").read_text().splitlines()
)
PLAIN = JAVA_BODIES["RegisterBrokerBody"].encode()
COMPRESSED = bytes.fromhex(JAVA_BODIES["COMPRESSED"])
BODY = RegisterBrokerBody(
    topic_config_serialize_wrapper=TopicConfigSerializeWrapper(
        data_version=DataVersion(counter=3, timestamp=1795177717715),
        topic_config_table={
            "TopicA": TopicConfig(topic_name="TopicA", read_queue_nums=4, write_queue_nums=5),
            "%RETRY%g": TopicConfig(
                topic_name="%RETRY%g",
                read_queue_nums=1,
                write_queue_nums=1,
                topic_filter_type=TopicFilterType.MULTI_TAG,
            ),
        },
    ),
    filter_server_list=["10.0.0.1:3000"],
)


def decode_compressed(inflated: bytes, version: int = V4_9_8) -> RegisterBrokerBody:
    return decode_register_broker_body(zlib.compress(inflated), compressed=True, version=version)


def blocks(*parts: bytes | int) -> bytes:
    return b"".join(
        struct.pack(">i", part) if isinstance(part, int) else struct.pack(">i", len(part)) + part
        for part in parts
    )


def test_java_wrote_these() -> None:
    assert decode_register_broker_body(PLAIN, compressed=False, version=V4_9_8) == BODY
    assert decode_register_broker_body(COMPRESSED, compressed=True, version=V4_9_8) == BODY
    assert BODY.encode() == PLAIN
    assert zlib.decompress(BODY.encode(compressed=True)) == zlib.decompress(COMPRESSED)


@pytest.mark.parametrize(
    "golden", as_parameters([g for g in golden_frames(side="request") if g.code == 103])
)
def test_crc_of_the_golden_bodies(golden: GoldenFrame) -> None:
    command = golden.command()
    assert body_crc32(command.body) == int(command.ext_fields["bodyCrc32"])


def test_no_body_means_no_topics() -> None:
    body = decode_register_broker_body(b"", compressed=False, version=V4_9_8)
    assert body == RegisterBrokerBody()
    assert body.topic_config_serialize_wrapper.data_version == DataVersion()


def test_old_brokers_send_the_table_alone() -> None:
    wrapper = BODY.topic_config_serialize_wrapper
    body = decode_register_broker_body(wrapper.to_json_bytes(), compressed=False, version=36)
    assert body == RegisterBrokerBody(topic_config_serialize_wrapper=wrapper)


def test_compressed_form_of_5x() -> None:
    text = b'{"counter":1,"stateVersion":0,"timestamp":2}'
    topic = b'T 1 2 6 SINGLE_TAG {"message.type":"A B"}'
    body = decode_compressed(
        blocks(text, 2, topic, b"U 1 2 6 SINGLE_TAG {}", b"[]", 1, b'{"bname":"b"}'), V5_3_1
    )
    table = body.topic_config_serialize_wrapper.topic_config_table
    assert table["T"].attributes == {"message.type": "A B"}
    assert table["U"].attributes is None
    assert body.topic_config_serialize_wrapper.data_version.state_version == 0


@pytest.mark.parametrize(
    ("inflated", "reason"),
    [
        (b"", "ends at byte 0"),
        (blocks(2**31 - 1), "claims 2147483647 bytes"),
        (struct.pack(">i", -1), "length -1 before byte 4"),
        (blocks(b"{}"), "ends at byte 6"),
        (blocks(b"{}", 1), "ends at byte 10"),
        (blocks(b"{}", 2**31 - 1, b"T 1 1 6 SINGLE_TAG"), "ends at byte"),
        (blocks(b"{}", 0), "ends at byte 10"),
        (blocks(b"{}", 1, b"T 1 1 6", b"[]"), "4 words, not 5"),
        (blocks(b"{}", 1, b"T 1 x 6 SINGLE_TAG", b"[]"), "writeQueueNums: x is not an integer"),
        (blocks(b"{}", 1, b"T 1 1 6 TAGS", b"[]"), "TAGS is not a TopicFilterType"),
        (blocks(b"{}", 1, b"\xff 1 1 6 SINGLE_TAG", b"[]"), "utf-8"),
        (blocks(b"{}", 0, b"{}"), "not a list"),
        (blocks(b"{", 0, b"[]"), "invalid JSON"),
        (blocks(b"[]", 0, b"[]"), "a list where a DataVersion"),
    ],
)
def test_inflated_bodies_that_are_none(inflated: bytes, reason: str) -> None:
    with pytest.raises(BodyError, match=reason):
        decode_compressed(inflated)


def test_streams_that_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BodyError, match="incorrect header"):
        decode_register_broker_body(b"no zlib", compressed=True, version=V4_9_8)
    with pytest.raises(BodyError, match="truncated"):
        decode_register_broker_body(COMPRESSED[:-8], compressed=True, version=V4_9_8)
    monkeypatch.setattr(register_broker, "MAX_INFLATED", 1000)
    with pytest.raises(BodyError, match="more than 1000 bytes"):
        decode_compressed(b"\0" * 100_000)


names = st.text(st.characters(exclude_categories=["Cs", "Zs"], exclude_characters=" "), min_size=1)
numbers = st.integers(0, 2**31 - 1)


@given(
    topics=st.lists(
        st.builds(TopicConfig, topic_name=names, read_queue_nums=numbers, perm=numbers), max_size=4
    ),
    servers=st.lists(names, max_size=3),
)
def test_round_trip(topics: list[TopicConfig], servers: list[str]) -> None:
    wrapper = replace(
        BODY.topic_config_serialize_wrapper,
        topic_config_table={topic.topic_name: topic for topic in topics},
    )
    body = RegisterBrokerBody(topic_config_serialize_wrapper=wrapper, filter_server_list=servers)
    for compressed in (False, True):
        data = body.encode(compressed)
        assert decode_register_broker_body(data, compressed=compressed, version=V4_9_8) == body
