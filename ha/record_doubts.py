"""RecordDoubts: what a slave does about a record of its master that it cannot believe.

The link ends and the same bytes are asked for again. A bit that flipped on the way is right then.
If the very same bytes come a second time, the master's own log has them: a record whose parts do
not add up stays refused; one that is only unlikely (record_expectations.py) is taken as it is, as
RocketMQ takes everything. A field for which that happens again and again is not judged for an hour:
this master writes it otherwise than expected, and each question costs a new link. Owned by:
HAClient's thread; it outlives a link. It knows neither links nor records' fields.
"""

from __future__ import annotations

import logging
import zlib
from typing import Final

from ha.record_expectations import Field, Suspicion
from ipc.clock import Clock

log = logging.getLogger(__name__)

_MOST_CONFIRMED: Final = 3
_MUTED_MS: Final = 3_600_000


class RecordDoubts:
    """See the module."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._doubted: tuple[int, int] | None = None
        """phy_offset and CRC-32 of the bytes that were refused last."""
        self._confirmed: dict[Field, list[int]] = {}
        """When (monotonic ms) suspicions of a field were in vain."""
        self.muted: frozenset[Field] = frozenset()
        """Fields that are not judged now; `refresh` keeps it true."""

    def refresh(self) -> None:
        """Call it when a link begins: an hour may be over."""
        now_ms = self._clock.monotonic_ms()
        for times_ms in self._confirmed.values():
            times_ms[:] = [at_ms for at_ms in times_ms if now_ms - at_ms < _MUTED_MS]
        self.muted = frozenset(
            field for field, times_ms in self._confirmed.items() if len(times_ms) >= _MOST_CONFIRMED
        )

    def came_before(self, phy_offset: int, data: memoryview) -> bool:
        """Whether these bytes were refused at this place the last time; remembered if not."""
        doubted = (phy_offset, zlib.crc32(data))
        if doubted == self._doubted:
            return True
        self._doubted = doubted
        return False

    def is_believed(self, phy_offset: int, record: memoryview, suspicion: Suspicion) -> bool:
        """Whether the suspicious record at `phy_offset` is to be taken: it came before."""
        if not self.came_before(phy_offset, record):
            return False
        self._doubted = None
        self._confirmed.setdefault(suspicion.field, []).append(self._clock.monotonic_ms())
        self.refresh()
        log.warning(
            "the record at %s came twice with the same bytes: it is what the master has, and is "
            "kept, though %s%s",
            phy_offset,
            suspicion.text,
            f"; {suspicion.field} is not judged for an hour"
            if suspicion.field in self.muted
            else "",
        )
        return True
