"""StaticTopicEntry: the way in of requests that may be about a static topic.

Stands before the ordinary processor of 11, 14, 15, 29, 30, 31, 32 and 361, on its thread: one look
into a table for requests about ordinary topics. What may wait for another broker goes to a pool of
its own, StaticTopicThread, where RequestDispatcher guards, answers and counts it: a broker that is
down holds up neither the loop nor what others ask in the pool of a code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.longpolling.pull_header import FLAG_COMMIT_OFFSET, PullHeader
from broker.pull.pull_answer import pull_header_of
from broker.pull.pull_message_processor import PullMessageProcessor
from broker.pull.static_topic_processor import Mappings, find_mapping
from remoting.body.topic_queue_mapping import TopicQueueMappingDetail
from remoting.connection import Connection
from remoting.logic_queue import (
    NOT_LEADER_IN_PULL,
    Items,
    LogicPull,
    find_item,
    item_of,
    led_items,
)
from remoting.remoting_command import RemotingCommand
from remoting.request_processor import ConnectionLike, RequestProcessor

HandOver = Callable[[ConnectionLike, RemotingCommand], None]
"""Serve a request in the pool (RequestDispatcher.dispatch)."""
_LONGEST_ID: Final = 10
"""Digits of a queue id."""


class StaticTopicEntry:
    """A RequestProcessor in front of another one. Stateless."""

    def __init__(
        self,
        mappings: Mappings,
        ordinary: RequestProcessor,
        static: RequestProcessor,
        hand_over: HandOver,
    ) -> None:
        self._mappings = mappings
        self._ordinary = ordinary
        self._static = static
        self._hand_over = hand_over

    def process_request(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand | None:
        """Serve one request. Raises RequestError."""
        detail = find_mapping(self._mappings, request) if self._mappings else None
        if detail is None:
            return self._ordinary.process_request(connection, request)
        if _asks_others(detail, request):
            self._hand_over(connection, request)
            return None
        return self._static.process_request(connection, request)


def _asks_others(detail: TopicQueueMappingDetail, request: RemotingCommand) -> bool:
    """Whether another broker keeps an item of the queue. A wrong number is refused later."""
    text = request.ext_fields.get("queueId", "")
    if len(text) > _LONGEST_ID or not (text.isascii() and text.isdecimal()):
        return False
    items = detail.hosted_queues.get(int(text), ())
    return any(item.bname != detail.bname for item in items)


class StaticPullEntry:
    """The same for pulls, which the loop serves from items of this broker. Loop thread."""

    def __init__(self, mappings: Mappings, pull: PullMessageProcessor, hand_over: HandOver) -> None:
        self._mappings = mappings
        self._pull = pull
        self._hand_over = hand_over

    def process_request(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand | None:
        """Serve one pull. Raises RequestError."""
        detail = find_mapping(self._mappings, request) if self._mappings else None
        if detail is None or request.is_oneway:
            return self._pull.process_request(connection, request)
        assert isinstance(connection, Connection)
        header = pull_header_of(request)
        items = led_items(detail, header.topic, header.queueId, NOT_LEADER_IN_PULL)
        item = item_of(items, header.topic, header.queueOffset)
        if item.bname != detail.bname:
            self._hand_over(connection, request)
            return None
        mapped = LogicPull(detail, items, item)
        _make_physical(header, mapped)
        self._pull.pull(connection, request, header, mapped)
        return None


def _make_physical(header: PullHeader, mapped: LogicPull) -> None:
    """The pull names the item's queue from now on. (RocketMQ leaves commitOffset as the client
    sees it: a consumer that starts then would skip what lies between.)"""
    item = mapped.current
    header.queueId = item.queue_id
    header.queueOffset = item.physical_offset(header.queueOffset)
    header.maxMsgNums = mapped.limited_count(header.queueOffset, header.maxMsgNums)
    if header.sysFlag & FLAG_COMMIT_OFFSET:
        if _holds(mapped.items, item.gen, header.commitOffset):
            offset = item.physical_offset(header.commitOffset)
            header.commitOffset = max(offset, item.start_offset)
        else:
            # Its 15 commits it at the broker of that item.
            header.sysFlag &= ~FLAG_COMMIT_OFFSET


def _holds(items: Items, gen: int, static_offset: int) -> bool:
    found = find_item(items, static_offset)
    return found is not None and found.gen == gen
