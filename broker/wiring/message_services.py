"""MessageServices: everything that puts messages into the log, put together.

Wiring only, for BrokerController: the append queue, sends, messages that come back, answers of
request-reply, due delayed messages, transactions, corrected pulls. Runs nothing by itself; who runs
where is said in each module.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from broker.append.achieved_durability import AchievedDurability
from broker.append.append_queue import AppendQueue, AppendQueueParts
from broker.append.durability_waiters import DurabilityStats, DurabilityWaiters
from broker.append.offset_moved_events import OffsetMovedEvents
from broker.append.role_append_queues import (
    IsolatedAppendQueue,
    MemberAppendQueue,
    SlaveAppendQueue,
    refuse_held,
)
from broker.append.room_waits import RoomWaits
from broker.append.writable_log import WritableLog
from broker.client.broker2client import Broker2Client
from broker.latency.broker_fast_failure import BrokerFastFailure
from broker.processor.stored_rights import StoredRights
from broker.schedule.clock_steps import ClockSteps
from broker.schedule.schedule_message_service import ScheduleMessageService, ScheduleParts
from broker.send.consumer_send_msg_back_processor import (
    ConsumerSendMsgBackProcessor,
    SendBackParts,
)
from broker.send.reply_message_processor import (
    ReplyMessageProcessor,
    ReplyParts,
)
from broker.send.send_message_processor import SendMessageProcessor
from broker.settings.startup_options import StartupOptions
from broker.topic.lost_topics import LostTopics
from broker.topic.new_topics import NewTopics
from broker.wiring.broker_tables import BrokerTables
from broker.wiring.process_resources import ProcessResources
from broker.wiring.processor_settings import (
    send_settings,
)
from broker.wiring.statistics import Statistics
from broker.wiring.store_side import StoreSide
from broker.wiring.timers import Timers
from broker.wiring.transactional_messages import TransactionalMessages
from remoting.selector_loop import SelectorLoop
from store.control_slots import FLUSHED_OFFSET, MAX_PHY_OFFSET
from store.message_store_config import BrokerRole, FlushDiskType


class MessageServices:
    """See the module. Owned by: BrokerController."""

    def __init__(
        self,
        resources: ProcessResources,
        loop: SelectorLoop,
        store: StoreSide,
        tables: BrokerTables,
        statistics: Statistics,
        calls: Broker2Client,
        register_new: Callable[[Collection[str]], None],
        rights: StoredRights,
    ) -> None:
        """calls: to clients, of replies and checks. register_new: tells the name servers of new
        topics and waits for them."""
        self._options = resources.options
        self._role = resources.role
        self._clock = resources.clock
        self._page = resources.page
        self.loop = loop
        self._store = store
        self._tables = tables
        self._stats = statistics.hot_path
        self._calls = calls
        self._rights = rights
        self.append_queue = self._make_append_queue()
        self.waiters = durability_waiters(self._options, statistics.remoting)
        self.log = WritableLog(
            store.log,
            self.append_queue,
            self.waiters,
            AchievedDurability(self._page.counters, self._options.ha.in_sync_replicas),
        )
        self.room_waits = RoomWaits(self._page.counters, self._clock)
        self._put_back_topic = LostTopics(tables.topics, store.log).put_back
        self.timers = Timers(
            self._options,
            self._clock,
            self._store,
            self._tables.topics,
            self.log,
            self._stats,
            self.room_waits,
            self._put_back_topic,
        )
        self.new_topics = self._make_new_topics(register_new)
        self.send = self._make_send()
        self.send_back = self._make_send_back()
        self.reply = self._make_reply()
        self.clock_steps = ClockSteps(self._clock, self._options.store.delay_clock_path)
        self._schedule = self._make_schedule()
        self._delivers = False
        self._transactions = TransactionalMessages(
            resources,
            loop,
            store,
            tables,
            self.log,
            self._stats,
            rights,
            self.timers,
        )
        self.end_transaction = self._transactions.processor
        self.end_transaction_route = self._transactions.route(self.send.singles.young_halves)
        self.offset_moved = OffsetMovedEvents(
            self._store.log,
            self.append_queue,
            self._options.broker.broker_name,
            is_slave=self._role.is_slave_now,
        )

    def use(self, options: StartupOptions) -> None:
        """Settings were changed: follow them. Loop thread."""
        self.send_back.use(options.broker, options.store)
        self.timers.use(options)

    def block_topic(self, topic: str) -> int:
        """Hold back a topic's sends; the log's end (a slave's log has another writer). Loop
        thread."""
        end = self.send.block_topic(topic)
        return self._page.counters[MAX_PHY_OFFSET] if self._role.is_slave else end

    # -- life (loop thread) --------------------------------------------------------------------

    def start(self) -> None:
        """Begin what runs by itself; the log is open (never on a slave). Where a slave may have
        delivered in this broker's place, that waits for `handed_over`. Again after `cease`."""
        self.clock_steps.start(self._schedule.waiting)
        # Ends wait for what its first steps find out; its first round comes later.
        self._transactions.start(self._calls)
        if not self.awaits_handover:
            self.handed_over()

    @property
    def awaits_handover(self) -> bool:
        """Whether nothing is delivered before `handed_over`."""
        return not self._role.changes and self._options.broker.enable_remote_escape

    def handed_over(self) -> bool:
        """The slaves know that this broker is back, deliver nothing more, and have been asked what
        they delivered. False: nothing begins, this is a slave or ends. Loop thread."""
        if self._role.is_slave or self._delivers:
            return False
        self._delivers = True
        self._schedule.start(self.loop)
        self.timers.start(self.loop)
        return True

    def follow(self) -> None:
        """This is a slave: nothing here runs by itself."""
        self.clock_steps.forget()
        self.timers.follow()

    def cease(self) -> None:
        """This broker leads no more: what waits to be put is refused, and what runs by itself is
        forgotten; files and tables say how far it came. Nothing is put from here on."""
        self.send.on_topics_changed()
        self._schedule.stop()
        self._delivers = False
        self._transactions.cease()
        refuse_held(self.append_queue)
        self.timers.cease()
        self.clock_steps.stop()
        self._schedule = self._make_schedule()

    def stop_checks(self) -> None:
        """End the checks of transactions; another thread, while the loop still runs."""
        self._transactions.shutdown()

    def stop(self) -> None:
        """Begin nothing new; idempotent."""
        self._delivers = True  # Also by a handover that ends later.
        self._schedule.stop()
        self.timers.stop()

    @property
    def busy(self) -> bool:
        """Whether something that was begun is better brought to its end before a stop."""
        return self.timers.busy

    def turn_end(self) -> None:
        """End of the loop's turn, before responses are sent: what was put is published."""
        self.send.turn_end()
        self.timers.turn_end()

    def finish(self) -> None:
        """After the last commit of an orderly stop."""
        self._schedule.finish()
        self.timers.finish()

    # -- construction --------------------------------------------------------------------------

    def _make_append_queue(self) -> AppendQueue:
        role = self._role
        fast_failure = BrokerFastFailure(
            self._options.broker, self._options.store, self._page, self._clock
        )
        parts = AppendQueueParts(
            commit_log=self._store.log,
            clock=self._clock,
            fast_failure=fast_failure,
            why_not_writable=self._store.why_not_writable,
            capacity=self._options.broker.send_thread_pool_queue_capacity,
        )
        if role.changes:
            return MemberAppendQueue(parts, self._page.counters, lambda: not role.is_slave)
        if role.is_slave:
            return SlaveAppendQueue(parts)
        if self._options.broker.begins_isolated:
            return IsolatedAppendQueue(parts, self._page.counters)
        return AppendQueue(parts)

    def _make_new_topics(self, register_new: Callable[[Collection[str]], None]) -> NewTopics:
        new_topics = NewTopics(
            register_new,
            self.loop.call_soon_threadsafe,
            capacity=self._options.broker.send_thread_pool_queue_capacity,
        )
        self._tables.topics.add_listener(new_topics.on_topic_change)
        return new_topics

    def _make_send(self) -> SendMessageProcessor:
        return SendMessageProcessor(
            send_settings(self._options),
            self.log,
            self._tables.topics,
            self._tables.groups.find_or_create,
            self._stats,
            self.new_topics,
            self.timers.hook,
            self._tables.mappings.table,
        )

    def _make_send_back(self) -> ConsumerSendMsgBackProcessor:
        return ConsumerSendMsgBackProcessor(
            SendBackParts(
                log=self.log,
                reader=self._store.access,
                topics=self._tables.topics,
                find_group=self._tables.groups.find_or_create,
                stats=self._stats,
                on_loop=self.loop.call_soon_threadsafe,
                new_topics=self.new_topics,
                rights=self._rights,
                is_compacted=self._is_compacted,
                find_topic=self._tables.topics.find,
            ),
            self._options.broker,
            self._options.store,
        )

    def _is_compacted(self, topic: str) -> bool:
        is_enabled = self._options.store.enable_compaction
        return is_enabled and self._tables.topics.is_compaction_topic(topic)

    def _make_reply(self) -> ReplyMessageProcessor:
        broker, store, role = self._options.broker, self._options.store, self._role
        return ReplyMessageProcessor(
            ReplyParts(
                log=self.log,
                rules=self.send.rules,
                topics=self._tables.topics,
                find_connection=self._tables.producers.find_connection,
                call_client=self._calls.call_client,
                stats=self._stats,
                clock=self._clock,
                on_loop=self.loop.call_soon_threadsafe,
                new_topics=self.new_topics,
                stores_replies=lambda: broker.store_reply_message_enable and not role.is_slave,
                store_host=f"{broker.broker_ip1}:{self._options.server.listen_port}",
            ),
            broker,
            store,
        )

    def _make_schedule(self) -> ScheduleMessageService:
        return ScheduleMessageService(
            ScheduleParts(
                log=self.log,
                reader=self._store.loop_reader,
                table=self._store.table,
                units=self._store.loop_units,
                offsets=self._tables.schedule_offsets,
                stats=self._stats,
                clock=self._clock,
                clock_steps=self.clock_steps,
                room_waits=self.room_waits,
                put_back_topic=self._put_back_topic,
                flushed_offset=lambda: self._page.counters[FLUSHED_OFFSET],
            ),
            self._options.store.delay_level_ms,
        )


def durability_waiters(options: StartupOptions, stats: DurabilityStats) -> DurabilityWaiters:
    """Who waits for flush and replicas, with these settings. A leader of a group with a controller
    is a SYNC_MASTER, whatever brokerRole says; allAckInSyncStateSet waits for all of the set, and
    how many that are is what process `ha` reckons with."""
    store, member = options.store, options.controller_mode
    is_sync_master = store.broker_role is BrokerRole.SYNC_MASTER or member.enable_controller_mode
    needs_whole_set = member.enable_controller_mode and member.all_ack_in_sync_state_set
    needs_replicas = options.ha.in_sync_replicas > 1 or needs_whole_set
    return DurabilityWaiters(
        waits_for_flush=store.flush_disk_type is FlushDiskType.SYNC_FLUSH,
        waits_for_replicas=is_sync_master and needs_replicas,
        sync_flush_timeout_ms=store.sync_flush_timeout,
        slave_timeout_ms=store.slave_timeout,
        stats=stats,
        is_safe_mode=needs_whole_set,
    )
