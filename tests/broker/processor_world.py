"""Everything the broker's processors are made of, over fakes, for their tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from broker.admin.admin_consume_stats_processor import AdminConsumeStatsProcessor
from broker.admin.admin_group_processor import AdminGroupProcessor
from broker.admin.admin_offset_processor import AdminOffsetProcessor, OffsetLimits
from broker.admin.admin_queue_processor import AdminQueueProcessor
from broker.admin.admin_relay_processor import AdminRelayProcessor
from broker.admin.admin_reset_processor import AdminResetProcessor
from broker.admin.admin_topic_processor import AdminTopicProcessor
from broker.admin.consume_progress import ConsumeProgress
from broker.client.broker2client import Broker2Client
from broker.client.client_manage_processor import ClientManageProcessor
from broker.client.connected_clients import ConnectedClients
from broker.client.consumer_manage_processor import ConsumerManageProcessor
from broker.client.consumer_manager import ConsumerManager, DefaultConsumerIdsChangeListener
from broker.client.known_heartbeats import KnownHeartbeats
from broker.client.producer_manager import ProducerManager
from broker.filter.consumer_filter_manager import ConsumerFilterManager
from broker.metrics.broker_stats_manager import BrokerStats, BrokerStatsManager
from broker.offset.consumer_offset_manager import ConsumerOffsetManager
from broker.out.broker_outer_api import BrokerIdentity
from broker.processor.stored_rights import StoredRights, everybody
from broker.processor.table_processor import TableProcessor
from broker.schedule.schedule_offset_manager import ScheduleOffsetManager
from broker.settings.broker_config import BrokerConfig
from broker.subscription.subscription_group_manager import SubscriptionGroupManager
from broker.topic.new_topics import NewTopics
from broker.topic.system_topics import SystemTopics
from broker.topic.topic_config_manager import TopicConfigManager
from broker.topic.topic_queue_mapping_manager import TopicQueueMappingManager
from broker.wiring.broker_tables import OWN_GROUPS
from remoting.body.heartbeat import HeartbeatData, ProducerData
from remoting.body.topic_config import TopicConfig
from remoting.errors import RequestError
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode
from remoting.response_table import ResponseTable
from tests.broker.broker_fakes import CONFIG, FakeClock, FakeConnection, FakeGroupFilters, FakeStore
from tests.broker.client.test_consumer_manager import data_of


class World:
    """One broker's managers on tmp_path, and its processors."""

    def __init__(self, tmp_path: Path, config: BrokerConfig = CONFIG) -> None:
        self.config = config
        self.clock = FakeClock()
        self._no_file = tmp_path / "consumerFilter.json"
        self.store = FakeStore()
        self.is_slave = False
        self.system_topics = SystemTopics()
        self.topics = TopicConfigManager(
            tmp_path / "topics.json", config, self.clock, self.system_topics
        )
        self.mappings = TopicQueueMappingManager(
            tmp_path / "topicQueueMapping.json", config.broker_name, self.clock
        )
        self.groups = SubscriptionGroupManager(
            tmp_path / "subscriptionGroup.json", config, self.clock
        )
        self.offsets = ConsumerOffsetManager(tmp_path / "consumerOffset.json", OWN_GROUPS)
        self.schedule_offsets = ScheduleOffsetManager(tmp_path / "delayOffset.json")
        for manager in (
            *(self.topics, self.mappings, self.groups, self.offsets),
            self.schedule_offsets,
        ):
            manager.load()
        self.rounds: list[Callable[[], None]] = []
        self.registered: list[set[str]] = []
        self.new_topics = NewTopics(
            lambda topics: self.registered.append(set(topics)),
            lambda function: function(),
            capacity=10,
            start=self.rounds.append,
        )
        self.account_of: Callable[[RemotingCommand], str] = lambda _request: ""
        self.producers = ProducerManager(self.clock)
        self.consumers = ConsumerManager(
            self.clock, DefaultConsumerIdsChangeListener(FakeGroupFilters())
        )
        self.progress = ConsumeProgress(
            self.clock, self.consumers, self.offsets, self.store, self.mappings.table
        )
        self.identity = BrokerIdentity(
            cluster_name=config.broker_cluster_name,
            broker_name=config.broker_name,
            broker_id=0,
            broker_addr="127.0.0.2:20911",
            ha_server_addr="",
        )
        self.heartbeats = KnownHeartbeats(self.consumers, self.producers)
        self.stats = BrokerStatsManager(self.clock, config.broker_cluster_name)
        self.totals = BrokerStats(lambda: 55, lambda: 53)
        self.connection = FakeConnection()
        self.responses = ResponseTable()
        self.clients = Broker2Client(
            self.consumers,
            self.responses,
            self.clock,
            max_waiting=3,
            call_timeout_ms=1,
            status_timeout_ms=1,
        )

    def client_manage(self) -> ClientManageProcessor:
        return ClientManageProcessor(
            self.config,
            self.clock,
            clients=ConnectedClients(self.producers, self.consumers, self.heartbeats),
            groups=self.groups,
            topics=self.topics,
            new_topics=self.new_topics,
            account_of=self.account_of,
        )

    def consumer_manage(self) -> ConsumerManageProcessor:
        return ConsumerManageProcessor(
            self.consumers,
            self.offsets,
            self.store,
            self.topics.find,
            self.groups.find_or_create,
        )

    def admin_topic(self) -> AdminTopicProcessor:
        return AdminTopicProcessor(
            self.config,
            topics=self.topics,
            mappings=self.mappings,
            consumer_offsets=self.offsets,
            store=self.store,
            commands=self.store,
            stats=self.stats,
            is_slave=lambda: self.is_slave,
        )

    def admin_group(self) -> AdminGroupProcessor:
        return AdminGroupProcessor(
            self.config,
            groups=self.groups,
            consumers=self.consumers,
            producers=self.producers,
            consumer_offsets=self.offsets,
            stats=self.stats,
            is_slave=lambda: self.is_slave,
        )

    def admin_offset(
        self, find_objection: Callable[[], str | None] = lambda: None
    ) -> AdminOffsetProcessor:
        return AdminOffsetProcessor(
            self.identity.broker_addr,
            topics=self.topics,
            groups=self.groups,
            consumer_offsets=self.offsets,
            schedule_offsets=self.schedule_offsets,
            store=self.store,
            progress=self.progress,
            limits=OffsetLimits(find_objection),
        )

    def admin_queue(self, filters: ConsumerFilterManager | None = None) -> AdminQueueProcessor:
        filters = filters or ConsumerFilterManager(self._no_file, self.config, self.clock)
        return AdminQueueProcessor(self.store, self.consumers, filters.find)

    def admin_consume_stats(self) -> AdminConsumeStatsProcessor:
        return AdminConsumeStatsProcessor(
            self.identity, self.topics, self.groups, self.progress, self.stats
        )

    def admin_relay(self, rights: StoredRights = everybody) -> AdminRelayProcessor:
        return AdminRelayProcessor(self.config.broker_name, self.clients, self.store, rights)

    def admin_reset(self) -> AdminResetProcessor:
        return AdminResetProcessor(
            self.config.broker_name,
            self.clients,
            topics=self.topics,
            groups=self.groups,
            consumers=self.consumers,
            consumer_offsets=self.offsets,
            store=self.store,
            is_slave=lambda: self.is_slave,
        )

    def with_config(self, **changes: object) -> World:
        """The same broker with other settings (managers keep theirs)."""
        self.config = replace(self.config, **changes)  # type: ignore[arg-type]
        return self

    def topic(self, name: str, queues: int) -> None:
        self.topics.update(
            TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues)
        )

    def commit(self, group: str, topic: str, *offsets: int) -> None:
        for queue_id, offset in enumerate(offsets):
            self.offsets.commit_offset("10.0.0.1:1", group, topic, queue_id, offset)

    def heartbeat(
        self,
        client_id: str,
        *,
        consumer: str | None = None,
        topics: tuple[str, ...] = (),
        producer: str | None = None,
        connection: FakeConnection | None = None,
    ) -> FakeConnection:
        """A client's heartbeat over its own connection."""
        connection = connection or FakeConnection()
        body = HeartbeatData(
            client_id=client_id,
            consumer_data_set=[data_of(consumer, *topics)] if consumer else [],
            producer_data_set=[ProducerData(group_name=producer)] if producer else [],
        )
        request = RemotingCommand.request(RequestCode.HEART_BEAT, body=body.to_json_bytes())
        self.client_manage().process_request(connection, request)
        connection.sent.clear()
        return connection

    def ask(self, processor: TableProcessor, request: RemotingCommand) -> RemotingCommand:
        """The answer as the server would send it."""
        try:
            answer = processor.process_request(self.connection, request)
        except RequestError as error:
            return request.response(error.code, error.remark)
        assert answer is not None
        return answer
