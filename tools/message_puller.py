"""Reading the queues of a topic: readable queues, their offsets, pulls of stored messages.

Runs in the command's main thread, or in one thread of the console. Never waits at the broker for
new messages and never commits an offset. Where a master cannot be reached its slaves are asked; of
a static topic the logic queues are read. (Java: DefaultMQPullConsumerImpl as the tools use it.)

Tested by tests/tools/test_mqadmin_reading.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from remoting.body.message_queue import MessageQueue
from remoting.body.route import TopicRouteData
from remoting.body.stats import TopicStatsTable
from remoting.command_custom_header import Int64, decode_header
from remoting.errors import RequestError
from remoting.headers.pull_message import PullMessageRequestHeader, PullMessageResponseHeader
from remoting.headers.query import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
)
from remoting.headers.topic import GetTopicStatsInfoRequestHeader
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode
from tools.admin_client import PERM_READ, AdminClient
from tools.broker_members import BrokerMembers
from tools.errors import AdminError
from tools.message_decoder import MAX_INFLATED_BODY, MessageExt, decode_messages
from tools.message_text import TAGS

TOOLS_GROUP: Final = "TOOLS_CONSUMER"
"""The group of all tools; every broker has it."""

PULL_BATCH: Final = 32
SUBSCRIPTION_FLAG: Final = 0x4
"""Bit of PULL_MESSAGE's sysFlag: the request carries its own subscription."""

PULL_STATUS: Final = {
    ResponseCode.SUCCESS: "FOUND",
    ResponseCode.PULL_NOT_FOUND: "NO_NEW_MSG",
    ResponseCode.PULL_RETRY_IMMEDIATELY: "NO_MATCHED_MSG",
    ResponseCode.PULL_OFFSET_MOVED: "OFFSET_ILLEGAL",
}
"""The text is Java's PullStatus."""


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """When a message was stored: from `begin_ms` on, before `end_ms`; None: no limit."""

    begin_ms: int | None = None
    end_ms: int | None = None

    def __contains__(self, timestamp_ms: int) -> bool:
        return (self.begin_ms is None or self.begin_ms <= timestamp_ms) and (
            self.end_ms is None or timestamp_ms < self.end_ms
        )


ALWAYS: Final = TimeSpan()


@dataclass(frozen=True, slots=True)
class PullResult:
    """One answer: its status, the next offset, and the messages that matched."""

    status: str
    next_begin_offset: int
    messages: list[MessageExt]


class MessagePuller:
    """Reads the queues of one topic. Owned by: one thread."""

    def __init__(
        self,
        admin: AdminClient,
        topic: str,
        group: str = TOOLS_GROUP,
        *,
        max_body: int = MAX_INFLATED_BODY,
    ) -> None:
        """max_body: bytes of each body that are kept. AdminError for an unknown topic."""
        self._topic = topic
        self._group = group
        self._max_body = max_body
        self._route = admin.route(topic)
        self._members = BrokerMembers(admin, self._route)
        self._stats: dict[str, TopicStatsTable] = {}

    def queues(self) -> list[MessageQueue]:
        """Every readable queue, by broker name and id. AdminError when there is none."""
        queues = readable_queues(self._route, self._topic)
        if not queues:
            raise AdminError(f"topic {self._topic} has no queue that can be read")
        return queues

    def queue(self, broker_name: str, queue_id: int) -> MessageQueue:
        """One queue. AdminError when the broker name is not in the topic's route."""
        self._members.check(broker_name)
        return MessageQueue(broker_name=broker_name, queue_id=queue_id, topic=self._topic)

    def min_offset(self, queue: MessageQueue) -> int:
        """The first offset of a queue."""
        header = GetMinOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id)
        response = self._members.ask(queue.broker_name, RequestCode.GET_MIN_OFFSET, header)
        return decode_header(GetMinOffsetResponseHeader, response.ext_fields).offset

    def max_offset(self, queue: MessageQueue) -> int:
        """The offset behind the last message of a queue."""
        header = GetMaxOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id)
        response = self._members.ask(queue.broker_name, RequestCode.GET_MAX_OFFSET, header)
        return decode_header(GetMaxOffsetResponseHeader, response.ext_fields).offset

    def search_offset(self, queue: MessageQueue, timestamp_ms: Int64) -> int:
        """The first offset stored at that time or later."""
        header = SearchOffsetRequestHeader(
            topic=queue.topic, queue_id=queue.queue_id, timestamp=timestamp_ms
        )
        code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
        response = self._members.ask(queue.broker_name, code, header)
        return decode_header(SearchOffsetResponseHeader, response.ext_fields).offset

    def bounds(
        self, queue: MessageQueue, begin_ms: int | None, end_ms: int | None
    ) -> tuple[int, int]:
        """First offset and the offset behind the last, within the times given."""
        begin = self.min_offset(queue) if begin_ms is None else self.search_offset(queue, begin_ms)
        end = self.max_offset(queue) if end_ms is None else self.search_offset(queue, end_ms)
        return begin, end

    def span(self, queue: MessageQueue, times: TimeSpan) -> tuple[int, int]:
        """As `bounds`, with few requests, and one more message behind: brokers of 4.9 answer a time
        that is later than the last message with its offset. So `times` has to be asked about each
        message, too. The queue's end is that of the first call for its broker."""
        begin, end = self._limits(queue)
        if begin < end and times.begin_ms is not None:
            begin = self.search_offset(queue, times.begin_ms)
        if begin < end and times.end_ms is not None:
            end = min(end, self.search_offset(queue, times.end_ms) + 1)
        return begin, end

    def _limits(self, queue: MessageQueue) -> tuple[int, int]:
        """The first offset and the one behind the last, all queues of a broker in one request."""
        if queue.broker_name not in self._stats:
            self._stats[queue.broker_name] = self._ask_stats(queue.broker_name)
        found = self._stats[queue.broker_name].offset_table.get(queue)
        if found is None:
            return self.min_offset(queue), self.max_offset(queue)
        return found.min_offset, found.max_offset

    def _ask_stats(self, broker_name: str) -> TopicStatsTable:
        """Nothing where it is refused, and of static topics, whose physical queues it is about."""
        if self._route.topic_queue_mapping_by_broker:
            return TopicStatsTable()
        header = GetTopicStatsInfoRequestHeader(topic=self._topic)
        try:
            answer = self._members.ask(broker_name, RequestCode.GET_TOPIC_STATS_INFO, header)
            return TopicStatsTable.from_json_bytes(answer.body)
        except (AdminError, RequestError):
            return TopicStatsTable()

    def pull(
        self, queue: MessageQueue, offset: int, count: int, expression: str = "*"
    ) -> PullResult:
        """One pull of up to `count` messages whose tag matches the expression."""
        header = pull_header(self._group, queue, offset, min(count, PULL_BATCH), expression)
        name, code = queue.broker_name, RequestCode.PULL_MESSAGE
        response = self._members.ask(name, code, header, accept=PULL_STATUS)
        answer = decode_header(PullMessageResponseHeader, response.ext_fields)
        found = decode_messages(response.body, broker_name=name, max_body=self._max_body)
        messages = [_as_pulled(message, answer) for message in found]
        return PullResult(
            PULL_STATUS[ResponseCode(response.code)],
            answer.next_begin_offset,
            [message for message in messages if _matches(message, expression)],
        )

    def pull_range(
        self, queue: MessageQueue, begin: int, end: int, expression: str = "*"
    ) -> Iterator[tuple[int, PullResult]]:
        """Pulls from `begin` up to `end` (not included), each with the offset it began at.

        Ends early at the end of the queue; AdminError if the broker's next offset does not advance.
        """
        offset = begin
        while offset < end:
            result = self.pull(queue, offset, end - offset, expression)
            yield offset, result
            if result.status in ("NO_NEW_MSG", "OFFSET_ILLEGAL"):
                return
            if result.next_begin_offset <= offset:
                raise AdminError(
                    f"{queue.broker_name} queue {queue.queue_id} of {queue.topic}: "
                    f"a pull at offset {offset} leads back to {result.next_begin_offset}"
                )
            offset = result.next_begin_offset


def pull_header(
    group: str, queue: MessageQueue, offset: int, count: int, expression: str
) -> PullMessageRequestHeader:
    """Of a pull that the broker answers at once, by tags, and that moves no offset."""
    return PullMessageRequestHeader(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=offset,
        max_msg_nums=count,
        sys_flag=SUBSCRIPTION_FLAG,
        commit_offset=0,
        suspend_timeout_millis=0,
        subscription=expression,
        sub_version=0,
        expression_type="TAG",
    )


def readable_queues(route: TopicRouteData, topic: str) -> list[MessageQueue]:
    """The queues of a route with read permission, by broker name and id."""
    if route.topic_queue_mapping_by_broker:
        return logic_queues(route, topic)
    return [
        MessageQueue(broker_name=data.broker_name, queue_id=queue_id, topic=topic)
        for data in sorted(route.queue_datas, key=lambda data: data.broker_name)
        if data.perm & PERM_READ
        for queue_id in range(data.read_queue_nums)
    ]


def logic_queues(route: TopicRouteData, topic: str) -> list[MessageQueue]:
    """The queues of a static topic that a broker leads, by their global ids, each with the name of
    that broker: it fetches what others keep. (Java: topicRouteData2EndpointsForStaticTopic.)"""
    leaders: dict[int, str] = {}
    mappings = (route.topic_queue_mapping_by_broker or {}).items()
    for name, mapping in sorted(mappings, key=lambda each: each[1].epoch):
        leaders.update(dict.fromkeys(mapping.curr_id_map, mapping.bname or name))
    return [
        MessageQueue(broker_name=name, queue_id=queue_id, topic=topic)
        for queue_id, name in sorted(leaders.items())
    ]


def _as_pulled(message: MessageExt, answer: PullMessageResponseHeader) -> MessageExt:
    """As Java's clients do: the queue's bounds at the time of the pull, as properties; of a logic
    queue the offset that its consumers see."""
    bounds = {"MIN_OFFSET": str(answer.min_offset), "MAX_OFFSET": str(answer.max_offset)}
    offset = message.queue_offset + (answer.offset_delta or 0)
    return replace(message, queue_offset=offset, properties=message.properties | bounds)


def _matches(message: MessageExt, expression: str) -> bool:
    """Whether the tag is one of "A || B"; the broker compared only hash codes."""
    wanted = {tag.strip() for tag in expression.split("||")}
    return "*" in wanted or message.properties.get(TAGS) in wanted
