"""Static topics (5.x): where the queues that clients see (logic queues) are kept.

Body of 513, part of 21, 103, 105 and 351, file config/topicQueueMapping.json. A logic queue has a
global id, and a list of items: one physical queue each, oldest first; the last one is written to.
Pure data, any thread. Source: remoting.protocol.statictopic of RocketMQ 5.3.3.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from remoting.body.data_version import DataVersion
from remoting.body.json_bean import JsonBean
from remoting.command_custom_header import Int32, Int64

GLOBAL_SCOPE: Final = "__global__"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogicQueueMappingItem(JsonBean):
    """One physical queue of a logic queue.

    logic_offset  the offset that clients see for `start_offset`; -1: not decided yet
    start_offset  first physical offset, always 0
    end_offset    physical offset behind the last one, -1: open
    """

    gen: Int32 = 0
    queue_id: Int32 = 0
    bname: str = ""
    logic_offset: Int64 = 0
    start_offset: Int64 = 0
    end_offset: Int64 = -1
    time_of_start: Int64 = -1
    time_of_end: Int64 = -1

    @property
    def is_decided(self) -> bool:
        """Whether its place among the offsets that clients see is known."""
        return self.logic_offset >= 0

    @property
    def is_end_decided(self) -> bool:
        """Whether it has an end."""
        return self.end_offset > self.start_offset

    @property
    def offset_delta(self) -> int:
        """What clients add to the physical offsets of the messages."""
        return self.logic_offset - self.start_offset

    def static_offset(self, physical_offset: int) -> int:
        """The offset that clients see (Java: computeStaticQueueOffsetStrictly)."""
        return self.logic_offset + max(physical_offset - self.start_offset, 0)

    def static_offset_loosely(self, physical_offset: int) -> int:
        """As `static_offset`, at most the end; -1 while it is not decided."""
        if self.logic_offset < 0:
            return -1
        if self.start_offset <= self.end_offset < physical_offset:
            physical_offset = self.end_offset
        return self.static_offset(physical_offset)

    def physical_offset(self, static_offset: int) -> int:
        """The offset in the physical queue; below `start_offset` for one before the item."""
        return static_offset - self.logic_offset + self.start_offset

    @property
    def max_static_offset(self) -> int:
        """As far as the mapping itself tells: the end, or the start while it is open."""
        if self.end_offset >= self.start_offset:
            return self.logic_offset + self.end_offset - self.start_offset
        return self.logic_offset


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicQueueMappingInfo(JsonBean):
    """What name servers and clients learn: the logic queues that one broker leads.

    curr_id_map: global id to physical queue id. The greater `epoch` counts.
    """

    topic: str = ""
    scope: str = GLOBAL_SCOPE
    total_queues: Int32 = 0
    bname: str = ""
    epoch: Int64 = 0
    dirty: bool = False
    curr_id_map: dict[Int32, Int32] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicQueueMappingDetail(TopicQueueMappingInfo):
    """What a broker has of a static topic. hosted_queues: global id to items, oldest first; not to
    be changed."""

    hosted_queues: dict[Int32, list[LogicQueueMappingItem]] = field(default_factory=dict)

    def info(self) -> TopicQueueMappingInfo:
        """What is registered (Java: cloneAsMappingInfo)."""
        led = {
            global_id: items[-1].queue_id
            for global_id, items in sorted(self.hosted_queues.items())
            if items and items[-1].bname == self.bname
        }
        return TopicQueueMappingInfo(
            topic=self.topic,
            total_queues=self.total_queues,
            bname=self.bname,
            epoch=self.epoch,
            curr_id_map=led,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicQueueMappingSerializeWrapper(JsonBean):
    """The file config/topicQueueMapping.json."""

    topic_queue_mapping_info_map: dict[str, TopicQueueMappingDetail] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)
