"""TopicSizeProcessor: how many messages a topic holds (28990). An example of a code of one's own.

Runs in the pool AdminBrokerThread, as every code that routes.py does not place elsewhere. Knows the
table of topics and the ends of queues; knows no socket and no file.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker.processor.table_processor import TableProcessor
from broker.store_access.store_access import StoreAccess
from broker.topic.table_protocols import FindTopic
from remoting.command_custom_header import CommandCustomHeader, Int64, decode_header, encode_header
from remoting.errors import RequestError
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.request_processor import ConnectionLike
from remoting.response_code import ResponseCode


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSizeRequestHeader(CommandCustomHeader):
    """GET_TOPIC_SIZE (28990, ours)."""

    topic: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSizeResponseHeader(CommandCustomHeader):
    """How many messages of all queues can be pulled now."""

    messages: Int64


class TopicSizeProcessor(TableProcessor):
    """See the module. Owned by: the pool's threads; it keeps no state."""

    def __init__(self, find_topic: FindTopic, store: StoreAccess) -> None:
        super().__init__({RequestCode.GET_TOPIC_SIZE: self.topic_size})
        self._find_topic = find_topic
        self._store = store

    def topic_size(self, _connection: ConnectionLike, request: RemotingCommand) -> RemotingCommand:
        """28990: the sum over the topic's queues. Raises RequestError for an unknown topic."""
        header = decode_header(TopicSizeRequestHeader, request.ext_fields)
        topic = self._find_topic(header.topic)
        if topic is None:
            raise RequestError(
                ResponseCode.TOPIC_NOT_EXIST, f"topic {header.topic} does not exist here"
            )
        queues = range(max(topic.read_queue_nums, topic.write_queue_nums))
        ends = [self._store.offsets(header.topic, queue_id) for queue_id in queues]
        size = sum(max_offset - min_offset for min_offset, max_offset in ends)
        answer = TopicSizeResponseHeader(messages=size)
        return request.response(ResponseCode.SUCCESS, ext_fields=encode_header(answer))
