"""ContainerServer: the remoting server at the container's two ports, on a loop of its own.

`start` and `shutdown` belong to the container's main thread; the loop has its own thread, and the
requests that start or stop processes have some, too. It knows no request.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from remoting.remoting_config import RemotingServerConfig
from remoting.remoting_server import RemotingServer, ServerLimits
from remoting.request_dispatcher import RequestDispatcher, RequestGate
from remoting.request_executor import RequestExecutor
from remoting.request_processor import Route
from remoting.selector_loop import SelectorLoop
from remoting.server_tls import ServerTls

log = logging.getLogger(__name__)

_POOL_CAPACITY: Final = 10_000
"""RocketMQ's."""
_POOL_THREADS: Final = 32
"""So many brokers may start and stop at the same time: a recovery takes as long as it takes."""
_JOIN_S: Final = 10.0


class ContainerServer:
    """Serves the container's routes on listening sockets that its owner keeps."""

    def __init__(
        self,
        routes: Mapping[int, Route],
        listening: Sequence[socket.socket],
        config: RemotingServerConfig,
        *,
        pool: str,
        gate: RequestGate,
        tls: ServerTls,
        on_failure: Callable[[str], None],
    ) -> None:
        """pool: the one that `routes` name. on_failure: called with the reason when
        the loop ends by itself."""
        self._loop = SelectorLoop("BrokerContainerLoop")
        self._pool = RequestExecutor(pool, _POOL_THREADS, _POOL_CAPACITY)
        self._on_failure = on_failure
        self._server = RemotingServer(
            self._loop,
            RequestDispatcher(routes, {pool: self._pool}, gate=gate),
            limits=ServerLimits(
                idle_timeout_ms=config.server_channel_max_idle_time_seconds * 1000,
                incomplete_frames=config.server_max_incomplete_frame_bytes,
            ),
            tls=tls,
        )
        for sock in listening:
            self._server.add_listener(sock)
        self._thread = threading.Thread(target=self._run, name="BrokerContainerLoop", daemon=True)

    def start(self, first: Callable[[], None]) -> None:
        """Serve; `first` runs on a request thread."""
        self._pool.try_submit(first, lambda _reason: None)
        self._server.start()
        self._thread.start()

    def shutdown(self) -> None:
        """Accept nothing more, answer what runs, end the threads."""
        if not self._thread.is_alive():
            return
        refusing = threading.Event()
        self._loop.call_soon_threadsafe(lambda: self._refuse_more(refusing))
        refusing.wait(_JOIN_S)
        # The answer of a request that runs still leaves through the loop.
        self._pool.shutdown()
        self._loop.call_soon_threadsafe(self._stop)
        self._thread.join(_JOIN_S)

    def _refuse_more(self, refusing: threading.Event) -> None:
        self._server.stop_accepting()
        self._pool.capacity = 0
        refusing.set()

    def _stop(self) -> None:
        self._server.drain()
        self._loop.stop()

    def _run(self) -> None:
        try:
            self._loop.run()
            self._server.shutdown()
        except Exception as error:  # the service guard: logged, then the container stops
            log.exception("the container's server failed")
            self._on_failure(f"the container's server failed: {error}")
        finally:
            self._loop.close()
