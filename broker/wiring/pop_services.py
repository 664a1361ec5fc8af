"""PopServices: what belongs to pop besides popping and acknowledging.

Wiring only, for BrokerController: requests that wait for messages, notifications, peeking, ordered
queues that become free, the revive service. Everything here runs on the loop.

Tested by tests/broker/wiring/test_routes.py.
"""

from __future__ import annotations

from typing import Final

from broker.longpolling.notify_message_arriving_listener import (
    HeldRequests,
    NotifyMessageArrivingListener,
)
from broker.metrics.broker_gauges import SAMPLING_MS
from broker.metrics.hot_path_stats import HotPathStats
from broker.pop.notification_processor import NotificationProcessor
from broker.pop.peek_message_processor import PeekMessageProcessor
from broker.pop.peeking_check import PeekingCheck
from broker.pop.polling_info_processor import PollingInfoProcessor
from broker.pop.pop_journal import read_boot_id
from broker.pop.pop_long_polling_service import (
    SCAN_PERIOD_MS,
    PollingLimits,
    PopLongPollingService,
)
from broker.pop.pop_request import PopRequest
from broker.pop.pop_revive_service import PopReviveService
from broker.pop.request_clock import RequestClock
from broker.pop.revive_parts import ReviveParts
from broker.pop.revive_progress import ReviveProgress
from broker.processor.held_rights import HoldRights
from broker.processor.table_processor import TableProcessor
from broker.settings.startup_options import StartupOptions
from broker.topic.system_topics import revive_topic
from broker.wiring.broker_tables import BrokerTables
from broker.wiring.lite_services import LiteServices
from broker.wiring.message_services import MessageServices
from broker.wiring.pop_path import PopPath
from broker.wiring.process_resources import ProcessResources
from broker.wiring.store_side import StoreSide
from remoting.key_builder import POP_ORDER_REVIVE_QUEUE
from remoting.selector_loop import SelectorLoop
from store.control_slots import FLUSHED_OFFSET, MAX_PHY_OFFSET

_HIDE_GONE_MS: Final = 60_000
_PERM_READ: Final = 4


class PopServices:
    """See the module. Owned by: BrokerController."""

    def __init__(
        self,
        resources: ProcessResources,
        store: StoreSide,
        tables: BrokerTables,
        messages: MessageServices,
        stats: HotPathStats,
        hold_rights: HoldRights,
    ) -> None:
        self._options = resources.options
        self._role = resources.role
        self._messages = messages
        self._stats = stats
        self._serves = False
        """What lasts as long as the loop has begun."""
        self._page = resources.page
        self._clock = resources.clock
        self._store = store
        self._tables = tables
        self._waiters = PopLongPollingService[PopRequest](
            lambda request: self.path.pop.run_again(request),
            _polling_limits(self._options),
            self._clock.monotonic_ms,
        )
        self.path: Final = PopPath(
            resources,
            store,
            tables,
            messages,
            stats,
            tables.order_info,
            self._waiters,
            hold_rights,
        )
        self._check = PeekingCheck(
            self._options.broker,
            store.batch_queues.find_poppable,
            tables.groups.find_or_create,
            store.table,
            self.path.buffer.pop_offset,
        )
        self._notification = NotificationProcessor(
            self._check,
            tables.order_info,
            stats,
            _polling_limits(self._options),
            RequestClock(self._clock.now_ms, self._clock.monotonic_ms),
            self.path.reader,
            self._options.broker,
            hold_rights,
        )
        self._peek = PeekMessageProcessor(
            self._check, self.path.reader, lambda: self._page.counters[MAX_PHY_OFFSET], stats
        )
        self._polling_info = PollingInfoProcessor(self._check, self._waiters.polling_num)
        self.path.pop.admission.is_held = self._options.broker.begins_isolated
        self.lite: Final = LiteServices(
            resources,
            store,
            tables,
            messages.loop,
            stats,
            self.path,
            _polling_limits(self._options),
            hold_rights,
        )
        self._progress = ReviveProgress(
            self._options.store.pop_revive_progress_path,
            read_boot_id(),
            POP_ORDER_REVIVE_QUEUE,
        )
        self._revive = self._make_revive()

    @property
    def processors(self) -> tuple[TableProcessor, ...]:
        """Of all codes of pop."""
        own = self._notification, self._peek, self._polling_info
        return *self.path.processors, *own, *self.lite.processors

    def arriving(self, pulls: HeldRequests) -> NotifyMessageArrivingListener:
        """What is told of arriving messages: pulls, pops, notifications, lite topics."""
        waiters = self._waiters, self._notification.waiters
        return NotifyMessageArrivingListener(pulls, *waiters, self.lite.arrivals)

    # -- life (loop thread) --------------------------------------------------------------------

    def open(self) -> None:
        """The log is open. See PopPath."""
        self.path.open()
        self._revive.queue_num = self.path.revive_queues
        if self._role.is_slave:
            self._progress.clear()

    def start(self, loop: SelectorLoop) -> None:
        """Begin what runs by itself; never on a slave. Again after `cease`."""
        self.path.start(loop)
        self.lite.start()
        if not self._serves:
            self._serves = True
            self._serve(loop)
        if not self._messages.awaits_handover:
            self.handed_over(loop)

    def handed_over(self, loop: SelectorLoop) -> None:
        """Begin to revive: no slave does (MessageServices.handed_over)."""
        if self._options.store.timer_wheel_enable:
            self._revive.start(loop)

    def cease(self) -> None:
        """This broker leads no more: those who wait are answered as by any slave, and what runs by
        itself is forgotten. What was put is refused already."""
        self._revive.stop()
        self._revive = self._make_revive()
        self.path.cease()
        self.lite.cease()
        for waiters in (self._waiters, self._notification.waiters):
            waiters.wake_all()

    def _serve(self, loop: SelectorLoop) -> None:
        scans = loop.ticks(SCAN_PERIOD_MS, self._scan)
        self._waiters.on_waiting = self._notification.waiters.on_waiting = scans.begin
        loop.call_every(SAMPLING_MS, self._sample)
        loop.call_every(_HIDE_GONE_MS, self._hide_gone)
        self._tables.order_info.watch_free_queues(self._on_free_queue)
        loop.watches.add(self._tables.order_info.tell_free_queues)

    def use(self, options: StartupOptions) -> None:
        """Follow changed settings."""
        self._options = options
        self.path.use(options)
        self.lite.use(options)
        self._check.use(options.broker)
        self._notification.use(options.broker)
        self._revive.use(options.broker)

    def drain(self) -> None:
        """An orderly stop: who waits is answered, the log takes the last records."""
        self._revive.stop()
        self._waiters.stop()
        self._notification.waiters.stop()
        self.lite.drain()
        self.path.drain()

    def finish(self) -> None:
        """After the last commit of an orderly stop, before the offsets are saved."""
        self._revive.finish()
        self._progress.close()
        self.path.finish()

    def remove_journal(self) -> None:
        """The offsets are saved: the last step of an orderly stop."""
        self.path.remove_journal()

    def _scan(self) -> bool:
        services = (self._waiters, self._notification.waiters)
        for waiters in services:
            if not waiters.is_empty:
                waiters.scan()
        return not all(waiters.is_empty for waiters in services)

    def _sample(self) -> None:
        buffer = self.path.buffer
        behind = self._revive.behind(self._clock.now_ms())
        self.path.metrics.sample(buffer.offset_count, buffer.check_point_count, behind)

    def _hide_gone(self) -> None:
        topics, groups = self._tables.topics, self._tables.groups
        self.path.metrics.hide_gone(set(topics.topic_names()), set(groups.group_names()))

    def _on_free_queue(self, topic: str, group: str, queue_id: int) -> None:
        if not self._options.broker.enable_notify_after_pop_order_lock_release:
            return
        self._waiters.queue_is_free(topic, group, queue_id)
        self._notification.waiters.queue_is_free(topic, group, queue_id)

    # -- construction --------------------------------------------------------------------------

    def _make_revive(self) -> PopReviveService:
        messages, stats = self._messages, self._stats
        store, tables, counters = self._store, self._tables, self._page.counters
        broker = self._options.broker
        return PopReviveService(
            self._options.broker,
            ReviveParts(
                commit_log=store.log,
                append_queue=messages.append_queue,
                table=store.table,
                units=store.loop_units,
                reader=store.loop_reader,
                offsets=tables.offsets,
                records=self.path.records,
                topics=tables.topics,
                find_topic=tables.topics.find,
                find_group=tables.groups.find_or_put_back,
                inflight=self.path.inflight,
                progress=self._progress,
                stats=stats,
                counts=self.path.metrics,
                room_waits=messages.room_waits,
                timer_read_time_ms=lambda: messages.timers.read_time_ms,
                published_offset=lambda: counters[MAX_PHY_OFFSET],
                flushed_offset=lambda: counters[FLUSHED_OFFSET],
            ),
            revive_topic(broker.broker_cluster_name),
            broker.revive_queue_num,
        )


def _polling_limits(options: StartupOptions) -> PollingLimits:
    broker = options.broker
    return PollingLimits(
        requests_of_a_key=broker.pop_polling_size,
        keys=broker.pop_polling_map_size,
        requests=broker.max_pop_polling_size,
    )
