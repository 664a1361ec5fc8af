"""The server of process `remoting`: its ports, its hot routes, who is told of connections.

Built once on the main thread. Who runs where is said in broker/wiring/routes.py.
"""

from __future__ import annotations

from broker.acl.access import Access
from broker.client.known_heartbeat_route import KnownHeartbeatRoute
from broker.metrics.remoting_metrics import RemotingMetrics
from broker.pull.pull_message_processor import PullMessageProcessor
from broker.settings.startup_options import StartupOptions
from broker.wiring.broker_tables import BrokerTables
from broker.wiring.hot_routes import HotRoutes
from broker.wiring.message_services import MessageServices
from broker.wiring.pop_services import PopServices
from broker.wiring.routes import Routes
from broker.wiring.statistics import Statistics
from remoting.remoting_server import FastRoutes, RemotingServer, ServerLimits
from remoting.request_dispatcher import RequestDispatcher
from remoting.request_processor import ConnectionLike, ConnectionListener
from remoting.response_table import ResponseTable
from remoting.selector_loop import SelectorLoop
from remoting.server_tls import ServerTls


def hot_routes(
    tables: BrokerTables,
    statistics: Statistics,
    messages: MessageServices,
    pull: PullMessageProcessor,
    pop: PopServices,
) -> HotRoutes:
    """All of them."""
    heartbeats = KnownHeartbeatRoute(tables.clients.heartbeats, statistics.hot_path)
    return HotRoutes(
        send=messages.send,
        pull=pull,
        pop=pop.path.pop.process_fast,
        ack=pop.path.ack.process_fast,
        heartbeat=heartbeats.process_fast,
        end_transaction=messages.end_transaction_route.process_fast,
    )


def remoting_server(
    loop: SelectorLoop,
    options: StartupOptions,
    routes: Routes,
    hot: HotRoutes,
    access: Access,
    listener: ConnectionListener,
    observer: RemotingMetrics,
    responses: ResponseTable,
) -> RemotingServer:
    """Without listeners yet. responses: where answers of clients to our calls arrive."""
    return RemotingServer(
        loop,
        RequestDispatcher(routes.main, routes.executors, observer, access.gate.check),
        fast_routes=FastRoutes(
            json=(
                *access.fast_routes(*hot.guarded()),
                *access.unchecked_routes(*hot.unguarded()),
            ),
            binary=access.binary_routes(*hot.binary()),
            runs=() if access.guards_fast_routes else hot.runs(),
        ),
        limits=ServerLimits(
            idle_timeout_ms=options.server.server_channel_max_idle_time_seconds * 1000,
            incomplete_frames=options.server.server_max_incomplete_frame_bytes,
        ),
        listener=listener,
        responses=responses,
        on_accept_failed=observer.accept_failed,
        tls=ServerTls(options.tls),
    )


class ClientListener:
    """ConnectionListener: the tables of clients, and the pulls that wait."""

    def __init__(self, tables: BrokerTables, pull: PullMessageProcessor) -> None:
        self.on_open = tables.housekeeping.on_open
        self._housekeeping = tables.housekeeping
        self._forget_pulls = pull.hold_service.forget

    def on_close(self, connection: ConnectionLike, reason: str) -> None:
        """See ConnectionListener."""
        self._forget_pulls(connection)
        self._housekeeping.on_close(connection, reason)
