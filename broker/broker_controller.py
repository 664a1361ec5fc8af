"""BrokerController: wires the broker logic of process `remoting`; no policy, no messages.

Defines what exists and the order of starts and stops; the modules of broker/wiring build the parts.
Only broker/processes/remoting.py uses it. The loop runs on the thread that calls `run`; pools and
the scheduled executor have their own threads.

Tested by tests/broker/test_durable_order.py.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Mapping
from typing import Final

from broker.acl.access import Access
from broker.admin.admin_auth_processor import AdminAuthProcessor
from broker.admin.admin_cold_data_processor import AdminColdDataProcessor
from broker.auth.auth import Auth
from broker.client.broker2client import Broker2Client, max_waiting_calls
from broker.client.slow_consumer_protection import SlowConsumerProtection
from broker.metrics.longest_turns import LEAST_NS
from broker.processor.table_processor import TableProcessor
from broker.settings.config_update import BrokerConfigUpdate
from broker.settings.startup_options import StartupOptions
from broker.supervisor.control_slots import REMOTING_READY
from broker.topic.topic_config_manager import TopicChange
from broker.wiring.admin_audit import admin_audit
from broker.wiring.admin_processors import AdminProcessors
from broker.wiring.broker_tables import BrokerTables
from broker.wiring.cold_data import ColdData
from broker.wiring.config_application import ConfigApplication
from broker.wiring.due_pulls import DuePulls
from broker.wiring.lent_links import link_borrower
from broker.wiring.loop_calls import call_on_loop
from broker.wiring.member_orders import MemberOrders
from broker.wiring.member_roles import MemberRoles, RoleParts
from broker.wiring.message_services import MessageServices
from broker.wiring.outside import Outside
from broker.wiring.pop_services import PopServices
from broker.wiring.process_resources import ProcessResources
from broker.wiring.processor_settings import pull_settings
from broker.wiring.pull_path import pull_processor, store_follower
from broker.wiring.routes import REPLY_THREADS, Routes, RouteTable, request_executors
from broker.wiring.runtime_source import RuntimeSource
from broker.wiring.server import ClientListener, hot_routes, remoting_server
from broker.wiring.start_of_role import await_handover, come_online, open_log, start_services
from broker.wiring.static_topics import STATIC_TOPIC_POOL, before_processors
from broker.wiring.statistics import Statistics
from broker.wiring.store_side import StoreSide
from ipc.control_page import BEAT_MS, ProcessIndex
from ipc.scheduled_executor import ScheduledExecutor
from ipc.short_slice import ask_for_short_slice
from remoting.body.topic_config import TopicConfig
from remoting.remoting_server import RemotingServer
from remoting.request_executor import RequestExecutor
from remoting.response_table import ResponseTable
from remoting.selector_loop import EVENT_READ, SelectorLoop, SleepHooks

_STOP_WAIT_MS: Final = 5_000
_LOOK_MS: Final = 10
"""How often it is looked whether process `ha` serves."""
_SPIN_US: Final = 30
"""With one request in flight 13,000 -> 23,000 sends a second here, at less CPU each: neither core
goes to sleep between two requests (tests/bench/compare.py, send-1x1-128)."""
_REBIND_STATS_MS: Final = 60_000
"""Counters of a deleted topic or group are not counted into for longer."""


class BrokerController:
    """One broker's logic. Owned by: the main thread of process `remoting`."""

    def __init__(self, resources: ProcessResources) -> None:
        self._resources = resources
        self._options = resources.options
        self._role = resources.role
        self._page = resources.page
        self._clock = resources.clock
        self.loop = SelectorLoop("RemotingLoop", spin_us=_SPIN_US)
        self._executor = ScheduledExecutor(self._clock)
        self._tables = BrokerTables(self._options, self._clock)
        self._tables.topics.add_listener(self._on_topic_change)
        self._statistics = Statistics(resources, self._tables)
        self._stats = self._statistics.hot_path
        self._store = StoreSide(
            resources,
            self._tables.topics.find,
            on_make=self._tables.topics.make_readable,
            on_loop=lambda function: call_on_loop(self.loop, function),
            before_delete=lambda topic: call_on_loop(
                self.loop, lambda: self._messages.block_topic(topic)
            ),
            after_delete=lambda topic, deleted: call_on_loop(
                self.loop, lambda: self._send.unblock_topic(topic, deleted=deleted)
            ),
        )
        self._auth = Auth(self._options)
        self._access_control = Access(
            self._options.broker, self._clock, self._auth.guard, self._auth.signer
        )
        self._outside = Outside(
            resources,
            self._store,
            self._tables,
            self._executor,
            self._access_control.manager,
            self._access_control.signer,
            self.loop.call_soon_threadsafe,
        )
        self._responses = ResponseTable()
        self._orders: MemberOrders | None = None  # In controller mode.
        self._build_message_path()
        self._routes, self._server = self._build_server()

    # -- construction --------------------------------------------------------------------------

    def _build_message_path(self) -> None:
        store, tables = self._store, self._tables
        self._messages = MessageServices(
            self._resources,
            self.loop,
            store,
            tables,
            self._statistics,
            Broker2Client(
                tables.consumers, self._responses, self._clock, max_waiting=REPLY_THREADS
            ),
            self._outside.registration.register_new,
            self._access_control.gate.check_resources,
        )
        self._send = self._messages.send
        self._waiters = self._messages.waiters
        call_soon = self.loop.call_soon_threadsafe
        self._cold = ColdData(self._resources, store, tables, call_soon=call_soon)
        self._pull = pull_processor(
            self._resources,
            store,
            tables,
            self._stats,
            self._messages.offset_moved,
            self._cold.pulls,
            self._cold.pages,
            self._access_control.gate.hold,
        )
        self._pop = PopServices(
            self._resources,
            store,
            tables,
            self._messages,
            self._stats,
            self._access_control.gate.hold,
        )
        self._follower = store_follower(
            self._resources,
            store,
            self._pop.arriving(self._pull.hold_service),
            self._waiters,
            self._stats,
            sends_wait_for_file=lambda: self._send.holds_sends,
            now_ms=self._messages.clock_steps.now_ms,
        )
        self._links = link_borrower(self._resources, store, self._follower, self.loop)

    def _build_server(self) -> tuple[Routes, RemotingServer]:
        resources, store, tables = self._resources, self._store, self._tables
        access, statistics = self._access_control, self._statistics
        executors = request_executors(self._options.broker)
        self._audit = admin_audit(resources, access.gate, executors)
        table = RouteTable(resources, store, tables, self._messages, self._pull, access)
        routes = table.build(
            executors,
            self._other_processors(executors),
            before=lambda ordinary: before_processors(
                self._audit.over(ordinary),
                self._pull,
                tables.mappings.table,
                self._outside.brokers,
                executors[STATIC_TOPIC_POOL],
                statistics.remoting,
                self.loop.call_soon_threadsafe,
            ),
        )
        server = remoting_server(
            self.loop,
            self._options,
            routes,
            hot_routes(tables, statistics, self._messages, self._pull, self._pop),
            access,
            ClientListener(tables, self._pull),
            statistics.remoting,
            self._responses,
        )
        return routes, server

    def _other_processors(self, executors: Mapping[str, RequestExecutor]) -> list[TableProcessor]:
        resources, store, tables = self._resources, self._store, self._tables
        outside, statistics = self._outside, self._statistics
        configs = BrokerConfigUpdate(
            self._options,
            self._clock,
            config_file=resources.config_file,
            shown=self._role.applied,
            user=ConfigApplication(
                topics=tables.topics,
                groups=tables.groups,
                registration=outside.registration,
                use_on_loop=self._use_options,
                is_slave=self._role.is_slave_now,
                store=store.commands,
            ),
            changed=resources.changed,
        )
        calls = Broker2Client(
            tables.consumers,
            self._responses,
            self._clock,
            max_waiting=max_waiting_calls(self._options.broker.admin_broker_thread_pool_nums),
        )
        runtime = RuntimeSource(resources, store, tables, statistics, self._messages, executors)
        access, audit, end = self._access_control, self._audit, self._pop.lite.lifecycle.end_group
        parts = (resources, store, tables, statistics, access, outside, audit)
        admin = AdminProcessors(*parts, lambda: bool(self._page.counters[REMOTING_READY]), end)
        return [
            *admin.build(calls, configs, runtime),
            AdminAuthProcessor(self._auth.users, self._auth.acls),
            AdminColdDataProcessor(self._cold.pulls.ctr, configs.update),
            outside.assignments,
            *self._pop.processors,
        ]

    # -- life ----------------------------------------------------------------------------------

    def load_tables(self) -> None:
        """Read config/*.json. Raises ConfigFileError: a start again would not help."""
        self._tables.load(self._executor)
        self._auth.load()

    def open(self, main: socket.socket, vip: socket.socket) -> None:
        """Start writing; the tables are loaded and the `store` process is ready. Raises
        StoreError."""
        self._tables.restore_lost(self._options.store.consume_queue_path)
        self._access_control.open(self._executor)
        open_log(self._role, self._options, self._store, self._tables, self._pop, self._messages)
        self._server.add_listener(main)
        self._server.add_listener(vip, self._routes.vip)

    def run(self) -> None:
        """Serve until `request_stop`; the caller's thread becomes the loop's."""
        self._prepare_loop()
        parts = (self._messages, self._pop, self.loop)
        if not self._outside.is_isolated:
            start_services(self._role, *parts)
        self._server.start()
        self._links.start()
        self._outside.open()
        self._schedule()
        self._store.damaged.start()
        self._cold.start(self.loop)
        self._executor.start()
        self._outside.start(self._set_ready, lambda: come_online(self._role, *parts, self._outside))
        ask_for_short_slice()
        self.loop.run()

    def _prepare_loop(self) -> None:
        loop, bell = self.loop, self._resources.bells["remoting"]
        loop.register(bell, EVENT_READ, lambda _events: bell.drain())
        loop.set_sleep_hooks(self.sleep_hooks())
        loop.add_turn_end(self._turn_end)
        loop.call_every(BEAT_MS, lambda: self._page.beat(ProcessIndex.REMOTING))
        loop.watches.add(self._routes.refuse_late)
        loop.watches.add(self._messages.append_queue.look)
        loop.call_every(_REBIND_STATS_MS, self._statistics.hide_gone)
        DuePulls(self._pull.hold_service, self._clock, loop)

    def sleep_hooks(self) -> SleepHooks:
        """The hooks of the loop's sleep; in controller mode they take orders. Once."""
        if not self._role.changes:
            return self._follower
        parts = RoleParts(
            self.loop,
            self._executor,
            self._store,
            self._tables,
            self._messages,
            self._pop,
            self._outside,
            use_role=lambda: self._use_on_loop(self._options),
        )
        roles = MemberRoles(self._role, self._clock, parts)
        ring = self._resources.bells["ha"].ring
        self._orders = MemberOrders(self._page.counters, self._follower, roles.take, ring)
        return self._orders

    def _set_ready(self) -> None:
        """The name servers have answered or failed: once the loop turns, we serve. A member of a
        group only once process `ha` serves: it judges the member's files, and may end the start."""
        is_member = self._options.controller_mode.enable_controller_mode

        def serve() -> None:
            if is_member and not self._page.beats(ProcessIndex.HA):
                self.loop.call_later(_LOOK_MS, serve)
                return
            self._page.beat(ProcessIndex.REMOTING)
            self._page.counters[REMOTING_READY] = 1

        self.loop.call_soon_threadsafe(serve)
        if not self._outside.is_isolated:
            await_handover(self._messages, self._pop, self.loop, self._outside)

    def _schedule(self) -> None:
        tables, access = self._tables, self._store.access
        self._statistics.schedule_on(
            self._executor,
            self._store,
            permission=lambda: self._options.broker.broker_permission,
            waiting=lambda: self._routes.waiting(sends=len(self._waiters)),
            pop=self._pop,
        )
        SlowConsumerProtection(
            self._options.broker, tables.offsets, tables.consumers, tables.groups, access
        ).schedule_on(self._executor)
        tables.schedule_on(self._executor)
        self._pop.lite.schedule_on(self._executor)

    def request_stop(self) -> None:
        """Begin an orderly stop: unregister, answer what is in flight, persist. Signal-safe."""
        thread = threading.Thread(target=self._stop, name="OrderlyStop", daemon=True)
        thread.start()

    def _stop(self) -> None:
        self._page.counters[REMOTING_READY] = 0
        try:
            self._outside.registration.unregister()
        finally:
            self._messages.stop_checks()
            self.loop.call_soon_threadsafe(self._server.stop_accepting)
            self.loop.call_soon_threadsafe(lambda: self._drain(self._clock.monotonic_ms()))

    def _drain(self, since_ms: int) -> None:
        """Wait for pending sends, then let the responses be sent and end the loop."""
        late = self._clock.monotonic_ms() - since_ms > _STOP_WAIT_MS
        if self._orders is not None:
            self._orders.stop()
        self._messages.stop()
        if (len(self._waiters) or self._messages.busy) and not late:
            self.loop.call_later(5, lambda: self._drain(since_ms))
            return
        self._pop.drain()
        self._server.drain()
        self.loop.call_later(50, lambda: self.loop.stop(0))

    def close(self) -> None:
        """After `run`: publish, persist, close. In the reverse order of the start."""
        self._server.shutdown()
        self._stats.publish()
        self._outside.stop()
        self._store.damaged.shutdown()
        self._cold.shutdown()
        self._executor.shutdown(2_000)
        self._store.log.close()
        self._links.stop()
        self._messages.finish()
        self._pop.finish()
        if self._tables.persist():
            self._pop.remove_journal()
        self._audit.close()
        self._outside.close()

    # -- events --------------------------------------------------------------------------------

    def _turn_end(self) -> None:
        """The durable order of a turn: append, publish; responses are sent after this."""
        if self._waiters.active:
            self._follower.before_commit()
        self._messages.turn_end()
        elapsed_ns, codes = self._clock.monotonic_ns() - self.loop.now_ns, self._server.turn_codes
        if elapsed_ns >= LEAST_NS:
            self._statistics.longest_turns.note(elapsed_ns, codes | self._stats.turn_codes())
        self._stats.end_turn(elapsed_ns)

    def _use_options(self, options: StartupOptions) -> None:
        """Settings were changed (25): the loop's processors follow. Pool threads only."""
        call_on_loop(self.loop, lambda: self._use_on_loop(options))

    def _use_on_loop(self, changed: StartupOptions) -> None:
        self._options = options = self._role.applied(changed)
        tells_resets = options.broker.use_server_side_reset_offset
        self._tables.offsets.stores_resets = tells_resets
        self._pull.use(pull_settings(options, self._store.memory_limit), tells_resets=tells_resets)
        self._cold.use(options)
        self._pop.use(options)
        self._messages.use(options)
        self._send.on_topics_changed()

    def _on_topic_change(self, _change: TopicChange, _topic: TopicConfig | None) -> None:
        self.loop.call_soon_threadsafe(self._send.on_topics_changed)
        self.loop.call_soon_threadsafe(self._stats.forget)
