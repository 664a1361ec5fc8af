"""EarlyDeliveries: which messages are delivered of slots that are not over, in a mapped file.

Loop thread of `remoting`. By the phy offset of the timer's record, which stays the same when wheel
and timer log are built again. Written, not flushed, after the log's publication, and believed as
TimerProgress is: by the same boot, while the log does not end before what was delivered, not after
the broker was a slave. An orderly stop flushes it and leaves it to any boot. The file is made with
the first such delivery.

Bytes: store/timer/early_file.py. A slot that finds no place waits until it is over.
"""

from __future__ import annotations

import logging
import mmap
from pathlib import Path

from store.timer.early_file import (
    CAPACITY,
    HEAD,
    HEAD_SIZE,
    LOG_END,
    LOG_END_AT,
    PHY_OFFSET,
    PLACE,
    PLACES,
    SIZE,
    STOPPED,
    list_at,
    place_at,
)
from store.unflushed_map import boot_mark, open_unflushed

log = logging.getLogger(__name__)


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
        self._map, is_new = open_unflushed(self._path, SIZE)
        size, precision_ms, end, boot = HEAD.unpack_from(self._map)
        is_ours = boot in (boot_mark(), STOPPED) and (size, precision_ms) == (
            SIZE,
            self._precision_ms,
        )
        if is_new or not is_ours or end > log_end:
            self.clear(log_end)
            return
        HEAD.pack_into(self._map, 0, size, precision_ms, end, boot_mark())
        if boot == STOPPED:
            # From here on another boot must not believe it.
            self._map.flush(0, HEAD_SIZE)

    def clear(self, log_end: int) -> None:
        """Nothing was delivered early."""
        if self._map is not None:
            self._map[:HEAD_SIZE] = bytes(HEAD_SIZE)
            HEAD.pack_into(self._map, 0, SIZE, self._precision_ms, log_end, boot_mark())

    def of_slot(self, slot_ms: int) -> frozenset[int]:
        """Phy offsets of the records that are delivered of a slot."""
        place = self._find(slot_ms // self._precision_ms)
        if place is None or self._map is None:
            return frozenset()
        count = PLACE.unpack_from(self._map, place_at(place))[1]
        at = list_at(place)
        raw = self._map[at : at + min(count, CAPACITY) * PHY_OFFSET.size]
        return frozenset(found for (found,) in PHY_OFFSET.iter_unpack(raw))

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
        PLACE.pack_into(self._map, place_at(place), number, 0)
        return True

    def record(self, slot_ms: int, phy_offset: int, log_end: int) -> None:
        """A message of a slot is in the log, which ends at `log_end`, and published."""
        if not self.claim(slot_ms, log_end):
            return
        place = self._find(slot_ms // self._precision_ms)
        if place is None or self._map is None:
            return
        number, count = PLACE.unpack_from(self._map, place_at(place))
        if count < CAPACITY:
            at = list_at(place) + count * PHY_OFFSET.size
            PHY_OFFSET.pack_into(self._map, at, phy_offset)
            LOG_END.pack_into(self._map, LOG_END_AT, log_end)
            PLACE.pack_into(self._map, place_at(place), number, count + 1)

    def free_before(self, time_ms: int) -> None:
        """All of the slots before is delivered, and TimerProgress knows it."""
        if self._map is None:
            return
        for place in range(PLACES):
            number = PLACE.unpack_from(self._map, place_at(place))[0]
            if number and number * self._precision_ms < time_ms:
                PLACE.pack_into(self._map, place_at(place), 0, 0)

    def remove(self) -> None:
        """This broker is no master: what it delivered before is not to be believed later."""
        self._path.unlink(missing_ok=True)

    def close(self) -> None:
        """At an orderly stop, after the last commit; idempotent. Raises OSError."""
        if self._map is not None:
            found, self._map = self._map, None
            size, precision_ms, end, _boot_id = HEAD.unpack_from(found)
            found.flush()
            HEAD.pack_into(found, 0, size, precision_ms, end, STOPPED)
            found.flush(0, HEAD_SIZE)
            found.close()

    def let_go(self) -> None:
        """Unmap, and leave the file as a kill of this process would; idempotent."""
        if self._map is not None:
            self._map.close()
            self._map = None

    def _create(self, log_end: int) -> bool:
        if self._cannot_open:
            return False
        try:
            self._map, _is_new = open_unflushed(self._path, SIZE)
        except OSError as error:
            log.error("%s: falling back to end-of-slot delivery: %s", self._path, error)
            self._cannot_open = True
            return False
        self.clear(log_end)
        return True

    def _find(self, number: int) -> int | None:
        if self._map is not None:
            for place in range(PLACES):
                if PLACE.unpack_from(self._map, place_at(place))[0] == number:
                    return place
        return None
