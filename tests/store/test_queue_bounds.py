"""QueueBounds against a naive list of units: what is there, what is on disk, where the log begins.

The list knows of each unit for itself whether a flush that began after it was written has ended.
The bounds must never promise more than the list can show.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from store.queue_bounds import FlushMark, QueueBounds

UNIT = 20
FILE = 5 * UNIT
RECORD = 10


@dataclass(eq=False)
class Unit:
    """One unit, wherever it lies; record_end 0: it is blank."""

    position: int
    record_end: int
    on_disk: bool = False


def file_of(unit: Unit) -> int:
    return unit.position - unit.position % FILE


class BoundsBesideAList:
    """Each step does the same to both. `number` says how much of it, or where."""

    def __init__(self) -> None:
        self.bounds = QueueBounds()
        self.units: list[Unit] = []
        self.first = 0
        """Position of the first file."""
        self.log_end = 0
        self.low = 0
        """Where the log begins."""
        self.syncing: tuple[FlushMark, list[Unit]] | None = None
        """The flush that is under way, and the units that were written before it began."""
        self.removals = 0

    @property
    def end(self) -> int:
        return self.units[-1].position + UNIT if self.units else self.first

    @property
    def last_record(self) -> int:
        return max((unit.record_end for unit in self.units), default=0)

    def append(self, number: int) -> None:
        count = number % 7 + 1
        for _ in range(count):
            self.log_end += RECORD
            self.units.append(Unit(self.end, self.log_end))
        self.bounds.append(count * UNIT, self.log_end)

    def append_blank(self, number: int) -> None:
        if self.units:
            self.units.append(Unit(self.end, 0))
            self.bounds.append_blank(UNIT)

    def cut(self, number: int) -> None:
        kept = max(len(self.units) - number % 5, 0)
        end = self.units[kept].position if kept < len(self.units) else self.end
        del self.units[kept:]
        self.removals += 1
        self.bounds.cut(end, self.last_record)

    def clear(self, number: int) -> None:
        self.units, self.first = [], 0
        self.removals += 1
        self.bounds.clear()

    def begin_at(self, number: int) -> None:
        """A queue whose first record has a later offset: blank units lie before it in its file."""
        self.clear(number)
        first_unit = number * UNIT
        self.first = first_unit - first_unit % FILE
        self.bounds.begin_at(self.first, first_unit)
        while self.end < first_unit:
            self.units.append(Unit(self.end, 0))
            self.bounds.append_blank(UNIT)

    def drop_first_file(self, number: int) -> None:
        if self.end > self.first + FILE:
            self.first += FILE
            self.units = [unit for unit in self.units if unit.position >= self.first]
            self.bounds.drop_first_file(self.first)

    def write_over(self, number: int) -> None:
        if self.units:
            at = number % len(self.units)
            old = self.units[at]
            self.units[at] = Unit(old.position, 0 if number % 2 else old.record_end)
            self.bounds.write_over(old.position, self.last_record)

    def write_again(self, number: int) -> None:
        if self.units:
            at = number % len(self.units)
            again = [Unit(unit.position, unit.record_end) for unit in self.units[at:]]
            self.units[at:] = again
            self.bounds.write_again(again[0].position)

    def begin_flush(self, number: int) -> None:
        dirty = set(self.bounds.dirty_files(FILE))
        assert {file_of(unit) for unit in self.units if not unit.on_disk} <= dirty
        assert dirty <= {file_of(unit) for unit in self.units}
        self.syncing = self.bounds.flush_mark(), list(self.units)

    def end_flush(self, number: int) -> None:
        if self.syncing is not None:
            mark, covered = self.syncing
            for unit in covered:
                unit.on_disk = True
            self.syncing = None
            self.bounds.mark_flushed(mark)

    def flush(self, number: int) -> None:
        """With nothing in between everything is on disk."""
        self.begin_flush(number)
        self.end_flush(number)
        assert self.bounds.flushed == self.bounds.end

    def find_min(self, number: int) -> None:
        self.low = min(self.low + (number % 3) * RECORD, self.log_end)
        alive = [unit.position for unit in self.units if unit.record_end > self.low]
        position = alive[0] if alive else self.end
        if self.bounds.knows_min_for(self.low):
            assert self.bounds.min == position
            return
        before = self.bounds.min
        assert self.bounds.set_min(position, self.low) == (before != position)
        assert self.bounds.min == position

    def load(self, number: int) -> None:
        """The process starts again, after everything was flushed."""
        self.flush(number)
        self.bounds = QueueBounds()
        self.bounds.load(self.first, self.end, self.last_record)
        self.removals = 0

    def check(self) -> None:
        bounds = self.bounds
        assert (bounds.start, bounds.end) == (self.first, self.end)
        assert bounds.is_empty == (not self.units)
        assert bounds.max_phy_offset == self.last_record
        assert bounds.generation == self.removals
        assert bounds.start <= bounds.flushed <= bounds.end
        assert bounds.min <= bounds.end
        assert set(bounds.files(FILE)) >= {file_of(unit) for unit in self.units}
        for unit in self.units:
            assert unit.on_disk or unit.position + UNIT > bounds.flushed


STEPS = {
    "append": 3,
    **dict.fromkeys(("begin_flush", "end_flush", "write_over", "find_min"), 3),
    **dict.fromkeys(("append_blank", "cut", "write_again", "drop_first_file"), 2),
    **dict.fromkeys(("clear", "begin_at", "flush", "load"), 1),
}
"""And how often each comes."""
NAMES = [name for name, count in STEPS.items() for _ in range(count)]


@given(st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 20)), min_size=30, max_size=50))
@settings(max_examples=150, deadline=None)
def test_bounds_say_what_the_list_says(steps: list[tuple[str, int]]) -> None:
    both = BoundsBesideAList()
    for name, number in steps:
        getattr(both, name)(number)
        both.check()
