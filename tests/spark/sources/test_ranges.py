"""Cutting queues into ranges: every offset once, whatever the sizes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark.sources.errors import SourceError
from spark.sources.ranges import MOST_RANGES, Range, cut


def ranges(*bounds: tuple[int, int]) -> list[Range]:
    return [Range("T", "b", number, *each) for number, each in enumerate(bounds)]


def test_no_larger_than_asked() -> None:
    found = cut(ranges((0, 10), (5, 5), (3, 4)), 4, 1)
    assert [(each.queue_id, each.begin, each.end) for each in found] == [
        (0, 0, 3),
        (0, 3, 6),
        (0, 6, 10),
        (2, 3, 4),
    ]


def test_as_many_as_asked() -> None:
    assert len(cut(ranges((0, 100), (0, 100)), 1000, 8)) == 8
    assert len(cut(ranges((0, 2)), 1000, 8)) == 2
    assert cut(ranges((0, 0)), 1000, 8) == []


def test_more_than_can_be_planned() -> None:
    """A broker may claim anything."""
    assert len(cut(ranges((0, MOST_RANGES)), 1, 1)) == MOST_RANGES
    with pytest.raises(SourceError, match=r"set maxMessagesPerPartition to more than 1000000.*b"):
        cut(ranges((0, 5), (0, 2**62)), 1_000_000, 1)


@given(
    st.lists(st.tuples(st.integers(0, 2**62), st.integers(0, 500)), max_size=5),
    st.integers(1, 100),
    st.integers(1, 30),
)
def test_every_offset_once(bounds: list[tuple[int, int]], most: int, least: int) -> None:
    whole = ranges(*((begin, begin + size) for begin, size in bounds))
    found = cut(whole, most, least)
    offsets = [(r.queue_id, offset) for r in found for offset in range(r.begin, r.end)]
    assert offsets == [(r.queue_id, offset) for r in whole for offset in range(r.begin, r.end)]
    assert all(0 < each.end - each.begin <= most for each in found)
