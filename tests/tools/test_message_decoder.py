"""Stored messages against every record that the Java decoder read, and against broken ones."""

from __future__ import annotations

import json
import random
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest

from tests.support.every_row import every_row
from tools.errors import MessageDecodeError
from tools.message_decoder import (
    MAGIC_V1,
    MAGIC_V2,
    MessageExt,
    decode_message_id,
    decode_messages,
    decode_properties,
    encode_message_id,
    encode_properties,
)

STORE = Path(__file__).parent.parent / "golden" / "store-G"
RECORDS: list[dict[str, Any]] = [
    record
    for record in json.loads((STORE / "records-master.json").read_text(encoding="utf-8"))
    if record["kind"] == "message"
]


def record(
    *,
    body: bytes = b"hello",
    topic: bytes = b"T",
    magic: int = MAGIC_V1,
    sys_flag: int = 0,
    born: bytes = bytes([127, 0, 0, 1]),
    store: bytes = bytes([127, 0, 0, 2]),
    properties: bytes = b"TAGS\x01a",
    queue_offset: int = 5,
    phy_offset: int = 600,
    stored_ms: int = 2000,
) -> bytes:
    """A stored message built by hand."""
    length = struct.pack(">h" if magic == MAGIC_V2 else ">b", len(topic))
    tail = b"".join(
        [
            struct.pack(">iiiiqqiq", magic, 7, 3, 4, queue_offset, phy_offset, sys_flag, 1000),
            born + struct.pack(">i", 4000),
            struct.pack(">q", stored_ms),
            store + struct.pack(">i", 10911),
            struct.pack(">iq", 2, 0),
            struct.pack(">i", len(body)) + body,
            length + topic,
            struct.pack(">h", len(properties)) + properties,
        ]
    )
    return struct.pack(">i", len(tail) + 4) + tail


def one(data: bytes, **options: Any) -> MessageExt:
    (message,) = decode_messages(data, **options)
    return message


@every_row("expected", RECORDS)
def test_records_of_java(expected: dict[str, Any]) -> None:
    message = one(bytes.fromhex(expected["rawHex"]), broker_name="broker-g")
    assert message.store_size == expected["size"]
    assert message.topic == expected["topic"]
    assert message.queue_id == expected["queueId"]
    assert message.queue_offset == expected["queueOffset"]
    assert message.phy_offset == expected["physicalOffset"]
    assert message.flag == expected["flag"]
    assert message.sys_flag == expected["sysFlag"]
    assert f"/{message.born_host}" == expected["bornHost"]
    assert f"/{message.store_host}" == expected["storeHost"]
    assert message.store_timestamp == expected["storeTimestamp"]
    assert message.reconsume_times == expected["reconsumeTimes"]
    assert message.offset_msg_id == expected["offsetMsgId"]
    assert message.properties == expected["properties"]
    if message.sys_flag & 0x700 in (0x100, 0x200):
        assert message.body.hex() == expected["bodyHexStored"]
    else:
        assert zlib.crc32(message.body) & 0x7FFFFFFF == expected["bodyCrc32Uncompressed"]
        assert message.body_note is None


def test_all_records_back_to_back() -> None:
    data = b"".join(bytes.fromhex(r["rawHex"]) for r in RECORDS)
    assert [m.phy_offset for m in decode_messages(data)] == [r["phyOffset"] for r in RECORDS]


def test_no_bytes_no_messages() -> None:
    assert list(decode_messages(b"")) == []


def test_a_long_topic_of_5x() -> None:
    topic = b"%RETRY%" + b"g" * 200
    assert one(record(topic=topic, magic=MAGIC_V2)).topic == topic.decode()


def test_ipv6_hosts() -> None:
    v6 = bytes(15) + b"\x01"
    message = one(record(sys_flag=0x30, born=v6, store=v6))
    assert (message.born_host, message.store_host) == ("[::1]:4000", "[::1]:10911")
    assert decode_message_id(message.offset_msg_id) == ("[::1]:10911", 600)


@pytest.mark.parametrize(("born6", "store6"), [(True, False), (False, True)])
def test_one_ipv6_host(born6: bool, store6: bool) -> None:
    v4, v6 = bytes([127, 0, 0, 1]), bytes(15) + b"\x01"
    data = record(
        sys_flag=0x10 * born6 | 0x20 * store6,
        born=v6 if born6 else v4,
        store=v6 if store6 else v4,
    )
    assert one(data).body == b"hello"


class TestCompressedBodies:
    @pytest.mark.parametrize("sys_flag", [0x1, 0x301])
    def test_zlib(self, sys_flag: int) -> None:
        message = one(record(body=zlib.compress(b"x" * 9999), sys_flag=sys_flag))
        assert (message.body, message.body_note) == (b"x" * 9999, None)

    def test_a_bomb_is_cut(self) -> None:
        body = zlib.compress(b"x" * 100_000)
        message = one(record(body=body, sys_flag=1), max_body=1000)
        assert len(message.body) == 1000
        assert message.body_note is not None
        assert "1000 bytes" in message.body_note

    @pytest.mark.parametrize(
        ("sys_flag", "body", "note"),
        [
            (0x101, b"data", "compressed with LZ4, shown as stored"),
            (0x201, b"data", "compressed with ZSTD, shown as stored"),
            (0x701, b"data", "compressed with an unknown method, shown as stored"),
        ],
    )
    def test_others_are_shown_as_stored(self, sys_flag: int, body: bytes, note: str) -> None:
        message = one(record(body=body, sys_flag=sys_flag))
        assert (message.body, message.body_note) == (body, note)

    @pytest.mark.parametrize("sys_flag", [0, 0x1, 0x101])
    def test_what_was_stored_is_kept_beside_it(self, sys_flag: int) -> None:
        body = zlib.compress(b"x" * 9999)
        message = one(record(body=body, sys_flag=sys_flag))
        assert (message.stored_body, message.stored_body_size) == (body, len(body))

    @pytest.mark.parametrize("sys_flag", [0, 0x101, 0x1])
    def test_a_limit_holds_for_both_bodies(self, sys_flag: int) -> None:
        message = one(record(body=b"no zlib" * 100, sys_flag=sys_flag), max_body=10)
        assert (message.body, message.stored_body) == (b"no zlibno ", b"no zlibno ")
        assert message.stored_body_size == 700
        assert message.body_note is not None

    def test_damage_is_said(self) -> None:
        message = one(record(body=b"no zlib", sys_flag=1))
        assert message.body == b"no zlib"
        assert message.body_note is not None
        assert "damaged" in message.body_note

    def test_a_cut_body_is_said(self) -> None:
        message = one(record(body=zlib.compress(b"x" * 9999)[:-8], sys_flag=1))
        assert message.body_note is not None
        assert "cut short" in message.body_note


class TestBrokenRecords:
    @every_row("size", range(1, len(record())))
    def test_every_cut(self, size: int) -> None:
        with pytest.raises(MessageDecodeError):
            list(decode_messages(record()[:size]))

    def test_bytes_behind_the_last(self) -> None:
        with pytest.raises(MessageDecodeError, match="3 bytes behind"):
            list(decode_messages(record() + b"abc"))

    @pytest.mark.parametrize("size", [-1, 0, 47, 2**31 - 1])
    def test_sizes(self, size: int) -> None:
        with pytest.raises(MessageDecodeError, match=f"size {size} "):
            list(decode_messages(struct.pack(">i", size) + record()[4:]))

    def test_magic(self) -> None:
        with pytest.raises(MessageDecodeError, match="magic cbd43194"):
            list(decode_messages(record(magic=-875286124)))

    def test_random_damage_never_escapes(self) -> None:
        seed = random.randrange(2**32)
        chance = random.Random(seed)
        for _ in range(2000):
            data = bytearray(record())
            for _ in range(chance.randint(1, 4)):
                data[chance.randrange(len(data))] = chance.randrange(256)
            try:
                list(decode_messages(bytes(data)))
            except MessageDecodeError:
                continue
            except Exception as error:
                raise AssertionError(f"seed {seed}: {data.hex()}") from error


class TestIds:
    def test_there_and_back(self) -> None:
        text = encode_message_id(bytes([127, 0, 0, 2]), 20911, 405)
        assert text == "7F000002000051AF0000000000000195"
        assert decode_message_id(text) == ("127.0.0.2:20911", 405)

    @pytest.mark.parametrize("text", ["", "7F", "x" * 32, "0" * 30, "FFFFFFFF" * 4])
    def test_no_ids(self, text: str) -> None:
        with pytest.raises(MessageDecodeError, match="queryMsgByUniqueKey"):
            decode_message_id(text)


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("", {}),
        ("a\x01b", {"a": "b"}),
        ("a\x01b\x02", {"a": "b"}),
        ("a\x01b\x02c\x01d\x01e", {"a": "b", "c": "d\x01e"}),
        ("a\x02\x01b\x02c\x01\x02d\x01e", {"d": "e"}),
    ],
)
def test_properties(text: str, properties: dict[str, str]) -> None:
    assert decode_properties(text) == properties
    assert decode_properties(encode_properties(properties)) == properties
