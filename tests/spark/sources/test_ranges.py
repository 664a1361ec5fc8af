"""Cutting queues into ranges: every offset once, whatever the sizes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark.sources.errors import SourceError
from spark.sources.ranges import (
    MOST_RANGES,
    SMALL_TASK,
    USUAL_TASKS,
    Range,
    TaskRanges,
    cut,
    tasks_of,
)


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


def sizes(tasks: list[TaskRanges]) -> list[list[int]]:
    return [[each.size for each in task.ranges] for task in tasks]


def test_small_ranges_of_many_queues_are_of_one_task() -> None:
    many = ranges(*[(0, 200)] * 512)
    assert sizes(tasks_of(many, 1)) == [[200] * 10] * 51 + [[200] * 2]
    assert sizes(tasks_of(many[:64], 1)) == [[200] * 2] * 32
    assert sizes(tasks_of(many, 300))[:1] == [[200]]


def test_few_ranges_and_large_ones_have_a_task_each() -> None:
    assert sizes(tasks_of(ranges(*[(0, 3)] * USUAL_TASKS), 1)) == [[3]] * USUAL_TASKS
    large = ranges(*[(0, SMALL_TASK + 1)] * 100)
    assert sizes(tasks_of(large, 1)) == [[SMALL_TASK + 1]] * 100
    assert tasks_of([], 5) == []


@given(
    st.lists(st.one_of(st.integers(1, 50), st.integers(1, 2**62)), max_size=200),
    st.integers(1, 150),
)
def test_every_range_in_one_task(numbers: list[int], least: int) -> None:
    whole = ranges(*((5, 5 + number) for number in numbers))
    tasks = tasks_of(whole, least)
    assert [each for task in tasks for each in task.ranges] == whole
    assert len(tasks) >= min(len(whole), max(least, USUAL_TASKS))
    for task in tasks:
        assert len(task.ranges) == 1 or sum(each.size for each in task.ranges) <= SMALL_TASK
