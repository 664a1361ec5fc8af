"""The one table of the broker: request code -> processor, and loop or thread pool.

Wiring only, run once by BrokerController. On the loop stay the codes that look into memory and
answer at once; whatever reads files, builds large bodies or waits for another process goes to a
pool (12, 33, 21, 43, 201, 202, 208, 317 and 321 always do). A code that is not here is answered
with REQUEST_CODE_NOT_SUPPORTED.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from broker.client.broker2client import Broker2Client
from broker.client.consumer_manager import ConsumerManager
from broker.client.producer_manager import ProducerManager
from broker.client.rebalance_lock_manager import RebalanceLockManager
from broker.filter.consumer_filter_manager import ConsumerFilterManager
from broker.metrics.broker_stats_manager import BrokerStats, BrokerStatsManager
from broker.metrics.runtime_info import RuntimeInfoSource
from broker.offset.consumer_offset_manager import ConsumerOffsetManager
from broker.processor.admin_acl_processor import AdminAclProcessor
from broker.processor.admin_group_processor import AdminGroupProcessor
from broker.processor.admin_ha_processor import AdminHAProcessor
from broker.processor.admin_offset_processor import AdminOffsetProcessor
from broker.processor.admin_relay_processor import AdminRelayProcessor
from broker.processor.admin_reset_processor import AdminResetProcessor
from broker.processor.admin_runtime_processor import AdminRuntimeProcessor
from broker.processor.admin_topic_processor import AdminTopicProcessor
from broker.processor.client_manage_processor import ClientManageProcessor
from broker.processor.consumer_manage_processor import ConsumerManageProcessor
from broker.processor.consumer_send_msg_back_processor import ConsumerSendMsgBackProcessor
from broker.processor.end_transaction_processor import EndTransactionProcessor
from broker.processor.lock_processor import LockProcessor
from broker.processor.pull_message_processor import PullMessageProcessor
from broker.processor.query_message_processor import QueryMessageProcessor
from broker.processor.queue_times import QueueTimes
from broker.processor.reply_message_processor import ReplyMessageProcessor
from broker.processor.slave_topics_processor import SlaveTopicsProcessor
from broker.schedule.schedule_offset_manager import ScheduleOffsetManager
from broker.settings.broker_config import BrokerConfig
from broker.settings.config_update import BrokerConfigUpdate
from broker.settings.startup_options import StartupOptions
from broker.store_access.store_access import StoreAccess
from broker.subscription.subscription_group_manager import SubscriptionGroupManager
from broker.topic.system_topics import SystemTopics
from broker.topic.topic_config_manager import TopicConfigManager
from broker.wiring.message_services import MessageServices
from ipc.clock import Clock
from remoting.remoting_server import RequestExecutor
from remoting.request_code import RequestCode as Code
from remoting.request_processor import RequestProcessor, Route

QUERY_POOL: Final = "QueryMessageThread"
ADMIN_POOL: Final = "AdminBrokerThread"
HEARTBEAT_POOL: Final = "HeartbeatThread"
CONSUMER_POOL: Final = "ConsumerManageThread"
REPLY_POOL: Final = "ReplyMessageThread"
SEND_BACK_POOL: Final = "SendMessageBackThread"
END_TRANSACTION_POOL: Final = "EndTransactionThread"
PROCESSOR_NAMES: Final = {
    QUERY_POOL: "query_message",
    ADMIN_POOL: "admin",
    HEARTBEAT_POOL: "heartbeat",
    CONSUMER_POOL: "consumer_manager",
    END_TRANSACTION_POOL: "transaction",
    REPLY_POOL: "reply",
}
"""The pools as rocketmq_processor_watermark names them in 5.x; code 36 counts as a send."""
_HEARTBEAT_THREADS: Final = 2
_HEARTBEAT_CAPACITY: Final = 50_000
_CONSUMER_THREADS: Final = 2
_CONSUMER_CAPACITY: Final = 100_000
_SEND_BACK_THREADS: Final = 2
_END_TRANSACTION_THREADS: Final = 2
REPLY_THREADS: Final = 8
"""Each waits for a client that may be slow."""
_REPLY_CAPACITY: Final = 10_000

_ON_LOOP: Final = frozenset(
    {
        Code.SEND_MESSAGE,
        Code.SEND_MESSAGE_V2,
        Code.SEND_BATCH_MESSAGE,
        Code.PULL_MESSAGE,
        Code.LITE_PULL_MESSAGE,
        Code.GET_MAX_OFFSET,
        Code.GET_MIN_OFFSET,
        Code.UPDATE_CONSUMER_OFFSET,
        Code.GET_CONSUMER_LIST_BY_GROUP,
        Code.LOCK_BATCH_MQ,
        Code.UNLOCK_BATCH_MQ,
    }
)
_POOLS: Final = {
    Code.QUERY_MESSAGE: QUERY_POOL,
    Code.VIEW_MESSAGE_BY_ID: QUERY_POOL,
    Code.SEARCH_OFFSET_BY_TIMESTAMP: QUERY_POOL,
    Code.GET_EARLIEST_MSG_STORETIME: QUERY_POOL,
    Code.HEART_BEAT: HEARTBEAT_POOL,
    Code.UNREGISTER_CLIENT: HEARTBEAT_POOL,
    Code.CHECK_CLIENT_CONFIG: HEARTBEAT_POOL,
    Code.QUERY_CONSUMER_OFFSET: CONSUMER_POOL,
    Code.CONSUMER_SEND_MSG_BACK: SEND_BACK_POOL,
    Code.END_TRANSACTION: END_TRANSACTION_POOL,
    Code.SEND_REPLY_MESSAGE: REPLY_POOL,
    Code.SEND_REPLY_MESSAGE_V2: REPLY_POOL,
}
_NOT_ON_VIP: Final = frozenset({Code.PULL_MESSAGE, Code.LITE_PULL_MESSAGE})


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteParts:
    """What the processors are made of."""

    options: StartupOptions
    clock: Clock
    access: StoreAccess
    messages: MessageServices
    pull: PullMessageProcessor
    stats_manager: BrokerStatsManager
    broker_stats: BrokerStats
    runtime: RuntimeInfoSource
    topics: TopicConfigManager
    system_topics: SystemTopics
    groups: SubscriptionGroupManager
    consumers: ConsumerManager
    producers: ProducerManager
    consumer_offsets: ConsumerOffsetManager
    schedule_offsets: ScheduleOffsetManager
    locks: RebalanceLockManager
    replication: AdminHAProcessor
    acl: AdminAclProcessor
    clients: Broker2Client
    configs: BrokerConfigUpdate
    filters: ConsumerFilterManager


@dataclass(frozen=True, slots=True)
class Routes:
    """The tables of the two ports and the pools they name."""

    main: Mapping[int, Route]
    vip: Mapping[int, Route]
    executors: Mapping[str, RequestExecutor]


def build_routes(parts: RouteParts) -> Routes:
    """Every request code that this broker serves."""
    main: dict[int, Route] = {}
    for code, processor in _processors(parts).items():
        main[code] = Route(processor, _executor_of(code))
    vip = {code: route for code, route in main.items() if code not in _NOT_ON_VIP}
    code = Code.GET_ALL_TOPIC_CONFIG
    vip[code] = Route(SlaveTopicsProcessor(parts.topics), _executor_of(code))
    return Routes(main, vip, _executors(parts.options.broker))


def _executor_of(code: int) -> str | None:
    return None if code in _ON_LOOP else _POOLS.get(Code(code), ADMIN_POOL)


def _executors(broker: BrokerConfig) -> dict[str, RequestExecutor]:
    def limit_ms(setting_ms: int) -> int | None:
        return setting_ms if broker.broker_fast_failure_enable else None

    return {
        QUERY_POOL: RequestExecutor(
            QUERY_POOL,
            broker.query_message_thread_pool_nums,
            broker.query_thread_pool_queue_capacity,
        ),
        ADMIN_POOL: RequestExecutor(
            ADMIN_POOL,
            broker.admin_broker_thread_pool_nums,
            broker.admin_broker_thread_pool_queue_capacity,
        ),
        HEARTBEAT_POOL: RequestExecutor(
            HEARTBEAT_POOL,
            _HEARTBEAT_THREADS,
            _HEARTBEAT_CAPACITY,
            wait_limit_ms=limit_ms(broker.wait_time_mills_in_heartbeat_queue),
        ),
        CONSUMER_POOL: RequestExecutor(CONSUMER_POOL, _CONSUMER_THREADS, _CONSUMER_CAPACITY),
        SEND_BACK_POOL: RequestExecutor(
            SEND_BACK_POOL,
            _SEND_BACK_THREADS,
            broker.send_thread_pool_queue_capacity,
            wait_limit_ms=limit_ms(broker.wait_time_mills_in_send_queue),
        ),
        END_TRANSACTION_POOL: RequestExecutor(
            END_TRANSACTION_POOL,
            _END_TRANSACTION_THREADS,
            broker.end_transaction_pool_queue_capacity,
            wait_limit_ms=limit_ms(broker.wait_time_mills_in_transaction_queue),
        ),
        REPLY_POOL: RequestExecutor(REPLY_POOL, REPLY_THREADS, _REPLY_CAPACITY),
    }


def _processors(parts: RouteParts) -> dict[int, RequestProcessor]:
    table: dict[int, RequestProcessor] = {
        Code.SEND_MESSAGE: parts.messages.send,
        Code.SEND_MESSAGE_V2: parts.messages.send,
        Code.SEND_BATCH_MESSAGE: parts.messages.send,
        Code.PULL_MESSAGE: parts.pull,
        Code.LITE_PULL_MESSAGE: parts.pull,
    }
    admin = (*_admin_processors(parts), parts.replication, parts.acl)
    for processor in (*_client_processors(parts), *admin):
        for code in processor.table:
            table[code] = processor
    return table


def _client_processors(
    parts: RouteParts,
) -> tuple[
    ClientManageProcessor,
    ConsumerManageProcessor,
    LockProcessor,
    QueryMessageProcessor,
    ConsumerSendMsgBackProcessor,
    ReplyMessageProcessor,
    EndTransactionProcessor,
]:
    store = parts.options.store
    times = QueueTimes(parts.access, parts.access)
    return (
        ClientManageProcessor(
            parts.options.broker,
            parts.clock,
            producers=parts.producers,
            consumers=parts.consumers,
            groups=parts.groups,
            topics=parts.topics,
            new_topics=parts.messages.new_topics,
        ),
        ConsumerManageProcessor(parts.consumers, parts.consumer_offsets, parts.access, times),
        LockProcessor(parts.locks),
        QueryMessageProcessor(
            parts.access,
            default_query_max_num=store.default_query_max_num,
            max_msgs_num_batch=store.max_msgs_num_batch,
        ),
        parts.messages.send_back,
        parts.messages.reply,
        parts.messages.end_transaction,
    )


def _admin_processors(
    parts: RouteParts,
) -> tuple[
    AdminTopicProcessor,
    AdminOffsetProcessor,
    AdminGroupProcessor,
    AdminRuntimeProcessor,
    AdminRelayProcessor,
    AdminResetProcessor,
]:
    options = parts.options
    broker = options.broker
    times = QueueTimes(parts.access, parts.access)

    def is_slave() -> bool:
        return options.store.is_slave

    return (
        AdminTopicProcessor(
            broker,
            topics=parts.topics,
            system_topics=parts.system_topics,
            consumers=parts.consumers,
            consumer_offsets=parts.consumer_offsets,
            queue_offsets=parts.access,
            times=times,
            store=parts.access,
            stats=parts.stats_manager,
            is_slave=is_slave,
        ),
        AdminOffsetProcessor(
            broker,
            parts.clock,
            topics=parts.topics,
            groups=parts.groups,
            consumers=parts.consumers,
            consumer_offsets=parts.consumer_offsets,
            schedule_offsets=parts.schedule_offsets,
            queue_offsets=parts.access,
            reader=parts.access,
            times=times,
            stats=parts.stats_manager,
            broker_addr=lambda: f"{broker.broker_ip1}:{options.server.listen_port}",
            filters=parts.filters,
        ),
        AdminGroupProcessor(
            broker,
            groups=parts.groups,
            consumers=parts.consumers,
            producers=parts.producers,
            consumer_offsets=parts.consumer_offsets,
            stats=parts.stats_manager,
            is_slave=is_slave,
        ),
        AdminRuntimeProcessor(
            configs=parts.configs,
            runtime=parts.runtime,
            totals=parts.broker_stats,
            stats=parts.stats_manager,
            store=parts.access,
        ),
        AdminRelayProcessor(broker.broker_name, parts.clients, parts.access),
        AdminResetProcessor(
            broker.broker_name,
            parts.clients,
            topics=parts.topics,
            groups=parts.groups,
            consumers=parts.consumers,
            consumer_offsets=parts.consumer_offsets,
            queue_offsets=parts.access,
            reader=parts.access,
            is_slave=is_slave,
        ),
    )
