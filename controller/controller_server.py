"""ControllerServer: assembles a controller and runs it.

The composition root: constructs and wires, no policy. The loop runs on the thread that calls `run`
(the process's main thread), so that an unexpected exception ends the process; the requests of
brokers are read in a pool of one thread, in the order of their arrival; 1009 has its own. Java:
ControllerManager.

Tested by tests/controller/test_controller_main.py.
"""

from __future__ import annotations

import functools
import logging
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from conf.changeable_settings import ChangeableSettings, Program
from controller.controller_config import ETCD, ControllerConfig
from controller.controller_metrics import BASE_LABELS, ControllerMetrics
from controller.controller_request_processor import ControllerRequestProcessor
from controller.controller_seen import ControllerSeen
from controller.controller_service import TICK_MS, ControllerService
from controller.controller_site import ControllerSite
from controller.core import ControllerCore, ControllerSettings
from controller.embedded_store import EmbeddedStore
from controller.etcd_client import EtcdClient
from controller.etcd_config import EtcdConfig
from controller.etcd_login import make_context, read_login
from controller.etcd_store import EtcdStore
from controller.group_store import GroupStore
from controller.leader import Leader
from controller.leadership import Leadership
from controller.request_guard import READING_CODES, RequestGuard
from controller.role_notifier import RoleNotifier
from controller.watched_store import WatchedStore
from remoting.address_patterns import ip_of
from remoting.client_tls import ClientTls
from remoting.loop_stop import LoopStop
from remoting.metrics.metrics_server import MetricsServer
from remoting.remoting_client import RemotingClient
from remoting.remoting_config import RemotingClientConfig, RemotingServerConfig
from remoting.remoting_server import RemotingServer, ServerLimits
from remoting.request_code import RequestCode
from remoting.request_dispatcher import RequestDispatcher
from remoting.request_executor import RequestExecutor
from remoting.request_processor import ConnectionLike, Route
from remoting.selector_loop import SelectorLoop
from remoting.server_tls import ServerTls

log = logging.getLogger(__name__)

_POOL: Final = "ControllerRequestThread"
_POOL_CAPACITY: Final = 10_000
_ADMIN_POOL: Final = "ControllerAdminThread"
"""Writes the settings file: a slow disk must hold up no heartbeat."""
_ADMIN_POOL_CAPACITY: Final = 100
_PROGRAM: Final = Program("controller", RequestCode.UPDATE_CONTROLLER_CONFIG)


class ControllerServer:
    """One controller on one listening socket. Owned by: the thread that calls `run`."""

    def __init__(
        self,
        config: ControllerConfig,
        server_config: RemotingServerConfig,
        client_config: RemotingClientConfig,
        listening: socket.socket,
        *,
        tls: ServerTls | None = None,
        client_tls: ClientTls | None = None,
        etcd: EtcdConfig | None = None,
    ) -> None:
        """`listening` is a listening socket, closed at the end. client_tls: for notices. Raises
        ValueError for malformed address lists, ConfigError for files of etcd
        (controller_startup checks them earlier)."""
        self._listening = listening
        self._loop = SelectorLoop("ControllerLoop")
        self._etcd = etcd if config.controller_store == ETCD else None
        self._core = ControllerCore(core_settings(config, self._etcd))
        self._embedded = EmbeddedStore(Path(config.controller_store_path).expanduser())
        self._store: GroupStore = self._embedded
        if self._etcd is not None:
            self._store = _etcd_store(config, self._etcd)
        self._metrics = ControllerMetrics()
        self._watched = WatchedStore(self._store, self._metrics)
        self._metrics_server: MetricsServer | None = None
        self._config = config
        self._client = RemotingClient(client_config, name="ControllerClient", tls=client_tls)
        self._notifier = RoleNotifier(self._client)
        self._service = ControllerService(
            self._core,
            self._watched,
            _monotonic_ms,
            self._loop.call_soon_threadsafe,
            self._notifier.notify,
            self._metrics,
        )
        self._leadership = None if self._etcd is None else self._lead_by_turns(config, self._etcd)
        shown = (server_config, client_config, *(() if self._etcd is None else (self._etcd,)))
        settings = ChangeableSettings(_PROGRAM, config, *shown, on_change=self._use)
        guard = RequestGuard(
            config,
            _monotonic_ms,
            has_certificates=tls is not None and tls.demands_certificates,
        )
        self._address = config.address
        processor = ControllerRequestProcessor(
            self._service,
            guard,
            settings,
            self._loop.call_soon_threadsafe,
            self._own_address,
            self._find_leader,
            self._metrics,
        )
        self._stopping = LoopStop(self._loop, self._stop)
        self._server = RemotingServer(
            self._loop,
            RequestDispatcher(
                {code: Route(processor, _pool_of(code)) for code in processor.codes},
                {
                    _POOL: RequestExecutor(_POOL, 1, _POOL_CAPACITY),
                    _ADMIN_POOL: RequestExecutor(_ADMIN_POOL, 1, _ADMIN_POOL_CAPACITY),
                },
                observer=self._metrics,
                gate=guard.check,
            ),
            limits=ServerLimits(
                idle_timeout_ms=server_config.server_channel_max_idle_time_seconds * 1000,
                incomplete_frames=server_config.server_max_incomplete_frame_bytes,
            ),
            listener=_ClosedConnections(self._service.closed),
            tls=tls,
        )

    def _own_address(self, connection: ConnectionLike) -> str:
        """host:port that a peer is told to come to: without a setting, where it came to."""
        if self._address is not None:
            return self._address
        host, port = self._listening.getsockname()[:2]
        if host in ("0.0.0.0", "::"):
            host = _local_address_towards(ip_of(connection.remote_address))
        return f"{host}:{port}"

    def _lead_by_turns(self, config: ControllerConfig, etcd: EtcdConfig) -> Leadership:
        assert config.address is not None, "checked at the start"
        return Leadership(
            _etcd_store(config, etcd),
            Leader(config.self_id, config.address),
            etcd.etcd_lease_seconds,
            self._service,
            _monotonic_ms,
            self._loop.call_soon_threadsafe,
        )

    def _find_leader(self) -> Leader | None:
        """Another controller that leads."""
        return None if self._leadership is None else self._leadership.leader

    def _seen(self) -> ControllerSeen:
        """The controller now."""
        leader = self._find_leader()
        return self._service.seen._replace(
            leader_address="" if leader is None else leader.address,
            leadership_trouble="" if self._leadership is None else self._leadership.trouble,
            store=self._watched.seen,
        )

    def _use(self, config: ControllerConfig) -> None:
        settings = core_settings(config, self._etcd)
        self._loop.call_soon_threadsafe(lambda: self._core.use(settings))

    # -- life ----------------------------------------------------------------------------------

    def show_metrics(self, listening: socket.socket) -> None:
        """Serve /metrics, /healthz and /readyz there; before `run`. Closed at the end."""
        host, port = self._listening.getsockname()[:2]
        values = (
            self._address or f"{host}:{port}",
            self._config.controller_d_leger_group,
            self._config.self_id,
        )
        base = dict(zip(BASE_LABELS, values, strict=True))
        site = ControllerSite(self._metrics, base, self._seen, self._loop.call_soon_threadsafe)
        self._metrics_server = MetricsServer(listening, site)
        self._metrics_server.start()

    def open(self) -> None:
        """Read the groups and start accepting. Raises ControllerStoreError. With etcd nothing is
        read before it serves: etcd may come later, and so does a leadership."""
        if self._leadership is None:
            groups = self._embedded.open()
            self._service.lead(groups)
            log.info("leading %s groups of brokers", len(groups))
        else:
            self._leadership.tick()
            self._loop.call_every(TICK_MS, self._leadership.tick)
        self._client.start()
        self._server.add_listener(self._listening)
        self._server.start()
        self._loop.call_every(TICK_MS, self._service.tick)

    def run(self) -> None:
        """Serve until `request_stop`, then close everything."""
        with ExitStack() as stack:
            stack.callback(self._store.close)
            stack.callback(self._listening.close)
            stack.callback(self._client.shutdown)
            stack.callback(self._notifier.shutdown)
            if self._leadership is not None:
                stack.callback(self._leadership.shutdown)
            stack.callback(self._service.shutdown)
            stack.callback(self._stopping.close_loop)
            stack.callback(self._server.shutdown)
            if self._metrics_server is not None:
                stack.callback(self._metrics_server.shutdown)
            self._loop.run()
        log.info("controller stopped")

    def request_stop(self) -> None:
        """End `run` once pending responses are sent. Any thread, signal handlers."""
        self._stopping.request()

    def _stop(self) -> None:
        self._service.stop_judging()
        self._server.drain()
        self._loop.stop()


class _ClosedConnections:
    """ConnectionListener: a broker whose connection has ended."""

    def __init__(self, closed: Callable[[int], None]) -> None:
        self._closed = closed

    def on_open(self, connection: ConnectionLike) -> None:
        """Nothing: a connection has no broker until one speaks over it."""

    def on_close(self, connection: ConnectionLike, _reason: str) -> None:
        """Whoever's heartbeats came over it."""
        self._closed(connection.connection_id)


def _pool_of(code: int) -> str | None:
    """Which pool reads a request; None: the loop."""
    if code == RequestCode.UPDATE_CONTROLLER_CONFIG:
        return _ADMIN_POOL
    return None if code in READING_CODES else _POOL


def core_settings(config: ControllerConfig, etcd: EtcdConfig | None = None) -> ControllerSettings:
    """What the decisions need of the settings. etcd: where controllers lead by turns."""
    return ControllerSettings(
        enable_elect_unclean_master=config.enable_elect_unclean_master,
        notify_broker_role_changed=config.notify_broker_role_changed,
        elect_on_channel_closed=config.elect_on_channel_closed,
        scan_inactive_master_interval_ms=config.scan_inactive_master_interval,
        warm_up_ms=config.leader_warm_up_millis,
        lease_ms=None if etcd is None else etcd.etcd_lease_seconds * 1_000,
    )


def _etcd_store(config: ControllerConfig, etcd: EtcdConfig) -> EtcdStore:
    """One with a connection of its own."""
    client = EtcdClient(
        etcd.endpoints(),
        make_context(etcd),
        functools.partial(read_login, etcd),
        etcd.etcd_request_timeout_millis,
    )
    prefix = f"{etcd.etcd_key_prefix}/{config.controller_d_leger_group}"
    return EtcdStore(client, prefix, _monotonic_ms)


def _local_address_towards(ip: str) -> str:
    """The address that this host has towards `ip`; nothing is sent."""
    family = socket.AF_INET6 if ":" in ip else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((ip, 9))
            return str(probe.getsockname()[0])
        except OSError:
            return ip


def _monotonic_ms() -> int:
    """Goes on while the machine is suspended, as leases and heartbeats do."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
