"""AdminOffsetProcessor: the tables of offsets (43, 45, 308, 314, 343).

43 and 45 are light; the others: `admin` pool. Follows that part of AdminBrokerProcessor of
RocketMQ.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from broker.admin.consume_progress import ConsumeProgress
from broker.offset.consumer_offset_manager import ConsumerOffsetManager
from broker.processor.table_processor import TableProcessor, refuse_on_slave, require_saved
from broker.schedule.schedule_offset_manager import ScheduleOffsetManager
from broker.store_access.store_access import StoreAccess
from broker.subscription.subscription_group_manager import SubscriptionGroupManager
from broker.topic.topic_config_manager import TopicConfigManager
from remoting.body.reset_offset import QueryCorrectionOffsetBody
from remoting.body.topic_config import TopicList
from remoting.command_custom_header import decode_header
from remoting.errors import RequestError
from remoting.headers.admin import (
    CloneGroupOffsetRequestHeader,
    QueryCorrectionOffsetHeader,
    QueryTopicsByConsumerRequestHeader,
)
from remoting.mq_version import V5_0_0
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.request_processor import ConnectionLike
from remoting.resource_names import validate_group
from remoting.response_code import ResponseCode

log = logging.getLogger(__name__)

MAX_OFFSET: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class OffsetLimits:
    """What is refused on some brokers."""

    find_objection: Callable[[], str | None] = lambda: None
    """Why no other broker may copy the tables of offsets."""
    is_slave: Callable[[], bool] = lambda: False
    """Whether the tables are copies of a master's now."""


class AdminOffsetProcessor(TableProcessor):
    """Codes 43, 45, 308, 314 and, for mqadmin of 5.x, 343."""

    def __init__(
        self,
        broker_addr: str,
        *,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        consumer_offsets: ConsumerOffsetManager,
        schedule_offsets: ScheduleOffsetManager,
        store: StoreAccess,
        progress: ConsumeProgress,
        limits: OffsetLimits = OffsetLimits(),
    ) -> None:
        super().__init__(
            {
                RequestCode.GET_ALL_CONSUMER_OFFSET: self.get_all_consumer_offset,
                RequestCode.GET_ALL_DELAY_OFFSET: self.get_all_delay_offset,
                RequestCode.QUERY_CORRECTION_OFFSET: self.query_correction_offset,
                RequestCode.CLONE_GROUP_OFFSET: self.clone_group_offset,
                RequestCode.QUERY_TOPICS_BY_CONSUMER: self.query_topics_by_consumer,
            }
        )
        self._broker_addr = broker_addr
        self._topics = topics
        self._groups = groups
        self._consumer_offsets = consumer_offsets
        self._schedule_offsets = schedule_offsets
        self._store = store
        self._progress = progress
        self._find_objection = limits.find_objection
        self._is_slave = limits.is_slave

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
        """45: the offset of every delay level; a 5.x master fails without a data version."""
        self._check_copied()
        offsets = self._schedule_offsets
        body = offsets.encode_for_5x() if request.version >= V5_0_0 else offsets.encode()
        return request.response(ResponseCode.SUCCESS, body=body)

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
            broker_addr=self._broker_addr,
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
            lambda queue_id: self._store.offsets(topic, queue_id)[0],
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
        in all topics; topics that the source no longer subscribes to only with `offline`. Other
        than in RocketMQ a slave refuses: its master would not know of it.
        """
        refuse_on_slave(self._is_slave())
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
            and (header.offline or self._progress.counts(source, name))
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
