"""TimerProgress: which messages of which slots are delivered, in a mapped file of our own.

Loop thread of `remoting`. What is written is in the page cache: it outlives the kill of any or all
of our processes, so that these cost no message twice. It is not flushed, so over an end of the
machine (another boot id) it is not believed, nor when the log ends before what was delivered, nor
after the broker was a slave; the flushed read time of `timercheck` counts then.

    +0    i8  1 + how many slots a turn holds
    +8    i8  precision ms
    +16   i8  end of the log when an entry was written last
    +24   64  boot id, ASCII, zeros behind
    +88   SLOTS entries, that of a slot at slot time / precision mod SLOTS:
          i8 slot time / precision, i8 messages delivered from the slot's beginning on,
          i8 position of the last one's unit in the timer log (by which the entry of a slot that
          was built anew shows)

Numbers are little-endian. One entry is written after the log's publication of what it counts; what
a kill leaves between the two is in UnpublishedDeliveries.
"""

from __future__ import annotations

import logging
import mmap
from pathlib import Path
from struct import Struct
from typing import Final

from store.unflushed_map import boot_mark, open_unflushed

log = logging.getLogger(__name__)

SLOTS: Final = 1024
"""How far behind each other two slots may be that are being delivered."""
_HEAD: Final = Struct("<qqq64s")
_ENTRY: Final = Struct("<qqq")
_LOG_END: Final = Struct("<q")
_LOG_END_AT: Final = 16
_SIZE: Final = _HEAD.size + SLOTS * _ENTRY.size


class TimerProgress:
    """See the module. Owned by: the loop thread."""

    def __init__(self, path: Path, precision_ms: int) -> None:
        self._path = path
        self._precision_ms = precision_ms
        self._map: mmap.mmap | None = None

    def open(self, log_end: int) -> None:
        """Take up what an earlier life has left, if it is to be believed. log_end: of the log now.
        Raises OSError."""
        self._map, is_new = open_unflushed(self._path, _SIZE)
        head = self._head(log_end)
        slots, precision_ms, end, boot = _HEAD.unpack_from(self._map)
        if is_new or (slots, precision_ms, boot) != (head[0], head[1], head[3]) or end > log_end:
            self.clear(log_end)

    def clear(self, log_end: int) -> None:
        """No slot is delivered in part."""
        if self._map is not None:
            self._map[:] = bytes(_SIZE)
            _HEAD.pack_into(self._map, 0, *self._head(log_end))

    def delivered(self, slot_ms: int) -> tuple[int, int]:
        """Messages of a slot that are delivered, and the position of the last one's unit."""
        assert self._map is not None
        number = slot_ms // self._precision_ms
        found, count, pos = _ENTRY.unpack_from(self._map, self._at(number))
        return (count, pos) if found == number else (0, 0)

    def record(self, slot_ms: int, count: int, pos: int, log_end: int) -> None:
        """`count` messages of a slot, up to that of the unit at `pos`, are in the log, which ends
        at `log_end`, and published."""
        assert self._map is not None
        number = slot_ms // self._precision_ms
        at = self._at(number)
        if _ENTRY.unpack_from(self._map, at)[0] != number:
            _ENTRY.pack_into(self._map, at, 0, 0, 0)
        _ENTRY.pack_into(self._map, at, number, count, pos)
        _LOG_END.pack_into(self._map, _LOG_END_AT, log_end)

    def remove(self) -> None:
        """This broker is no master: what it delivered before is not to be believed later."""
        self._path.unlink(missing_ok=True)

    def close(self) -> None:
        """Unmap; idempotent."""
        if self._map is not None:
            self._map.close()
            self._map = None

    def _at(self, number: int) -> int:
        return _HEAD.size + number % SLOTS * _ENTRY.size

    def _head(self, log_end: int) -> tuple[int, int, int, bytes]:
        return 1 + SLOTS, self._precision_ms, log_end, boot_mark()
