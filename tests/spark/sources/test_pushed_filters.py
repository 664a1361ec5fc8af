"""What is taken over of a WHERE clause: exact, or evaluated again by Spark."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from spark.sources.pushed_filters import TIME_MARGIN_MS, push
from spark.sources.rows import StoredMessage

T0 = datetime(2026, 11, 28, 12, 0, 0, 999, tzinfo=UTC)
T0_MS = 1795867200000


def message(offset: int = 0, **properties: str) -> StoredMessage:
    host = b"\x7f\0\0\1\0\0\0\1"
    return StoredMessage("T", "b", 0, offset, 0, properties, b"", "", 0, host, 0, host, 0, 0, 0)


@pytest.mark.parametrize(
    "left",
    [
        EqualNullSafe(("tags",), None),
        IsNotNull(("tags",)),
        Not(EqualTo(("tags",), "A")),
        StringStartsWith(("keys",), "k"),
        EqualTo(("body",), b"x"),
        EqualTo(("properties", "TAGS"), "A"),
        EqualTo(("queue_id",), True),
        EqualTo(("queue_id",), Decimal(1)),
        EqualTo(("tags",), None),
        GreaterThan(("queue_offset",), 1.5),
        GreaterThan(("queue_id",), 1),
        GreaterThan(("store_timestamp",), T0),
        EqualTo(("store_timestamp",), T0),
        LessThan(("store_timestamp",), T0.replace(tzinfo=None)),
        In(("tags",), ("A", 1)),
    ],
)
def test_left_to_spark(left: Filter) -> None:
    pushed, rest = push([left, EqualTo(("topic",), "T")])
    assert len(rest) == 1
    assert rest[0] is left
    assert pushed.chosen == {"topic": frozenset({"T"})}


def test_queues() -> None:
    pushed, rest = push([In(("queue_id",), (1, 2, None)), In(("queue_id",), (2, 3))])
    assert rest == []
    assert [number for number in range(5) if pushed.chooses("T", "b", number)] == [2]
    pushed, _ = push([EqualTo(("broker_name",), "a"), EqualTo(("topic",), "T")])
    assert pushed.chooses("T", "a", 0)
    assert not pushed.chooses("T", "b", 0)
    assert not pushed.chooses("S", "a", 0)


@pytest.mark.parametrize(
    ("filters", "bounds"),
    [
        ([GreaterThan(("queue_offset",), 3)], (4, 10)),
        ([GreaterThanOrEqual(("queue_offset",), 3)], (3, 10)),
        ([LessThan(("queue_offset",), 7)], (0, 7)),
        ([LessThanOrEqual(("queue_offset",), 7)], (0, 8)),
        ([GreaterThan(("queue_offset",), 3), GreaterThan(("queue_offset",), 1)], (4, 10)),
        ([LessThan(("queue_offset",), 3), LessThan(("queue_offset",), 5)], (0, 3)),
        ([GreaterThan(("queue_offset",), 8), LessThan(("queue_offset",), 3)], (9, 9)),
        ([EqualTo(("queue_offset",), 5)], (5, 6)),
        ([In(("queue_offset",), (5, 8, 20))], (5, 9)),
        ([In(("queue_offset",), (20,))], (0, 0)),
    ],
)
def test_offsets(filters: list[Filter], bounds: tuple[int, int]) -> None:
    pushed, rest = push(filters)
    assert rest == []
    assert pushed.offsets(0, 10) == bounds


def test_some_offsets_of_a_range() -> None:
    pushed, _ = push([In(("queue_offset",), (5, 8))])
    assert pushed.needs_a_look()
    assert [offset for offset in range(10) if pushed.wants(message(offset))] == [5, 8]


def test_times_have_a_margin() -> None:
    pushed, _ = push([GreaterThan(("store_timestamp",), T0), LessThan(("store_timestamp",), T0)])
    assert pushed.begin_ms == T0_MS - TIME_MARGIN_MS
    assert pushed.end_ms == T0_MS + TIME_MARGIN_MS
    pushed, _ = push([EqualTo(("store_timestamp",), T0)])
    assert (pushed.begin_ms, pushed.end_ms) == (T0_MS - TIME_MARGIN_MS, T0_MS + TIME_MARGIN_MS)


def test_tags_and_keys_are_compared() -> None:
    """The hash codes of Aa and BB are equal."""
    pushed, rest = push([EqualTo(("tags",), "Aa"), In(("keys",), ("k1", "k2"))])
    assert rest == []
    assert pushed.needs_a_look()
    assert pushed.wants(message(TAGS="Aa", KEYS="k2"))
    assert not pushed.wants(message(TAGS="BB", KEYS="k2"))
    assert not pushed.wants(message(TAGS="Aa", KEYS="k1 k2"))
    assert not pushed.wants(message(TAGS="Aa"))
    assert not pushed.wants(message(KEYS="k1"))


@pytest.mark.parametrize(
    ("tags", "expression"),
    [
        (("B", "A"), "A || B"),
        (("A", ""), "*"),
        ((" A",), "*"),
        (("\x05A",), "*"),
        (("\u3000A",), "*"),
        (("A||B",), "*"),
        (("*",), "*"),
        ((), "*"),
        (tuple(map(str, range(101))), "*"),
    ],
)
def test_what_brokers_are_told(tags: tuple[str, ...], expression: str) -> None:
    pushed, _ = push([In(("tags",), tags)])
    assert pushed.expression() == expression


def test_nothing() -> None:
    pushed, rest = push([])
    assert (pushed.expression(), pushed.needs_a_look(), rest) == ("*", False, [])
    assert pushed.offsets(3, 9) == (3, 9)
