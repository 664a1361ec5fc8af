"""What Pops is made of: a check point and its life, the pops of a queue.

Values of Pops, changed by it only (`queue.committed`: by who carries out a Commit), on the loop
thread of `remoting`.

Tested by tests/broker/pop/test_pops.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from broker.pop.check_point import CheckPoint, CheckPointKey

QueueKey = tuple[str, str, int]
"""Topic, group, queue id."""


class PopCheckPointWrapper:
    """A check point in the buffer; bits: of its acknowledged messages."""

    __slots__ = (
        "bits", "children", "is_leaving", "key", "owner", "parent", "point", "queue", "row",
        "stored_end",
    )  # fmt: skip

    def __init__(
        self,
        point: CheckPoint,
        key: CheckPointKey,
        row: int,
        queue: OffsetQueue | None,
        bits: int = 0,
        stored_end: int = 0,
    ) -> None:
        """key: the point's."""
        self.point = point
        self.key = key
        self.row = row
        self.queue = queue
        self.bits = bits
        self.stored_end = stored_end
        self.parent: PopCheckPointWrapper | None = None
        self.children: list[PopCheckPointWrapper] = []
        """New check points of its messages whose invisible time was changed, unsettled."""
        self.owner: OffsetQueue | None = None
        """Of one that stands in no queue: that of its message."""
        self.is_leaving = False
        """It is stored, or waits in the append queue."""

    @property
    def is_acked(self) -> bool:
        """Whether none of its messages is left."""
        return self.bits + 1 == 1 << len(self.point.diffs)

    def is_settled(self, flushed: int) -> bool:
        """Whether no offset has to wait for it. flushed: the log's flushed end."""
        if self.children:
            return False
        if not self.point.diffs or (self.is_acked and not self.is_leaving):
            return True
        return 0 < self.stored_end <= flushed

    def left(self) -> CheckPoint:
        """What was not acknowledged."""
        point, bits = self.point, self.bits
        left = [diff for index, diff in enumerate(point.diffs) if not bits >> index & 1]
        return point._replace(diffs=tuple(left))


class OffsetQueue:
    """The pops of a group in a queue whose offset has not moved yet, in order."""

    __slots__ = (
        "committed", "committed_before", "key", "latest", "number", "renewed", "used_ms", "waits",
    )  # fmt: skip

    def __init__(self, number: int, key: QueueKey, committed: int, now_ms: int) -> None:
        """number: by which the journal knows it."""
        self.number = number
        self.key = key
        self.committed = committed
        self.latest = committed
        """Where the next pop begins."""
        self.committed_before = -1
        """`committed` when `drop_idle` looked last."""
        self.used_ms = now_ms
        self.waits: deque[PopCheckPointWrapper] = deque()
        self.renewed: set[PopCheckPointWrapper] = set()
        """Those of messages whose invisible time was changed: their rows have its number."""

    @property
    def is_idle(self) -> bool:
        """Whether no row has its number, and its offset did not move of late."""
        return not (self.waits or self.renewed) and self.committed == self.committed_before

    def next_offset(self, stored: int | None) -> int | None:
        """Where the next pop begins, with this offset stored for the group; None: somebody set it
        back, so that what was handed out behind it counts no more."""
        if stored is None or stored < self.committed:
            return None
        return max(stored, self.latest)

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
