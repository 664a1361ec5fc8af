"""RoomWaits: due messages whose queue would be a new one while the queue table is full.

A message that was taken before the table was full, or that comes back from a consumer, finds no
room when it is due. It does not hold up those behind it: its service stores it anew where it waits,
a timer in the timer topic, a delayed message in a level, a popped one as a check point. So it is in
the log and on the replicas as any other, in no list of ours, and is tried again after a minute,
then after twice as long each time. Counted in the control page, by who put it off; logged with its
place. Loop thread of `remoting`. Knows no record.
"""

from __future__ import annotations

import logging
from typing import Final

from ipc.clock import Clock
from store.control_slots import PUT_OFF, PutOffBy
from store.errors import QueueTableFullError

log = logging.getLogger(__name__)

FIRST_ROOM_WAIT_MS: Final = 60_000
LONGEST_ROOM_WAIT_MS: Final = 16 * FIRST_ROOM_WAIT_MS
"""Room comes with a restart of the broker, and a message is written anew after each wait."""
_LINES_A_MINUTE: Final = 10
_MINUTE_MS: Final = 60_000


class RoomWaits:
    """See the module. Owned by: the loop thread."""

    def __init__(self, counters: memoryview[int], clock: Clock) -> None:
        """counters: of the control page."""
        self._counters = counters
        self._clock = clock
        self._minute = 0
        self._said = 0
        """Messages of this minute."""

    def put_off(self, by: PutOffBy, phy_offset: int, why: QueueTableFullError) -> None:
        """The message at `phy_offset` waits: it is stored anew. A minute has at most ten lines, and
        one with the number of the others."""
        self._counters[PUT_OFF + by] += 1
        minute = self._clock.monotonic_ms() // _MINUTE_MS
        if minute != self._minute:
            if self._said > _LINES_A_MINUTE:
                log.warning("%s more messages were postponed", self._said - _LINES_A_MINUTE)
            self._minute, self._said = minute, 0
        self._said += 1
        if self._said <= _LINES_A_MINUTE:
            log.warning("%s: postponing the message at %s: %s", by.label, phy_offset, why)


def room_wait_ms(times: int) -> int:
    """How long a message waits when it is put off for the `times`-th time."""
    doublings = min(max(times, 1), LONGEST_ROOM_WAIT_MS.bit_length()) - 1
    return min(FIRST_ROOM_WAIT_MS << doublings, LONGEST_ROOM_WAIT_MS)
