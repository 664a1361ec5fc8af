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

from broker.acl.access import Access
from broker.admin.query_message_processor import QueryMessageProcessor
from broker.client.client_manage_processor import ClientManageProcessor
from broker.client.consumer_manage_processor import ConsumerManageProcessor
from broker.client.lock_processor import LockProcessor
from broker.processor.table_pages import TablePages
from broker.processor.table_processor import TableProcessor
from broker.pull.pull_message_processor import PullMessageProcessor
from broker.settings.broker_config import BrokerConfig
from broker.slave.slave_topics_processor import SlaveTopicsProcessor
from broker.wiring.broker_tables import BrokerTables
from broker.wiring.message_services import MessageServices
from broker.wiring.process_resources import ProcessResources
from broker.wiring.static_topics import STATIC_TOPIC_POOL, static_topic_pool
from broker.wiring.store_side import StoreSide
from remoting.request_code import RequestCode as Code
from remoting.request_executor import RequestExecutor
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
        Code.POP_LITE_MESSAGE,
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
    Code.LITE_SUBSCRIPTION_CTL: HEARTBEAT_POOL,
    Code.CHECK_CLIENT_CONFIG: HEARTBEAT_POOL,
    Code.QUERY_CONSUMER_OFFSET: CONSUMER_POOL,
    Code.CONSUMER_SEND_MSG_BACK: SEND_BACK_POOL,
    Code.END_TRANSACTION: END_TRANSACTION_POOL,
    Code.QUERY_ASSIGNMENT: LOAD_BALANCE_POOL,
    Code.SEND_REPLY_MESSAGE: REPLY_POOL,
    Code.SEND_REPLY_MESSAGE_V2: REPLY_POOL,
}
_NOT_ON_VIP: Final = frozenset({Code.PULL_MESSAGE, Code.LITE_PULL_MESSAGE, Code.POP_LITE_MESSAGE})


Processors = Mapping[int, RequestProcessor]
"""By request code."""


@dataclass(frozen=True, slots=True)
class Routes:
    """The tables of the two ports and the pools they name."""

    main: Mapping[int, Route]
    vip: Mapping[int, Route]
    executors: Mapping[str, RequestExecutor]

    def refuse_late(self) -> bool:
        """Answer the requests that have waited too long in a pool. True: others wait. Loop
        thread."""
        for pool in self.executors.values():
            pool.refuse_late()
        return any(pool.has_waiting for pool in self.executors.values())

    def waiting(self, *, sends: int) -> dict[str, int]:
        """Requests that wait, by processor. sends: answers that wait for flush or replicas."""
        pools = self.executors
        waiting = {name: pools[pool].pending for pool, name in PROCESSOR_NAMES.items()}
        return {"send": sends + pools[SEND_BACK_POOL].pending, **waiting}


@dataclass(frozen=True, slots=True)
class RouteTable:
    """Lays the processors of requests out on the two ports. Used once, by BrokerController."""

    resources: ProcessResources
    store: StoreSide
    tables: BrokerTables
    messages: MessageServices
    pull: PullMessageProcessor
    access: Access

    def build(
        self,
        executors: Mapping[str, RequestExecutor],
        others: Sequence[TableProcessor],
        before: Callable[[Processors], Processors],
    ) -> Routes:
        """Every request code that this broker serves. others: processors built elsewhere. before:
        puts those of static topics in front."""
        main: dict[int, Route] = {}
        for code, processor in before(self._processors(others)).items():
            main[code] = Route(processor, _executor_of(code))
        vip = {code: route for code, route in main.items() if code not in _NOT_ON_VIP}
        code = Code.GET_ALL_TOPIC_CONFIG
        tables = self.tables
        vip[code] = Route(
            SlaveTopicsProcessor(
                lambda: tables.mappings.with_mappings(tables.topics.wrapper()),
                TablePages(self.resources.options.broker.page_limit),
            ),
            _executor_of(code),
        )
        return Routes(main, vip, executors)

    def _processors(self, others: Sequence[TableProcessor]) -> dict[int, RequestProcessor]:
        send, pull = self.messages.send, self.pull
        table: dict[int, RequestProcessor] = {
            Code.SEND_MESSAGE: send,
            Code.SEND_MESSAGE_V2: send,
            Code.SEND_BATCH_MESSAGE: send,
            Code.PULL_MESSAGE: pull,
            Code.LITE_PULL_MESSAGE: pull,
        }
        for processor in (*self._client_processors(), *others):
            for code in processor.table:
                table[code] = processor
        return table

    def _client_processors(self) -> tuple[TableProcessor, ...]:
        tables, messages, access = self.tables, self.messages, self.store.access
        options = self.resources.options
        return (
            ClientManageProcessor(
                options.broker,
                self.resources.clock,
                clients=tables.clients,
                groups=tables.groups,
                topics=tables.topics,
                new_topics=messages.new_topics,
                account_of=self.access.gate.account_of,
            ),
            ConsumerManageProcessor(
                tables.consumers,
                tables.offsets,
                access,
                tables.topics.find,
                tables.groups.find_or_create,
            ),
            LockProcessor(tables.locks),
            QueryMessageProcessor(
                access,
                default_query_max_num=options.store.default_query_max_num,
                max_msgs_num_batch=options.store.max_msgs_num_batch,
                reads_index=options.store.index_file_read_enable,
                rights=self.access.gate.check_resources,
            ),
            messages.send_back,
            messages.reply,
            messages.end_transaction,
            messages.timers.recall,
            messages.timers.processor,
        )


def _executor_of(code: int) -> str | None:
    return None if code in _ON_LOOP else _POOLS.get(Code(code), ADMIN_POOL)


def runs_on_loop(code: int) -> bool:
    """Whether requests of this code are served on the loop."""
    return code in _ON_LOOP


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
