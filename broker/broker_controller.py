"""BrokerController: wires the broker logic of process `remoting`; no policy, no messages.

Constructs the managers, the processors and the server, gives each what it uses, says in which
order they start and stop. Only broker/processes/remoting.py uses it. The loop runs on the thread
that calls `run`; pools and the scheduled executor bring their own threads.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Final, TypeVar

from ipc.bell import Bell

from broker.acl.access import Access
from broker.append.durability_waiters import DurabilityWaiters
from broker.client.broker2client import Broker2Client, max_waiting_calls
from broker.client.client_housekeeping_service import ClientHousekeepingService
from broker.client.consumer_manager import ConsumerManager, DefaultConsumerIdsChangeListener
from broker.client.producer_manager import ProducerManager
from broker.client.rebalance_lock_manager import RebalanceLockManager
from broker.client.slow_consumer_protection import SlowConsumerProtection
from broker.filter.consumer_filter_manager import ConsumerFilterManager
from broker.json_config_manager import JsonConfigManager
from broker.longpolling.pull_request_hold_service import SCAN_PERIOD_MS
from broker.metrics.broker_gauges import BrokerGauges, GaugeSources
from broker.metrics.broker_stats_manager import BrokerStats, BrokerStatsManager
from broker.metrics.hot_path_stats import HotPathStats
from broker.metrics.remoting_metrics import RemotingMetrics
from broker.metrics.store_stats_service import StoreStatsService
from broker.offset.consumer_offset_manager import ConsumerOffsetManager
from broker.out.broker_outer_api import BrokerIdentity, BrokerOuterAPI, parse_name_servers
from broker.out.broker_registration import BrokerRegistration
from broker.out.outgoing_client import outgoing_client
from broker.processor.admin_acl_processor import AdminAclProcessor
from broker.processor.pull_message_processor import (
    LITE_PULL_PREFIX,
    PULL_PREFIX,
    PullMessageProcessor,
)
from broker.processor.send_message_processor import SEND_V2_PREFIX
from broker.schedule.schedule_offset_manager import ScheduleOffsetManager
from broker.settings.changed_settings import ChangedSettings
from broker.settings.config_update import BrokerConfigUpdate
from broker.settings.memory_limit import memory_limit_bytes
from broker.settings.startup_options import StartupOptions
from broker.store_access.store_access import StoreAccess
from broker.store_access.store_follower import StoreFollower
from broker.subscription.subscription_group_manager import SubscriptionGroupManager
from broker.supervisor.control_slots import REMOTING_READY
from broker.supervisor.process_end import service_guard
from broker.topic.system_topics import SCHEDULE_TOPIC, SystemTopics
from broker.topic.topic_config_manager import TopicChange, TopicConfigManager
from broker.wiring.config_application import ConfigApplication
from broker.wiring.message_services import MessageParts, MessageServices
from broker.wiring.processor_settings import pull_settings
from broker.wiring.replication import Replication, SharedParts
from broker.wiring.routes import (
    PROCESSOR_NAMES,
    REPLY_THREADS,
    SEND_BACK_POOL,
    RouteParts,
    build_routes,
)
from broker.wiring.runtime_source import RuntimeSource
from ipc.clock import Clock
from ipc.command_channel import CommandClient
from ipc.control_page import ControlPage, ProcessIndex
from ipc.metric_slots import MetricSlots
from ipc.queue_table import QueueTableReader
from ipc.scheduled_executor import ScheduledExecutor
from remoting.body.topic_config import TopicConfig
from remoting.remoting_server import RemotingServer
from remoting.response_table import ResponseTable
from remoting.selector_loop import EVENT_READ, SelectorLoop
from remoting.server_tls import ServerTls
from store.commit_log import CommitLog
from store.commit_log_reader import CommitLogReader
from store.consume_queue_reader import ConsumeQueueReader
from store.control_slots import MAX_PHY_OFFSET
from store.fresh_units import FreshUnits
from store.index_service import IndexReader
from store.message_codec import encode_host
from store.message_store_config import BrokerRole, FlushDiskType
from store.topic_queue_table import rebuild_topic_queue_table

log = logging.getLogger(__name__)
ResultT = TypeVar("ResultT")

_PERSIST_FIRST_MS: Final = 10_000
_STOP_WAIT_MS: Final = 5_000
_BEAT_MS: Final = 200
_SPIN_US: Final = 30
"""With one request in flight 13,000 -> 23,000 sends a second here, for less CPU each: neither
core goes to sleep between a request and the next (tests/bench/compare.py, send-1x1-128)."""
_REFUSE_LATE_MS: Final = 100
_REBIND_STATS_MS: Final = 60_000
"""Counters of a deleted topic or group are not counted into for longer."""


class BrokerController:
    """One broker's logic. Owned by: the main thread of process `remoting`."""

    def __init__(
        self,
        options: StartupOptions,
        page: ControlPage,
        queue_table_fd: int,
        bells: dict[str, Bell],
        channels: dict[str, socket.socket],
        clock: Clock,
        metrics: MetricSlots,
        *,
        config_file: Path | None,
        changed: ChangedSettings,
    ) -> None:
        """channels: "remoting->store", "remoting->ha" (we ask), "remoting<-ha" (we answer)."""
        self._options = options
        self._page = page
        self._clock = clock
        self._metric_slots = metrics
        self._config_file = config_file
        self._changed = changed
        self._bells = bells
        self.loop = SelectorLoop("RemotingLoop", spin_us=_SPIN_US)
        self._table = QueueTableReader(queue_table_fd)
        self._channels = channels
        self._commands = CommandClient(channels["remoting->store"], "store", clock)
        self._build_store_side()
        self._build_managers()
        self._build_processors()

    # -- construction --------------------------------------------------------------------------

    def _build_store_side(self) -> None:
        store, page = self._options.store, self._page
        directory, size = store.commit_log_path, store.mapped_file_size_commit_log
        self._log = CommitLog(directory, size, page, self._clock, self._ring)
        self._log.store_host = encode_host(
            socket.gethostbyname(self._options.broker.broker_ip1),
            self._options.server.listen_port,
        )
        self._loop_reader = CommitLogReader(directory, size, page)
        self._memory_limit = memory_limit_bytes(store.access_message_in_memory_max_ratio)
        self._access = StoreAccess(
            self._table,
            CommitLogReader(directory, size, page),
            FreshUnits(ConsumeQueueReader(store), self._table),
            IndexReader(store.index_path, store.max_hash_slot_num, store.max_index_num),
            self._commands,
            memory_limit=self._memory_limit,
            before_delete=lambda topic: self._call_on_loop(lambda: self._block_topic(topic)),
            after_delete=lambda topic, deleted: self._call_on_loop(
                lambda: self._send.unblock_topic(topic, deleted=deleted)
            ),
        )

    def _build_managers(self) -> None:
        broker, clock = self._options.broker, self._clock
        path = self._options.store.config_path
        self._stats_manager = BrokerStatsManager(
            clock, broker.broker_cluster_name, enable_detail_stat=broker.enable_detail_stat
        )
        self._store_stats = StoreStatsService(clock)
        self._system_topics = SystemTopics()
        self._metrics = RemotingMetrics(self._metric_slots, self._system_topics)
        self._stats = HotPathStats(self._stats_manager, self._store_stats, self._metrics)
        self._broker_stats = BrokerStats(
            lambda: self._store_stats.put_times, lambda: self._store_stats.get_transferred
        )
        self._topics = TopicConfigManager(path / "topics.json", broker, clock, self._system_topics)
        self._groups = SubscriptionGroupManager(path / "subscriptionGroup.json", broker, clock)
        self._offsets = ConsumerOffsetManager(path / "consumerOffset.json")
        self._schedule_offsets = ScheduleOffsetManager(path / "delayOffset.json")
        self._filters = ConsumerFilterManager(path / "consumerFilter.json", broker, clock)
        self._producers = ProducerManager(clock)
        self._consumers = ConsumerManager(
            clock,
            DefaultConsumerIdsChangeListener(
                notify_consumer_ids_changed_enable=broker.notify_consumer_ids_changed_enable,
                filters=self._filters,
            ),
        )
        self._locks = RebalanceLockManager(clock)
        self._housekeeping = ClientHousekeepingService(self._producers, self._consumers)
        self._responses = ResponseTable()
        self._executor = ScheduledExecutor(clock)
        self._managers: tuple[JsonConfigManager, ...] = (
            self._topics,
            self._groups,
            self._offsets,
            self._filters,
        )
        self._topics.add_listener(self._on_topic_change)

    def _build_processors(self) -> None:
        store = self._options.store
        others = self._options.ha.in_sync_replicas - 1
        self._waiters = DurabilityWaiters(
            waits_for_flush=store.flush_disk_type is FlushDiskType.SYNC_FLUSH,
            waits_for_replicas=store.broker_role is BrokerRole.SYNC_MASTER and others > 0,
            sync_flush_timeout_ms=store.sync_flush_timeout,
            slave_timeout_ms=store.slave_timeout,
            stats=self._metrics,
        )
        self._loop_units = FreshUnits(ConsumeQueueReader(store), self._table)
        waiting = max_waiting_calls(self._options.broker.admin_broker_thread_pool_nums)
        self._clients = self._calls_to_clients(waiting)
        self._messages = MessageServices(
            MessageParts(
                options=self._options,
                page=self._page,
                clock=self._clock,
                loop=self.loop,
                commit_log=self._log,
                table=self._table,
                access=self._access,
                loop_reader=self._loop_reader,
                loop_units=self._loop_units,
                waiters=self._waiters,
                topics=self._topics,
                register_new=lambda topics: self._registration.register_new(topics),
                groups=self._groups,
                producers=self._producers,
                consumer_offsets=self._offsets,
                schedule_offsets=self._schedule_offsets,
                clients=self._calls_to_clients(REPLY_THREADS),
                stats=self._stats,
                why_not_writable=self._why_not_writable,
                on_failure=service_guard("remoting"),
            )
        )
        self._send = self._messages.send
        self._pull = PullMessageProcessor(
            pull_settings(self._options, self._memory_limit),
            self._page,
            self._table,
            self._loop_units,
            self._loop_reader,
            self._topics,
            self._groups,
            self._consumers,
            self._offsets,
            self._stats,
            self._clock.monotonic_ms,
            self._filters,
            self._messages.offset_moved,
        )
        self._follower = StoreFollower(
            self._page,
            self._bells["remoting"],
            self._table,
            self._log,
            self._waiters,
            self._pull.hold_service,
            self._clock,
            replicas_needed=others,
            sends_wait_for_file=lambda: self._send.holds_sends,
            publish_counts=self._stats.publish,
        )
        self._access_control = Access(self._options.broker, self._clock)
        self._client = outgoing_client(self._options, self._access_control.signer)
        self._build_outside()
        self._server = self._build_server()

    def _calls_to_clients(self, max_waiting: int) -> Broker2Client:
        return Broker2Client(self._consumers, self._responses, self._clock, max_waiting=max_waiting)

    def _build_outside(self) -> None:
        """What talks to name servers and to the other brokers of the group."""
        broker, port = self._options.broker, self._options.server.listen_port
        identity = BrokerIdentity(
            cluster_name=broker.broker_cluster_name,
            broker_name=broker.broker_name,
            broker_id=broker.broker_id,
            broker_addr=f"{broker.broker_ip1}:{port}",
            ha_server_addr=f"{broker.broker_ip2}:{self._options.ha.ha_listen_port}",
        )
        api = BrokerOuterAPI(self._client, parse_name_servers(broker.namesrv_addr))
        shared = SharedParts(
            options=self._options,
            identity=identity,
            page=self._page,
            clock=self._clock,
            table=self._table,
            client=self._client,
            api=api,
            topics=self._topics,
            groups=self._groups,
            offsets=self._offsets,
            schedule_offsets=self._schedule_offsets,
            access=self._access,
            on_failure=service_guard("remoting"),
            acl=self._access_control.manager,
        )
        self._acl_processor = AdminAclProcessor(self._access_control.manager, identity)
        channels = self._channels
        self._replication = Replication(shared, channels["remoting->ha"], channels["remoting<-ha"])
        self._registration = BrokerRegistration(
            broker,
            identity,
            api,
            self._topics,
            self._executor,
            on_master=self._replication.on_master,
        )

    def _build_server(self) -> RemotingServer:
        runtime = RuntimeSource(
            self._options,
            self._page,
            self._access,
            self._store_stats,
            self._clock,
            schedule_offsets=self._schedule_progress,
            pool=lambda name: self._routes.executors.get(name),
            waiting_sends=lambda: len(self._waiters),
            line=self._messages.line,
        )
        parts = RouteParts(
            options=self._options,
            clock=self._clock,
            access=self._access,
            messages=self._messages,
            pull=self._pull,
            runtime=runtime,
            stats_manager=self._stats_manager,
            broker_stats=self._broker_stats,
            topics=self._topics,
            system_topics=self._system_topics,
            groups=self._groups,
            consumers=self._consumers,
            filters=self._filters,
            producers=self._producers,
            consumer_offsets=self._offsets,
            schedule_offsets=self._schedule_offsets,
            locks=self._locks,
            replication=self._replication.processor,
            acl=self._acl_processor,
            clients=self._clients,
            configs=self._configs(),
        )
        self._routes = build_routes(parts)
        server = self._options.server
        return RemotingServer(
            self.loop,
            self._routes.main,
            executors=self._routes.executors,
            listener=self._housekeeping,
            fast_routes=self._access_control.fast_routes(
                (SEND_V2_PREFIX, self._send.process_fast),
                (PULL_PREFIX, self._pull.process_fast),
                (LITE_PULL_PREFIX, self._pull.process_fast),
            ),
            gate=self._access_control.gate,
            idle_timeout_ms=server.server_channel_max_idle_time_seconds * 1000,
            observer=self._metrics,
            responses=self._responses,
            tls=ServerTls(self._options.tls),
        )

    def _configs(self) -> BrokerConfigUpdate:
        application = ConfigApplication(
            topics=self._topics,
            system_topics=self._system_topics,
            groups=self._groups,
            registration=self._registration,
            use_on_loop=self._use_options,
            store=self._commands,
        )
        return BrokerConfigUpdate(
            self._options,
            self._clock,
            config_file=self._config_file,
            user=application,
            changed=self._changed,
        )

    def _schedule_progress(self) -> dict[int, tuple[int, int]]:
        """Delay level to (next message to look at, end of its queue)."""
        return {
            level: (offset, self._table.offsets(SCHEDULE_TOPIC, level - 1)[1])
            for level, offset in self._schedule_offsets.offsets().items()
        }

    # -- life ----------------------------------------------------------------------------------

    def open(self, main: socket.socket, vip: socket.socket) -> None:
        """Load the tables and take up writing; the `store` process is ready. Raises StoreError
        and what the managers raise for files that cannot be read."""
        for manager in (*self._managers, self._schedule_offsets):
            manager.load()
            manager.save_in_background(self._executor.submit)
        self._access_control.open(self._executor)
        if not self._options.store.is_slave:
            self._open_log()
        self._server.add_listener(main)
        self._server.add_listener(vip, self._routes.vip)

    def _open_log(self) -> None:
        """Become the log's writer (on a slave that is process `ha`)."""
        walked = rebuild_topic_queue_table(self._log, self._page, self._table, self._loop_reader)
        self._log.open(self._log.store_host)
        log.info("writing from %s on, %s records after dispatch", self._log.position, walked)
        self._offsets.limit_to(self._log.next_offset)

    def run(self) -> None:
        """Serve until `request_stop`; the caller's thread becomes the loop's."""
        loop = self.loop
        bell = self._bells["remoting"]
        loop.register(bell, EVENT_READ, lambda _events: bell.drain())
        loop.set_sleep_hooks(self._follower)
        loop.add_turn_end(self._turn_end)
        loop.call_every(_BEAT_MS, lambda: self._page.beat(ProcessIndex.REMOTING))
        loop.call_every(_REFUSE_LATE_MS, self._refuse_late)
        loop.call_every(_REBIND_STATS_MS, self._hide_gone)
        loop.call_every(
            SCAN_PERIOD_MS, lambda: self._pull.hold_service.scan(self._clock.monotonic_ms())
        )
        if not self._options.store.is_slave:
            self._messages.start()
        self._server.start()
        self._client.start()
        self._schedule()
        self._executor.start()
        self._topics.add_listener(self._registration.on_topic_change)
        self._replication.start(self._executor)
        self._registration.start(
            self._set_ready, before_first=self._replication.before_first_registration
        )
        loop.run()

    def _set_ready(self) -> None:
        """The name servers have answered or failed: once the loop turns, we serve."""

        def serve() -> None:
            self._page.beat(ProcessIndex.REMOTING)
            self._page.counters[REMOTING_READY] = 1

        self.loop.call_soon_threadsafe(serve)

    def _schedule(self) -> None:
        broker = self._options.broker
        self._stats_manager.schedule_on(self._executor)
        self._store_stats.schedule_on(self._executor)
        self._housekeeping.schedule_on(self._executor)
        self._gauges().schedule_on(self._executor)
        self._broker_stats.schedule_on(self._executor, self._clock.now_ms())
        SlowConsumerProtection(
            broker, self._offsets, self._consumers, self._groups, self._access
        ).schedule_on(self._executor)
        self._executor.schedule(
            "persist",
            self._persist,
            first_delay_ms=_PERSIST_FIRST_MS,
            period_ms=broker.flush_consumer_offset_interval,
        )
        self._executor.schedule(
            "persist-delay-offsets",
            self._persist_delay_offsets,
            first_delay_ms=_PERSIST_FIRST_MS,
            period_ms=self._options.store.flush_delay_offset_interval,
        )

    def _gauges(self) -> BrokerGauges:
        sources = GaugeSources(
            permission=lambda: self._options.broker.broker_permission,
            topics=self._topics,
            system_topics=self._system_topics,
            groups=self._groups,
            producers=self._producers,
            consumers=self._consumers,
            offsets=self._offsets,
            queues=self._access,
            waiting=self._waiting_requests,
        )
        return BrokerGauges(self._metric_slots, sources, self._clock)

    def _waiting_requests(self) -> dict[str, int]:
        pools = self._routes.executors
        waiting = {name: pools[pool].pending for pool, name in PROCESSOR_NAMES.items()}
        return {"send": len(self._waiters) + pools[SEND_BACK_POOL].pending, **waiting}

    def _refuse_late(self) -> None:
        for pool in self._routes.executors.values():
            pool.refuse_late()
        self._messages.line.look()

    def _hide_gone(self) -> None:
        self._stats.hide_gone(set(self._topics.topic_names()), set(self._groups.group_names()))

    def _persist(self) -> None:
        for manager in self._managers:
            manager.save_if_changed()

    def _persist_delay_offsets(self) -> None:
        self._schedule_offsets.save_if_changed()

    def request_stop(self) -> None:
        """Begin an orderly stop: leave the name servers, answer what is in flight, persist.

        Safe in a signal handler.
        """
        thread = threading.Thread(target=self._stop, name="OrderlyStop", daemon=True)
        thread.start()

    def _stop(self) -> None:
        self._page.counters[REMOTING_READY] = 0
        try:
            self._registration.unregister()
        finally:
            self._messages.stop_checks()
            self.loop.call_soon_threadsafe(self._server.stop_accepting)
            self.loop.call_soon_threadsafe(lambda: self._drain(self._clock.monotonic_ms()))

    def _drain(self, since_ms: int) -> None:
        """Wait for the sends that wait, then let the answers leave and end the loop."""
        late = self._clock.monotonic_ms() - since_ms > _STOP_WAIT_MS
        self._messages.stop()
        if len(self._waiters) and not late:
            self.loop.call_later(5, lambda: self._drain(since_ms))
            return
        self._server.drain()
        self.loop.call_later(50, lambda: self.loop.stop(0))

    def close(self) -> None:
        """After `run`: publish, persist, close. In the reverse order of the start."""
        self._server.shutdown()
        self._stats.publish()
        self._replication.shutdown()
        self._executor.shutdown(2_000)
        self._log.close()
        self._messages.finish()
        self._persist()
        self._persist_delay_offsets()
        self._client.shutdown()

    # -- wiring of events ----------------------------------------------------------------------

    def _turn_end(self) -> None:
        """The durable order of a turn: append, publish; answers leave after this."""
        if self._waiters.active:
            self._follower.before_commit()
        self._send.turn_end()
        self._stats.end_turn(self._clock.monotonic_ns() - self.loop.now_ns)

    def _use_options(self, options: StartupOptions) -> None:
        """Settings were changed (25): the loop's processors follow. Pool threads only."""

        def use() -> None:
            self._options = options
            self._pull.use(pull_settings(options, self._memory_limit))
            self._messages.use(options)
            self._send.on_topics_changed()

        self._call_on_loop(use)

    def _block_topic(self, topic: str) -> int:
        """Hold back a topic's sends; the log's end (a slave's log has another writer)."""
        end = self._send.block_topic(topic)
        return self._page.counters[MAX_PHY_OFFSET] if self._options.store.is_slave else end

    def _ring(self) -> None:
        self._bells["store"].ring()
        self._bells["ha"].ring()

    def _why_not_writable(self) -> str:
        return f"the broker's store refuses writes, its disk is full: {self._page.refusal()}"

    def _on_topic_change(self, _change: TopicChange, _topic: TopicConfig | None) -> None:
        self.loop.call_soon_threadsafe(self._send.on_topics_changed)
        self.loop.call_soon_threadsafe(self._stats.forget)

    def _call_on_loop(self, function: Callable[[], ResultT]) -> ResultT:
        """Run `function` on the loop and wait for its result; pool threads only."""
        future: Future[ResultT] = Future()

        def run() -> None:
            future.set_result(function())

        self.loop.call_soon_threadsafe(run)
        return future.result(_STOP_WAIT_MS / 1000)
