"""AdminOffsetProcessor: offsets of queues and groups (29-32, 43, 45, 208, 303, 308, 314, ...).

29, 30 and 31 come from consumers as well as from operators. 30, 31, 43 and 45 are light; the
others read files: `admin` pool. Follows the offset part of AdminBrokerProcessor of RocketMQ. Long
because it answers twelve request codes, with little in each, from the same tables and queues.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterator
from datetime import datetime
from typing import Final

from broker.client.consumer_manager import ConsumerManager
from broker.filter.consumer_filter_manager import ConsumerFilter
from broker.metrics.broker_stats_manager import BrokerStatsManager
from broker.offset.consumer_offset_manager import ConsumerOffsetManager
from broker.processor.queue_times import QueueTimes
from broker.processor.table_processor import TableProcessor, require_saved
from broker.schedule.schedule_offset_manager import ScheduleOffsetManager
from broker.settings.broker_config import BrokerConfig
from broker.store_access.store_access import StoreAccess
from broker.subscription.subscription_group_manager import SubscriptionGroupManager
from broker.topic.topic_config_manager import TopicConfigManager
from ipc.clock import Clock
from remoting.body.message_queue import MessageQueue
from remoting.body.query_queue import (
    ConsumeQueueData,
    QueryConsumeQueueResponseBody,
    QueryConsumeTimeSpanBody,
    QueueTimeSpan,
)
from remoting.body.reset_offset import QueryCorrectionOffsetBody
from remoting.body.stats import ConsumeStats, ConsumeStatsList, OffsetWrapper
from remoting.body.topic_config import TopicList
from remoting.command_custom_header import CommandCustomHeader, decode_header, encode_header
from remoting.errors import RequestError
from remoting.headers.admin import (
    CloneGroupOffsetRequestHeader,
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
    QueryConsumeQueueRequestHeader,
    QueryCorrectionOffsetHeader,
    QueryTopicsByConsumerRequestHeader,
)
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
from remoting.headers.topic import QueryConsumeTimeSpanRequestHeader
from remoting.mq_version import V5_0_0
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.request_processor import ConnectionLike
from remoting.resource_names import validate_group
from remoting.response_code import ResponseCode
from store.boundary_type import parse_boundary

log = logging.getLogger(__name__)

MAX_QUEUE_UNITS: Final = 10_000
"""Maximum number of entries for one 321; RocketMQ would read a whole file, 300,000 entries."""

MAX_OFFSET: Final = (1 << 63) - 1


class AdminOffsetProcessor(TableProcessor):
    """Codes 29, 30, 31, 32, 43, 45, 208, 303, 308, 314, 317, 321 and, for mqadmin of 5.x, 343."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        *,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        consumers: ConsumerManager,
        consumer_offsets: ConsumerOffsetManager,
        schedule_offsets: ScheduleOffsetManager,
        queue_offsets: StoreAccess,
        reader: StoreAccess,
        times: QueueTimes,
        stats: BrokerStatsManager,
        broker_addr: Callable[[], str],
        find_filter: Callable[[str, str], ConsumerFilter | None],
        static_topics: Container[str] = (),
        find_objection: Callable[[], str | None] = lambda: None,
    ) -> None:
        """find_filter: a group's filter for a topic, dead or alive: (topic, group).
        find_objection: why no other broker may copy the tables of offsets."""
        super().__init__(
            {
                RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self.search_offset_by_timestamp,
                RequestCode.GET_MAX_OFFSET: self.get_max_offset,
                RequestCode.GET_MIN_OFFSET: self.get_min_offset,
                RequestCode.GET_EARLIEST_MSG_STORETIME: self.get_earliest_msg_store_time,
                RequestCode.GET_ALL_CONSUMER_OFFSET: self.get_all_consumer_offset,
                RequestCode.GET_ALL_DELAY_OFFSET: self.get_all_delay_offset,
                RequestCode.GET_CONSUME_STATS: self.get_consume_stats,
                RequestCode.QUERY_CONSUME_TIME_SPAN: self.query_consume_time_span,
                RequestCode.GET_BROKER_CONSUME_STATS: self.get_broker_consume_stats,
                RequestCode.QUERY_CONSUME_QUEUE: self.query_consume_queue,
                RequestCode.QUERY_CORRECTION_OFFSET: self.query_correction_offset,
                RequestCode.CLONE_GROUP_OFFSET: self.clone_group_offset,
                RequestCode.QUERY_TOPICS_BY_CONSUMER: self.query_topics_by_consumer,
            }
        )
        self._broker_name = config.broker_name
        self._clock = clock
        self._topics = topics
        self._groups = groups
        self._consumers = consumers
        self._consumer_offsets = consumer_offsets
        self._schedule_offsets = schedule_offsets
        self._queue_offsets = queue_offsets
        self._reader = reader
        self._times = times
        self._stats = stats
        self._broker_addr = broker_addr
        self._find_filter = find_filter
        self._static_topics = static_topics
        self._find_objection = find_objection

    # -- one queue ------------------------------------------------------------------------------

    def search_offset_by_timestamp(
        self, _connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """29: the queue offset of the message stored nearest to a time, or with boundaryType (5.x)
        on that side of it."""
        header = decode_header(SearchOffsetRequestHeader, request.ext_fields)
        offset = self._reader.offset_by_timestamp(
            header.topic,
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
        _, max_offset = self._queue_offsets.offsets(header.topic, header.queue_id)
        return _answer(request, GetMaxOffsetResponseHeader(offset=max_offset))

    def get_min_offset(
        self, _connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """31: the first available offset of the queue."""
        header = decode_header(GetMinOffsetRequestHeader, request.ext_fields)
        min_offset = self._queue_offsets.min_offset(header.topic, header.queue_id)
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
        if queue_id not in self._queue_offsets.known_queues(topic):
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"{queue_id}@{topic} is not exist!")
        min_offset, max_offset = self._queue_offsets.offsets(topic, queue_id)
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
            unit = self._reader.unit_at(topic, queue_id, queue_offset)
            if unit is None:
                return
            if unit[0] == last:
                continue  # An inner batch has many queue offsets.
            last, size, tags_code = unit
            yield ConsumeQueueData(physic_offset=last, physic_size=size, tags_code=tags_code)

    # -- whole tables ---------------------------------------------------------------------------

    def get_all_consumer_offset(
        self, _connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """43: every consumer offset; a 5.x slave fails without a data version in the body."""
        self._check_copied()
        offsets = self._consumer_offsets
        body = offsets.encode_for_5x() if request.version >= V5_0_0 else offsets.encode()
        return request.response(ResponseCode.SUCCESS, body=body)

    def get_all_delay_offset(
        self, _connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """45: the offset of every delay level."""
        self._check_copied()
        return request.response(ResponseCode.SUCCESS, body=self._schedule_offsets.encode())

    def _check_copied(self) -> None:
        """Raises RequestError on a slave whose offsets may rest on another log than the master's: a
        master that returns would adopt them."""
        if objection := self._find_objection():
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"the offsets of this slave are not to be used: {objection}",
            )

    def query_topics_by_consumer(
        self, _connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """343 (5.x): the topics in which a group has offsets."""
        header = decode_header(QueryTopicsByConsumerRequestHeader, request.ext_fields)
        body = TopicList(
            topic_list=self._consumer_offsets.topics_of_group(header.group),
            broker_addr=self._broker_addr(),
        )
        return request.response(ResponseCode.SUCCESS, body=body.to_json_bytes())

    def query_correction_offset(
        self, _connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """308: the lowest offset of any group in each queue; MAX_OFFSET if the compared group is
        below the queue's min offset.
        """
        header = decode_header(QueryCorrectionOffsetHeader, request.ext_fields)
        topic = header.topic
        offsets = self._consumer_offsets.lowest_offsets(
            topic,
            lambda queue_id: self._queue_offsets.offsets(topic, queue_id)[0],
            (header.filter_groups or "").split(","),
        )
        compared = self._consumer_offsets.query_offsets(header.compare_group, topic)
        for queue_id in offsets.keys() & compared.keys():
            if offsets[queue_id] > compared[queue_id]:
                offsets[queue_id] = MAX_OFFSET
        body = QueryCorrectionOffsetBody(correction_offsets=offsets)
        return request.response(ResponseCode.SUCCESS, body=body.to_json_bytes())

    def clone_group_offset(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """314: copy one group's offsets to another, in one topic or (where RocketMQ clones nothing)
        in all topics; topics that the source no longer subscribes to only with `offline`.
        """
        header = decode_header(CloneGroupOffsetRequestHeader, request.ext_fields)
        source, target, topic = header.src_group, header.dest_group, (header.topic or "").strip()
        if self._groups.find(target) is None:
            validate_group(target)
        self._consumer_offsets.check_not_own(target)
        names = [topic] if topic else self._consumer_offsets.topics_of_group(source)
        cloned = [
            name
            for name in names
            if self._topics.find(name) is not None
            and (header.offline or self._counts(source, name))
        ]
        for name in cloned:
            self._consumer_offsets.clone_offset(source, target, name)
        log.warning(
            "group %s: offsets in %s cloned from group %s, requested by %s; not cloned: %s",
            target,
            cloned,
            source,
            connection.remote_address,
            sorted(set(names) - set(cloned)) or "none",
        )
        require_saved(
            self._consumer_offsets.save_if_changed(), f"the copy of the offsets for group {target}"
        )
        return request.response(ResponseCode.SUCCESS)

    # -- progress of groups ---------------------------------------------------------------------

    def get_consume_stats(
        self, _connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """208: the progress of a group in each read queue of one topic, or of all its topics."""
        header = decode_header(GetConsumeStatsRequestHeader, request.ext_fields)
        group, topic = header.consumer_group, header.topic
        names = (
            [topic] if topic and topic.strip() else self._consumer_offsets.topics_of_group(group)
        )
        for_5x = request.version >= V5_0_0
        offset_table: dict[MessageQueue, OffsetWrapper] = {}
        consume_tps = 0.0
        for name in names:
            config = self._topics.find(name)
            if config is None or not self._counts(group, name):
                log.warning("group %s: topic %s skipped, unknown or not subscribed", group, name)
                continue
            offset_table |= self._progress(group, name, config.read_queue_nums, for_5x=for_5x)
            consume_tps += self._stats.tps_group_get_nums(group, name)
        body = ConsumeStats(offset_table=offset_table, consume_tps=consume_tps)
        return request.response(ResponseCode.SUCCESS, body=body.to_json_bytes())

    def get_broker_consume_stats(
        self, _connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """317: the same for every group of this broker, one entry for each topic."""
        header = decode_header(GetConsumeStatsInBrokerHeader, request.ext_fields)
        stats_list: list[dict[str, list[ConsumeStats]]] = []
        total_diff = 0
        for group in self._groups.group_names():
            group_stats = list(
                self._group_stats(
                    group, only_order=header.is_order, for_5x=request.version >= V5_0_0
                )
            )
            stats_list.append({group: group_stats})
            total_diff += sum(
                wrapper.broker_offset - wrapper.consumer_offset
                for stats in group_stats
                for wrapper in stats.offset_table.values()
            )
        body = ConsumeStatsList(
            consume_stats_list=stats_list, broker_addr=self._broker_addr(), total_diff=total_diff
        )
        return request.response(ResponseCode.SUCCESS, body=body.to_json_bytes())

    def _group_stats(self, group: str, *, only_order: bool, for_5x: bool) -> Iterator[ConsumeStats]:
        for topic in self._consumer_offsets.topics_of_group(group):
            config = self._topics.find(topic)
            if config is None or (only_order and not config.order):
                continue
            if self._counts(group, topic):
                yield ConsumeStats(
                    offset_table=self._progress(
                        group, topic, config.write_queue_nums, for_5x=for_5x
                    ),
                    consume_tps=self._stats.tps_group_get_nums(group, topic),
                )

    def _counts(self, group: str, topic: str) -> bool:
        """False for a topic that a live group no longer subscribes to."""
        return (
            self._consumers.find_subscription(group, topic) is not None
            or self._consumers.subscription_count(group) == 0
        )

    def _progress(
        self, group: str, topic: str, queue_nums: int, *, for_5x: bool
    ) -> dict[MessageQueue, OffsetWrapper]:
        return {
            self._queue(topic, queue_id): self._offset_wrapper(
                group, topic, queue_id, for_5x=for_5x
            )
            for queue_id in range(queue_nums)
        }

    def _offset_wrapper(
        self, group: str, topic: str, queue_id: int, *, for_5x: bool
    ) -> OffsetWrapper:
        """Progress in one queue. 5.x shows pullOffset - consumerOffset as "in flight"."""
        _, broker_offset = self._queue_offsets.offsets(topic, queue_id)
        stored = self._consumer_offsets.query_offset(group, topic, queue_id)
        # -1 for a static topic: whether the group has come to this physical queue counts there.
        least = -1 if topic in self._static_topics else 0
        consumer_offset = max(least, least if stored is None else stored)
        last_ms = self._times.store_timestamp(topic, queue_id, consumer_offset - 1)
        pulled = self._consumer_offsets.query_pull_offset(group, topic, queue_id) or 0
        return OffsetWrapper(
            broker_offset=max(0, broker_offset),
            consumer_offset=consumer_offset,
            last_timestamp=max(0, last_ms),
            pull_offset=max(consumer_offset, pulled) if for_5x else None,
        )

    def query_consume_time_span(
        self, _connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """303: times of the first, last and consumed message of each write queue."""
        header = decode_header(QueryConsumeTimeSpanRequestHeader, request.ext_fields)
        config = self._topics.find(header.topic)
        if config is None:
            raise RequestError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist")
        spans = [
            self._time_span(header.group, header.topic, queue_id)
            for queue_id in range(config.write_queue_nums)
        ]
        body = QueryConsumeTimeSpanBody(consume_time_span_set=spans)
        return request.response(ResponseCode.SUCCESS, body=body.to_json_bytes())

    def _time_span(self, group: str, topic: str, queue_id: int) -> QueueTimeSpan:
        times = self._times
        _, max_offset = self._queue_offsets.offsets(topic, queue_id)
        stored = self._consumer_offsets.query_offset(group, topic, queue_id)
        consumer_offset = -1 if stored is None else stored
        min_ms = times.earliest(topic, queue_id)
        max_ms = times.store_timestamp(topic, queue_id, max_offset - 1)
        consume_ms = min_ms
        if consumer_offset > 0:
            consume_ms = times.store_timestamp(topic, queue_id, consumer_offset - 1)
        delay_ms = 0
        if consumer_offset < max_offset:
            # RocketMQ uses -1 as the time of a missing message, so for a queue that was
            # never consumed it shows the time since 1970 as its delay.
            next_ms = times.store_timestamp(topic, queue_id, consumer_offset)
            delay_ms = self._clock.now_ms() - next_ms
        return QueueTimeSpan(
            message_queue=self._queue(topic, queue_id),
            min_time_stamp=min_ms,
            max_time_stamp=max_ms,
            consume_time_stamp=consume_ms,
            delay_time=delay_ms,
            min_time_stamp_str=java_time_text(min_ms),
            max_time_stamp_str=java_time_text(max_ms),
            consume_time_stamp_str=java_time_text(consume_ms),
        )

    def _queue(self, topic: str, queue_id: int) -> MessageQueue:
        return MessageQueue(broker_name=self._broker_name, queue_id=queue_id, topic=topic)


def _answer(request: RemotingCommand, header: CommandCustomHeader) -> RemotingCommand:
    return request.response(ResponseCode.SUCCESS, None, encode_header(header))


def java_time_text(timestamp_ms: int) -> str:
    """yyyy-MM-dd#HH:mm:ss:SSS in the local time zone, RocketMQ's format for operators."""
    seconds, millis = divmod(timestamp_ms, 1000)
    moment = datetime.fromtimestamp(seconds).astimezone()
    return f"{moment:%Y-%m-%d#%H:%M:%S}:{millis:03d}"
