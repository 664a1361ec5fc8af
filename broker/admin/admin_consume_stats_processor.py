"""AdminConsumeStatsProcessor: the progress of consumer groups (208, 303, 317).

Reads files: `admin` pool. Follows that part of AdminBrokerProcessor of RocketMQ; what the progress
in a queue is, ConsumeProgress says.

Tested by tests/broker/admin/test_admin_consume_stats_processor.py.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from broker.admin.consume_progress import ConsumeProgress
from broker.metrics.broker_stats_manager import BrokerStatsManager
from broker.out.broker_outer_api import BrokerIdentity
from broker.processor.table_processor import TableProcessor
from broker.subscription.subscription_group_manager import SubscriptionGroupManager
from broker.topic.topic_config_manager import TopicConfigManager
from remoting.body.message_queue import MessageQueue
from remoting.body.query_queue import QueryConsumeTimeSpanBody
from remoting.body.stats import ConsumeStats, ConsumeStatsList, OffsetWrapper
from remoting.command_custom_header import decode_header
from remoting.errors import RequestError
from remoting.headers.admin import GetConsumeStatsInBrokerHeader, GetConsumeStatsRequestHeader
from remoting.headers.topic import QueryConsumeTimeSpanRequestHeader
from remoting.mq_version import V5_0_0
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.request_processor import ConnectionLike
from remoting.response_code import ResponseCode

log = logging.getLogger(__name__)


class AdminConsumeStatsProcessor(TableProcessor):
    """Codes 208, 303 and 317."""

    def __init__(
        self,
        identity: BrokerIdentity,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        progress: ConsumeProgress,
        stats: BrokerStatsManager,
    ) -> None:
        super().__init__(
            {
                RequestCode.GET_CONSUME_STATS: self.get_consume_stats,
                RequestCode.QUERY_CONSUME_TIME_SPAN: self.query_consume_time_span,
                RequestCode.GET_BROKER_CONSUME_STATS: self.get_broker_consume_stats,
            }
        )
        self._identity = identity
        self._topics = topics
        self._groups = groups
        self._progress = progress
        self._stats = stats

    def get_consume_stats(
        self, _connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """208: the progress of a group in each read queue of one topic, or of all its topics; of a
        list of topics whether it subscribes to them or not, as in 5.x."""
        header = decode_header(GetConsumeStatsRequestHeader, request.ext_fields)
        group, topic = header.consumer_group, header.topic
        listed = dict.fromkeys(name for name in (header.topic_list or "").split(";") if name)
        names = [topic] if topic and topic.strip() else self._progress.topics_of(group)
        for_5x = request.version >= V5_0_0
        offset_table: dict[MessageQueue, OffsetWrapper] = {}
        consume_tps = 0.0
        for name in listed or names:
            config = self._topics.find(name)
            if config is None or not (listed or self._progress.counts(group, name)):
                log.warning("group %s: topic %s skipped, unknown or not subscribed", group, name)
                continue
            offset_table |= self._offsets(group, name, config.read_queue_nums, for_5x=for_5x)
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
            consume_stats_list=stats_list,
            broker_addr=self._identity.broker_addr,
            total_diff=total_diff,
        )
        return request.response(ResponseCode.SUCCESS, body=body.to_json_bytes())

    def _group_stats(self, group: str, *, only_order: bool, for_5x: bool) -> Iterator[ConsumeStats]:
        for topic in self._progress.topics_of(group):
            config = self._topics.find(topic)
            if config is None or (only_order and not config.order):
                continue
            if self._progress.counts(group, topic):
                yield ConsumeStats(
                    offset_table=self._offsets(
                        group, topic, config.write_queue_nums, for_5x=for_5x
                    ),
                    consume_tps=self._stats.tps_group_get_nums(group, topic),
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
            self._progress.time_span(header.group, self._queue(header.topic, queue_id))
            for queue_id in range(config.write_queue_nums)
        ]
        body = QueryConsumeTimeSpanBody(consume_time_span_set=spans)
        return request.response(ResponseCode.SUCCESS, body=body.to_json_bytes())

    def _offsets(
        self, group: str, topic: str, queue_nums: int, *, for_5x: bool
    ) -> dict[MessageQueue, OffsetWrapper]:
        queues = [self._queue(topic, queue_id) for queue_id in range(queue_nums)]
        return {queue: self._progress.offsets(group, queue, for_5x=for_5x) for queue in queues}

    def _queue(self, topic: str, queue_id: int) -> MessageQueue:
        name = self._identity.broker_name
        return MessageQueue(broker_name=name, queue_id=queue_id, topic=topic)
