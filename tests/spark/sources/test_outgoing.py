"""Rows as messages: columns that may be written, and rows that can be none."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DecimalType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from spark.sources.errors import OptionError
from spark.sources.outgoing import OutgoingRow, RowError, RowRules, check_size, row_id

RULES = RowRules("T", None)


def row(rules: RowRules = RULES, **values: Any) -> OutgoingRow:
    batch = pa.RecordBatch.from_pylist([{"body": b"x", **values}])
    (found,) = rules.messages(batch, 7)
    return found


def checked(columns: dict[str, DataType], rules: RowRules = RULES) -> None:
    rules.check(StructType([StructField(name, kind) for name, kind in columns.items()]))


def test_columns_become_a_message() -> None:
    found = row(
        RowRules(None, "customer"),
        topic="Orders",
        keys=["k1", "k2"],
        tags="paid",
        properties=[("a", "1")],
        flag=3,
        customer=17,
    )
    assert (found.number, found.topic, found.shard, found.flag) == (7, "Orders", "17", 3)
    assert found.properties == {"a": "1", "KEYS": "k1 k2", "TAGS": "paid"}
    assert not found.is_delayed
    assert str(found) == "row 7 (topic Orders, keys k1 k2)"


def test_text_is_utf_8() -> None:
    assert row(body="日本").body == "日本".encode()


def test_delays() -> None:
    assert row(delay_level=3).properties == {"DELAY": "3"}
    at = datetime(2026, 11, 28, tzinfo=UTC)
    found = row(deliver_timestamp=at)
    assert found.properties == {"TIMER_DELIVER_MS": "1795824000000"}
    assert found.is_delayed
    assert not row(delay_level=0).is_delayed


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"body": None}, "row 7 .*the body is null"),
        ({"topic": ""}, "row 7: no topic"),
        ({"properties": [("UNIQ_KEY", "x")]}, "row 7: the property UNIQ_KEY is RocketMQ's own"),
        ({"properties": [("TRAN_MSG", "true")]}, "transactions are not offered"),
        ({"properties": [("a", None)]}, "the property a is None"),
        ({"properties": [("a", "x\x01y")]}, r"the property a is 'x\\x01y'"),
        ({"properties": [("", "x")]}, "a property's name is ''"),
        ({"keys": ["a", None]}, "row 7: keys has a null"),
        ({"tags": "a\x02b"}, "tags is"),
        ({"flag": 1 << 31}, "out of range"),
        ({"delay_level": -1}, "out of range"),
        ({"delay_level": 1, "deliver_timestamp": datetime(2026, 1, 1, tzinfo=UTC)}, "not both"),
    ],
)
def test_rows_that_can_be_no_message(values: dict[str, Any], text: str) -> None:
    with pytest.raises(RowError, match=text):
        row(**values)


def test_properties_that_are_too_long() -> None:
    check_size(row(properties=[("a", "x" * 32_765)]))
    with pytest.raises(RowError, match=r"row 7 .*32768 bytes of properties"):
        check_size(row(properties=[("a", "x" * 32_766)]))


BODY: dict[str, DataType] = {"body": BinaryType()}


@pytest.mark.parametrize(
    ("columns", "rules", "text"),
    [
        ({"topic": StringType()}, RULES, "no column body"),
        (BODY, RowRules(None, None), "no topic: give the option topic"),
        (BODY | {"queue_id": IntegerType()}, RULES, "column queue_id cannot be written: select"),
        ({"body": IntegerType()}, RULES, "column body is int: cast it to binary or string"),
        (BODY | {"keys": ArrayType(IntegerType())}, RULES, "cast it to string or array of strings"),
        (
            BODY | {"properties": MapType(StringType(), IntegerType())},
            RULES,
            "cast it to map of strings",
        ),
        (BODY, RowRules("T", "c"), "shardColumn: there is no column c"),
    ],
)
def test_columns_that_cannot_be_written(
    columns: dict[str, DataType], rules: RowRules, text: str
) -> None:
    with pytest.raises(OptionError, match=text):
        checked(columns, rules)


def test_a_column_that_is_there_twice() -> None:
    """One of them was left out without a word."""
    body = StructField("body", BinaryType())
    with pytest.raises(OptionError, match="column body is there 2 times: select one"):
        RULES.check(StructType([body, StructField("keys", StringType()), body]))


def test_columns_that_can() -> None:
    checked({"body": StringType(), "keys": ArrayType(StringType()), "flag": LongType()})
    checked(BODY | {"topic": StringType()}, RowRules(None, None))
    checked(BODY | {"customer": DecimalType()}, RowRules("T", "customer"))


def test_ids_tell_rows_and_contents_apart() -> None:
    plain = row()
    ids = {
        row_id("job", 0, plain),
        row_id("job2", 0, plain),
        row_id("job", 1, plain),
        row_id("job", 0, row(body=b"y")),
        row_id("job", 0, row(tags="y")),
        row_id("job", 0, row(topic="U")),
    }
    assert len(ids) == 6
    one, other = row(properties=[("a", "1"), ("b", "2")]), row(properties=[("b", "2"), ("a", "1")])
    assert row_id("job", 0, one) == row_id("job", 0, other)
