"""AdminGroupProcessor: consumer groups and connected clients for operators (200, 203, ...).

Runs in the `admin` pool: changes write a file. Follows the group part of AdminBrokerProcessor of
RocketMQ. Also serves the slaves of this broker (201).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from broker.admin.paced_deletions import PacedDeletions, check_list
from broker.client.client_channel_info import ClientChannelInfo
from broker.client.consumer_manager import ConsumerManager
from broker.client.producer_manager import ProducerManager
from broker.metrics.broker_stats_manager import BrokerStatsManager
from broker.offset.consumer_offset_manager import ConsumerOffsetManager
from broker.processor.table_pages import TablePages
from broker.processor.table_processor import TableProcessor, refuse_on_slave, require_saved
from broker.settings.broker_config import BrokerConfig
from broker.subscription.group_attributes import lite_bind_topic
from broker.subscription.subscription_group_manager import SubscriptionGroupManager
from remoting.body.client_connection import (
    Connection,
    ConsumerConnection,
    GroupList,
    ProducerConnection,
    ProducerInfo,
    ProducerTableInfo,
)
from remoting.body.heartbeat import QuerySubscriptionResponseBody
from remoting.body.subscription_group_config import (
    DeleteSubscriptionGroupListRequestBody,
    GroupForbidden,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
)
from remoting.command_custom_header import decode_header
from remoting.errors import RequestError
from remoting.headers.admin import (
    DeleteSubscriptionGroupRequestHeader,
    GetConsumerConnectionListRequestHeader,
    GetProducerConnectionListRequestHeader,
    GetSubscriptionGroupConfigRequestHeader,
    QuerySubscriptionByConsumerRequestHeader,
    UpdateGroupForbiddenRequestHeader,
)
from remoting.headers.topic import QueryTopicConsumeByWhoRequestHeader
from remoting.language_code import language_name
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.request_processor import ConnectionLike
from remoting.resource_names import validate_group
from remoting.response_code import ResponseCode

log = logging.getLogger(__name__)


class AdminGroupProcessor(TableProcessor):
    """Codes 200, 201, 203, 204, 207, 300, 328 and, of 5.x, 225, 345, 352, 353 and 5003."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        groups: SubscriptionGroupManager,
        consumers: ConsumerManager,
        producers: ProducerManager,
        consumer_offsets: ConsumerOffsetManager,
        stats: BrokerStatsManager,
        is_slave: Callable[[], bool],
    ) -> None:
        super().__init__(
            {
                RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self.update_and_create_group,
                RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: (
                    self.update_and_create_group_list
                ),
                RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self.get_all_groups,
                RequestCode.GET_CONSUMER_CONNECTION_LIST: self.get_consumer_connection_list,
                RequestCode.GET_PRODUCER_CONNECTION_LIST: self.get_producer_connection_list,
                RequestCode.DELETE_SUBSCRIPTIONGROUP: self.delete_group,
                RequestCode.DELETE_SUBSCRIPTION_GROUP_LIST: self.delete_group_list,
                RequestCode.GET_ALL_PRODUCER_INFO: self.get_all_producer_info,
                RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self.get_group,
                RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self.query_topic_consume_by_who,
                RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: self.query_subscription,
                RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: self.update_and_get_forbidden,
            }
        )
        self.config = config
        """Replaced as a whole when a setting changes."""
        self._pages = TablePages(config.page_limit)
        self.serves: Callable[[], bool] = lambda: True
        """Whether the broker is not stopping. Set before the first request."""
        self._deletions = PacedDeletions(lambda: self.serves())
        self._groups = groups
        self._consumers = consumers
        self._producers = producers
        self._consumer_offsets = consumer_offsets
        self._stats = stats
        self._is_slave = is_slave
        self.end_lite_group: Callable[[str, str], None] = lambda _group, _parent: None
        """(group, parent): a lite group was deleted. Set before the first request."""

    def update_and_create_group(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """200: create a group or replace its settings."""
        refuse_on_slave(self._is_slave())
        config = SubscriptionGroupConfig.from_request(request.body)
        log.info("group %s: update requested by %s", config.group_name, connection.remote_address)
        self._check_names([config])
        require_saved(self._groups.update(config), f"group {config.group_name}")
        return request.response(ResponseCode.SUCCESS)

    def update_and_create_group_list(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """225 (5.x): as 200, for several groups; all of them or, if a name is refused, none."""
        refuse_on_slave(self._is_slave())
        configs = SubscriptionGroupList.from_request(request.body).group_config_list
        names = [config.group_name for config in configs]
        log.info("groups %s: update requested by %s", names, connection.remote_address)
        self._check_names(configs)
        require_saved(self._groups.update(*configs), f"the change of groups {', '.join(names)}")
        return request.response(ResponseCode.SUCCESS)

    def _check_names(self, configs: Iterable[SubscriptionGroupConfig]) -> None:
        """Raises RequestError for a new group whose name is against the rule."""
        for config in configs:
            if self._groups.find(config.group_name) is None:
                validate_group(config.group_name)

    def get_all_groups(
        self, _connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """201: the table, or a page of it."""
        page, fields = self._pages.of_groups(self._groups.wrapper(), request.ext_fields)
        return request.response(ResponseCode.SUCCESS, None, fields, page.to_json_bytes())

    def get_group(self, _connection: ConnectionLike, request: RemotingCommand) -> RemotingCommand:
        """352 (5.x): one group; created with defaults where that is allowed, as in 5.x."""
        header = decode_header(GetSubscriptionGroupConfigRequestHeader, request.ext_fields)
        config = self._groups.find_or_create(header.group)
        if config is None:
            raise RequestError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "No group in this broker")
        return request.response(ResponseCode.SUCCESS, body=config.to_json_bytes())

    def update_and_get_forbidden(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """353 (5.x): forbid a group to read a topic, or let it again, and say which holds; without
        `readable` only the latter."""
        header = decode_header(UpdateGroupForbiddenRequestHeader, request.ext_fields)
        group, topic = header.group, header.topic
        if header.readable is not None:
            refuse_on_slave(self._is_slave())
            log.info(
                "group %s: readable=%s for topic %s requested by %s",
                group,
                header.readable,
                topic,
                connection.remote_address,
            )
            saved = self._groups.update_readable(group, topic, header.readable)
            require_saved(saved, f"what group {group} may read of topic {topic}")
        body = GroupForbidden(
            group=group, topic=topic, readable=self._groups.is_readable(group, topic)
        )
        return request.response(ResponseCode.SUCCESS, "", body=body.to_json_bytes())

    def delete_group(self, connection: ConnectionLike, request: RemotingCommand) -> RemotingCommand:
        """207: delete the group's settings, and its offsets if requested (4.x and 5.x use different
        fields for that), a lite group's always."""
        refuse_on_slave(self._is_slave())
        header = decode_header(DeleteSubscriptionGroupRequestHeader, request.ext_fields)
        group = header.group_name
        log.info("group %s: deletion requested by %s", group, connection.remote_address)
        removes_offsets = bool(header.remove_offset or header.clean_offset)
        if removes_offsets:
            self._consumer_offsets.check_not_own(group)
        self._delete(group, removes_offsets=removes_offsets)
        return request.response(ResponseCode.SUCCESS)

    def delete_group_list(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """5003 (5.5.1): as 207, for several groups, batchDeleteSubscriptionGroupMaxRate a second;
        none if a name is refused."""
        refuse_on_slave(self._is_slave())
        body = DeleteSubscriptionGroupListRequestBody.from_request(request.body)
        names = check_list(body.group_name_list, "group name")
        log.info("groups %s: deletion requested by %s", names, connection.remote_address)
        if body.clean_offset:
            for name in names:
                self._consumer_offsets.check_not_own(name)
        rate = self.config.batch_delete_subscription_group_max_rate
        for name in self._deletions.each(names, rate):
            self._delete(name, removes_offsets=body.clean_offset)
        return request.response(ResponseCode.SUCCESS)

    def _delete(self, group: str, *, removes_offsets: bool) -> None:
        config = self._groups.find(group)
        parent = None if config is None else lite_bind_topic(config.attributes)
        saved = self._groups.delete(group)
        if removes_offsets or parent is not None:
            self._consumer_offsets.remove_group(group)
            saved = self._consumer_offsets.save_if_changed() and saved
        if parent is not None:
            self.end_lite_group(group, parent)
        if self.config.auto_delete_unused_stats:
            self._stats.on_group_deleted(group)
        require_saved(saved, f"the deletion of group {group}")

    def get_consumer_connection_list(
        self, _connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """203: members, mode and subscriptions of a live group."""
        header = decode_header(GetConsumerConnectionListRequestHeader, request.ext_fields)
        info = self._consumers.find_group(header.consumer_group)
        if info is None:
            raise RequestError(
                ResponseCode.CONSUMER_NOT_ONLINE,
                f"the consumer group[{header.consumer_group}] not online",
            )
        body = ConsumerConnection(
            connection_set=_connections(info.infos()),
            subscription_table=info.subscriptions.copy(),
            consume_type=info.consume_type,
            message_model=info.message_model,
            consume_from_where=info.consume_from_where,
        )
        return request.response(ResponseCode.SUCCESS, body=body.to_json_bytes())

    def query_topic_consume_by_who(
        self, _connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """300: groups that subscribe to the topic, or have offsets in it."""
        topic = decode_header(QueryTopicConsumeByWhoRequestHeader, request.ext_fields).topic
        groups = dict.fromkeys(
            (
                *self._consumers.groups_of_topic(topic),
                *self._consumer_offsets.groups_of_topic(topic),
            )
        )
        body = GroupList(group_list=list(groups))
        return request.response(ResponseCode.SUCCESS, body=body.to_json_bytes())

    def query_subscription(
        self, _connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """345 (5.x): the subscription of a live group to a topic; empty if the group is not
        online."""
        header = decode_header(QuerySubscriptionByConsumerRequestHeader, request.ext_fields)
        topic = header.topic
        found = self._consumers.find_subscription(header.group, topic) if topic else None
        body = QuerySubscriptionResponseBody(
            group=header.group, topic=topic, subscription_data=found
        )
        return request.response(ResponseCode.SUCCESS, body=body.to_json_bytes())

    def get_producer_connection_list(
        self, _connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """204: members of a producer group."""
        header = decode_header(GetProducerConnectionListRequestHeader, request.ext_fields)
        infos = self._producers.find_group(header.producer_group)
        if infos is None:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"the producer group[{header.producer_group}] not exist",
            )
        body = ProducerConnection(connection_set=_connections(infos))
        return request.response(ResponseCode.SUCCESS, body=body.to_json_bytes())

    def get_all_producer_info(
        self, _connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """328: every producer of every group."""
        data = {
            group: [_producer_info(info) for info in infos]
            for group, infos in self._producers.all_groups().items()
        }
        body = ProducerTableInfo(data=data)
        return request.response(ResponseCode.SUCCESS, body=body.to_json_bytes())


def _connections(infos: Iterable[ClientChannelInfo]) -> list[Connection]:
    return [
        Connection(
            client_id=info.client_id,
            client_addr=info.connection.remote_address,
            language=language_name(info.language),
            version=info.version,
        )
        for info in infos
    ]


def _producer_info(info: ClientChannelInfo) -> ProducerInfo:
    return ProducerInfo(
        client_id=info.client_id,
        remote_ip=f"/{info.connection.remote_address}",
        language=language_name(info.language),
        version=info.version,
        last_update_timestamp=info.last_update_ms,
    )
