"""The one table of the broker: request code -> processor, and loop or thread pool.

Wiring only, run once by BrokerController. On the loop stay the codes that look into memory and
answer immediately; whatever reads files, builds large bodies or waits for another process goes to a
pool (12, 33, 21, 43, 201, 202, 208, 317 and 321 always do). A code that is not here is answered
with REQUEST_CODE_NOT_SUPPORTED.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from broker.admin.admin_group_processor import AdminGroupProcessor
from broker.admin.admin_offset_processor import AdminOffsetProcessor
from broker.admin.admin_relay_processor import AdminRelayProcessor
from broker.admin.admin_reset_processor import AdminResetProcessor
from broker.admin.admin_runtime_processor import AdminRuntimeProcessor
from broker.admin.admin_topic_processor import AdminTopicProcessor
from broker.admin.query_message_processor import QueryMessageProcessor
from broker.client.broker2client import Broker2Client
from broker.client.client_manage_processor import ClientManageProcessor
from broker.client.consumer_manage_processor import ConsumerManageProcessor
from broker.client.lock_processor import LockProcessor
from broker.metrics.runtime_info import RuntimeInfoSource
from broker.processor.queue_times import QueueTimes
from broker.processor.stored_rights import StoredRights
from broker.processor.table_processor import TableProcessor
from broker.pull.pull_message_processor import PullMessageProcessor
from broker.settings.broker_config import BrokerConfig
from broker.settings.config_update import BrokerConfigUpdate
from broker.settings.startup_options import StartupOptions
from broker.slave.slave_topics_processor import SlaveTopicsProcessor
from broker.wiring.broker_tables import BrokerTables
from broker.wiring.message_services import MessageServices
from broker.wiring.static_topics import STATIC_TOPIC_POOL, static_topic_pool
from broker.wiring.statistics import Statistics
from broker.wiring.store_side import StoreSide
from ipc.clock import Clock
from remoting.remoting_command import RemotingCommand
from remoting.remoting_server import RequestExecutor
from remoting.request_code import RequestCode as Code
from remoting.request_processor import RequestProcessor, Route

QUERY_POOL: Final = "QueryMessageThread"
ADMIN_POOL: Final = "AdminBrokerThread"
HEARTBEAT_POOL: Final = "HeartbeatThread"
CONSUMER_POOL: Final = "ConsumerManageThread"
LOAD_BALANCE_POOL: Final = "LoadBalanceProcessorThread"
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
_LOAD_BALANCE_THREADS: Final = 4
"""One may wait for a name server."""
_LOAD_BALANCE_CAPACITY: Final = 100_000
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
        Code.RECALL_MESSAGE,
        Code.GET_MAX_OFFSET,
        Code.GET_MIN_OFFSET,
        Code.UPDATE_CONSUMER_OFFSET,
        Code.GET_CONSUMER_LIST_BY_GROUP,
        Code.LOCK_BATCH_MQ,
        Code.UNLOCK_BATCH_MQ,
        Code.POP_MESSAGE,
        Code.ACK_MESSAGE,
        Code.BATCH_ACK_MESSAGE,
        Code.CHANGE_MESSAGE_INVISIBLETIME,
        Code.PEEK_MESSAGE,
        Code.NOTIFICATION,
        Code.POLLING_INFO,
        Code.UPDATE_COLD_DATA_FLOW_CTR_CONFIG,
        Code.REMOVE_COLD_DATA_FLOW_CTR_CONFIG,
        Code.GET_COLD_DATA_FLOW_CTR_INFO,
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
    Code.QUERY_ASSIGNMENT: LOAD_BALANCE_POOL,
    Code.SEND_REPLY_MESSAGE: REPLY_POOL,
    Code.SEND_REPLY_MESSAGE_V2: REPLY_POOL,
}
_NOT_ON_VIP: Final = frozenset({Code.PULL_MESSAGE, Code.LITE_PULL_MESSAGE})


Processors = Mapping[int, RequestProcessor]
"""By request code."""


@dataclass(frozen=True, slots=True)
class Routes:
    """The tables of the two ports and the pools they name."""

    main: Mapping[int, Route]
    vip: Mapping[int, Route]
    executors: Mapping[str, RequestExecutor]

    def refuse_late(self) -> None:
        """Answer the requests that have waited too long in a pool. Loop thread."""
        for pool in self.executors.values():
            pool.refuse_late()

    def waiting(self, *, sends: int) -> dict[str, int]:
        """Requests that wait, by processor. sends: answers that wait for flush or replicas."""
        pools = self.executors
        waiting = {name: pools[pool].pending for pool, name in PROCESSOR_NAMES.items()}
        return {"send": sends + pools[SEND_BACK_POOL].pending, **waiting}


class RouteTable:
    """Builds the processors of requests and lays them out. Used once, by BrokerController."""

    def __init__(
        self,
        options: StartupOptions,
        clock: Clock,
        store: StoreSide,
        tables: BrokerTables,
        statistics: Statistics,
        messages: MessageServices,
        pull: PullMessageProcessor,
        clients: Broker2Client,
        rights: StoredRights,
        account_of: Callable[[RemotingCommand], str],
        offsets_objection: Callable[[], str | None],
    ) -> None:
        """clients: calls of admin requests to clients. rights: on messages named by their place.
        account_of: that sent a request. offsets_objection: why no other broker may copy offsets."""
        self._options: Final = options
        self._clock: Final = clock
        self._store: Final = store
        self._tables: Final = tables
        self._statistics: Final = statistics
        self._messages: Final = messages
        self._pull: Final = pull
        self._clients: Final = clients
        self._rights: Final = rights
        self._account_of: Final = account_of
        self._offsets_objection: Final = offsets_objection
        self._times: Final = QueueTimes(store.access)

    def build(
        self,
        executors: Mapping[str, RequestExecutor],
        *,
        runtime: RuntimeInfoSource,
        configs: BrokerConfigUpdate,
        others: Sequence[TableProcessor],
        before: Callable[[Processors], Processors],
    ) -> Routes:
        """Every request code that this broker serves. others: processors built elsewhere. before:
        puts those of static topics in front."""
        main: dict[int, Route] = {}
        for code, processor in before(self._processors(runtime, configs, others)).items():
            main[code] = Route(processor, _executor_of(code))
        vip = {code: route for code, route in main.items() if code not in _NOT_ON_VIP}
        code = Code.GET_ALL_TOPIC_CONFIG
        tables = self._tables
        vip[code] = Route(
            SlaveTopicsProcessor(lambda: tables.mappings.with_mappings(tables.topics.wrapper())),
            _executor_of(code),
        )
        return Routes(main, vip, executors)

    def _processors(
        self,
        runtime: RuntimeInfoSource,
        configs: BrokerConfigUpdate,
        others: Sequence[TableProcessor],
    ) -> dict[int, RequestProcessor]:
        send, pull = self._messages.send, self._pull
        table: dict[int, RequestProcessor] = {
            Code.SEND_MESSAGE: send,
            Code.SEND_MESSAGE_V2: send,
            Code.SEND_BATCH_MESSAGE: send,
            Code.PULL_MESSAGE: pull,
            Code.LITE_PULL_MESSAGE: pull,
        }
        tabled = (
            *self._client_processors(),
            *self._admin_processors(),
            AdminRuntimeProcessor(
                configs=configs,
                runtime=runtime,
                totals=self._statistics.totals,
                stats=self._statistics.manager,
                store=self._store.store_commands,
            ),
            *others,
        )
        for processor in tabled:
            for code in processor.table:
                table[code] = processor
        return table

    def _client_processors(self) -> tuple[TableProcessor, ...]:
        tables, messages, access = self._tables, self._messages, self._store.access
        return (
            ClientManageProcessor(
                self._options.broker,
                self._clock,
                producers=tables.producers,
                consumers=tables.consumers,
                groups=tables.groups,
                topics=tables.topics,
                new_topics=messages.new_topics,
                heartbeats=tables.heartbeats,
                account_of=self._account_of,
            ),
            ConsumerManageProcessor(
                tables.consumers,
                tables.offsets,
                access,
                self._times,
                tables.topics.find,
                tables.groups.find_or_create,
            ),
            LockProcessor(tables.locks),
            QueryMessageProcessor(
                access,
                default_query_max_num=self._options.store.default_query_max_num,
                max_msgs_num_batch=self._options.store.max_msgs_num_batch,
                rights=self._rights,
            ),
            messages.send_back,
            messages.reply,
            messages.end_transaction,
            messages.timers.recall,
            messages.timers.processor,
        )

    def _is_slave(self) -> bool:
        return self._options.store.is_slave

    def _admin_processors(self) -> tuple[TableProcessor, ...]:
        broker, tables, access = self._options.broker, self._tables, self._store.access
        stats = self._statistics.manager
        address = f"{broker.broker_ip1}:{self._options.server.listen_port}"
        return (
            AdminTopicProcessor(
                broker,
                topics=tables.topics,
                mappings=tables.mappings,
                system_topics=tables.system_topics,
                consumers=tables.consumers,
                consumer_offsets=tables.offsets,
                queue_offsets=access,
                times=self._times,
                store=self._store.store_commands,
                stats=stats,
                is_slave=self._is_slave,
            ),
            AdminOffsetProcessor(
                broker,
                self._clock,
                topics=tables.topics,
                groups=tables.groups,
                consumers=tables.consumers,
                consumer_offsets=tables.offsets,
                schedule_offsets=tables.schedule_offsets,
                queue_offsets=access,
                reader=access,
                times=self._times,
                stats=stats,
                broker_addr=lambda: address,
                find_filter=tables.filters.find,
                static_topics=tables.mappings.table,
                find_objection=self._offsets_objection,
            ),
            AdminGroupProcessor(
                broker,
                groups=tables.groups,
                consumers=tables.consumers,
                producers=tables.producers,
                consumer_offsets=tables.offsets,
                stats=stats,
                is_slave=self._is_slave,
            ),
            AdminRelayProcessor(broker.broker_name, self._clients, access, self._rights),
            AdminResetProcessor(
                broker.broker_name,
                self._clients,
                topics=tables.topics,
                groups=tables.groups,
                consumers=tables.consumers,
                consumer_offsets=tables.offsets,
                queue_offsets=access,
                reader=access,
                is_slave=self._is_slave,
                server_side=lambda: tables.offsets.stores_resets,
            ),
        )


def _executor_of(code: int) -> str | None:
    return None if code in _ON_LOOP else _POOLS.get(Code(code), ADMIN_POOL)


def request_executors(broker: BrokerConfig) -> dict[str, RequestExecutor]:
    """The pools by name."""

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
        LOAD_BALANCE_POOL: RequestExecutor(
            LOAD_BALANCE_POOL, _LOAD_BALANCE_THREADS, _LOAD_BALANCE_CAPACITY
        ),
        REPLY_POOL: RequestExecutor(REPLY_POOL, REPLY_THREADS, _REPLY_CAPACITY),
        STATIC_TOPIC_POOL: static_topic_pool(),
    }
