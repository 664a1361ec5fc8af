"""Comparisons of a WHERE clause as bounds."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
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
)

from spark.sources.log_filter import Bounds, read_filters

PLACE = ("physical_offset",)
TIME = ("store_timestamp",)


@pytest.mark.parametrize(
    ("filters", "kept"),
    [
        ([EqualTo(PLACE, 5)], {5}),
        ([EqualNullSafe(PLACE, 5)], {5}),
        ([In(PLACE, (2, 5, None))], {2, 5}),
        ([In(PLACE, (2, 5)), EqualTo(PLACE, 5)], {5}),
        ([GreaterThan(PLACE, 7)], {7, 8, 9}),
        ([GreaterThanOrEqual(PLACE, 7), LessThanOrEqual(PLACE, 8)], {7, 8}),
        ([LessThan(PLACE, 2)], {0, 1, 2}),
        ([Not(EqualTo(PLACE, 5)), IsNotNull(PLACE)], set(range(10))),
        ([EqualTo(PLACE, "5"), GreaterThan(PLACE, 1.5)], set(range(10))),
        ([EqualTo(PLACE, None)], set()),
        ([EqualTo(("body",), b"x")], set(range(10))),
    ],
)
def test_never_too_few_numbers(filters: list[Filter], kept: set[int]) -> None:
    bounds = read_filters(filters).of("physical_offset")
    column = np.arange(10)
    assert set(column[bounds.mask(column)].tolist()) == kept
    assert {each for each in range(10) if bounds.meets(each, each)} == kept
    assert bounds.is_open == (len(kept) == 10)


@pytest.mark.parametrize(
    ("each", "low", "high"),
    [(GreaterThan, 1000, None), (LessThan, None, 1001), (EqualTo, 1000, 1001)],
)
def test_a_time_between_two_milliseconds(each: Any, low: int | None, high: int | None) -> None:
    bounds = read_filters([each(TIME, datetime(1970, 1, 1, 0, 0, 1, 500, UTC))]).of(TIME[0])
    for ms in range(990, 1010):
        is_in = (low is None or ms >= low) and (high is None or ms <= high)
        assert bounds.meets(ms, ms) == is_in


def test_a_time_without_a_zone_is_not_used() -> None:
    assert read_filters([GreaterThan(TIME, datetime(2026, 1, 1))]).of(TIME[0]).is_open


def test_ranges_meet() -> None:
    assert Bounds(5, 9).meets(9, 20)
    assert not Bounds(5, 9).meets(10, 20)
    assert Bounds(values=frozenset({3, 30})).meets(10, 40)
    assert not Bounds(values=frozenset({3, 30})).meets(10, 20)


def test_topics() -> None:
    assert read_filters([]).topics is None
    found = read_filters([In(("topic",), ("a", "b")), EqualTo(("topic",), "b")])
    assert found.topics == {"b"}
    assert (
        read_filters([Not(EqualTo(("topic",), "a")), GreaterThan(("topic",), "a")]).topics is None
    )
