"""StaticTopicProcessor: requests about the logic queues of static topics (5.x).

A client names a global queue id and an offset as it sees it. The broker that leads the queue finds
the item that holds the offset, and asks for its physical queue: itself by the ordinary processor,
or the broker that keeps the item, with lo=false (physical) and bname in the header. Runs in the
pool StaticTopicThread if it may wait for another broker, else on the thread of the ordinary
processor (StaticTopicEntry decides). Follows rewriteRequestForStaticTopic of
ConsumerManageProcessor, AdminBrokerProcessor and PullMessageProcessor of RocketMQ 5.3.3.
docs/static_topics.md names where the answers differ on purpose.

Tested by tests/broker/pull/test_static_topics.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker.longpolling.pull_header import FLAG_COMMIT_OFFSET, FLAG_SUSPEND
from broker.out.broker_rpc import BrokerRpc
from broker.processor.table_processor import TableProcessor
from broker.pull.pull_answer import offset_fields, pull_header_of
from remoting.body.message_queue import MessageQueue
from remoting.body.stats import TopicStatsTable
from remoting.body.topic_queue_mapping import LogicQueueMappingItem, TopicQueueMappingDetail
from remoting.command_custom_header import decode_header
from remoting.errors import RequestError
from remoting.headers.consumer import (
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from remoting.headers.pull_message import PullMessageResponseHeader
from remoting.headers.query import (
    GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader,
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    SearchOffsetRequestHeader,
)
from remoting.logic_queue import (
    MAX_OFFSET,
    NOT_LEADER,
    NOT_LEADER_IN_MIN,
    NOT_LEADER_IN_PULL,
    Items,
    LogicPull,
    PullPlace,
    end_of,
    item_of,
    led_items,
)
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.request_processor import ConnectionLike, RequestProcessor
from remoting.response_code import ResponseCode
from store.boundary_type import BoundaryType, parse_boundary

PULL_RESULTS: Final = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    }
)
Mappings = Mapping[str, TopicQueueMappingDetail]
"""By topic (TopicQueueMappingManager.table)."""


def find_mapping(mappings: Mappings, request: RemotingCommand) -> TopicQueueMappingDetail | None:
    """The mapping that a request is about; None for an ordinary topic, and for a request about
    physical queues (lo=false)."""
    detail = mappings.get(request.ext_fields.get("topic", ""))
    if detail is None or request.ext_fields.get("lo", "").lower() == "false":
        return None
    return detail


class StaticTopicProcessor(TableProcessor):
    """Codes 14, 15, 29 to 32 for static topics, and pulls from other brokers' items. Stateless."""

    def __init__(
        self, mappings: Mappings, ordinary: Mapping[int, RequestProcessor], brokers: BrokerRpc
    ) -> None:
        """ordinary: what serves physical queues here, by request code; 202 too."""
        super().__init__(
            {
                RequestCode.PULL_MESSAGE: self.forward_pull,
                RequestCode.LITE_PULL_MESSAGE: self.forward_pull,
                RequestCode.QUERY_CONSUMER_OFFSET: self.query_consumer_offset,
                RequestCode.UPDATE_CONSUMER_OFFSET: self.update_consumer_offset,
                RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self.search_offset_by_timestamp,
                RequestCode.GET_MAX_OFFSET: self.get_max_offset,
                RequestCode.GET_MIN_OFFSET: self.get_min_offset,
                RequestCode.GET_EARLIEST_MSG_STORETIME: self.get_earliest_msg_store_time,
            }
        )
        self._mappings = mappings
        self._ordinary = ordinary
        self._brokers = brokers

    def _led(
        self, request: RemotingCommand, topic: str, global_id: int, remark: str = NOT_LEADER
    ) -> Items:
        """The items of the queue that is asked for. Raises RequestError."""
        detail = find_mapping(self._mappings, request)
        if detail is None:
            raise RequestError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] was deleted")
        return led_items(detail, topic, global_id, remark)

    def _ask(
        self,
        connection: ConnectionLike,
        request: RemotingCommand,
        leader: LogicQueueMappingItem,
        item: LogicQueueMappingItem,
        *,
        code: int | None = None,
        **changes: object,
    ) -> RemotingCommand:
        """The answer about the physical queue of `item`. changes: of the request's fields. Raises
        RequestError if there is none."""
        asked = request.code if code is None else code
        fields = {
            **request.ext_fields,
            **{name: str(value) for name, value in changes.items()},
            "queueId": str(item.queue_id),
            "lo": "false",
            "bname": item.bname,
        }
        if item.bname != leader.bname:
            return self._brokers.ask(item.bname, asked, fields)
        physical = RemotingCommand(asked, version=request.version, ext_fields=fields)
        response = self._ordinary[asked].process_request(connection, physical)
        assert response is not None
        return response

    # -- consumer offsets -----------------------------------------------------------------------

    def update_consumer_offset(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """15: kept as the physical offset in the item's queue, by the broker of the item."""
        header = decode_header(UpdateConsumerOffsetRequestHeader, request.ext_fields)
        items = self._led(request, header.topic, header.queue_id)
        item = item_of(items, header.topic, header.commit_offset)
        offset = max(item.physical_offset(header.commit_offset), item.start_offset)
        answer = self._ask(connection, request, items[-1], item, commitOffset=offset)
        return request.response(answer.code, answer.remark, answer.ext_fields)

    def query_consumer_offset(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """14: of the newest item that has one; a queue that was never remapped is as any other."""
        header = decode_header(QueryConsumerOffsetRequestHeader, request.ext_fields)
        items = self._led(request, header.topic, header.queue_id)
        if len(items) == 1 and items[0].logic_offset == 0:
            answer = self._ask(connection, request, items[0], items[0])
            return request.response(answer.code, answer.remark, answer.ext_fields)
        for item in reversed(items):
            if not item.is_decided:
                continue
            answer = self._ask(connection, request, items[-1], item, setZeroIfNotFound="false")
            if answer.code == ResponseCode.QUERY_NOT_FOUND:
                continue
            _require_success(answer, item)
            found = decode_header(QueryConsumerOffsetResponseHeader, answer.ext_fields).offset
            found = min(found, end_of(items, item))
            return _offset_answer(request, item.static_offset(found))
        return request.response(
            ResponseCode.QUERY_NOT_FOUND, "Not found, maybe this group consumer boot first", {}
        )

    # -- offsets of a queue ---------------------------------------------------------------------

    def get_max_offset(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """30: of the newest item whose place is decided."""
        header = decode_header(GetMaxOffsetRequestHeader, request.ext_fields)
        items = self._led(request, header.topic, header.queue_id)
        item = item_of(items, header.topic, MAX_OFFSET)
        answer = self._ask(connection, request, items[-1], item)
        return _offset_answer(request, item.static_offset(_offset_of(answer, item)))

    def get_min_offset(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """31: of the earliest item."""
        header = decode_header(GetMinOffsetRequestHeader, request.ext_fields)
        items = self._led(request, header.topic, header.queue_id, NOT_LEADER_IN_MIN)
        item = item_of(items, header.topic, 0)
        answer = self._ask(connection, request, items[-1], item)
        return _offset_answer(request, item.static_offset_loosely(_offset_of(answer, item)))

    def get_earliest_msg_store_time(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """32: of the earliest item."""
        header = decode_header(GetEarliestMsgStoretimeRequestHeader, request.ext_fields)
        items = self._led(request, header.topic, header.queue_id)
        item = item_of(items, header.topic, 0)
        answer = self._ask(connection, request, items[-1], item)
        _require_success(answer, item)
        return request.response(ResponseCode.SUCCESS, None, answer.ext_fields)

    def search_offset_by_timestamp(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """29: in the first item with a message as young as that, else in the newest one. UPPER: in
        the last item with a message as old as that, else in the first one. (RocketMQ: of the items
        that others keep in the last, of its own in the first that answers above 0.)"""
        header = decode_header(SearchOffsetRequestHeader, request.ext_fields)
        items = self._led(request, header.topic, header.queue_id)
        decided = [item for item in items if item.is_decided]
        item_of(items, header.topic, 0)
        if parse_boundary(header.boundary_type) is BoundaryType.UPPER:
            for item in reversed(decided):
                if 0 <= self._oldest_ms(connection, request, items[-1], item) <= header.timestamp:
                    break
            return self._found(connection, request, items, item)
        for item in decided[:-1]:
            newest_ms = self._newest_ms(connection, request, items[-1], item)
            if newest_ms >= header.timestamp:
                break
        else:
            item = decided[-1]
        return self._found(connection, request, items, item)

    def _found(
        self,
        connection: ConnectionLike,
        request: RemotingCommand,
        items: Items,
        item: LogicQueueMappingItem,
    ) -> RemotingCommand:
        """The answer to 29 from this item."""
        answer = self._ask(connection, request, items[-1], item)
        found = min(max(_offset_of(answer, item), 0), end_of(items, item))
        return _offset_answer(request, item.static_offset(found))

    def _oldest_ms(
        self,
        connection: ConnectionLike,
        request: RemotingCommand,
        leader: LogicQueueMappingItem,
        item: LogicQueueMappingItem,
    ) -> int:
        """Store time of the first message of an item, -1 without one (32)."""
        code = RequestCode.GET_EARLIEST_MSG_STORETIME
        answer = self._ask(connection, request, leader, item, code=code)
        _require_success(answer, item)
        return decode_header(GetEarliestMsgStoretimeResponseHeader, answer.ext_fields).timestamp

    def _newest_ms(
        self,
        connection: ConnectionLike,
        request: RemotingCommand,
        leader: LogicQueueMappingItem,
        item: LogicQueueMappingItem,
    ) -> int:
        """Store time of the last message of an item, 0 without one (202)."""
        code = RequestCode.GET_TOPIC_STATS_INFO
        answer = self._ask(connection, request, leader, item, code=code)
        _require_success(answer, item)
        topic = request.ext_fields["topic"]
        queue = MessageQueue(topic=topic, broker_name=item.bname, queue_id=item.queue_id)
        found = TopicStatsTable.from_json_bytes(answer.body).offset_table.get(queue)
        return 0 if found is None else found.last_update_timestamp

    # -- pulls ----------------------------------------------------------------------------------

    def forward_pull(self, connection: ConnectionLike, request: RemotingCommand) -> RemotingCommand:
        """11, 361: from an item that another broker keeps; it does not wait there."""
        header = pull_header_of(request)
        detail = find_mapping(self._mappings, request)
        items = self._led(request, header.topic, header.queueId, NOT_LEADER_IN_PULL)
        item = item_of(items, header.topic, header.queueOffset)
        if detail is None or item.bname == detail.bname:
            # It was remapped to this broker a moment ago.
            raise RequestError(
                ResponseCode.SYSTEM_BUSY, f"topic[{header.topic}] was remapped, pull again"
            )
        mapped = LogicPull(detail, items, item)
        asked_offset = item.physical_offset(header.queueOffset)
        answer = self._brokers.ask(
            item.bname,
            request.code,
            {
                **request.ext_fields,
                "queueId": str(item.queue_id),
                "queueOffset": str(asked_offset),
                "maxMsgNums": str(mapped.limited_count(asked_offset, header.maxMsgNums)),
                "sysFlag": str(header.sysFlag & ~(FLAG_SUSPEND | FLAG_COMMIT_OFFSET)),
                "lo": "false",
                "bname": item.bname,
            },
        )
        if answer.code not in PULL_RESULTS:
            raise _unexpected(answer, item)
        found = decode_header(PullMessageResponseHeader, answer.ext_fields)
        place = PullPlace(answer.code, found.next_begin_offset, found.min_offset, found.max_offset)
        place, shown = mapped.translate(asked_offset, place)
        fields = {**answer.ext_fields, **offset_fields(place, shown)}
        return request.response(place.code, answer.remark, fields, answer.body)


def _offset_answer(request: RemotingCommand, offset: int) -> RemotingCommand:
    return request.response(ResponseCode.SUCCESS, None, {"offset": str(offset)})


def _offset_of(answer: RemotingCommand, item: LogicQueueMappingItem) -> int:
    _require_success(answer, item)
    return decode_header(GetMaxOffsetResponseHeader, answer.ext_fields).offset


def _require_success(answer: RemotingCommand, item: LogicQueueMappingItem) -> None:
    if answer.code != ResponseCode.SUCCESS:
        raise _unexpected(answer, item)


def _unexpected(answer: RemotingCommand, item: LogicQueueMappingItem) -> RequestError:
    return RequestError(
        ResponseCode.SYSTEM_ERROR,
        f"broker {item.bname} answered with code {answer.code}: {answer.remark}",
    )
