"""The server of process `remoting` put together: routes, pools, access control, changed settings.

Built once on the main thread. Who runs where is said in broker/wiring/routes.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from broker.acl.access import Access
from broker.admin.admin_acl_processor import AdminAclProcessor
from broker.admin.admin_auth_processor import AdminAuthProcessor
from broker.admin.admin_cold_data_processor import AdminColdDataProcessor
from broker.admin.admin_mode_processor import AdminModeProcessor
from broker.auth.auth import Auth
from broker.client.broker2client import Broker2Client, max_waiting_calls
from broker.client.known_heartbeat_route import KnownHeartbeatRoute
from broker.coldctr.cold_data_cg_ctr_service import ColdDataCgCtrService
from broker.pull.pull_message_processor import PullMessageProcessor
from broker.settings.config_update import BrokerConfigUpdate
from broker.settings.startup_options import StartupOptions
from broker.wiring.broker_tables import BrokerTables
from broker.wiring.config_application import ConfigApplication
from broker.wiring.hot_routes import HotRoutes
from broker.wiring.message_services import MessageServices
from broker.wiring.outside import Outside
from broker.wiring.pop_services import PopServices
from broker.wiring.process_resources import ProcessResources
from broker.wiring.routes import Routes, RouteTable, request_executors
from broker.wiring.runtime_source import RuntimeSource
from broker.wiring.static_topics import STATIC_TOPIC_POOL, OnLoop, before_processors
from broker.wiring.statistics import Statistics
from broker.wiring.store_side import StoreSide
from remoting.remoting_server import RemotingServer, RequestExecutor
from remoting.request_processor import ConnectionLike, ConnectionListener
from remoting.response_table import ResponseTable
from remoting.selector_loop import SelectorLoop
from remoting.server_tls import ServerTls


class ServerBuilder:
    """Used once, by BrokerController: `routes`, then `server`."""

    def __init__(
        self,
        resources: ProcessResources,
        store: StoreSide,
        tables: BrokerTables,
        statistics: Statistics,
        messages: MessageServices,
        pull: PullMessageProcessor,
        pop: PopServices,
        outside: Outside,
        access: Access,
        auth: Auth,
        cold: ColdDataCgCtrService,
    ) -> None:
        self._resources: Final = resources
        self._options: Final = resources.options
        self._store: Final = store
        self._tables: Final = tables
        self._statistics: Final = statistics
        self._messages: Final = messages
        self._pull: Final = pull
        self._pop: Final = pop
        self._outside: Final = outside
        self._access: Final = access
        self._auth: Final = auth
        self._cold: Final = cold

    def routes(
        self,
        responses: ResponseTable,
        waiting_sends: Callable[[], int],
        use_on_loop: Callable[[StartupOptions], None],
        on_loop: OnLoop,
    ) -> Routes:
        """Every code of both ports, and the pools.

        responses: where answers of clients to our calls arrive. waiting_sends: how many answers
        wait for flush or replicas. use_on_loop: the loop's processors follow changed settings.
        on_loop: runs a function on the loop, later.
        """
        executors = request_executors(self._options.broker)
        table = RouteTable(
            self._resources,
            self._store,
            self._tables,
            self._statistics,
            self._messages,
            self._pull,
            Broker2Client(
                self._tables.consumers,
                responses,
                self._resources.clock,
                max_waiting=max_waiting_calls(self._options.broker.admin_broker_thread_pool_nums),
            ),
            self._access.gate.check_resources,
            self._access.gate.account_of,
            self._outside.replication.find_offsets_objection,
        )
        configs = self._configs(use_on_loop)
        return table.build(
            executors,
            runtime=self._runtime(executors, waiting_sends),
            configs=configs,
            others=(
                AdminColdDataProcessor(self._cold, configs.update),
                self._outside.replication.processor,
                self._outside.replication.damage_repair.processor,
                AdminAclProcessor(self._access.manager, self._outside.identity),
                AdminAuthProcessor(self._auth.users, self._auth.acls),
                self._outside.assignments,
                AdminModeProcessor(self._outside.member_commands),
                *self._pop.processors,
            ),
            before=lambda ordinary: before_processors(
                ordinary,
                self._pull,
                self._tables.mappings.table,
                self._outside.brokers,
                executors[STATIC_TOPIC_POOL],
                self._statistics.remoting,
                on_loop,
            ),
        )

    def _runtime(
        self, executors: Mapping[str, RequestExecutor], waiting_sends: Callable[[], int]
    ) -> RuntimeSource:
        return RuntimeSource(
            self._options,
            self._resources.page,
            self._store.access,
            self._statistics.store,
            self._resources.clock,
            schedule_offsets=lambda: self._store.schedule_progress(self._tables.schedule_offsets),
            pool=executors.get,
            waiting_sends=waiting_sends,
            append_queue=self._messages.append_queue,
            timers=self._messages.timers.info,
            longest_turn=self._statistics.longest_turns.text,
        )

    def server(
        self, loop: SelectorLoop, routes: Routes, responses: ResponseTable
    ) -> RemotingServer:
        """Without listeners yet."""
        heartbeats = KnownHeartbeatRoute(self._tables.heartbeats, self._statistics.hot_path)
        hot = HotRoutes(
            send=self._messages.send,
            pull=self._pull,
            pop=self._pop.path.pop.process_fast,
            ack=self._pop.path.ack.process_fast,
            heartbeat=heartbeats.process_fast,
            end_transaction=self._messages.end_transaction_route.process_fast,
        )
        idle_s = self._options.server.server_channel_max_idle_time_seconds
        return RemotingServer(
            loop,
            routes.main,
            executors=routes.executors,
            listener=_Listeners(self._tables.housekeeping, self._pull.hold_service.forget),
            fast_routes=(
                *self._access.fast_routes(*hot.guarded()),
                *self._access.unchecked_routes(*hot.unguarded()),
            ),
            binary_routes=self._access.binary_routes(*hot.binary()),
            run_route=None if self._access.guards_fast_routes else hot.run(),
            gate=self._access.gate.check,
            idle_timeout_ms=idle_s * 1000,
            incomplete_frames_limit=self._options.server.server_max_incomplete_frame_bytes,
            observer=self._statistics.remoting,
            responses=responses,
            on_accept_failed=self._statistics.remoting.accept_failed,
            tls=ServerTls(self._options.tls),
        )

    def _configs(self, use_on_loop: Callable[[StartupOptions], None]) -> BrokerConfigUpdate:
        application = ConfigApplication(
            topics=self._tables.topics,
            system_topics=self._tables.system_topics,
            groups=self._tables.groups,
            registration=self._outside.registration,
            use_on_loop=use_on_loop,
            is_slave=self._resources.role.is_slave_now,
            store=self._store.commands,
        )
        return BrokerConfigUpdate(
            self._options,
            self._resources.clock,
            config_file=self._resources.config_file,
            user=application,
            changed=self._resources.changed,
        )


class _Listeners:
    """ConnectionListener: the tables of clients, and the pulls that wait."""

    def __init__(
        self, clients: ConnectionListener, forget_pulls: Callable[[ConnectionLike], None]
    ) -> None:
        self.on_open = clients.on_open
        self._clients = clients
        self._forget_pulls = forget_pulls

    def on_close(self, connection: ConnectionLike, reason: str) -> None:
        """See ConnectionListener."""
        self._forget_pulls(connection)
        self._clients.on_close(connection, reason)
