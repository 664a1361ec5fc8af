"""UnpublishedDeliveries: the timers that were put into the log in this turn, in a mapped file.

Loop thread of `remoting`. TimerProgress and EarlyDeliveries are written when the log's records are
published. Before that a kill leaves records that nobody has noted: those that the log has when it
is opened again were delivered, those that it has not were not. So each delivery is noted here with
the end of its record before it is published, and all of them are taken away once they stand in the
other two files. Written, not flushed; believed by the same boot only, with the same precision, not
after the broker was a slave. An end of the log tells something only until others put records there,
so every life of the writer settles the file when it opens the log, also one that delivers nothing
or begins to later (a handover): a timer that is believed and not in the log is lost.

    +0    i8  size of the file
    +8    i8  precision ms
    +16   i8  how many deliveries
    +24   64  boot id, ASCII, zeros behind
    +88   CAPACITY times: i8 slot time (ms), i8 position of the unit in the timer log, or -1 for a
          slot that is not over, i8 messages delivered of the slot, or for a slot that is not over
          the phy offset of the timer's record, i8 end of what was put into the log

Numbers are little-endian. More than CAPACITY deliveries in one turn are not noted: a kill in that
turn repeats them.

Tested by tests/broker/timer/test_unpublished_deliveries.py.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from store.unflushed_map import boot_mark, open_unflushed

CAPACITY: Final = 4_096
OPEN_SLOT: Final = -1
"""Instead of a unit's position."""
_HEAD: Final = Struct("<qqq64s")
_COUNT: Final = Struct("<q")
_COUNT_AT: Final = 16
_ENTRY: Final = Struct("<qqqq")
_SIZE: Final = _HEAD.size + CAPACITY * _ENTRY.size


class Unpublished(NamedTuple):
    """One delivery, in the order of the file."""

    slot_ms: int
    pos: int
    number: int
    log_end: int


class UnpublishedDeliveries:
    """See the module. Owned by: the loop thread."""

    def __init__(self, path: Path, precision_ms: int) -> None:
        self._path = path
        self._precision_ms = precision_ms
        self._map: mmap.mmap | None = None
        self._count = 0

    def settle(self, log_end: int) -> None:
        """The log was opened and ends at `log_end`, nothing is put yet: what lies beyond never came
        to be. Raises OSError."""
        try:
            raw = self._path.read_bytes()
        except FileNotFoundError:
            return
        noted = self._noted(raw) if len(raw) == _SIZE else None
        if noted is None:
            self.remove()
            return
        in_log = sum(each.log_end <= log_end for each in noted)
        if in_log < len(noted):
            try:
                with self._path.open("r+b") as file:
                    file.seek(_COUNT_AT)
                    file.write(_COUNT.pack(in_log))
            except OSError:
                self.remove()

    def open(self, log_end: int) -> list[Unpublished]:
        """What an earlier life has put into the log, which ends at `log_end` now, and has not noted
        elsewhere; `settle` came first. It stays in the file until `clear`. Raises OSError."""
        self.settle(log_end)
        self._map, is_new = open_unflushed(self._path, _SIZE)
        found = None if is_new else self._noted(self._map)
        if not found:
            self._begin()
        return found or []

    def note(self, delivery: Unpublished) -> None:
        """It is in the log, and not published."""
        if self._map is None or self._count == CAPACITY:
            return
        _ENTRY.pack_into(self._map, _at(self._count), *delivery)
        self._count += 1
        _COUNT.pack_into(self._map, _COUNT_AT, self._count)

    def clear(self) -> None:
        """All are published, and noted elsewhere."""
        if self._map is not None:
            self._begin()

    def remove(self) -> None:
        """This broker is no master: what it delivered before is not to be believed later."""
        self._path.unlink(missing_ok=True)

    def close(self) -> None:
        """Unmap, and leave the file as a kill of this process would; idempotent."""
        if self._map is not None:
            self._map.close()
            self._map = None

    def _noted(self, raw: bytes | mmap.mmap) -> list[Unpublished] | None:
        """In the order in which they were put: their ends only grow. None: not to be believed."""
        size, precision_ms, count, boot = _HEAD.unpack_from(raw)
        if (size, precision_ms, boot) != (_SIZE, self._precision_ms, boot_mark()):
            return None
        count = min(max(count, 0), CAPACITY)
        return [Unpublished(*_ENTRY.unpack_from(raw, _at(number))) for number in range(count)]

    def _begin(self) -> None:
        assert self._map is not None
        self._count = 0
        _HEAD.pack_into(self._map, 0, _SIZE, self._precision_ms, 0, boot_mark())


def _at(number: int) -> int:
    return _HEAD.size + number * _ENTRY.size
