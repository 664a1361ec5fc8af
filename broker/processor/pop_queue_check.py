"""PopQueueCheck: whether a request about a popped message names a place that exists.

Runs on the loop thread. The checks that RocketMQ's AckMessageProcessor and
ChangeInvisibleTimeProcessor share, in their order and words.
"""

from __future__ import annotations

from typing import Protocol

from broker.topic.table_protocols import FindTopic
from remoting.errors import RequestError
from remoting.request_processor import ConnectionLike
from remoting.response_code import ResponseCode


class QueueOffsets(Protocol):
    """The part of PopMessageReader used here."""

    def offsets(self, topic: str, queue_id: int) -> tuple[int, int]:
        """(min, max) offset of a queue; (0, 0) for one that was never written."""


class PopQueueCheck:
    """See the module. Owned by: the loop thread."""

    def __init__(self, find_topic: FindTopic, queues: QueueOffsets) -> None:
        self._find_topic = find_topic
        self._queues = queues

    def offsets(self, topic: str, queue_id: int) -> tuple[int, int]:
        """(min, max) offset of a queue."""
        return self._queues.offsets(topic, queue_id)

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
