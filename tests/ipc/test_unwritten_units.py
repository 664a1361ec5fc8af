"""Units in shared memory: what is put is read, also while it is overwritten, and after kills."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from ipc.unwritten_units import (
    MOST_OF_QUEUE,
    UNIT_SIZE,
    UnwrittenUnits,
    UnwrittenUnitsReader,
    size_for,
)

ROWS = 4
CAPACITY = 8


def unit(row: int, queue_offset: int) -> memoryview:
    return memoryview(f"{row}:{queue_offset}".encode().ljust(UNIT_SIZE, b"."))


def text(row: int, first: int, end: int) -> bytes:
    return b"".join(unit(row, each) for each in range(first, end))


class Memory:
    """A writer that has files, too: of each row how many units are in them."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self.view = memoryview(bytearray(size_for(ROWS, capacity)))
        self.units = UnwrittenUnits(self.view, ROWS, capacity)
        self.reader = UnwrittenUnitsReader(self.view, ROWS, capacity)
        self.in_files = [0] * ROWS
        self.ends = [0] * ROWS

    def put(self, row: int) -> None:
        while not self.units.has_room(1):
            self.drop_oldest()
        if self.units.count(row) == MOST_OF_QUEUE:
            self.write(row)
        self.units.put(row, self.ends[row], unit(row, self.ends[row]))
        self.ends[row] += 1

    def drop_oldest(self) -> None:
        row = self.units.oldest_row()
        if row is not None:
            self.write(row)
        self.units.drop_oldest()

    def write(self, row: int) -> None:
        first, data = self.units.units_of(row)
        assert data == text(row, first, first + len(data) // UNIT_SIZE)
        assert first == self.in_files[row]
        self.in_files[row] = first + len(data) // UNIT_SIZE
        self.units.clear(row)

    def check(self, reader: UnwrittenUnitsReader, row: int, queue_offset: int) -> None:
        """What a reader finds, with what is in files after it has looked, is all there is."""
        end = self.ends[row]
        found = reader.read(row, queue_offset)
        if found is None:
            assert self.in_files[row] >= end
            return
        first, data = found
        reached = first + len(data) // UNIT_SIZE
        assert data == text(row, first, reached)
        assert reached >= end
        assert first <= max(queue_offset, self.in_files[row])


@pytest.mark.parametrize("seed", range(4))
def test_what_was_put_is_read(seed: int) -> None:
    lot = random.Random(seed)
    memory = Memory()
    assert memory.reader.read(0, 0) is None
    for _ in range(300):
        memory.put(lot.randrange(ROWS))
        for row in range(ROWS):
            memory.check(memory.reader, row, lot.randrange(memory.ends[row] + 1))
        if not lot.randrange(10):
            memory.drop_oldest()
    assert memory.units.end - memory.units.begin <= CAPACITY


def test_a_queue_has_no_more_than_a_reader_goes_through() -> None:
    memory = Memory(1000)
    for _ in range(MOST_OF_QUEUE + 1):
        memory.put(1)
    assert memory.in_files[1] == MOST_OF_QUEUE
    assert memory.reader.read(1, 0) == (MOST_OF_QUEUE, text(1, MOST_OF_QUEUE, MOST_OF_QUEUE + 1))


def test_a_reader_stops_where_it_is_to_begin() -> None:
    memory = Memory()
    for _ in range(5):
        memory.put(2)
    assert memory.reader.read(2, 3) == (3, text(2, 3, 5))


class InterruptedReader(UnwrittenUnitsReader):
    """The writer goes on before each look at an entry."""

    between: Callable[[], None] = staticmethod(lambda: None)

    def _entry(self, number: int) -> tuple[int, int, int, bytes]:
        self.between()
        return super()._entry(number)


@pytest.mark.parametrize("seed", range(20))
def test_entries_are_overwritten_while_they_are_read(seed: int) -> None:
    lot = random.Random(seed)
    memory = Memory()
    reader = InterruptedReader(memory.view, ROWS, CAPACITY)

    def go_on() -> None:
        for _ in range(lot.choice((0, 0, 0, 1, 2, CAPACITY))):
            memory.put(lot.randrange(ROWS))

    reader.between = go_on
    for _ in range(200):
        go_on()
        row = lot.randrange(ROWS)
        memory.check(reader, row, lot.randrange(memory.ends[row] + 1))


class KilledError(Exception):
    """In place of a signal."""


class Words:
    """Memory whose writer is killed before it writes for the nth time."""

    def __init__(self, words: memoryview, life: list[int]) -> None:
        self.words, self.life = words, life

    def __getitem__(self, at: int) -> int:
        return self.words[at]

    def __setitem__(self, at: int, word: int) -> None:
        self.life[0] -= 1
        if self.life[0] < 0:
            raise KilledError
        self.words[at] = word


def put_for_ever(memory: Memory, lot: random.Random) -> None:
    while True:
        memory.put(lot.randrange(ROWS))


@pytest.mark.parametrize("seed", range(3))
def test_kills_between_the_steps(seed: int) -> None:
    """What was put, and nothing that was not, is with the next writer and with readers."""
    for steps in range(60):
        lot = random.Random(seed)
        memory = Memory()
        life = [steps]
        memory.units._words = Words(memory.units._words, life)
        memory.units._heads = Words(memory.units._heads, life)
        with pytest.raises(KilledError):
            put_for_ever(memory, lot)
        after = UnwrittenUnits(memory.view, ROWS, CAPACITY)
        for each in range(ROWS):
            found = memory.reader.read(each, 0)
            first, data = (memory.in_files[each], b"") if found is None else found
            assert first <= memory.in_files[each]
            end = first + len(data) // UNIT_SIZE
            assert data == text(each, first, end)
            assert max(end, memory.in_files[each]) == memory.ends[each]
            assert (each in after.rows(ROWS)) == (found is not None)
        after.drop_all(ROWS)
        assert after.rows(ROWS) == []
        assert after.begin == after.end
        assert after.has_room(CAPACITY)
        assert not after.has_room(CAPACITY + 1)


@pytest.mark.parametrize("seed", range(4))
def test_units_that_cannot_be_written_go_round(seed: int) -> None:
    """A reader sees them whenever it looks, though all others have overwritten the ring."""
    lot = random.Random(seed)
    memory = Memory(CAPACITY + MOST_OF_QUEUE)
    stuck, first_entry, rounds = 0, 0, 0
    for _ in range(1500):
        units = memory.units
        row = stuck if not lot.randrange(40) and units.count(stuck) < MOST_OF_QUEUE else 1
        while not units.has_room(1):
            if units.oldest_row() == stuck:
                if units.begin >= first_entry:
                    first_entry, rounds = units.move_to_end(stuck), rounds + 1
                memory.check(memory.reader, stuck, lot.randint(0, memory.ends[stuck]))
                units.drop_oldest()
            else:
                memory.drop_oldest()
        memory.put(row)
        for each in (stuck, 1):
            memory.check(memory.reader, each, lot.randint(0, memory.ends[each]))
        assert units.count(stuck) == memory.ends[stuck]
    assert rounds > 10
    assert memory.units.units_of(stuck) == (0, text(stuck, 0, memory.ends[stuck]))
