"""RemotingClient: calls to name servers, masters and brokers. One connection for each address.

Any thread may call invoke_sync, invoke_async and invoke_oneway; everything else runs on the
client's own SelectorLoop thread, callbacks included: they must not block. A call waits in the
response table under its opaque until its response, its deadline, or the end of its connection,
whichever comes first; its callback runs exactly once. Knows no request code and no body. (Java:
NettyRemotingClient.)
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from remoting.connect_attempt import ConnectAttempt, SocketTarget, resolve
from remoting.connect_failures import ConnectFailures
from remoting.connection import Connection, StreamSocket
from remoting.errors import (
    EncodeError,
    RemotingConnectError,
    RemotingError,
    RemotingSendRequestError,
    RemotingTimeoutError,
    RemotingTooMuchRequestError,
)
from remoting.frame import split_frames
from remoting.receive_buffer import ReceiveBuffer
from remoting.remoting_codec import decode_command, encode_command
from remoting.remoting_command import ONEWAY_FLAG, RemotingCommand, next_opaque
from remoting.remoting_config import RemotingClientConfig
from remoting.request_dispatcher import RequestDispatcher
from remoting.request_executor import RequestExecutor
from remoting.request_processor import Route
from remoting.response_table import ResponseCallback, ResponseFuture, ResponseTable
from remoting.selector_loop import SelectorLoop
from remoting.signature import RequestSigner

if TYPE_CHECKING:
    from remoting.client_tls import ClientTls


log = logging.getLogger(__name__)

HIGH_WATER: Final = 4 << 20
"""Bytes waiting to be written above which a connection is not read."""

IDLE_SCAN_MS: Final = 5_000
SYNC_GRACE_MS: Final = 1_000
"""Extra time that a synchronous caller waits for the loop to report the deadline."""

NOT_SENT: Final = ""
"""Address of a pending call whose frame has not been queued on a connection yet."""

FOREVER_MS: Final = 1 << 62


@dataclass(slots=True)
class _Outgoing:
    """One encoded call on its way to a connection."""

    address: str
    targets: list[SocketTarget]
    frame: bytes
    deadline_ms: int
    future: ResponseFuture | None
    """The pending call; None for a oneway."""
    done: Callable[[Exception | None], None] | None
    """Called once: with None when the frame was queued on a connection, else with the error."""

    def settle(self, error: Exception | None) -> None:
        """Call `done`, the first time only."""
        done, self.done = self.done, None
        if done is not None:
            done(error)


@dataclass(slots=True)
class _Connecting:
    """A connect in progress and the calls that wait for it."""

    attempt: ConnectAttempt
    waiting: list[_Outgoing]


class RemotingClient:
    """Calls to peers, and serves their requests. Owned by: its loop's thread.

    `routes` serves the requests that a peer sends over a connection we opened (40, 220, 307, ...).
    """

    def __init__(
        self,
        config: RemotingClientConfig,
        *,
        name: str = "NettyClientSelector",
        routes: Mapping[int, Route] | None = None,
        executors: Mapping[str, RequestExecutor] | None = None,
        signer: RequestSigner | None = None,
        tls: ClientTls | None = None,
    ) -> None:
        """signer: signs every request, for brokers that require it. tls: used by every connection;
        None for plain connections."""
        self._config = config
        self._wrap = None if tls is None else tls.wrap
        self._make_connection: Callable[..., Connection] = (
            Connection if tls is None else tls.connection
        )
        self._signer = signer
        self._dispatcher = RequestDispatcher(routes or {}, executors or {})
        self._loop = SelectorLoop(name)
        self._receive = ReceiveBuffer()
        self._flush_list: list[Connection] = []
        self._connections: dict[str, Connection] = {}
        self._connecting: dict[str, _Connecting] = {}
        self._failures = ConnectFailures()
        self._responses = ResponseTable()
        self.connection_listener: Callable[[str], None] | None = None
        """Called with the address ("host:port") of each connection that closed. Set before the
        start. Runs on the loop's thread; must not block or raise."""
        self._async_permits = threading.Semaphore(config.client_async_semaphore_value)
        self._oneway_permits = threading.Semaphore(config.client_oneway_semaphore_value)
        self._life = threading.Lock()
        self._running = False

    # -- lifecycle
    # ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the loop's thread. Once."""
        self._loop.add_turn_end(self._flush)
        self._loop.call_later(IDLE_SCAN_MS, self._close_idle)
        with self._life:
            self._running = True
        self._loop.start()

    def shutdown(self) -> None:
        """Close every connection, fail every pending call, stop the thread. Idempotent.

        Not on the loop's thread. Stop the pools of `executors` before.
        """
        with self._life:
            if not self._running:
                return
            self._running = False
            self._loop.call_soon_threadsafe(self._close_all)
        self._loop.stop()
        self._loop.close()
        for future in self._responses.expire(FOREVER_MS):
            future.callback(None, _not_running(future.address))

    # -- calls (any thread) --------------------------------------------------------------------

    def invoke_sync(
        self, address: str, command: RemotingCommand, timeout_ms: int
    ) -> RemotingCommand:
        """Call the peer at "host:port" and wait for its response. Not on the loop's thread.

        Gives `command` a fresh opaque. Raises RemotingConnectError, RemotingSendRequestError,
        RemotingTimeoutError (the connection is then closed, as its peer may hang) or
        RemotingTooMuchRequestError.
        """
        if not self._running:
            raise _not_running(address)
        assert not self._loop.in_loop_thread(), "invoke_sync would wait for its own thread"
        answered = threading.Event()
        outcome: list[RemotingCommand | Exception | None] = []

        def on_answer(response: RemotingCommand | None, error: Exception | None) -> None:
            outcome.append(error if response is None else response)
            answered.set()

        self._call(address, command, timeout_ms, on_answer)
        if not answered.wait((max(timeout_ms, 0) + SYNC_GRACE_MS) / 1000):
            raise RemotingTimeoutError(
                address, f"no response within {timeout_ms} ms, the loop is stuck"
            )
        result = outcome[0]
        if isinstance(result, RemotingCommand):
            return result
        if isinstance(result, RemotingTimeoutError) and self._config.client_close_socket_if_timeout:
            self._run_on_loop(lambda: self._close_address(address, "a call timed out"))
        assert result is not None
        raise result

    def invoke_async(
        self,
        address: str,
        command: RemotingCommand,
        timeout_ms: int,
        callback: ResponseCallback,
    ) -> None:
        """Call the peer at "host:port"; `callback(response, error)` runs once, one of them None.

        Gives `command` a fresh opaque. The callback runs on the loop's thread, or on this one if
        the call fails before it is passed to the loop. Blocks up to `timeout_ms` if too many
        asynchronous calls are in flight.
        """
        refusal = self._acquire(self._async_permits, address, timeout_ms)
        if refusal is not None:
            callback(None, refusal)
            return

        def on_answer(response: RemotingCommand | None, error: Exception | None) -> None:
            self._async_permits.release()
            _notify(address, callback, response, error)

        self._call(address, command, timeout_ms, on_answer)

    def invoke_oneway(self, address: str, command: RemotingCommand, timeout_ms: int) -> None:
        """Send a oneway command, and return without waiting for the socket.

        It is dropped, with a log line, if there is no connection within `timeout_ms`. Raises
        RemotingTooMuchRequestError or RemotingTimeoutError when no permit is free.
        """
        refusal = self._acquire(self._oneway_permits, address, timeout_ms)
        if refusal is not None:
            raise refusal
        command.flag |= ONEWAY_FLAG

        def done(error: Exception | None) -> None:
            self._oneway_permits.release()
            if error is not None:
                log.warning("%s: oneway request %s not sent: %s", address, command.code, error)

        self._hand_over(address, command, monotonic_ms() + timeout_ms, None, done)

    def _call(
        self, address: str, command: RemotingCommand, timeout_ms: int, callback: ResponseCallback
    ) -> None:
        """Register the call under a fresh opaque, then pass its frame to the loop."""
        if timeout_ms <= 0:
            callback(None, _no_time(address, timeout_ms))
            return
        command.opaque = next_opaque()
        deadline_ms = monotonic_ms() + timeout_ms
        future = ResponseFuture(command.opaque, NOT_SENT, deadline_ms, callback)
        self._responses.add(future)

        def done(error: Exception | None) -> None:
            if error is not None:
                self._fail(future, error)

        self._hand_over(address, command, deadline_ms, future, done)

    def _hand_over(
        self,
        address: str,
        command: RemotingCommand,
        deadline_ms: int,
        future: ResponseFuture | None,
        done: Callable[[Exception | None], None],
    ) -> None:
        if self._signer is not None:
            self._signer.sign(command)
        try:
            targets = [] if address in self._connections else resolve(address)
            frame = encode_command(command)
        except (RemotingConnectError, EncodeError) as error:
            done(error)
            return
        outgoing = _Outgoing(address, targets, frame, deadline_ms, future, done)
        if not self._run_on_loop(lambda: self._send(outgoing)):
            outgoing.settle(_not_running(address))

    def _acquire(
        self, permits: threading.Semaphore, address: str, timeout_ms: int
    ) -> RemotingError | None:
        """Take a permit; returns the error if there is none within the deadline."""
        if timeout_ms <= 0:
            return _no_time(address, timeout_ms)
        if permits.acquire(blocking=False):
            return None
        if self._loop.in_loop_thread():
            return RemotingTooMuchRequestError(address, "too many calls in flight")
        if permits.acquire(timeout=timeout_ms / 1000):
            return None
        return RemotingTimeoutError(address, f"no free permit for a call within {timeout_ms} ms")

    def _run_on_loop(self, function: Callable[[], None]) -> bool:
        """False if the client is not running, since the function would never run."""
        with self._life:
            if self._running:
                self._loop.call_soon_threadsafe(function)
            return self._running

    def _fail(self, future: ResponseFuture, error: Exception) -> None:
        """Fail a call, unless it has been completed. Any thread."""
        if self._responses.take(future.opaque) is future:
            future.callback(None, error)

    # -- sending (loop thread from here on) ----------------------------------------------------

    def _send(self, outgoing: _Outgoing) -> None:
        """Queue a frame on its connection, or on the connect in progress."""
        address = outgoing.address
        left_ms = outgoing.deadline_ms - monotonic_ms()
        self._loop.call_later(max(left_ms, 0), lambda: self._expire(outgoing))
        connection = self._connections.get(address)
        if connection is not None and connection.is_open:
            _write(connection, outgoing)
            return
        connecting = self._connecting.get(address)
        if connecting is None:
            self._connect(outgoing)
        else:
            connecting.waiting.append(outgoing)

    def _expire(self, outgoing: _Outgoing) -> None:
        """The call's deadline has passed: if it is still pending, it fails now."""
        error = RemotingTimeoutError(outgoing.address, "no response before the deadline")
        if outgoing.done is not None:
            connecting = self._connecting.get(outgoing.address)
            if connecting is not None and outgoing in connecting.waiting:
                connecting.waiting.remove(outgoing)
            outgoing.settle(error)
        elif outgoing.future is not None:
            self._fail(outgoing.future, error)

    # -- connecting ----------------------------------------------------------------------------

    def _connect(self, outgoing: _Outgoing) -> None:
        """Start a connect for the first call that needs it."""
        address = outgoing.address
        try:
            # Resolved here only if the connection closed after the caller's check.
            targets = outgoing.targets or resolve(address)
        except RemotingConnectError as error:
            outgoing.settle(error)
            return
        attempt = ConnectAttempt(
            self._loop,
            address,
            targets,
            self._config.connect_timeout_millis,
            on_connected=lambda sock: self._on_connected(address, sock),
            on_failed=lambda error: self._on_connect_failed(address, error),
            wrap=self._wrap,
        )
        self._connecting[address] = _Connecting(attempt, [outgoing])
        attempt.start()

    def _on_connect_failed(self, address: str, error: RemotingConnectError) -> None:
        self._failures.failed(address, error, self._loop.now_ms)
        for outgoing in self._connecting.pop(address).waiting:
            outgoing.settle(error)

    def _on_connected(self, address: str, sock: StreamSocket) -> None:
        try:
            connection = self._new_connection(address, sock)
        except OSError as error:  # Reset between the connect and now.
            sock.close()
            self._on_connect_failed(address, RemotingConnectError(address, str(error)))
            return
        log.info("%s: connected", address)
        self._failures.connected(address)
        for outgoing in self._connecting.pop(address).waiting:
            _write(connection, outgoing)

    def _new_connection(self, address: str, sock: StreamSocket) -> Connection:
        connection = self._make_connection(
            self._loop,
            sock,
            self,
            receive=self._receive,
            flush_list=self._flush_list,
            high_water=HIGH_WATER,
        )
        connection.state = address
        self._connections[address] = connection
        connection.open()
        return connection

    # -- receiving -----------------------------------------------------------------------------

    def on_data(self, connection: Connection, view: memoryview, end: int) -> int:
        """FrameSink: handle every whole frame of view[:end]."""
        return split_frames(view, end, self._take_frame, connection)

    def _take_frame(
        self, connection: Connection, serialize_type: int, header: bytes, body: memoryview
    ) -> bool:
        command = decode_command(header, serialize_type, bytes(body))
        if command.is_response:
            # Numbers are counted up: another peer could answer what it was not asked.
            self._responses.complete(command, str(connection.state))
        else:
            self._dispatcher.dispatch(connection, command)
        return connection.is_open

    # -- closing -------------------------------------------------------------------------------

    def on_closed(self, connection: Connection, reason: str) -> None:
        """FrameSink: the connection closed; its pending calls fail."""
        address = str(connection.state)
        if self._connections.get(address) is connection:
            del self._connections[address]
        error = RemotingSendRequestError(address, f"connection closed: {reason}")
        self._responses.fail_address(address, error)
        if self.connection_listener is not None:
            self.connection_listener(address)

    def _close_address(self, address: str, reason: str) -> None:
        connection = self._connections.get(address)
        if connection is not None:
            connection.close(reason)

    def _close_idle(self) -> None:
        limit = self._loop.now_ms - self._config.client_channel_max_idle_time_seconds * 1000
        for connection in list(self._connections.values()):
            if max(connection.last_read_ms, connection.last_write_ms) < limit:
                connection.close("idle")
        self._loop.call_later(IDLE_SCAN_MS, self._close_idle)

    def _close_all(self) -> None:
        for connection in list(self._connections.values()):
            connection.flush()
            connection.close("shutdown")
        for connecting in list(self._connecting.values()):
            connecting.attempt.cancel()

    def _flush(self) -> None:
        """End of turn: write what was queued for each connection, in one call each."""
        batch = self._flush_list[:]
        self._flush_list.clear()
        for connection in batch:
            connection.flush()


def monotonic_ms() -> int:
    """The clock of all deadlines, the same as the loop's."""
    return time.monotonic_ns() // 1_000_000


def _write(connection: Connection, outgoing: _Outgoing) -> None:
    """Queue the frame; from now on the call fails if the connection closes."""
    if outgoing.future is not None:
        outgoing.future.address = outgoing.address
    outgoing.settle(None)
    connection.write(outgoing.frame)
    outgoing.frame = b""  # The deadline's timer keeps a reference to the call for a while.


def _notify(
    address: str,
    callback: ResponseCallback,
    response: RemotingCommand | None,
    error: Exception | None,
) -> None:
    """Run a caller's callback; an exception in it must not end the loop."""
    try:
        callback(response, error)
    except Exception:
        log.exception("%s: the callback of an asynchronous call failed", address)


def _no_time(address: str, timeout_ms: int) -> RemotingTooMuchRequestError:
    return RemotingTooMuchRequestError(
        address, f"timeout of {timeout_ms} ms is too short for a call"
    )


def _not_running(address: str) -> RemotingSendRequestError:
    return RemotingSendRequestError(address, "the client is not running")
