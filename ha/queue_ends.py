"""queue_ends: what the consume queues of a slave say of the next offset of a queue.

Read from the queue table, which process `store` publishes as it dispatches the log: it may be
behind. Any thread of process `ha`; the answer is a range. Pure but for shared memory; knows no
records.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ha.record_expectations import QueueEnd, QueueEnds
from ipc.control_page import ControlPage
from store.control_slots import DISPATCHED_OFFSET, MIN_PHY_OFFSET
from store.record_arrays import MIN_RECORD_SIZE

QueueOffsets = Callable[[str, int], tuple[int, int]]
"""(topic, queueId) to its min and max offset; (0, 0) for a queue that was never written."""


def make_queue_ends(queue_offsets: QueueOffsets, page: ControlPage) -> QueueEnds:
    """What RecordExpectations asks, from the queue table and the control page."""
    counters: Final = page.counters

    def find(topic: str, queue_id: int, phy_offset: int) -> QueueEnd:
        # In this order: whatever lies before it is in the table by then.
        dispatched = counters[DISPATCHED_OFFSET]
        least = queue_offsets(topic, queue_id)[1]
        unseen = max(phy_offset - dispatched, 0) // MIN_RECORD_SIZE
        if least == 0 and counters[MIN_PHY_OFFSET] > 0:
            # It may have had records that are gone.
            unseen = max(phy_offset, 0) // MIN_RECORD_SIZE
        return QueueEnd(least, least + unseen)

    return find
