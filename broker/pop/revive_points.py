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
        "_of_key", "acked", "again", "broker_name", "due_ms", "end", "left", "phy_offset", "point",
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
        self.acked: set[int] = set()
        """The queue offsets of acknowledged messages, of all check points with its key."""
        self._of_key = set(self.point.offsets)
        """Those that these can be."""
        self.left = 0
        """Messages that are neither copied nor given up."""
        self.again: list[int] = []
        """Those of them that the log did not take."""
        self.end = 0
        """The log's end behind the last copy."""

    def is_same(self, other: RevivePoint) -> bool:
        """Whether both hand out the same messages at the same time."""
        return self.point[:-1] == other.point[:-1]  # suspends or not

    def share_acks(self, known: RevivePoint) -> None:
        """That one has the same key: so have the acks of both."""
        known._of_key.update(self._of_key)  # not a copy: there may be any number of them
        self._of_key, self.acked = known._of_key, known.acked

    def acknowledge(self, offsets: Iterable[int]) -> None:
        """These were acknowledged; offsets of no message say nothing."""
        self.acked.update([offset for offset in offsets if offset in self._of_key])

    def open_offsets(self) -> list[int]:
        """The queue offsets of messages that were not acknowledged."""
        return [offset for offset in self.point.offsets if offset not in self.acked]

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
