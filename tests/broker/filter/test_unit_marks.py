"""broker.filter.unit_marks: units rewritten by properties, within a time."""

from __future__ import annotations

import pytest

from broker.filter.unit_marks import MARKED_CODES, SCAN_LIMIT_MS, UnitMarks
from store.stored_units import CQ_UNIT, PRE_BLANK_SIZE
from tests.broker.broker_fakes import FakeClock

FILE_SIZE = 1000


class Log:
    """Views of files 0 to 2; file 1 is gone."""

    file_size = FILE_SIZE

    def view_of_file(self, phy_offset: int) -> memoryview | None:
        number = phy_offset // FILE_SIZE
        return None if number == 1 else memoryview(bytes([number]) * FILE_SIZE)


class Wanted:
    """A MessageFilter that wants even positions, and takes its time."""

    def __init__(self, clock: FakeClock, takes_ms: int = 0) -> None:
        self.clock, self.takes_ms = clock, takes_ms
        self.asked: list[tuple[int, int]] = []

    def matches(self, view: memoryview, position: int) -> bool:
        self.clock.advance(self.takes_ms)
        self.asked.append((view[0], position))
        return position % 2 == 0


def units(*rows: tuple[int, int, int]) -> bytes:
    return b"".join(CQ_UNIT.pack(*row) for row in rows)


def mark(
    raw: bytes,
    codes: frozenset[int] | None = None,
    count: int = 32,
    takes_ms: int = 0,
    wrong: int = -1,
) -> tuple[list[tuple[int, int, int]], list[tuple[int, int]]]:
    """The rewritten units, and what was asked: (file, position)."""
    clock = FakeClock()
    wanted = Wanted(clock, takes_ms)
    marked = UnitMarks(Log(), clock.monotonic_ms).mark(
        raw, codes, wanted, count, lambda number, _phy_offset, _size: number != wrong
    )
    return list(CQ_UNIT.iter_unpack(marked)), wanted.asked


def test_marks_say_who_is_wanted() -> None:
    found, asked = mark(units((0, 100, 77), (101, 50, -3), (2100, 60, 0)))
    assert found == [(0, 100, 1), (101, 50, 0), (2100, 60, 1)]
    assert asked == [(0, 0), (0, 101), (2, 100)]
    assert {1} == MARKED_CODES


@pytest.mark.parametrize("tags", [7, 2**32 + 7])
def test_tags_must_match_too(tags: int) -> None:
    found, asked = mark(units((0, 9, tags), (2, 9, 8), (4, 9, -1)), codes=frozenset({7, -1}))
    assert [row[2] for row in found] == [1, 0, 1]
    assert asked == [(0, 0), (0, 4)]


def test_what_has_no_record_is_for_the_loop_to_find_out() -> None:
    found, asked = mark(units((1001, 9, 0), (1, PRE_BLANK_SIZE, 0)))
    assert [row[2] for row in found] == [1, 1]
    assert asked == []


def test_it_stops_before_a_wrong_unit() -> None:
    raw = units(*((number, 1, 0) for number in range(10)))
    found, asked = mark(raw, wrong=4)
    assert [row[0] for row in found] == [0, 1, 2, 3]
    assert asked == [(0, number) for number in range(4)]


def test_it_stops_when_there_are_enough() -> None:
    raw = units(*((number, 1, 0) for number in range(10)))
    found, asked = mark(raw, count=2)
    assert [row[0] for row in found] == [0, 1, 2]
    assert len(asked) == 3


@pytest.mark.parametrize(("takes_ms", "looked_at"), [(0, 10), (1, SCAN_LIMIT_MS), (99, 1)])
def test_it_stops_when_the_time_is_up(takes_ms: int, looked_at: int) -> None:
    raw = units(*((2 * number + 1, 1, 0) for number in range(10)))
    found, _ = mark(raw, takes_ms=takes_ms)
    assert len(found) == looked_at
    assert {row[2] for row in found} == {0}
