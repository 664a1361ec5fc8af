"""NamesrvController: assembles the name server and runs it (Java: NamesrvController).

The composition root: constructs and wires, no policy. The loop runs on the thread that calls `run`
(the process's main thread), so that an unexpected exception ends the process; file writes and
registrations run in a pool of one thread, in the order of their arrival. The same code serves
stand-alone (`namesrv.__main__`) and embedded in a broker (`run_embedded`).
"""

from __future__ import annotations

import logging
import signal
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from namesrv.broker_housekeeping_service import BrokerHousekeepingService
from namesrv.config_manager import ConfigManager
from namesrv.default_request_processor import DefaultRequestProcessor
from namesrv.holder_probe import HolderProbe
from namesrv.kv_config_manager import KVConfigManager
from namesrv.min_broker_id_notifier import MinBrokerIdNotifier
from namesrv.namesrv_config import NamesrvConfig
from namesrv.request_guard import RequestGuard
from namesrv.route_info_manager import RouteInfoManager
from remoting.loop_stop import LoopStop
from remoting.remoting_config import RemotingServerConfig
from remoting.remoting_server import RemotingServer, ServerLimits
from remoting.request_code import RequestCode
from remoting.request_dispatcher import RequestDispatcher
from remoting.request_executor import RequestExecutor
from remoting.request_processor import Route
from remoting.response_table import ResponseTable
from remoting.selector_loop import SelectorLoop
from remoting.server_tls import ServerTls

log = logging.getLogger(__name__)

WRITE_CODES: Final = frozenset(
    {
        RequestCode.REGISTER_BROKER,
        RequestCode.UNREGISTER_BROKER,
        RequestCode.QUERY_DATA_VERSION,
        RequestCode.BROKER_HEARTBEAT,
        RequestCode.PUT_KV_CONFIG,
        RequestCode.DELETE_KV_CONFIG,
        RequestCode.UPDATE_NAMESRV_CONFIG,
    }
)
"""Requests that have a large body or write a file; a broker's requests stay in order."""

_WRITE_POOL: Final = "NamesrvWriteThread"
_WRITE_POOL_CAPACITY: Final = 10_000
_FIRST_SCAN_MS: Final = 5_000
_PRINT_PERIOD_MS: Final = 600_000


class NamesrvController:
    """One name server on one listening socket. Owned by: the thread that calls `run`."""

    def __init__(
        self,
        config: NamesrvConfig,
        server_config: RemotingServerConfig,
        listening: socket.socket,
        now_ms: Callable[[], int] | None = None,
        *,
        tls: ServerTls | None = None,
    ) -> None:
        """`listening` is a listening socket, closed at the end. `now_ms` is monotonic.

        Raises ValueError for malformed address lists (namesrv_startup checks them earlier).
        """
        self._now_ms = now_ms or _monotonic_ms
        self._listening = listening
        self._kv_config_manager = KVConfigManager(Path(config.kv_config_path))
        self._config_manager = ConfigManager(config, server_config)
        self._notifier = MinBrokerIdNotifier(
            lambda: self._config_manager.config.notify_min_broker_id_changed
        )
        self.route_info_manager = RouteInfoManager(
            config.register_max_topics, on_min_broker_id_change=self._notifier.notify
        )
        processor = DefaultRequestProcessor(
            self.route_info_manager, self._kv_config_manager, self._config_manager, self._now_ms
        )
        self._loop = SelectorLoop("NamesrvLoop")
        responses = ResponseTable()
        probe = HolderProbe(responses, self._now_ms)
        self._stopping = LoopStop(self._loop, self._stop)
        self._server = RemotingServer(
            self._loop,
            RequestDispatcher(
                _routes(processor),
                {_WRITE_POOL: RequestExecutor(_WRITE_POOL, 1, _WRITE_POOL_CAPACITY)},
                gate=RequestGuard(
                    config,
                    self.route_info_manager,
                    self._now_ms,
                    probe,
                    has_certificates=tls is not None and tls.demands_certificates,
                ).check,
            ),
            limits=ServerLimits(
                idle_timeout_ms=server_config.server_channel_max_idle_time_seconds * 1000,
                incomplete_frames=server_config.server_max_incomplete_frame_bytes,
            ),
            listener=BrokerHousekeepingService(self.route_info_manager, probe.forget),
            responses=responses,
            tls=tls,
        )

    def open(self) -> None:
        """Read the KV file and start accepting. Raises KVConfigError."""
        self._kv_config_manager.load()
        self._server.add_listener(self._listening)
        self._server.start()
        self._loop.call_later(_FIRST_SCAN_MS, self._scan_periodically)
        self._loop.call_every(_PRINT_PERIOD_MS, self._print_sizes)

    def call_every(self, period_ms: int, function: Callable[[], None]) -> None:
        """Run `function` on the loop every `period_ms`; call this before `run`."""
        self._loop.call_every(period_ms, function)

    def run(self) -> None:
        """Serve until `request_stop`, then close everything."""
        with ExitStack() as stack:
            stack.callback(self._listening.close)
            stack.callback(self._notifier.shutdown)
            stack.callback(self._stopping.close_loop)
            stack.callback(self._server.shutdown)
            self._loop.run()
        log.info("name server stopped")

    def request_stop(self) -> None:
        """End `run` once pending responses are sent. Any thread, signal handlers."""
        self._stopping.request()

    def scan_not_active_broker(self) -> None:
        """Drop brokers that have been silent for too long and close their connections."""
        for live in self.route_info_manager.scan_not_active_broker(self._now_ms()):
            reason = f"broker {live.broker_addr} was silent for {live.timeout_ms} ms"
            live.connection.close(reason)

    def _stop(self) -> None:
        self._server.drain()
        self._loop.stop()

    def _scan_periodically(self) -> None:
        self.scan_not_active_broker()
        interval_ms = self._config_manager.config.scan_not_active_broker_interval
        self._loop.call_later(interval_ms, self._scan_periodically)

    def _print_sizes(self) -> None:
        log.info("tables: %s", self.route_info_manager.sizes())


def run_embedded(
    listening_socket_fd: int,
    config: NamesrvConfig,
    server_config: RemotingServerConfig | None = None,
    *,
    tls: ServerTls | None = None,
    on_stop: Callable[[Callable[[], None]], None] | None = None,
    beat: Callable[[], None] | None = None,
    beat_ms: int = 500,
) -> None:
    """Run a name server on an inherited listening socket; returns once it is stopped.

    `on_stop` receives the function that stops it (for the caller's signal handler); without it
    SIGTERM stops it. `beat` is called once now, and on the loop every `beat_ms`: a hanging loop
    sends no heartbeat. Raises KVConfigError before serving.
    """
    listening = socket.socket(fileno=listening_socket_fd)
    server_config = server_config or RemotingServerConfig()
    controller = NamesrvController(config, server_config, listening, tls=tls)
    if on_stop is None:
        signal.signal(signal.SIGTERM, lambda _number, _frame: controller.request_stop())
    else:
        on_stop(controller.request_stop)
    controller.open()
    if beat is not None:
        beat()
        controller.call_every(beat_ms, beat)
    controller.run()


def _routes(processor: DefaultRequestProcessor) -> dict[int, Route]:
    return {
        code: Route(processor, _WRITE_POOL if code in WRITE_CODES else None)
        for code in processor.codes
    }


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000
