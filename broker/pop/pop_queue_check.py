"""PopQueueCheck: whether a request about a popped message names a place that exists, and numbers
that this broker can have handed out.

Runs on the loop thread. For 200051, 200151 and 200053 alike, on the fast route and the general one.
The checks of places that RocketMQ's AckMessageProcessor and ChangeInvisibleTimeProcessor share are
in their order and words; what a handle says (PopLimits) RocketMQ believes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.pop.pop_limits import PopLimits
from broker.pop.pop_message_reader import PopMessageReader
from broker.topic.table_protocols import FindGroup, FindTopic
from remoting.errors import RequestError
from remoting.headers.extra_info_util import ExtraInfo
from remoting.request_processor import ConnectionLike
from remoting.resource_names import is_legal_group
from remoting.response_code import ResponseCode

_SHOWN: Final = 64
"""Characters of an illegal name in a remark."""


class PopQueueCheck:
    """See the module. Owned by: the loop thread."""

    def __init__(
        self,
        limits: PopLimits,
        find_topic: FindTopic,
        find_group: FindGroup,
        queues: PopMessageReader,
        now_ms: Callable[[], int],
    ) -> None:
        """find_group: of known groups, makes none. now_ms: wall clock."""
        self._limits = limits
        self._find_topic = find_topic
        self._find_group = find_group
        self._queues = queues
        self._now_ms = now_ms

    def use(self, limits: PopLimits) -> None:
        """Apply changed settings."""
        self._limits = limits

    def offsets(self, topic: str, queue_id: int) -> tuple[int, int]:
        """(min, max) offset of a queue."""
        return self._queues.offsets(topic, queue_id)

    def find_offsets(self, topic: str, queue_id: int) -> tuple[int, int]:
        """The same; an empty range, (0, -1), for a queue that has no message or does not exist."""
        if self._find_topic(topic) is None:
            return 0, -1
        low, high = self._queues.offsets(topic, queue_id)
        return (low, high) if high else (0, -1)

    def check_queue(self, connection: ConnectionLike, topic: str, queue_id: int) -> None:
        """Raises RequestError."""
        found = self._find_topic(topic)
        if found is None:
            raise RequestError(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please!"
            )
        if not 0 <= queue_id < found.read_queue_nums:
            raise RequestError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"queueId[{queue_id}] is illegal, topic:[{topic}] "
                f"topicConfig.readQueueNums:[{found.read_queue_nums}] "
                f"consumer:[{connection.remote_address}]",
            )

    def check_ack(self, connection: ConnectionLike, topic: str, queue_id: int, offset: int) -> None:
        """Of an ack. Raises RequestError."""
        self.check_queue(connection, topic, queue_id)
        low, high = self._queues.offsets(topic, queue_id)
        if not low <= offset <= high:
            raise RequestError(
                ResponseCode.NO_MESSAGE,
                f"offset is illegal, key:{topic}@{queue_id}, commit:{offset}, store:{low}~{high}",
            )

    def check_handle(self, group: str, offset: int, info: ExtraInfo) -> None:
        """Whether this broker can have handed out the message at `offset` with this handle to this
        group. The group's name becomes a part of a stored record's properties. Raises RequestError
        (13), which names the number."""
        if self._find_group(group) is None and not is_legal_group(group):
            raise RequestError(
                ResponseCode.MESSAGE_ILLEGAL, f"consumerGroup is illegal: {group[:_SHOWN]!a}"
            )
        now_ms = self._now_ms()
        if not self._limits.fits_handle(info, offset, now_ms):
            raise RequestError(
                ResponseCode.MESSAGE_ILLEGAL,
                "the handle is illegal, this broker has handed out none like it: "
                + self._limits.fault_of_handle(info, offset, now_ms),
            )

    def can_wait(self, pop_time_ms: int, invisible_time_ms: int) -> bool:
        """Whether a message that is handed out anew at `pop_time_ms` can wait for so long. (One
        of this ms is handed out anew in the next.)"""
        return self._limits.fits_time(pop_time_ms, invisible_time_ms, self._now_ms() + 1)
