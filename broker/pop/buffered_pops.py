"""What the buffer of check points is made of: a check point and its life, the pops of a queue.

Values of PopBufferMergeService, changed by it only, on the loop thread of `remoting`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from broker.pop.check_point import CheckPoint, CheckPointKey
from broker.pop.pop_journal import JournalQueue, JournalRow

QueueKey = tuple[str, str, int]
"""Topic, group, queue id."""


class PopCheckPointWrapper(msgspec.Struct, eq=False, weakref=False):
    """A check point in the buffer; bits: of its acknowledged messages."""

    point: CheckPoint
    key: CheckPointKey
    """Its."""
    row: int
    queue: OffsetQueue | None
    parent: PopCheckPointWrapper | None = None
    children: list[PopCheckPointWrapper] = []
    """New check points of its messages whose invisible time was changed, unsettled."""
    owner: OffsetQueue | None = None
    """Of one that stands in no queue: that of its message."""
    bits: int = 0
    stored_end: int = 0
    is_leaving: bool = False
    """It is stored, or waits in the append queue."""

    @property
    def is_acked(self) -> bool:
        """Whether none of its messages is left."""
        return self.bits + 1 == 1 << len(self.point.diffs)


class OffsetQueue:
    """The pops of a group in a queue whose offset has not moved yet, in order."""

    __slots__ = (
        "committed",
        "committed_before",
        "group",
        "latest",
        "number",
        "queue_id",
        "renewed",
        "topic",
        "used_ms",
        "waits",
    )  # fmt: skip

    def __init__(self, found: JournalQueue, now_ms: int) -> None:
        self.number = found.number
        self.topic = found.topic
        self.group = found.group
        self.queue_id = found.queue_id
        self.committed = found.committed
        self.latest = found.committed
        """Where the next pop begins."""
        self.committed_before = -1
        """`committed` when `clean` looked last."""
        self.used_ms = now_ms
        self.waits: deque[PopCheckPointWrapper] = deque()
        self.renewed: set[PopCheckPointWrapper] = set()
        """Those of messages whose invisible time was changed: their rows have its number."""

    @property
    def is_idle(self) -> bool:
        """Whether no row has its number, and its offset did not move of late."""
        return not (self.waits or self.renewed) and self.committed == self.committed_before

    def own(self, wrapper: PopCheckPointWrapper) -> None:
        """It is of a message whose invisible time was changed."""
        wrapper.owner = self
        self.renewed.add(wrapper)


def bit_of(wrapper: PopCheckPointWrapper, offset: int) -> int:
    """The bit of a message; 0: it is none of these."""
    diffs: Sequence[int] = wrapper.point.diffs
    diff = offset - wrapper.point.start_offset
    if 0 <= diff < len(diffs) and diffs[diff] == diff:
        return 1 << diff
    return 1 << diffs.index(diff) if diff in diffs else 0


def take_place(old: PopCheckPointWrapper, new: PopCheckPointWrapper) -> None:
    """A message was renewed again: what waited for `old`, its check point in between, waits for
    `new`."""
    new.parent, old.children = old.parent, []
    if old.parent is not None:
        others = [child for child in old.parent.children if child is not old]
        old.parent.children = [*others, new]


def fault_of(
    row: JournalRow, queue: OffsetQueue, queue_end: Callable[[str, int], int | None]
) -> str:
    """Why a row of the journal names no messages; "": it names some, or, rightly, none."""
    point = row.point
    if point.start_offset < 0 or point.next_offset < -1 or min(point.diffs, default=0) < 0:
        return "its numbers cannot be"
    end = queue_end(queue.topic, queue.queue_id) or 0
    if max(point.offsets, default=point.start_offset) >= end:
        return f"its queue has no such messages, it ends at {end}"
    return ""
