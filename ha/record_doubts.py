"""RecordDoubts: what a slave does about a record of its master that it cannot believe.

The link ends and the same bytes are asked for again. A bit that flipped on the way is right then.
If the very same bytes come a second time, the master's own log has them: a record whose parts do
not add up stays refused; one that is only unlikely (record_expectations.py) is taken as it is, as
RocketMQ takes everything. A field for which that happens again and again is not judged for an hour:
this master writes it otherwise than expected, and each question costs a new link.

Where frames carry checksums nothing is asked again: the bytes are the master's. An unlikely record
is taken at once, with a warning, and no field is ever left unjudged but those that clients choose.
Owned by: HAClient's thread; it outlives a link. It knows neither links nor records' fields.
"""

from __future__ import annotations

import logging
import zlib
from typing import Final

from ha.record_expectations import CHOSEN_BY_CLIENTS, Field, Suspicion
from ipc.clock import Clock

log = logging.getLogger(__name__)

_MOST_CONFIRMED: Final = 3
_MUTED_MS: Final = 3_600_000
_SAID_MS: Final = 60_000
"""On a checked link a field is warned of so often; what came meanwhile is counted."""


class RecordDoubts:
    """See the module."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._doubted: tuple[int, int] | None = None
        """phy_offset and CRC-32 of the bytes that were refused last."""
        self._confirmed: dict[Field, list[int]] = {}
        """When (monotonic ms) suspicions of a field were in vain."""
        self._said: dict[Field, tuple[int, int]] = {}
        """When (monotonic ms) a field was warned of last, and how often it was odd since."""
        self._is_checked = False
        self.muted: frozenset[Field] = frozenset()
        """Fields that are not judged now; `begin` and `is_believed` keep it true."""

    def begin(self, *, is_checked: bool) -> None:
        """A link begins; is_checked: its frames carry checksums."""
        self._is_checked = is_checked
        if is_checked:
            self.muted = CHOSEN_BY_CLIENTS
        else:
            self._refresh()

    def _refresh(self) -> None:
        """An hour may be over."""
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
        """Whether the suspicious record at `phy_offset` is to be taken: it came before, or the link
        is checked."""
        if self._is_checked:
            self._say(phy_offset, suspicion)
            return True
        if not self.came_before(phy_offset, record):
            return False
        self._doubted = None
        self._confirmed.setdefault(suspicion.field, []).append(self._clock.monotonic_ms())
        self._refresh()
        log.warning(
            "keeping the record at %s, which came twice with the same bytes and so is the "
            "master's, although %s%s",
            phy_offset,
            suspicion.text,
            f"; {suspicion.field} is not judged for an hour"
            if suspicion.field in self.muted
            else "",
        )
        return True

    def _say(self, phy_offset: int, suspicion: Suspicion) -> None:
        now_ms = self._clock.monotonic_ms()
        said_ms, unsaid = self._said.get(suspicion.field, (now_ms - _SAID_MS, 0))
        if now_ms - said_ms < _SAID_MS:
            self._said[suspicion.field] = said_ms, unsaid + 1
            return
        self._said[suspicion.field] = now_ms, 0
        log.warning(
            "keeping the record at %s, which is the master's (its frame's checksum is right), "
            "although %s%s",
            phy_offset,
            suspicion.text,
            f" ({unsaid} more since the last line)" if unsaid else "",
        )
