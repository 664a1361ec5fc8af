"""EarlyDeliveries: which messages are delivered of slots that are not over, in a mapped file.

Loop thread of `remoting`. By the phy offset of the timer's record, which stays the same when wheel
and timer log are built again. Written, not flushed, after the log's publication, and believed as
TimerProgress is: by the same boot, while the log does not end before what was delivered, not after
the broker was a slave. An orderly stop flushes it and leaves it to any boot. The file is made with
the first such delivery.

    +0     i8  size of the file
    +8     i8  precision ms
    +16    i8  end of the log when something was noted last
    +24    64  boot id, ASCII, zeros behind; "stopped" after an orderly stop
    +88    8 times: i8 slot time / precision (0: free), i8 how many of the slot
    +4096  8 times: 32,768 i8 phy offsets, in the same order

Numbers are little-endian. Eight slots: two are open, the others wait for their turn after a kill,
or for the clock that was set back. A slot that finds no place waits until it is over.
"""

from __future__ import annotations

import logging
import mmap
from pathlib import Path
from struct import Struct
from typing import Final

from broker.timer.open_slot import CAPACITY
from store.unflushed_map import boot_mark, open_unflushed

log = logging.getLogger(__name__)

_PLACES: Final = 8
_HEAD: Final = Struct("<qqq64s")
_PLACE: Final = Struct("<qq")
_LOG_END: Final = Struct("<q")
_LOG_END_AT: Final = 16
_PHY_OFFSET: Final = Struct("<q")
_HEAD_SIZE: Final = 4096
_SIZE: Final = _HEAD_SIZE + _PLACES * CAPACITY * _PHY_OFFSET.size
assert _HEAD.size + _PLACES * _PLACE.size <= _HEAD_SIZE
_STOPPED: Final = b"stopped".ljust(64, b"\0")


class EarlyDeliveries:
    """See the module. Owned by: the loop thread."""

    def __init__(self, path: Path, precision_ms: int) -> None:
        self._path = path
        self._precision_ms = precision_ms
        self._map: mmap.mmap | None = None
        self._cannot_open = False

    def open(self, log_end: int) -> None:
        """Take up what an earlier life has left, if it is to be believed. log_end: of the log now.
        Raises OSError."""
        if not self._path.exists():
            return
        self._map, is_new = open_unflushed(self._path, _SIZE)
        size, precision_ms, end, boot = _HEAD.unpack_from(self._map)
        is_ours = boot in (boot_mark(), _STOPPED) and (size, precision_ms) == (
            _SIZE,
            self._precision_ms,
        )
        if is_new or not is_ours or end > log_end:
            self.clear(log_end)
            return
        _HEAD.pack_into(self._map, 0, size, precision_ms, end, boot_mark())
        if boot == _STOPPED:
            # From here on another boot must not believe it.
            self._map.flush(0, _HEAD_SIZE)

    def clear(self, log_end: int) -> None:
        """Nothing was delivered early."""
        if self._map is not None:
            self._map[:_HEAD_SIZE] = bytes(_HEAD_SIZE)
            _HEAD.pack_into(self._map, 0, _SIZE, self._precision_ms, log_end, boot_mark())

    def of_slot(self, slot_ms: int) -> frozenset[int]:
        """Phy offsets of the records that are delivered of a slot."""
        place = self._find(slot_ms // self._precision_ms)
        if place is None or self._map is None:
            return frozenset()
        count = _PLACE.unpack_from(self._map, _place_at(place))[1]
        at = _list_at(place)
        raw = self._map[at : at + min(count, CAPACITY) * _PHY_OFFSET.size]
        return frozenset(found for (found,) in _PHY_OFFSET.iter_unpack(raw))

    def claim(self, slot_ms: int, log_end: int) -> bool:
        """Have a place for a slot; False: there is none."""
        number = slot_ms // self._precision_ms
        if self._find(number) is not None:
            return True
        if self._map is None and not self._create(log_end):
            return False
        place = self._find(0)
        if place is None or self._map is None:
            return False
        _PLACE.pack_into(self._map, _place_at(place), number, 0)
        return True

    def record(self, slot_ms: int, phy_offset: int, log_end: int) -> None:
        """A message of a slot is in the log, which ends at `log_end`, and published."""
        if not self.claim(slot_ms, log_end):
            return
        place = self._find(slot_ms // self._precision_ms)
        if place is None or self._map is None:
            return
        number, count = _PLACE.unpack_from(self._map, _place_at(place))
        if count < CAPACITY:
            at = _list_at(place) + count * _PHY_OFFSET.size
            _PHY_OFFSET.pack_into(self._map, at, phy_offset)
            _LOG_END.pack_into(self._map, _LOG_END_AT, log_end)
            _PLACE.pack_into(self._map, _place_at(place), number, count + 1)

    def free_before(self, time_ms: int) -> None:
        """All of the slots before is delivered, and TimerProgress knows it."""
        if self._map is None:
            return
        for place in range(_PLACES):
            number = _PLACE.unpack_from(self._map, _place_at(place))[0]
            if number and number * self._precision_ms < time_ms:
                _PLACE.pack_into(self._map, _place_at(place), 0, 0)

    def remove(self) -> None:
        """This broker is no master: what it delivered before is not to be believed later."""
        self._path.unlink(missing_ok=True)

    def close(self) -> None:
        """At an orderly stop, after the last commit; idempotent. Raises OSError."""
        if self._map is not None:
            found, self._map = self._map, None
            size, precision_ms, end, _boot_id = _HEAD.unpack_from(found)
            found.flush()
            _HEAD.pack_into(found, 0, size, precision_ms, end, _STOPPED)
            found.flush(0, _HEAD_SIZE)
            found.close()

    def _create(self, log_end: int) -> bool:
        if self._cannot_open:
            return False
        try:
            self._map, _is_new = open_unflushed(self._path, _SIZE)
        except OSError as error:
            log.error("%s: timers come when their slot is over: %s", self._path, error)
            self._cannot_open = True
            return False
        self.clear(log_end)
        return True

    def _find(self, number: int) -> int | None:
        if self._map is not None:
            for place in range(_PLACES):
                if _PLACE.unpack_from(self._map, _place_at(place))[0] == number:
                    return place
        return None


def _place_at(place: int) -> int:
    return _HEAD.size + place * _PLACE.size


def _list_at(place: int) -> int:
    return _HEAD_SIZE + place * CAPACITY * _PHY_OFFSET.size
