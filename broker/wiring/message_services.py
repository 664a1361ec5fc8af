"""MessageServices: everything that puts messages into the log, put together.

Wiring only, for BrokerController: the line of appends, sends, messages that come back, answers of
request-reply, due delayed messages, transactions, corrected pulls. Runs nothing by itself; who runs
where is said in each module.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from broker.append.append_line import AppendLine
from broker.append.durability_waiters import DurabilityWaiters
from broker.append.offset_moved_events import OffsetMovedEvents
from broker.client.broker2client import Broker2Client
from broker.client.producer_manager import ProducerManager
from broker.latency.broker_fast_failure import BrokerFastFailure
from broker.metrics.hot_path_stats import HotPathStats
from broker.offset.consumer_offset_manager import ConsumerOffsetManager
from broker.processor.consumer_send_msg_back_processor import (
    ConsumerSendMsgBackProcessor,
    SendBackParts,
)
from broker.processor.reply_message_processor import (
    ReplyMessageProcessor,
    ReplyParts,
)
from broker.processor.send_message_processor import SendMessageProcessor
from broker.schedule.schedule_message_service import ScheduleMessageService, ScheduleParts
from broker.schedule.schedule_offset_manager import ScheduleOffsetManager
from broker.settings.startup_options import StartupOptions
from broker.store_access.store_access import StoreAccess
from broker.subscription.subscription_group_manager import SubscriptionGroupManager
from broker.topic.new_topics import NewTopics
from broker.topic.topic_config_manager import TopicConfigManager
from broker.wiring.processor_settings import (
    fast_failure_settings,
    reply_settings,
    send_back_settings,
    send_settings,
)
from broker.wiring.transactional_messages import TransactionalMessages, TransactionParts
from ipc.clock import Clock
from ipc.control_page import ControlPage
from ipc.queue_table import QueueTableReader
from ipc.service_thread import FailureHandler
from remoting.selector_loop import SelectorLoop
from store.commit_log import CommitLog
from store.commit_log_reader import CommitLogReader
from store.control_slots import FLUSHED_OFFSET
from store.fresh_units import FreshUnits


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageParts:
    """What the services are made of."""

    options: StartupOptions
    page: ControlPage
    clock: Clock
    loop: SelectorLoop
    commit_log: CommitLog
    table: QueueTableReader
    access: StoreAccess
    loop_reader: CommitLogReader
    loop_units: FreshUnits
    waiters: DurabilityWaiters
    topics: TopicConfigManager
    register_new: Callable[[Collection[str]], None]
    """Tells the name servers and waits for them (BrokerRegistration)."""
    groups: SubscriptionGroupManager
    producers: ProducerManager
    consumer_offsets: ConsumerOffsetManager
    schedule_offsets: ScheduleOffsetManager
    clients: Broker2Client
    stats: HotPathStats
    why_not_writable: Callable[[], str]
    on_failure: FailureHandler


class MessageServices:
    """See the module. Owned by: BrokerController."""

    def __init__(self, parts: MessageParts) -> None:
        self._parts = parts
        self.line = self._make_line()
        self.new_topics = self._make_new_topics()
        self.send = self._make_send()
        self.send_back = self._make_send_back()
        self.reply = self._make_reply()
        self._schedule = self._make_schedule()
        self._transactions = self._make_transactions()
        self.end_transaction = self._transactions.processor
        self.offset_moved = OffsetMovedEvents(
            parts.commit_log,
            self.line,
            parts.options.broker.broker_name,
            is_slave=parts.options.store.is_slave,
        )

    def use(self, options: StartupOptions) -> None:
        """Settings were changed: follow them. Loop thread."""
        self.send_back.use(send_back_settings(options))

    # -- life (loop thread) --------------------------------------------------------------------

    def start(self) -> None:
        """Begin what runs by itself; the log is open (never on a slave)."""
        self._schedule.start(self._parts.loop)
        self._transactions.start(self._parts.clients)

    def stop_checks(self) -> None:
        """End the checks of transactions; another thread, while the loop still runs."""
        self._transactions.shutdown()

    def stop(self) -> None:
        """Begin nothing new; idempotent."""
        self._schedule.stop()

    def finish(self) -> None:
        """After the last commit of an orderly stop."""
        self._schedule.finish()

    # -- construction --------------------------------------------------------------------------

    def _make_line(self) -> AppendLine:
        parts = self._parts
        return AppendLine(
            parts.commit_log,
            parts.clock,
            BrokerFastFailure(fast_failure_settings(parts.options), parts.page, parts.clock),
            parts.why_not_writable,
            capacity=parts.options.broker.send_thread_pool_queue_capacity,
        )

    def _make_new_topics(self) -> NewTopics:
        parts = self._parts
        new_topics = NewTopics(
            parts.register_new,
            parts.loop.call_soon_threadsafe,
            capacity=parts.options.broker.send_thread_pool_queue_capacity,
        )
        parts.topics.add_listener(new_topics.on_topic_change)
        return new_topics

    def _make_send(self) -> SendMessageProcessor:
        parts = self._parts
        return SendMessageProcessor(
            send_settings(parts.options),
            parts.commit_log,
            self.line,
            parts.topics,
            parts.groups,
            parts.waiters,
            parts.stats,
            parts.why_not_writable,
            self.new_topics,
        )

    def _make_send_back(self) -> ConsumerSendMsgBackProcessor:
        parts = self._parts
        return ConsumerSendMsgBackProcessor(
            SendBackParts(
                commit_log=parts.commit_log,
                line=self.line,
                reader=parts.access,
                topics=parts.topics,
                groups=parts.groups,
                stats=parts.stats,
                on_loop=parts.loop.call_soon_threadsafe,
                new_topics=self.new_topics,
            ),
            send_back_settings(parts.options),
        )

    def _make_reply(self) -> ReplyMessageProcessor:
        parts = self._parts
        broker, store = parts.options.broker, parts.options.store
        return ReplyMessageProcessor(
            ReplyParts(
                commit_log=parts.commit_log,
                line=self.line,
                waiters=parts.waiters,
                topics=parts.topics,
                clients=parts.producers,
                calls=parts.clients,
                stats=parts.stats,
                clock=parts.clock,
                on_loop=parts.loop.call_soon_threadsafe,
                new_topics=self.new_topics,
                stores_replies=lambda: broker.store_reply_message_enable and not store.is_slave,
            ),
            reply_settings(parts.options),
        )

    def _make_schedule(self) -> ScheduleMessageService:
        parts = self._parts
        return ScheduleMessageService(
            ScheduleParts(
                commit_log=parts.commit_log,
                line=self.line,
                reader=parts.loop_reader,
                table=parts.table,
                units=parts.loop_units,
                waiters=parts.waiters,
                offsets=parts.schedule_offsets,
                stats=parts.stats,
                clock=parts.clock,
                flushed_offset=lambda: parts.page.counters[FLUSHED_OFFSET],
            ),
            parts.options.store.delay_level_ms,
        )

    def _make_transactions(self) -> TransactionalMessages:
        parts = self._parts
        return TransactionalMessages(
            TransactionParts(
                options=parts.options,
                commit_log=parts.commit_log,
                line=self.line,
                reader=parts.access,
                waiters=parts.waiters,
                stats=parts.stats,
                topics=parts.topics,
                offsets=parts.consumer_offsets,
                producers=parts.producers,
                clock=parts.clock,
                on_loop=parts.loop.call_soon_threadsafe,
                later=parts.loop.call_later,
                flushed_offset=lambda: parts.page.counters[FLUSHED_OFFSET],
                on_failure=parts.on_failure,
            )
        )
