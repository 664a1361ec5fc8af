"""AdminQueueProcessor: the ends of one queue and what lies in it (29, 30, 31, 32, 321).

29, 30 and 31 come from consumers as well as from operators. 30 and 31 are light; the others read
files: pools. Follows the part of AdminBrokerProcessor of RocketMQ that is about one queue.

Tested by tests/broker/admin/test_admin_queue_processor.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from broker.client.consumer_manager import ConsumerManager
from broker.filter.consumer_filter_manager import ConsumerFilter
from broker.processor.queue_times import QueueTimes
from broker.processor.table_processor import TableProcessor
from broker.store_access.store_access import StoreAccess
from remoting.body.query_queue import ConsumeQueueData, QueryConsumeQueueResponseBody
from remoting.command_custom_header import CommandCustomHeader, decode_header, encode_header
from remoting.errors import RequestError
from remoting.headers.admin import QueryConsumeQueueRequestHeader
from remoting.headers.query import (
    GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader,
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
)
from remoting.lite_names import to_lmq_name
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.request_processor import ConnectionLike
from remoting.response_code import ResponseCode
from store.boundary_type import parse_boundary

MAX_QUEUE_UNITS: Final = 10_000
"""Maximum number of entries for one 321; RocketMQ would read a whole file, 300,000 entries."""


class AdminQueueProcessor(TableProcessor):
    """Codes 29, 30, 31, 32 and 321."""

    def __init__(
        self,
        store: StoreAccess,
        consumers: ConsumerManager,
        find_filter: Callable[[str, str], ConsumerFilter | None],
    ) -> None:
        """find_filter: a group's filter for a topic, dead or alive: (topic, group)."""
        super().__init__(
            {
                RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self.search_offset_by_timestamp,
                RequestCode.GET_MAX_OFFSET: self.get_max_offset,
                RequestCode.GET_MIN_OFFSET: self.get_min_offset,
                RequestCode.GET_EARLIEST_MSG_STORETIME: self.get_earliest_msg_store_time,
                RequestCode.QUERY_CONSUME_QUEUE: self.query_consume_queue,
            }
        )
        self._store = store
        self._times = QueueTimes(store)
        self._consumers = consumers
        self._find_filter = find_filter

    def search_offset_by_timestamp(
        self, _connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """29: the queue offset of the message stored nearest to a time, or with boundaryType (5.x)
        on that side of it. Of a lite topic (5.5): in its light queue, which has the id 0."""
        header = decode_header(SearchOffsetRequestHeader, request.ext_fields)
        topic = header.topic
        if header.lite_topic:
            topic = to_lmq_name(topic, header.lite_topic)
            if header.queue_id or not self._store.offsets(topic, 0)[1]:
                return _answer(request, SearchOffsetResponseHeader(offset=0))
        offset = self._store.offset_by_timestamp(
            topic,
            header.queue_id,
            header.timestamp,
            parse_boundary(header.boundary_type),
        )
        return _answer(request, SearchOffsetResponseHeader(offset=offset))

    def get_max_offset(
        self, _connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """30: the offset of the next message of the queue."""
        header = decode_header(GetMaxOffsetRequestHeader, request.ext_fields)
        _, max_offset = self._store.offsets(header.topic, header.queue_id)
        return _answer(request, GetMaxOffsetResponseHeader(offset=max_offset))

    def get_min_offset(
        self, _connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """31: the first available offset of the queue."""
        header = decode_header(GetMinOffsetRequestHeader, request.ext_fields)
        min_offset = self._store.min_offset(header.topic, header.queue_id)
        return _answer(request, GetMinOffsetResponseHeader(offset=min_offset))

    def get_earliest_msg_store_time(
        self, _connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """32: store time of the first message of the queue, -1 if it is empty."""
        header = decode_header(GetEarliestMsgStoretimeRequestHeader, request.ext_fields)
        earliest_ms = self._times.earliest(header.topic, header.queue_id)
        return _answer(request, GetEarliestMsgStoretimeResponseHeader(timestamp=earliest_ms))

    def query_consume_queue(
        self, _connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """321: raw entries of a consume queue; none for a count below 1. An index without an entry
        is an error. (RocketMQ returns success without a body, which its own tool then fails to
        decode.)
        """
        header = decode_header(QueryConsumeQueueRequestHeader, request.ext_fields)
        topic, queue_id, index = header.topic, header.queue_id, header.index
        if queue_id not in self._store.known_queues(topic):
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"{queue_id}@{topic} is not exist!")
        min_offset, max_offset = self._store.offsets(topic, queue_id)
        if not min_offset <= index < max_offset:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"Index {index} of {queue_id}@{topic} is not exist! It has [{min_offset}, "
                f"{max_offset})",
            )
        units = list(self._units(topic, queue_id, index, header.count))
        subscription, filter_data = None, None
        if header.consumer_group is not None:
            subscription = self._consumers.find_subscription(header.consumer_group, topic)
            if subscription is None:
                filter_data = f"{header.consumer_group}@{topic} is not online!"
            else:
                filter_data = self._filter_text(header.consumer_group, topic)
        body = QueryConsumeQueueResponseBody(
            subscription_data=subscription,
            filter_data=filter_data,
            queue_data=units,
            min_queue_index=min_offset,
            max_queue_index=max_offset,
        )
        return request.response(ResponseCode.SUCCESS, body=body.to_json_bytes())

    def _filter_text(self, group: str, topic: str) -> str:
        """The group's property filter as its row in consumerFilter.json, "null" without one."""
        found = self._find_filter(topic, group)
        return "null" if found is None else found.row().to_pretty_json_bytes().decode()

    def _units(
        self, topic: str, queue_id: int, index: int, count: int
    ) -> Iterator[ConsumeQueueData]:
        last = -1
        for queue_offset in range(index, index + min(count, MAX_QUEUE_UNITS)):
            unit = self._store.unit_at(topic, queue_id, queue_offset)
            if unit is None:
                return
            if unit[0] == last:
                continue  # An inner batch has many queue offsets.
            last, size, tags_code = unit
            yield ConsumeQueueData(physic_offset=last, physic_size=size, tags_code=tags_code)


def _answer(request: RemotingCommand, header: CommandCustomHeader) -> RemotingCommand:
    return request.response(ResponseCode.SUCCESS, None, encode_header(header))
