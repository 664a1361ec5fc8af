"""AdminTopicProcessor: operators create, change, delete and list topics (17, 21, 202, ...).

Runs in the `admin` pool: changes write files and talk to name servers. Follows the topic part of
AdminBrokerProcessor of RocketMQ, with two intended differences:

- 215 removes the consumer offsets of the topic, as 5.x does: a topic that is created again must not
  start with the offsets of the old one. This is done last, so that a crash half-way leaves a topic
  that can be deleted again.
- 215 deletes the consume queues of that topic only. RocketMQ deletes those of every unknown
  topic, which after a loss of topics.json would be all of them. 316 still does that.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace

from broker.admin.paced_deletions import PacedDeletions, check_list
from broker.metrics.broker_stats_manager import BrokerStatsManager
from broker.offset.consumer_offset_manager import ConsumerOffsetManager
from broker.processor.queue_times import QueueTimes
from broker.processor.table_pages import TablePages
from broker.processor.table_processor import TableProcessor, refuse_on_slave, require_saved
from broker.settings.broker_config import BrokerConfig
from broker.store_access.store_access import StoreAccess
from broker.store_access.store_commands import StoreCommands
from broker.topic.system_topics import TRANS_OP_HALF_TOPIC
from broker.topic.topic_attributes import check_message_type, parse_changes
from broker.topic.topic_config_manager import TopicConfigManager
from broker.topic.topic_queue_mapping_manager import TopicQueueMappingManager
from remoting.body.message_queue import MessageQueue
from remoting.body.stats import TopicOffset, TopicStatsTable
from remoting.body.topic_config import (
    CreateTopicListRequestBody,
    DeleteTopicListRequestBody,
    TopicConfig,
    TopicConfigAndQueueMapping,
    TopicFilterType,
    TopicList,
)
from remoting.body.topic_queue_mapping import TopicQueueMappingDetail
from remoting.command_custom_header import decode_header
from remoting.errors import HeaderError, RequestError
from remoting.headers.topic import (
    CreateTopicRequestHeader,
    DeleteTopicRequestHeader,
    GetTopicConfigRequestHeader,
    GetTopicStatsInfoRequestHeader,
)
from remoting.mq_version import V5_0_0
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.request_processor import ConnectionLike
from remoting.resource_names import is_legal_pop_retry_topic, validate_topic
from remoting.response_code import ResponseCode

log = logging.getLogger(__name__)


class AdminTopicProcessor(TableProcessor):
    """Codes 17, 21, 202, 215, 305, 316 and, for mqadmin of 5.x, 18, 351, 513 and 5002."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        topics: TopicConfigManager,
        mappings: TopicQueueMappingManager,
        consumer_offsets: ConsumerOffsetManager,
        store: StoreAccess,
        commands: StoreCommands,
        stats: BrokerStatsManager,
        is_slave: Callable[[], bool],
    ) -> None:
        super().__init__(
            {
                RequestCode.UPDATE_AND_CREATE_TOPIC: self.update_and_create_topic,
                RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: self.update_and_create_topic_list,
                RequestCode.GET_ALL_TOPIC_CONFIG: self.get_all_topic_config,
                RequestCode.GET_TOPIC_STATS_INFO: self.get_topic_stats_info,
                RequestCode.DELETE_TOPIC_IN_BROKER: self.delete_topic,
                RequestCode.DELETE_TOPIC_IN_BROKER_LIST: self.delete_topic_list,
                RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self.get_system_topic_list,
                RequestCode.CLEAN_UNUSED_TOPIC: self.clean_unused_topic,
                RequestCode.GET_TOPIC_CONFIG: self.get_topic_config,
                RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC: self.update_and_create_static_topic,
            }
        )
        self.config = config
        """Replaced whole when a setting changes."""
        self._topics = topics
        self._mappings = mappings
        self._system_topics = topics.system_topics
        self._consumer_offsets = consumer_offsets
        self._times = QueueTimes(store)
        self._store = store
        self._commands = commands
        self._stats = stats
        self._is_slave = is_slave
        self._pages = TablePages(config.page_limit)
        self.serves: Callable[[], bool] = lambda: True
        """Whether the broker is not stopping. Set before the first request."""
        self._deletions = PacedDeletions(lambda: self.serves())
        self._change_lock = threading.Lock()
        """Serializes creations and deletions, each with all its steps."""

    def update_and_create_topic(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """17: create a topic or replace its settings; it is registered before the response is sent.

        The success response carries the same odd remark as RocketMQ's.
        """
        header = self._create_header(connection, request)
        config = replace(_config_of(header), attributes=parse_changes(header.attributes))
        self._check_message_types(config)
        with self._change_lock:
            require_saved(self._topics.update(config), f"topic {header.topic}")
        return request.response(ResponseCode.SUCCESS, "not set any response code")

    def _create_header(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> CreateTopicRequestHeader:
        refuse_on_slave(self._is_slave())
        header = decode_header(CreateTopicRequestHeader, request.ext_fields)
        log.info("topic %s: update requested by %s", header.topic, connection.remote_address)
        validate_topic(header.topic, self._topics.retry_limit)
        self._system_topics.check_not_system(header.topic)
        return header

    def update_and_create_static_topic(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """513 (5.x): as 17, for a static topic, whose queues on this broker the body maps.

        A mapping that is refused changes nothing. (RocketMQ has changed the topic's settings then.)
        """
        header = self._create_header(connection, request)
        detail = TopicQueueMappingDetail.from_request(request.body)
        if detail.topic != header.topic:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"the mapping is of topic {detail.topic!r:.160}, the request names {header.topic}",
            )
        config = _config_of(header)
        with self._change_lock:
            saved = self._mappings.update(detail, force=bool(header.force))
            saved = self._topics.update(config) and saved
        require_saved(saved, f"topic {header.topic}")
        return request.response(ResponseCode.SUCCESS)

    def update_and_create_topic_list(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """18 (5.x): as 17, for several topics; all of them or, if one is refused, none."""
        refuse_on_slave(self._is_slave())
        configs = CreateTopicListRequestBody.from_request(request.body).topic_config_list
        names = [config.topic_name for config in configs]
        log.info("topics %s: update requested by %s", names, connection.remote_address)
        for name in names:
            validate_topic(name, self._topics.retry_limit)
            self._system_topics.check_not_system(name)
        self._check_message_types(*configs)
        with self._change_lock:
            # `order` is left out as in 17.
            saved = self._topics.update(*(replace(config, order=False) for config in configs))
        require_saved(saved, f"the change of topics {', '.join(names)}")
        return request.response(ResponseCode.SUCCESS)

    def _check_message_types(self, *configs: TopicConfig) -> None:
        for config in configs:
            check_message_type(
                config.attributes, enable_mixed=self.config.enable_mixed_message_type
            )

    def delete_topic(self, connection: ConnectionLike, request: RemotingCommand) -> RemotingCommand:
        """215: delete the topic, its mapping, its consume queues and its consumer offsets. mqadmin
        tells the name servers (216).
        """
        refuse_on_slave(self._is_slave())
        topic = decode_header(DeleteTopicRequestHeader, request.ext_fields).topic
        log.info("topic %s: deletion requested by %s", topic, connection.remote_address)
        self._check_deletable(topic)
        self._delete(topic)
        return request.response(ResponseCode.SUCCESS)

    def delete_topic_list(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """5002 (5.5.1): as 215, for several topics, batchDeleteTopicMaxRate a second; none if a
        name is refused."""
        refuse_on_slave(self._is_slave())
        body = DeleteTopicListRequestBody.from_request(request.body)
        names = check_list(body.topic_list, "topic")
        log.info("topics %s: deletion requested by %s", names, connection.remote_address)
        for name in names:
            self._check_deletable(name)
        for name in self._deletions.each(names, self.config.batch_delete_topic_max_rate):
            self._delete(name)
        return request.response(ResponseCode.SUCCESS)

    def _check_deletable(self, topic: str) -> None:
        if not is_legal_pop_retry_topic(topic):
            validate_topic(topic)
        self._system_topics.check_not_system(topic)

    def _delete(self, topic: str) -> None:
        with self._change_lock:
            saved = self._topics.delete(topic)
            saved = self._mappings.delete(topic) and saved
            self._commands.delete_topic_queues(topic)
            self._consumer_offsets.remove_topic(topic)
            saved = self._consumer_offsets.save_if_changed() and saved
        if self.config.auto_delete_unused_stats:
            self._stats.on_topic_deleted(topic)
        require_saved(saved, f"the deletion of topic {topic}")

    def clean_unused_topic(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """316: delete the consume queues of every topic that is not in the table."""
        log.warning("clean unused topics: requested by %s", connection.remote_address)
        with self._change_lock:
            # The op topic has no entry in the table but is in use (as in RocketMQ).
            self._commands.clean_unused_topic([*self._topics.topic_names(), TRANS_OP_HALF_TOPIC])
        return request.response(ResponseCode.SUCCESS)

    def get_all_topic_config(
        self, _connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """21: the table, or a page of it, with the mappings of static topics."""
        whole = self._mappings.with_mappings(self._topics.wrapper())
        page, fields = self._pages.of_topics(whole, request.ext_fields)
        return request.response(ResponseCode.SUCCESS, None, fields, page.to_json_bytes())

    def get_topic_config(
        self, _connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """351 (5.x): one topic, with lo=true its mapping; mqadmin of 5.x sends this before
        topicStatus and consumerProgress."""
        header = decode_header(GetTopicConfigRequestHeader, request.ext_fields)
        topic = header.topic
        config = self._topics.find(topic)
        if config is None:
            raise RequestError(
                ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {topic}"
            )
        body: TopicConfig = config
        if header.lo and (detail := self._mappings.table.get(topic)) is not None:
            body = TopicConfigAndQueueMapping.of(config, detail)
        return request.response(ResponseCode.SUCCESS, body=body.to_json_bytes())

    def get_topic_stats_info(
        self, _connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """202: offsets and last update time of each write queue."""
        topic = decode_header(GetTopicStatsInfoRequestHeader, request.ext_fields).topic
        config = self._topics.find(topic)
        if config is None:
            raise RequestError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        table = {
            MessageQueue(
                broker_name=self.config.broker_name, queue_id=queue_id, topic=topic
            ): self._topic_offset(topic, queue_id)
            for queue_id in range(config.write_queue_nums)
        }
        for_5x = request.version >= V5_0_0
        put_tps = self._stats.tps_topic_put_nums(topic) if for_5x else None
        body = TopicStatsTable(offset_table=table, topic_put_tps=put_tps)
        return request.response(ResponseCode.SUCCESS, body=body.to_json_bytes())

    def _topic_offset(self, topic: str, queue_id: int) -> TopicOffset:
        min_offset, max_offset = self._store.offsets(topic, queue_id)
        newest_ms = (
            self._times.store_timestamp(topic, queue_id, max_offset - 1) if max_offset > 0 else 0
        )
        return TopicOffset(
            min_offset=max(0, min_offset),
            max_offset=max(0, max_offset),
            last_update_timestamp=newest_ms,
        )

    def get_system_topic_list(
        self, _connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """305: names of the system topics."""
        body = TopicList(topic_list=self._system_topics.names())
        return request.response(ResponseCode.SUCCESS, body=body.to_json_bytes())


def _config_of(header: CreateTopicRequestHeader) -> TopicConfig:
    """`order` is left out, as by RocketMQ."""
    return TopicConfig(
        topic_name=header.topic,
        read_queue_nums=header.read_queue_nums,
        write_queue_nums=header.write_queue_nums,
        perm=header.perm,
        topic_filter_type=_filter_type(header.topic_filter_type),
        topic_sys_flag=header.topic_sys_flag or 0,
    )


def _filter_type(text: str) -> TopicFilterType:
    try:
        return TopicFilterType(text)
    except ValueError:
        raise HeaderError(
            CreateTopicRequestHeader.__name__,
            "topicFilterType",
            f"{text!r:.60} is not SINGLE_TAG or MULTI_TAG",
        ) from None
