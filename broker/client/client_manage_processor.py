"""ClientManageProcessor: heartbeats (34), unregistering (35), checking a subscription (46).

Runs in the `heartbeat` / `client manage` pool: a heartbeat may create retry topics, and then waits
once until all of them are registered. What one heartbeat may name, and so create, is bounded: in
RocketMQ one of 16 MiB makes as many groups and topics as its text holds. Follows
ClientManageProcessor of RocketMQ; the managers hold the clients' state.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from broker.client.client_channel_info import ClientChannelInfo
from broker.client.connected_clients import ConnectedClients
from broker.client.known_heartbeats import KnownHeartbeat
from broker.filter.filter_factory import FilterFactory, is_tag_type
from broker.filter.selector import InvalidSelectorError
from broker.processor.table_processor import TableProcessor
from broker.settings.broker_config import BrokerConfig
from broker.subscription.subscription_group_manager import SubscriptionGroupManager
from broker.topic.new_topics import NewTopics
from broker.topic.system_topics import PERM_READ_WRITE, TOPIC_SYS_FLAG_UNIT_SUB, retry_topic
from broker.topic.topic_config_manager import TopicConfigManager
from ipc.clock import Clock
from remoting.body.heartbeat import (
    CheckClientRequestBody,
    ConsumerData,
    HeartbeatData,
    SubscriptionData,
)
from remoting.command_custom_header import decode_header
from remoting.errors import RequestError
from remoting.headers.consumer import UnregisterClientRequestHeader
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.request_processor import ConnectionLike
from remoting.resource_names import is_legal_topic, validate_group
from remoting.response_code import ResponseCode
from remoting.signature import ACCESS_KEY

log = logging.getLogger(__name__)

_MAX_SUBSCRIPTIONS: Final = 10_000
"""Of one heartbeat, over all of its groups."""
_LONGEST_NAME: Final = 255
"""Characters of the client id and of each group."""
_MAX_BYTES: Final = 2 << 20
"""Of one heartbeat: a longer one is not even parsed, which would take 0.1 s of everybody's time."""


class ClientManageProcessor(TableProcessor):
    """Codes 34, 35 and 46."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        *,
        clients: ConnectedClients,
        groups: SubscriptionGroupManager,
        topics: TopicConfigManager,
        new_topics: NewTopics,
        account_of: Callable[[RemotingCommand], str] = lambda request: "",
    ) -> None:
        """account_of: that sent a request (RequestGuard.account_of)."""
        self.config = config
        """Replaced whole when a setting changes."""
        self._clock = clock
        self._producers = clients.producers
        self._consumers = clients.consumers
        self._heartbeats = clients.heartbeats
        self._groups = groups
        self._topics = topics
        self._new_topics = new_topics
        self._account_of = account_of
        self._factory = FilterFactory()
        super().__init__(
            {
                RequestCode.HEART_BEAT: self.heart_beat,
                RequestCode.UNREGISTER_CLIENT: self.unregister_client,
                RequestCode.CHECK_CLIENT_CONFIG: self.check_client_config,
            }
        )

    def heart_beat(self, connection: ConnectionLike, request: RemotingCommand) -> RemotingCommand:
        """34: the client is alive, with these groups and subscriptions. A consumer group whose name
        is against the rule is refused, unless it is in the table from before."""
        if len(request.body) > _MAX_BYTES:
            log.warning(
                "%s: heartbeat of %s bytes rejected", connection.remote_address, len(request.body)
            )
            text = f"a heartbeat of {len(request.body)} bytes, over the limit of {_MAX_BYTES}"
            raise RequestError(ResponseCode.SYSTEM_ERROR, text)
        self._heartbeats.forget(connection)
        began_ms = self._clock.now_ms()
        heartbeat = HeartbeatData.from_request(request.body)
        self._check_size(connection, heartbeat)
        for consumer in heartbeat.consumer_data_set:
            if self._groups.find(consumer.group_name) is None:
                validate_group(consumer.group_name)
        info = self._channel_info(connection, heartbeat.client_id, request)
        found = self._revisions(heartbeat)
        notifies = [self._prepare_group(consumer) for consumer in heartbeat.consumer_data_set]
        if self._new_topics.busy:
            names = [retry_topic(each.group_name) for each in heartbeat.consumer_data_set]
            self._new_topics.wait(names)
        for consumer, notify in zip(heartbeat.consumer_data_set, notifies, strict=True):
            # A separate object for each table, since they expire independently.
            member = self._channel_info(connection, heartbeat.client_id, request)
            if self._consumers.register_consumer(consumer, member, notify=notify):
                log.info("group %s: changed by %r", consumer.group_name, info)
        for producer in heartbeat.producer_data_set:
            member = self._channel_info(connection, heartbeat.client_id, request)
            self._producers.register_producer(producer.group_name, member)
        if found == self._revisions(heartbeat):
            self._note(connection, heartbeat, found, request, began_ms)
        return request.response(ResponseCode.SUCCESS)

    def _revisions(self, heartbeat: HeartbeatData) -> tuple[tuple[str, int], ...]:
        """The consumer groups that it names, as they are now (KnownHeartbeat.consumers)."""
        names = [consumer.group_name for consumer in heartbeat.consumer_data_set]
        return tuple((name, self._consumers.revision(name)) for name in names)

    def _note(
        self,
        connection: ConnectionLike,
        heartbeat: HeartbeatData,
        revisions: tuple[tuple[str, int], ...],
        request: RemotingCommand,
        began_ms: int,
    ) -> None:
        """A heartbeat that changed nothing is known from now on. revisions: of its groups.

        Not one whose time counts: a property filter expires by its last one, and of subscriptions
        without a version, which is then that of their parsing, the newest wins.
        """
        for consumer in heartbeat.consumer_data_set:
            for each in consumer.subscription_data_set:
                if not is_tag_type(each.expression_type) or each.sub_version >= began_ms:
                    return
        known = KnownHeartbeat(
            request.body,
            revisions,
            tuple(producer.group_name for producer in heartbeat.producer_data_set),
            request.ext_fields.get(ACCESS_KEY, ""),
            self._is_current([group for group, _revision in revisions]),
        )
        self._heartbeats.note(connection, known)

    def _is_current(self, groups: list[str]) -> Callable[[], bool]:
        """Whether settings, groups and retry topics are still what they are now: none to be made
        by another heartbeat, and the same limits."""
        config, find_group, find_topic = self.config, self._groups.find, self._topics.find
        found = [
            (group, find_group(group) is None, retry, find_topic(retry) is None)
            for group, retry in ((group, retry_topic(group)) for group in groups)
        ]

        def is_current() -> bool:
            for group, no_group, retry, no_topic in found:
                if (find_group(group) is None) != no_group:
                    return False
                if (find_topic(retry) is None) != no_topic:
                    return False
            return self.config is config

        return is_current

    def unregister_client(
        self, connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """35: the client leaves a producer group, a consumer group or both."""
        header = decode_header(UnregisterClientRequestHeader, request.ext_fields)
        if header.producer_group is not None:
            self._producers.unregister_producer(header.producer_group, connection)
        if header.consumer_group is not None:
            # Java creates the group here; the C++ client's producers leave the consumer group "".
            config = self._groups.find(header.consumer_group)
            notify = config is None or config.notify_consumer_ids_changed_enable
            self._consumers.unregister_consumer(header.consumer_group, connection, notify=notify)
        return request.response(ResponseCode.SUCCESS, ext_fields={})

    def check_client_config(
        self, _connection: ConnectionLike, request: RemotingCommand
    ) -> RemotingCommand:
        """46: whether the broker supports the client's filter."""
        body = CheckClientRequestBody.from_request(request.body)
        subscription = body.subscription_data
        if subscription is not None and not is_tag_type(subscription.expression_type):
            self._check_expression(body, subscription)
        return request.response(ResponseCode.SUCCESS)

    def _check_expression(
        self, body: CheckClientRequestBody, subscription: SubscriptionData
    ) -> None:
        kind, text = subscription.expression_type, subscription.sub_string
        if not self.config.enable_property_filter:
            raise RequestError(
                ResponseCode.SYSTEM_ERROR,
                f"The broker does not support consumer to filter message by {kind}",
            )
        try:
            self._factory.compile(kind, text)
        except InvalidSelectorError as error:
            log.warning(
                "group %s: %s sent an invalid filter %r: %s",
                body.group,
                body.client_id,
                text,
                error,
            )
            raise RequestError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from error

    def _check_size(self, connection: ConnectionLike, heartbeat: HeartbeatData) -> None:
        """Raises RequestError before anything is made of a heartbeat that names too much, or too
        much together with what the connection's earlier ones named and 35 did not take back."""
        consumers, producers = heartbeat.consumer_data_set, heartbeat.producer_data_set
        consumed, produced = (
            each.groups_of(connection) for each in (self._consumers, self._producers)
        )
        groups = len({*consumed, *(each.group_name for each in consumers)})
        groups += len({*produced, *(each.group_name for each in producers)})
        most = self.config.heartbeat_max_groups
        named = [*(each.group_name for each in consumers), *(each.group_name for each in producers)]
        longest = max(map(len, [heartbeat.client_id, *named]))
        subscriptions = sum(len(each.subscription_data_set) for each in consumers)
        if groups > most:
            text = f"{groups} groups, over the limit of {most} (heartbeatMaxGroups)"
        elif longest > _LONGEST_NAME:
            text = f"a client or group with {longest} characters, over the limit of {_LONGEST_NAME}"
        elif subscriptions > _MAX_SUBSCRIPTIONS:
            text = f"{subscriptions} subscriptions, over the limit of {_MAX_SUBSCRIPTIONS}"
        else:
            return
        log.warning("heartbeat of %.255r rejected: it names %s", heartbeat.client_id, text)
        raise RequestError(ResponseCode.SYSTEM_ERROR, f"the heartbeat names {text}")

    def _prepare_group(self, consumer: ConsumerData) -> bool:
        """Create the group and its retry topic where allowed; returns whether 40 is sent to the
        group. A group whose retry topic would have an illegal name has none."""
        config = self._groups.find_or_create(consumer.group_name)
        if config is None:
            return True
        topic = retry_topic(consumer.group_name)
        if not is_legal_topic(topic, self._topics.retry_limit):
            return config.notify_consumer_ids_changed_enable
        self._topics.create(
            topic,
            config.retry_queue_nums,
            PERM_READ_WRITE,
            TOPIC_SYS_FLAG_UNIT_SUB if consumer.unit_mode else 0,
        )
        return config.notify_consumer_ids_changed_enable

    def _channel_info(
        self, connection: ConnectionLike, client_id: str, request: RemotingCommand
    ) -> ClientChannelInfo:
        return ClientChannelInfo(
            connection,
            client_id,
            language=request.language,
            version=request.version,
            last_update_ms=self._clock.now_ms(),
            account=self._account_of(request),
        )
