"""RevivePoint: a check point that came out of the timer, and what is left to do for it.

Value of PopReviveService, changed by it only, on the loop thread of `remoting`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from broker.pop.pop_check_point import PopCheckPoint, stored_point
from broker.pop.pop_limits import fault_of_stored
from remoting.errors import BodyError
from store.message import Message

_MAX_WAIT_MS: Final = 60_000
"""A record in the revive topic is due, by the clock that the timer had. If the clock was set back
since, the check points behind it do not wait for it for longer than this."""


class RevivePoint:
    """See the module."""

    __slots__ = (
        "acked", "again", "broker_name", "due_ms", "end", "left", "offsets", "phy_offset", "point",
        "put_again_times", "revive_offset",
    )  # fmt: skip

    def __init__(self, found: PopCheckPoint, message: Message, revive_offset: int) -> None:
        """message, revive_offset: its record in the revive topic, and where that is."""
        self.point = found.check_point(message.queue_id)
        self.broker_name = found.broker_name
        self.put_again_times = found.parse_re_put_times()
        self.revive_offset = revive_offset
        self.phy_offset = message.phy_offset
        self.due_ms = min(self.point.revive_time_ms, message.store_timestamp + _MAX_WAIT_MS)
        self.offsets = dict.fromkeys(self.point.offsets)
        """The queue offsets of its messages, in order."""
        self.acked: set[int] = set()
        """Those of acknowledged messages."""
        self.left = 0
        """Messages that are neither copied nor given up."""
        self.again: list[int] = []
        """Those of them that the log did not take."""
        self.end = 0
        """The log's end behind the last copy."""

    def acknowledge(self, offsets: Iterable[int]) -> None:
        """These were acknowledged; others than its own say nothing."""
        self.acked.update([offset for offset in offsets if offset in self.offsets])

    def absorb(self, known: RevivePoint) -> None:
        """One with the same key came before, of the same messages or of others: a message that is
        renewed in the ms of a pop that begins with it has the key of that pop. What is acknowledged
        of one is so of both."""
        known.offsets.update(self.offsets)  # not a copy: there may be any number of them
        self.offsets = known.offsets
        self.acked = known.acked
        self.due_ms = max(self.due_ms, known.due_ms)

    def open_offsets(self) -> list[int]:
        """The queue offsets of messages that were not acknowledged."""
        return [offset for offset in self.offsets if offset not in self.acked]

    def put_again(self, offset: int, invisible_time_ms: int) -> PopCheckPoint:
        """One of these messages as a check point of its own, which is due later."""
        return stored_point(
            self.point._replace(
                start_offset=offset, diffs=(0,), invisible_time_ms=invisible_time_ms
            ),
            self.broker_name,
            self.put_again_times + 1,
        )


def read_point(message: Message, revive_offset: int) -> RevivePoint:
    """The check point in a record of the revive topic. Raises BodyError: it is damaged."""
    found = PopCheckPoint.from_json_bytes(message.body)
    fault = fault_of_stored(found, message.store_timestamp)
    if fault:
        raise BodyError("PopCheckPoint", fault)
    return RevivePoint(found, message, revive_offset)
