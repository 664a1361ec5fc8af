"""LiteServices: lite topics put together. Wiring only, for PopServices.

Everything here runs on the loop but what LiteLifecycleManager does on the scheduled executor.

Tested by tests/broker/lite/test_lite_broker.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from broker.lite.former_lives import FormerLives
from broker.lite.lite_acks import LiteAcks
from broker.lite.lite_consumer_lag_calculator import LiteConsumerLagCalculator, LiteLagSources
from broker.lite.lite_event_dispatcher import DispatchParts, LiteEventDispatcher, tell_free
from broker.lite.lite_lifecycle_manager import LifecycleParts, LiteLifecycleManager
from broker.lite.lite_manager_processor import LiteManagerProcessor, ManagerParts
from broker.lite.lite_queues import LiteQueues
from broker.lite.lite_subscription_ctl_processor import CtlParts, LiteSubscriptionCtlProcessor
from broker.lite.lite_subscription_registry import LiteSubscriptionRegistry
from broker.lite.memory_consumer_order_info_manager import MemoryConsumerOrderInfoManager
from broker.lite.pop_lite_long_polling_service import PopLiteLongPollingService
from broker.lite.pop_lite_message_processor import PopLiteMessageProcessor, PopLiteParts
from broker.metrics.hot_path_stats import HotPathStats
from broker.offset.lmq_consumer_offset_manager import LmqConsumerOffsetManager
from broker.pop.pop_long_polling_service import SCAN_PERIOD_MS, PollingLimits
from broker.pop.request_clock import RequestClock
from broker.processor.held_rights import HoldRights
from broker.processor.queue_times import QueueTimes
from broker.processor.table_processor import TableProcessor
from broker.settings.startup_options import StartupOptions
from broker.wiring.broker_tables import BrokerTables
from broker.wiring.loop_calls import call_on_loop
from broker.wiring.pop_path import PopPath
from broker.wiring.process_resources import ProcessResources
from broker.wiring.processor_settings import lite_settings
from broker.wiring.store_side import StoreSide
from ipc.scheduled_executor import ScheduledExecutor
from remoting.lite_names import is_lite_queue
from remoting.selector_loop import SelectorLoop
from store.control_slots import MAX_PHY_OFFSET
from store.lmq_places import LMQ_QUEUE_ID

_STEP_MS: Final = 2
_DROPS: Final = 500
"""Light queues of clients that are gone, in one step."""


class LiteArrivals:
    """HeldRequests: the light queues of lite topics that moved."""

    def __init__(self, registry: LiteSubscriptionRegistry, dispatcher: LiteEventDispatcher) -> None:
        self._registry = registry
        self._dispatcher = dispatcher

    @property
    def is_empty(self) -> bool:
        """Whether nobody subscribes."""
        return self._registry.is_empty

    def wake(self, key: tuple[str, int], /) -> None:
        """The queue (topic, queue id) has advanced."""
        if is_lite_queue(key[0]):
            self._dispatcher.arrived(key[0])

    def wake_all(self) -> None:
        """Too many queues have advanced to list them."""
        self._dispatcher.dispatch_all()


class LiteServices:
    """See the module. Owned by: PopServices."""

    def __init__(
        self,
        resources: ProcessResources,
        store: StoreSide,
        tables: BrokerTables,
        loop: SelectorLoop,
        stats: HotPathStats,
        path: PopPath,
        limits: PollingLimits,
        hold_rights: HoldRights,
    ) -> None:
        self._resources = resources
        self._store = store
        self._tables = tables
        self._loop = loop
        self._stats = stats
        self._has_begun = False
        """What runs as long as the loop."""
        self._settings = lite_settings(resources.options)
        clock = resources.clock
        now_ms, monotonic_ms = clock.now_ms, clock.monotonic_ms
        self._order = MemoryConsumerOrderInfoManager(now_ms)
        self._former_lives = FormerLives(self._first_place)
        self._queues = LiteQueues(
            store.table.offsets, tables.offsets, self._order, path.is_young, self._former_lives
        )
        self._dispatcher = LiteEventDispatcher(
            DispatchParts(
                wants=self._queues.wants,
                is_waiting=lambda client: self._waiters.has_waiting(client),
                wake=lambda client: self._waiters.wake_client(client),
                lite_topics=lambda parent: self.lifecycle.lite_topics(parent),
                monotonic_ms=monotonic_ms,
                most_events=lambda: self._settings.most_events,
            )
        )
        self._registry = LiteSubscriptionRegistry(
            lambda: self._settings.most_subscriptions, self._dispatcher
        )
        self._dispatcher.registry = self._registry
        self.lifecycle: Final = self._make_lifecycle(path)
        self.lags: Final = self._make_lags()
        self._pop = self._make_pop(path, hold_rights)
        self._waiters = PopLiteLongPollingService(self._pop.run_again, limits, monotonic_ms)
        self._pop.waiters = self._waiters
        self.arrivals: Final = LiteArrivals(self._registry, self._dispatcher)
        acks = LiteAcks(self._queues, self._dispatcher, tables.groups.find, now_ms)
        path.ack.lite = path.change.lite = acks
        if store.log.lmq is not None:
            store.log.lmq.on_made = self.lifecycle.made
        store.store_commands.on_deleted = self.lifecycle.ended
        self._gone: deque[Iterator[None]] = deque()

    @property
    def processors(self) -> tuple[TableProcessor, ...]:
        """Of all codes of lite topics."""
        return self._pop, self._make_ctl(), self._make_manager()

    # -- life (loop thread) --------------------------------------------------------------------

    def start(self) -> None:
        """Begin what runs by itself; never on a slave. Again after `cease`."""
        self.lifecycle.load()
        self._take_offsets_over()
        if self._has_begun:
            return
        self._has_begun = True
        loop, settings = self._loop, self._settings
        scans = loop.ticks(SCAN_PERIOD_MS, self._scan)
        self._waiters.on_waiting = scans.begin
        steps = loop.ticks(_STEP_MS, self._dispatcher.step)
        self._dispatcher.on_work = steps.begin
        self._drops = loop.ticks(_STEP_MS, self._drop_gone)
        self._frees = loop.ticks(_STEP_MS, self._tell_next_free)
        loop.watches.add(self._tell_free)
        loop.call_every(settings.event_check_interval_ms, self._dispatcher.look)
        loop.call_every(settings.subscription_check_interval_ms, self._look_for_gone)

    def cease(self) -> None:
        """This broker leads no more: what clients subscribe is another's from now on."""
        known_to = self._log_end()
        self._tables.offsets.known_to = lambda: known_to
        self._dispatcher.clear()
        self._registry.clear()
        self._order.clear()
        self._waiters.wake_all()

    def _take_offsets_over(self) -> None:
        """From now on the table is as new as the log."""
        offsets = self._tables.offsets
        if isinstance(offsets, LmqConsumerOffsetManager):
            self._former_lives.begin(offsets.lite_keys(), offsets.known_to(), self._log_end())
            offsets.known_to = self._log_end

    def _log_end(self) -> int:
        return self._resources.page.counters[MAX_PHY_OFFSET]

    def _first_place(self, lmq: str) -> int | None:
        store = self._store.access
        unit = store.unit_at(lmq, LMQ_QUEUE_ID, store.min_offset(lmq, LMQ_QUEUE_ID))
        return None if unit is None else unit[0]

    def use(self, options: StartupOptions) -> None:
        """Follow changed settings."""
        self._settings = lite_settings(options)

    def drain(self) -> None:
        """An orderly stop: who waits is answered."""
        self._waiters.stop()

    def schedule_on(self, executor: ScheduledExecutor) -> None:
        """End lite topics that are over. On every broker of a group."""
        if self._store.log.lmq is not None:
            period_ms = self._settings.ttl_check_interval_ms
            executor.schedule(
                "lite-topics",
                self.lifecycle.look,
                first_delay_ms=period_ms,
                period_ms=period_ms,
            )

    def _scan(self) -> bool:
        if not self._waiters.is_empty:
            self._waiters.scan()
        return not self._waiters.is_empty

    def _tell_free(self) -> bool:
        if self._tell_next_free():
            self._frees.begin()
        return self._order.is_soon()

    def _tell_next_free(self) -> bool:
        return tell_free(self._dispatcher, self._order.take_free)

    def _look_for_gone(self) -> None:
        before_ms = self._resources.clock.monotonic_ms() - self._settings.subscription_timeout_ms
        self._gone.extend(map(self._registry.dropping, self._registry.expired(before_ms)))
        self._order.clean()
        if self._gone:
            self._drops.begin()

    def _drop_gone(self) -> bool:
        for _ in range(_DROPS):
            if not self._gone:
                break
            if next(self._gone[0], self) is self:
                self._gone.popleft()
        return bool(self._gone)

    # -- construction --------------------------------------------------------------------------

    def _make_lifecycle(self, path: PopPath) -> LiteLifecycleManager:
        store, tables, table = self._store, self._tables, self._store.table
        times = QueueTimes(store.access)

        def queue_names() -> list[str]:
            return [name for name, queue_id, _ in table if table.offsets(name, queue_id)[1]]

        def last_time_ms(name: str) -> int:
            _low, high = table.offsets(name, LMQ_QUEUE_ID)
            return times.store_timestamp(name, LMQ_QUEUE_ID, high - 1)

        return LiteLifecycleManager(
            LifecycleParts(
                find_topic=tables.topics.find,
                find_group=tables.groups.find,
                group_names=tables.groups.group_names,
                queue_names=queue_names,
                last_time_ms=last_time_ms,
                queue_end=lambda name: path.reader.offsets(name, LMQ_QUEUE_ID)[1],
                delete_unless=store.store_commands.delete_unless,
                registry=self._registry,
                queues=self._queues,
                wake_group=lambda group: self._waiters.wake_group(group),
                on_loop=self._loop.call_soon_threadsafe,
                now_ms=self._resources.clock.now_ms,
                min_ttl_ms=lambda: self._settings.min_ttl_ms,
            )
        )

    def _make_pop(self, path: PopPath, hold_rights: HoldRights) -> PopLiteMessageProcessor:
        clock = self._resources.clock
        return PopLiteMessageProcessor(
            PopLiteParts(
                admission=path.pop.admission,
                registry=self._registry,
                dispatcher=self._dispatcher,
                queues=self._queues,
                reader=path.reader,
                find_topic=self._tables.topics.find,
                find_group=self._tables.groups.find,
                stats=self._stats,
                hold_rights=hold_rights,
                clock=RequestClock(clock.now_ms, clock.monotonic_ms),
                log_end=self._log_end,
            )
        )

    def _make_ctl(self) -> LiteSubscriptionCtlProcessor:
        return LiteSubscriptionCtlProcessor(
            CtlParts(
                registry=self._registry,
                dispatcher=self._dispatcher,
                queues=self._queues,
                find_group=self._tables.groups.find,
                leads=lambda: not self._resources.role.is_slave,
                stats=self._stats,
                monotonic_ms=self._resources.clock.monotonic_ms,
                on_loop=self._loop.call_soon_threadsafe,
            )
        )

    def _make_lags(self) -> LiteConsumerLagCalculator:
        return LiteConsumerLagCalculator(
            LiteLagSources(
                lite_topics=self.lifecycle.lite_topics,
                queues=self._queues,
                store=self._store.access,
                find_group=self._tables.groups.find,
                group_names=self._tables.groups.group_names,
                settings=lambda: self._settings,
                monotonic_ms=self._resources.clock.monotonic_ms,
            )
        )

    def _make_manager(self) -> LiteManagerProcessor:
        store, tables, clock = self._store, self._tables, self._resources.clock
        lmq = store.log.lmq
        count: Callable[[], int] = (lambda: 0) if lmq is None else (lambda: lmq.queue_count)
        return LiteManagerProcessor(
            ManagerParts(
                registry=self._registry,
                dispatcher=self._dispatcher,
                lifecycle=self.lifecycle,
                queues=self._queues,
                store=store.access,
                lags=self.lags,
                find_topic=tables.topics.find,
                topic_names=tables.topics.topic_names,
                find_group=tables.groups.find,
                group_names=tables.groups.group_names,
                lmq_count=count,
                queue_count=lambda: len(store.stored_queues()),
                offset_count=lambda: len(tables.offsets.pairs()),
                settings=lambda: self._settings,
                on_loop=partial(call_on_loop, self._loop),
                now_ms=clock.now_ms,
                monotonic_ms=clock.monotonic_ms,
            )
        )
