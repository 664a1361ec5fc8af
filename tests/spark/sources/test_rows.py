"""Records of a Java broker as rows, against what Java's decoder read; and records that lie."""

from __future__ import annotations

import zlib
from typing import Any, ClassVar

import lz4.frame
import pytest
import zstandard
from pyspark.sql.types import LongType, StringType, StructField, StructType

from spark.sources.bodies import read_body
from spark.sources.data_source import check_columns
from spark.sources.errors import OptionError, SourceError
from spark.sources.rows import (
    COLUMNS,
    SCHEMA,
    BatchMaker,
    StoredMessage,
    host_text,
    messages_of,
    split_records,
)
from store.batch_codec import encode_item
from store.inner_batch import INNER_BATCH_FLAG, NEED_UNWRAP_FLAG
from store.message import Message
from store.message_codec import encode_host, encode_record
from tests.support.every_row import every_row
from tests.tools.test_message_decoder import RECORDS

UNWRAPPED = INNER_BATCH_FLAG | NEED_UNWRAP_FLAG
ZLIB, LZ4, ZSTD = 0x301, 0x101, 0x201


def messages(records: bytes, broker: str = "b") -> list[StoredMessage]:
    found = []
    for record in split_records(records):
        assert not isinstance(record, str), record
        found += messages_of(record, broker)
    return found


def rows(found: list[StoredMessage]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = BatchMaker(SCHEMA).batch(found).to_pylist()
    return rows


def stored(**fields: Any) -> bytes:
    host = encode_host("127.0.0.1", 1)
    defaults = {"topic": "T", "queue_id": 1, "born_host": host, "store_host": host}
    return encode_record(Message(**{**defaults, **fields}))


@every_row("expected", RECORDS)
def test_records_of_java(expected: dict[str, Any]) -> None:
    (row,) = rows(messages(bytes.fromhex(expected["rawHex"])))
    properties = expected["properties"]
    assert dict(row["properties"]) == properties
    assert row["topic"] == expected["topic"]
    assert row["queue_id"] == expected["queueId"]
    assert row["queue_offset"] == expected["queueOffset"]
    assert row["physical_offset"] == expected["physicalOffset"]
    assert (row["flag"], row["sys_flag"]) == (expected["flag"], expected["sysFlag"])
    assert row["born_timestamp"].timestamp() * 1000 == expected["bornTimestamp"]
    assert row["store_timestamp"].timestamp() * 1000 == expected["storeTimestamp"]
    assert f"/{row['born_host']}" == expected["bornHost"]
    assert f"/{row['store_host']}" == expected["storeHost"]
    assert row["reconsume_times"] == expected["reconsumeTimes"]
    assert row["offset_message_id"] == expected["offsetMsgId"]
    assert row["message_id"] == properties.get("UNIQ_KEY", expected["offsetMsgId"])
    assert (row["tags"], row["keys"]) == (properties.get("TAGS"), properties.get("KEYS"))
    assert row["body_problem"] is None
    assert len(row["body"]) == expected["bodyLenUncompressed"]
    assert zlib.crc32(row["body"]) & 0x7FFFFFFF == expected["bodyCrc32Uncompressed"]


def test_many_records_in_one_answer() -> None:
    records = b"".join(bytes.fromhex(each["rawHex"]) for each in RECORDS)
    assert [row["physical_offset"] for row in rows(messages(records))] == [
        each["physicalOffset"] for each in RECORDS
    ]


class TestBodies:
    BODY = b"to be inflated " * 1000
    PACKED: ClassVar = {
        ZLIB: zlib.compress(BODY),
        0x1: zlib.compress(BODY),
        LZ4: lz4.frame.compress(BODY),
        ZSTD: zstandard.ZstdCompressor().compress(BODY),
    }

    @pytest.mark.parametrize("flag", PACKED)
    def test_inflated(self, flag: int) -> None:
        assert read_body(self.PACKED[flag], flag) == (self.BODY, "")
        assert read_body(self.PACKED[flag], flag, len(self.BODY)) == (self.BODY, "")
        assert read_body(self.PACKED[flag], 0) == (self.PACKED[flag], "")
        assert read_body(b"", flag) == (b"", "")

    @pytest.mark.parametrize("flag", PACKED)
    def test_too_much(self, flag: int) -> None:
        """A body may inflate to a thousand times its size."""
        body, problem = read_body(self.PACKED[flag], flag, len(self.BODY) - 1)
        assert body == self.PACKED[flag]
        assert "more than 14999 bytes" in problem

    @pytest.mark.parametrize("flag", PACKED)
    def test_cut_short(self, flag: int) -> None:
        body, problem = read_body(self.PACKED[flag][:-6], flag)
        assert body == self.PACKED[flag][:-6]
        assert "cut short" in problem

    @pytest.mark.parametrize("flag", PACKED)
    def test_something_else(self, flag: int) -> None:
        body, problem = read_body(b"never compressed", flag)
        assert body == b"never compressed"
        assert "though the message says so" in problem

    def test_of_an_unknown_method(self) -> None:
        assert read_body(b"x", 0x701) == (b"x", "compressed by method 7, which is unknown")

    def test_memory_of_a_bomb(self) -> None:
        """64 MiB in 6 KB of ZSTD: no more than the limit is made of it, and a little."""
        bomb = zstandard.ZstdCompressor().compress(bytes(1 << 28))
        assert "more than 1048576" in read_body(bomb, ZSTD, 1 << 20)[1]

    @pytest.mark.parametrize(("flag", "library"), [(LZ4, "lz4.frame"), (ZSTD, "zstandard")])
    def test_without_its_library(
        self, flag: int, library: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(__import__("sys").modules, library, None)
        with pytest.raises(SourceError, match="pip install"):
            read_body(self.PACKED[flag], flag)


class TestInnerBatches:
    ITEMS = b"".join(encode_item(n, b"body %d" % n, b"KEYS\x01k%d" % n) for n in range(3))

    def batch(self, **fields: Any) -> bytes:
        inner = b"INNER_NUM\x013\x02INNER_BASE\x0140\x02TAGS\x01outer"
        defaults = {"sys_flag": UNWRAPPED, "body": self.ITEMS, "properties": inner}
        return stored(**{**defaults, "queue_offset": 40, **fields})

    def test_unpacked(self) -> None:
        found = rows(messages(self.batch()))
        assert [(row["queue_offset"], row["flag"], row["keys"], row["body"]) for row in found] == [
            (40, 0, "k0", b"body 0"),
            (41, 1, "k1", b"body 1"),
            (42, 2, "k2", b"body 2"),
        ]
        assert {row["tags"] for row in found} == {None}
        assert len({row["offset_message_id"] for row in found}) == 1

    def test_compressed(self) -> None:
        packed = self.batch(sys_flag=UNWRAPPED | ZLIB, body=zlib.compress(self.ITEMS))
        assert [row["body"] for row in rows(messages(packed))][1:] == [b"body 1", b"body 2"]

    @pytest.mark.parametrize("flag", [0, INNER_BATCH_FLAG, NEED_UNWRAP_FLAG])
    def test_as_it_is_without_both_flags(self, flag: int) -> None:
        """As Java's clients do."""
        (row,) = rows(messages(self.batch(sys_flag=flag)))
        assert row["body"] == self.ITEMS

    def test_that_cannot_be_unpacked(self) -> None:
        (row,) = rows(messages(self.batch(body=self.ITEMS[:-1])))
        assert row["body"] == self.ITEMS[:-1]
        assert row["body_problem"].startswith("an inner batch that cannot be unpacked")

    @pytest.mark.parametrize("number", [2, 4])
    def test_that_says_another_number(self, number: int) -> None:
        """Its neighbours have the other offsets; 32,767 messages at most are made of a record."""
        inner = b"INNER_NUM\x01%d" % number
        (row,) = rows(messages(self.batch(properties=inner)))
        assert row["queue_offset"] == 40
        assert row["body_problem"].endswith(f"that it holds {number} messages, and has 3")


class TestHostileMessages:
    def test_times_that_no_calendar_has(self) -> None:
        """A client chooses bornTimestamp."""
        for time in (2**63 - 1, -(2**63), 253_402_300_800_000, -62_135_596_800_001):
            (row,) = rows(messages(stored(born_timestamp=time)))
            assert row["born_timestamp"] is None
        (row,) = rows(messages(stored(born_timestamp=253_402_300_799_999)))
        assert row["born_timestamp"].year == 9999

    def test_texts_that_are_no_utf8(self) -> None:
        (row,) = rows(messages(stored(properties=b"K\xff\x01\xfe\x02TAGS\x01\xc3\x28\x02KEYS\x01")))
        assert row["tags"] == "\ufffd("
        assert row["keys"] is None

    def test_a_property_twice(self) -> None:
        (row,) = rows(messages(stored(properties=b"a\x011\x02a\x012")))
        assert row["properties"] == [("a", "2")]

    def test_hosts(self) -> None:
        assert host_text(encode_host("::1", 80)) == "[::1]:80"
        assert host_text(encode_host("10.0.0.1", 80)) == "10.0.0.1:80"
        assert host_text(b"\x01\x02") == "0102"

    def test_ipv6(self) -> None:
        (row,) = rows(messages(stored(sys_flag=0x10, born_host=encode_host("fe80::1", 7))))
        assert row["born_host"] == "[fe80::1]:7"


class TestBatches:
    def test_by_size(self) -> None:
        found = messages(b"".join(stored(body=bytes(1000), queue_offset=n) for n in range(10)))
        batches = list(BatchMaker(SCHEMA).batches(found, 4000))
        assert [batch.num_rows for batch in batches] == [4, 4, 2]
        assert [batch.num_rows for batch in BatchMaker(SCHEMA).batches(found, 1)] == [1] * 10
        assert list(BatchMaker(SCHEMA).batches([], 1)) == []

    def test_properties_count(self) -> None:
        found = messages(stored(properties=b"a\x01" + b"x" * 4000) * 3)
        assert [batch.num_rows for batch in BatchMaker(SCHEMA).batches(found, 4000)] == [1, 1, 1]

    def test_properties_count_that_are_many_or_have_long_names(self) -> None:
        for raw in (b"\x02".join(b"%d\x011" % n for n in range(60)), b"n" * 4000 + b"\x011"):
            found = messages(stored(properties=raw) * 3)
            assert [batch.num_rows for batch in BatchMaker(SCHEMA).batches(found, 4000)] == [
                1,
                1,
                1,
            ]

    def test_some_columns(self) -> None:
        schema = StructType([StructField("keys", StringType()), SCHEMA["queue_offset"]])
        batch = BatchMaker(schema).batch(messages(stored(queue_offset=3)))
        assert batch.to_pylist() == [{"keys": None, "queue_offset": 3}]


def test_schemas_of_users() -> None:
    check_columns(SCHEMA, SCHEMA)
    check_columns(StructType([SCHEMA["body"]]), SCHEMA)
    with pytest.raises(OptionError, match="no column boddy: it has topic, "):
        check_columns(StructType([StructField("boddy", StringType())]), SCHEMA)
    with pytest.raises(OptionError, match="column queue_id is int, the schema says bigint"):
        check_columns(StructType([StructField("queue_id", LongType())]), SCHEMA)
    with pytest.raises(OptionError, match="column queue_id is in the schema twice"):
        check_columns(StructType([SCHEMA["queue_id"], SCHEMA["queue_id"]]), SCHEMA)
    assert list(COLUMNS) == SCHEMA.fieldNames()
