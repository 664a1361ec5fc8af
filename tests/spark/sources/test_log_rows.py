"""Columns made of many records at once against those made message by message (rows.py)."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import EqualTo
from pyspark.sql.types import StructType

from spark.sources import log_columns
from spark.sources.log_filter import LogFilter, read_filters
from spark.sources.log_rows import LogRows, damage_row, lost_records
from spark.sources.log_scan import Damage, Run
from spark.sources.rows import COLUMNS, SCHEMA, BatchMaker, messages_of
from store.batch_codec import encode_item
from store.inner_batch import INNER_BATCH_FLAG, NEED_UNWRAP_FLAG
from store.lost_range import LostRange
from store.message import Message
from store.message_codec import BODY_CRC_MASK, encode_host, read_checked
from store.record_walk import good_parts
from tests.support.memory_commit_log import MemoryCommitLog, message

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
START = 1 << 35


def run_of(messages: list[Message]) -> Run:
    log = MemoryCommitLog(1 << 30, START)
    for each in messages:
        log.append(each)
    return run_of_bytes(bytes(log.data), START)


def run_of_bytes(data: bytes, start: int = 0) -> Run:
    view = memoryview(data)
    return Run(view, start, good_parts(view, start, check_crc=True))


def table(batches: Any) -> list[dict[str, Any]]:
    rows = [row for batch in batches for row in batch.to_pylist()]
    for row in rows:
        row["properties"] = dict(row["properties"])
    return sorted(rows, key=lambda row: (row["physical_offset"], row["queue_offset"]))


def fast(run: Run, chosen: LogFilter | None = None, size: int = 8 << 20) -> list[dict[str, Any]]:
    return table(LogRows(SCHEMA, "broker-a", chosen or LogFilter(), size).batches(run))


def plain(run: Run) -> list[dict[str, Any]]:
    records = [
        read_checked(run.view, at, len(run.view), run.start + at) for at in run.parts.at.tolist()
    ]
    messages = [each for record in records if record for each in messages_of(record, "broker-a")]
    return table([BatchMaker(SCHEMA).batch(messages)])


PIECES = st.sampled_from(
    [
        *(b"KEYS\x01k1 k2", b"TAGS\x01t", b"TAGS\x01u", b"UNIQ_KEY\x01" + b"A" * 32),
        *(b"", b"\x01", b"name\x01", b"\x01value", b"no value", b"a\x01b\x01c", b"TAGS\x01"),
        *(b"\xff\x01\xfe", b"\xfd\x01again", "名\x01值".encode(), b"\xe5\x90\x01cut"),
    ]
)
PROPERTIES = st.lists(PIECES, max_size=6).map(b"\x02".join)
HOSTS = st.sampled_from([encode_host("10.0.0.1", 1), encode_host("1.2.3.4", 65535), b"\xff" * 8])
NUMBERS = st.integers(-(1 << 31), (1 << 31) - 1)
OFFSETS = st.integers(-(1 << 63), (1 << 63) - 1)
TIMES = st.one_of(OFFSETS, st.integers(0, 1 << 41))
MESSAGES = st.builds(
    message,
    st.sampled_from(["T", "", "日本", "%RETRY%group", "L" * 200]),
    queue_id=NUMBERS,
    queue_offset=OFFSETS,
    flag=NUMBERS,
    sys_flag=st.sampled_from([0, 0, 0, 4, 8, 0xC, 0x10, 0x20, 0x30, 1, 0x80, 0xC0]),
    born_timestamp=TIMES,
    store_timestamp=TIMES,
    reconsume_times=NUMBERS,
    body=st.sampled_from([b"", b"x", b"body" * 99, zlib.compress(b"small" * 9), bytes(2000)]),
    properties=PROPERTIES,
)


def with_hosts(each: Message, host: bytes) -> Message:
    """Hosts of IPv4, which are few in a log, are looked up."""
    return each if each.sys_flag & 0x30 else replace(each, born_host=host)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.builds(with_hosts, MESSAGES, HOSTS), min_size=1, max_size=12))
def test_both_ways_give_the_same_rows(messages: list[Message]) -> None:
    run = run_of(messages)
    assert len(run.parts.at) == len(messages)
    assert fast(run) == plain(run)


def test_there_is_a_maker_for_each_column() -> None:
    assert list(log_columns.MAKERS) == list(COLUMNS)


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_alone(name: str) -> None:
    run = run_of([message("T", properties=b"TAGS\x01a"), message("T", sys_flag=0x10)])
    schema = StructType([SCHEMA[name]])
    found = pa.Table.from_batches(LogRows(schema, None, LogFilter(), 1 << 20).batches(run))
    assert found.column_names == [name]
    assert found.num_rows == 2


def test_rows_are_what_the_reference_decoder_says() -> None:
    rows = []
    for name in ("00000000000000000000", "00000000000000016384"):
        data = (GOLDEN / "store-G/master/commitlog" / name).read_bytes()
        rows += fast(run_of_bytes(data, int(name)))
    records = json.loads((GOLDEN / "store-G/records-master.json").read_text())
    expected = [each for each in records if each["kind"] == "message"]
    assert len(rows) == len(expected) > 50
    for row, record in zip(rows, expected, strict=True):
        assert row["physical_offset"] == record["phyOffset"]
        for column, field in (
            *(("topic", "topic"), ("queue_id", "queueId"), ("queue_offset", "queueOffset")),
            *(("flag", "flag"), ("sys_flag", "sysFlag"), ("reconsume_times", "reconsumeTimes")),
            *(("properties", "properties"), ("offset_message_id", "offsetMsgId")),
        ):
            assert row[column] == record[field], column
        assert len(row["body"]) == record["bodyLenUncompressed"]
        assert zlib.crc32(row["body"]) & BODY_CRC_MASK == record["bodyCrc32Uncompressed"]
        assert row["born_timestamp"].timestamp() * 1000 == pytest.approx(record["bornTimestamp"])
        assert row["store_timestamp"].timestamp() * 1000 == pytest.approx(record["storeTimestamp"])
        assert f"/{row['born_host']}" == record["bornHost"]
        assert f"/{row['store_host']}" == record["storeHost"]
        assert row["tags"] == record["properties"].get("TAGS")
        assert row["keys"] == record["properties"].get("KEYS")
        assert row["message_id"] == record["properties"].get("UNIQ_KEY", record["offsetMsgId"])


@pytest.mark.parametrize("version", ["4.9.7", "5.3.3"])
def test_logs_of_java_brokers_both_ways(version: str) -> None:
    found = json.loads((GOLDEN / f"lmq-{version}.json").read_text())
    run = run_of_bytes(bytes.fromhex(found["log"]))
    assert len(run.parts.at) > 3
    assert fast(run) == plain(run)


def test_a_batch_is_unpacked() -> None:
    body = b"".join(encode_item(number, b"m%d" % number, b"TAGS\x01t") for number in range(3))
    flags = INNER_BATCH_FLAG | NEED_UNWRAP_FLAG
    fields: dict[str, Any] = {"sys_flag": flags, "body": body, "properties": b"INNER_NUM\x013"}
    rows = fast(run_of([message("T", queue_offset=7, **fields), message("T")]))
    assert [(row["queue_offset"], row["body"]) for row in rows if row["sys_flag"]] == [
        *((7, b"m0"), (8, b"m1"), (9, b"m2"))
    ]


def test_batches_are_bounded() -> None:
    run = run_of([message("T", body=bytes(1000), queue_offset=each) for each in range(100)])
    batches = list(LogRows(SCHEMA, None, LogFilter(), 5000).batches(run))
    assert all(1 <= each.num_rows <= 5 for each in batches)
    assert sum(each.num_rows for each in batches) == 100


def test_rows_and_properties_count_in_a_batch() -> None:
    """As they do in the general way, within a record."""
    for pairs in (0, 100):
        properties = b"\x02".join(b"n%d\x01v" % number for number in range(pairs))
        run = run_of([message("T", body=b"", properties=properties) for _ in range(2_000)])
        fast = [each.num_rows for each in LogRows(SCHEMA, None, LogFilter(), 400_000).batches(run)]
        records = [read_checked(run.view, at, len(run.view), START + at) for at in run.parts.at]
        messages = [each for record in records if record for each in messages_of(record, None)]
        slow = [each.num_rows for each in BatchMaker(SCHEMA).batches(messages, 400_000)]
        assert slow[0] // 2 <= fast[0] <= slow[0] < 2_000


def test_what_compressed_bodies_become_is_bounded() -> None:
    """8 bodies of 4 KB, each of which becomes 4 MiB."""
    body = zlib.compress(bytes(4 << 20))
    run = run_of([message("T", body=body, sys_flag=1) for _ in range(8)])
    sizes = [each.num_rows for each in LogRows(SCHEMA, None, LogFilter(), 8 << 20).batches(run)]
    assert sizes == [2] * 4


def test_only_what_is_chosen_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of([message(each, queue_id=number) for number, each in enumerate("ABAB")])
    chosen = read_filters([EqualTo(("topic",), "A"), EqualTo(("queue_id",), 2)])
    monkeypatch.setattr(LogRows, "_pieces", lambda self, records: [records])
    (row,) = fast(run, chosen)
    assert (row["topic"], row["queue_id"]) == ("A", 2)


def test_the_record_of_a_lost_range_is_damage() -> None:
    data = LostRange(0, 5000, 1 << 30, "T", 1_795_000_000_000).records()
    assert data is not None
    run = run_of_bytes(data)
    assert not fast(run)
    (damage,) = lost_records(run)
    assert damage_row(damage, "/f")[:3] == ("lost", 0, 5000)
    assert not list(lost_records(run_of([message("T", sys_flag=0xC, body=b"x")])))


def test_a_row_of_damage_names_the_record() -> None:
    damage = Damage("record", 5, 9, "why", message("T", queue_id=3, queue_offset=8))
    assert damage_row(damage, "/f") == ("record", 5, 9, "why", "/f", "T", 3, 8)


def test_a_size_of_a_topic_is_not_read_as_text() -> None:
    run = run_of([message("T", properties=b"\x02" * 40), message("T", properties=b"")])
    assert [row["properties"] for row in fast(run)] == [{}, {}]
