"""LiteQueues: where a lite group stands in a light queue, and whether it may be given more of it.

Loop thread. The offsets are the group's consumer offsets, which are saved and reach the slaves as
those of every queue; what is out is in memory. Knows no client.

Tested by tests/broker/lite/test_pop_lite_message_processor.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.lite.former_lives import FormerLives
from broker.lite.memory_consumer_order_info_manager import MemoryConsumerOrderInfoManager
from broker.offset.consumer_offset_manager import ConsumerOffsetManager
from broker.pop.pop_message_reader import newest_offset
from store.lmq_places import LMQ_QUEUE_ID


class LiteQueues:
    """See the module."""

    def __init__(
        self,
        bounds: Callable[[str, int], tuple[int, int]],
        offsets: ConsumerOffsetManager,
        order: MemoryConsumerOrderInfoManager,
        is_young: Callable[[str], bool],
        former_lives: FormerLives,
    ) -> None:
        """bounds: (min, max) offset of a queue, of what can be read. is_young: whether the queue's
        first message is in memory still."""
        self._bounds = bounds
        self._offsets = offsets
        self.order: Final = order
        self._is_young = is_young
        self._former_lives = former_lives

    def end(self, lmq: str) -> int:
        """The offset of its next message; 0: it holds none and never did."""
        return self._bounds(lmq, LMQ_QUEUE_ID)[1]

    def committed(self, group: str, lmq: str) -> int:
        """The group's offset; -1: it has none."""
        offset = self._offsets.query_offset(group, lmq, LMQ_QUEUE_ID)
        if offset and self._former_lives.is_former(group, lmq):
            offset = 0
            self.commit("formerLife", group, lmq, offset)
        return -1 if offset is None else offset

    def wants(self, group: str, lmq: str) -> bool:
        """Whether there is something that the group may be given now. An offset behind the end is
        of messages that are gone: a pop sets it right."""
        end = self.end(lmq)
        return (
            end > 0
            and end != self.committed(group, lmq)
            and not self.order.check_block(None, lmq, group)
        )

    def start(self, group: str, lmq: str) -> int:
        """Where the group's next pop begins."""
        reset = self._offsets.take_reset_offset(group, lmq, LMQ_QUEUE_ID)
        if reset is not None:
            self.order.clear_block(lmq, group)
            self.commit("ResetPopOffset", group, lmq, reset)
            return reset
        offset, (low, end) = self.committed(group, lmq), self._bounds(lmq, LMQ_QUEUE_ID)
        if offset < 0:
            offset = newest_offset((low, end), lambda: self._is_young(lmq))
            self.commit("getPopOffset", group, lmq, offset)
        elif offset > end:
            # Others have come in the place of what the group has got.
            offset = low
            self.commit("lostMessages", group, lmq, offset)
        return offset

    def commit(self, remote: str, group: str, lmq: str, offset: int) -> None:
        """The group has got everything before `offset`."""
        self._former_lives.settle(group, lmq)
        self._offsets.commit_offset(remote, group, lmq, LMQ_QUEUE_ID, offset)

    def has_reset(self, group: str, lmq: str) -> bool:
        """Whether an operator has set the offset, and no pop has begun there yet."""
        return self._offsets.has_offset_reset(group, lmq, LMQ_QUEUE_ID)

    def set_offset(self, remote: str, group: str, lmq: str, offset: int) -> None:
        """The group goes on from `offset`, whatever is out; nothing of a queue that never held a
        message."""
        if self.end(lmq) > 0 and offset != self.committed(group, lmq):
            self.order.clear_block(lmq, group)
            self.commit(remote, group, lmq, min(max(0, offset), self.end(lmq)))

    def forget(self, group: str, lmq: str) -> None:
        """The light queue, or the group, is gone."""
        self.order.clear_block(lmq, group)
        self._offsets.remove_queue(group, lmq, LMQ_QUEUE_ID)
