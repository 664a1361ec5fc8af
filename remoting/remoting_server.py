"""RemotingServer: accepts connections, routes each request code, responds in order of completion.

Runs on a SelectorLoop's thread; processors that may block run in thread pools. There are two kinds
of routes: a *fast route* is tried first on frames whose JSON header starts with its prefix, or
whose binary header has its code (hot request codes, decoded by their processor straight from the
frame); everything else goes through RemotingCommand and the route table. Responses follow
NettyRemotingAbstract.processRequestCommand. Knows no broker. Responses to errors, those that a fast
route raises, too: RequestError -> its code and remark; any other exception -> SYSTEM_ERROR with the
text (logged); unknown code -> REQUEST_CODE_NOT_SUPPORTED; a full pool -> SYSTEM_BUSY; a oneway
request -> nothing.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from remoting.connection import Connection
from remoting.errors import RemotingSendRequestError
from remoting.frame import HEAD_SIZE, TYPE_AT, cut_run, split_frames, whole_size
from remoting.receive_buffer import INCOMPLETE_FRAMES_LIMIT, ReceiveBuffer
from remoting.remoting_codec import decode_command
from remoting.remoting_command import SerializeType
from remoting.request_dispatcher import RequestDispatcher
from remoting.request_processor import ConnectionListener, Route
from remoting.response_table import ResponseTable
from remoting.rocketmq_serializable import CODE_SIZE, code_bytes
from remoting.selector_loop import EVENT_READ, SelectorLoop

if TYPE_CHECKING:
    from remoting.server_tls import ServerTls

log = logging.getLogger(__name__)

_HIGH_WATER: Final = 4 << 20
_IDLE_SCAN_MS: Final = 5_000
_IDLE_SCAN_PER_TURN: Final = 256
_ACCEPT_BACK_OFF_MS: Final = 200
_ACCEPT_BATCH: Final = 64
_JSON: Final = int(SerializeType.JSON)

FastHandler = Callable[[Connection, bytes, memoryview], bool]
"""(connection, header, body) -> whether it took the frame; the view ends with the call."""


RunHandler = Callable[[Connection, list[bytes], list[bytes]], int]
"""(connection, headers, bodies) -> how many of the frames it took, which are the first of them. All
began with one prefix and arrived together."""


class Run(NamedTuple):
    """Frames with headers of one serialize type that begin with `prefix`, and who takes them."""

    serialize_type: int
    prefix: bytes
    take: RunHandler


class FastRoutes(NamedTuple):
    """What is tried first on a frame.

    json: by the beginning of a JSON header. binary: by the code in a binary one. runs: tried before
    both on frames at the start of what was received, all of them at once; one for each type.
    """

    json: Sequence[tuple[bytes, FastHandler]] = ()
    binary: Sequence[tuple[int, FastHandler]] = ()
    runs: Sequence[Run] = ()


class ServerLimits(NamedTuple):
    """idle_timeout_ms: until a silent connection is closed. high_water: bytes that wait for a peer,
    above which nothing more is read from it. incomplete_frames: bytes of all connections."""

    idle_timeout_ms: int = 120_000
    high_water: int = _HIGH_WATER
    incomplete_frames: int = INCOMPLETE_FRAMES_LIMIT


_NO_FAST_ROUTES: Final = FastRoutes()
_USUAL_LIMITS: Final = ServerLimits()


class RemotingServer:
    """The server side of the protocol over any number of listening sockets. Owned by: the loop."""

    def __init__(
        self,
        loop: SelectorLoop,
        dispatcher: RequestDispatcher,
        *,
        fast_routes: FastRoutes = _NO_FAST_ROUTES,
        limits: ServerLimits = _USUAL_LIMITS,
        listener: ConnectionListener | None = None,
        responses: ResponseTable | None = None,
        tls: ServerTls | None = None,
        on_accept_failed: Callable[[], None] = lambda: None,
    ) -> None:
        """dispatcher: serves what no fast route takes; its gate and its observer do not see what
        one takes. responses: pending calls to clients, made by the owner of this table. tls: None:
        every connection is plain, without checking. on_accept_failed: called each time that no
        descriptor or no memory is left for one."""
        self._loop = loop
        self._tls = tls
        self._on_accept_failed = on_accept_failed
        self._make_connection: Callable[..., Connection] = (
            Connection if tls is None else tls.connection
        )
        self._dispatcher = dispatcher
        self._listener = listener
        self._fast = tuple(fast_routes.json)
        self._binary_fast = {code_bytes(code): handler for code, handler in fast_routes.binary}
        self._runs = {run.serialize_type: run for run in fast_routes.runs}
        self._idle_timeout_ms = limits.idle_timeout_ms
        self._high_water = limits.high_water or _HIGH_WATER
        self._receive = ReceiveBuffer(limit=limits.incomplete_frames)
        self._flush_list: list[Connection] = []
        self._connections: dict[int, Connection] = {}
        self._listening: list[tuple[socket.socket, RequestDispatcher | None]] = []
        self._port_dispatchers: dict[int, RequestDispatcher] = {}
        """Dispatchers of connections to ports with their own route table."""
        self._backing_off: set[socket.socket] = set()
        self._accepting = False
        self.turn_codes: Final[set[int]] = set()
        """Codes of this turn's requests that took no fast route."""
        self.responses = ResponseTable() if responses is None else responses

    # -- lifecycle (loop thread or before the loop runs) ----------------------------------------

    def add_listener(self, sock: socket.socket, routes: Mapping[int, Route] | None = None) -> None:
        """Accept from `sock` (bound and listening); `routes` replaces the route table on its
        port."""
        sock.setblocking(False)
        own = None if routes is None else self._dispatcher.with_routes(routes)
        self._listening.append((sock, own))

    def start(self) -> None:
        """Start accepting connections."""
        if self._tls is not None:
            self._tls.start(self._loop)
        self._accepting = True
        for sock, _ in self._listening:
            self._watch(sock)
        self._loop.add_turn_end(self.flush)
        self._loop.call_every(_IDLE_SCAN_MS, self._close_idle)

    def stop_accepting(self) -> None:
        """Accept no new connections; the listening sockets stay open (the supervisor owns them)."""
        if self._accepting:
            self._accepting = False
            for sock, _ in self._listening:
                if sock not in self._backing_off:
                    self._loop.unregister(sock)

    def drain(self) -> None:
        """Stop reading; close each connection once its responses have been sent."""
        self.stop_accepting()
        for connection in list(self._connections.values()):
            connection.drain_and_close("shutdown")

    def shutdown(self) -> None:
        """Close every connection at once."""
        self.stop_accepting()
        for connection in list(self._connections.values()):
            connection.close("shutdown")
        self._dispatcher.shutdown()
        if self._tls is not None:
            self._tls.shutdown()

    @property
    def connections(self) -> list[Connection]:
        """The open connections."""
        return list(self._connections.values())

    # -- accepting -----------------------------------------------------------------------------

    def _watch(self, sock: socket.socket) -> None:
        self._loop.register(sock, EVENT_READ, lambda _events: self._accept(sock))

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_ACCEPT_BATCH):
            try:
                sock, _address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._back_off(listening, error)
                return
            self._open(sock, listening)

    def _back_off(self, listening: socket.socket, error: OSError) -> None:
        """Out of descriptors or memory: stop accepting for a moment instead of spinning."""
        self._on_accept_failed()
        log.error("accept failed, retrying in %s ms: %s", _ACCEPT_BACK_OFF_MS, error)
        self._loop.unregister(listening)
        self._backing_off.add(listening)

        def resume() -> None:
            self._backing_off.discard(listening)
            if self._accepting:
                self._watch(listening)

        self._loop.call_later(_ACCEPT_BACK_OFF_MS, resume)

    def _open(self, sock: socket.socket, listening: socket.socket) -> None:
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = self._make_connection(
                self._loop,
                sock,
                self,
                receive=self._receive,
                flush_list=self._flush_list,
                high_water=self._high_water,
            )
        except OSError as error:
            log.info("a connection closed before it was set up: %s", error)
            sock.close()
            return
        for candidate, own in self._listening:
            if candidate is listening and own is not None:
                self._port_dispatchers[connection.connection_id] = own
        self._connections[connection.connection_id] = connection
        if self._listener is not None:
            self._listener.on_open(connection)
        connection.open()

    def _close_idle(self) -> None:
        self._close_idle_of(list(self._connections.values()))

    def _close_idle_of(self, connections: list[Connection]) -> None:
        """Some of them now, the others in the next turns: 5,000 at once were a pause of 4 ms."""
        limit = self._loop.now_ms - self._idle_timeout_ms
        for connection in connections[-_IDLE_SCAN_PER_TURN:]:
            if connection.last_read_ms < limit and connection.last_write_ms < limit:
                connection.close(f"idle for {self._idle_timeout_ms} ms")
            elif connection.is_incomplete_since(limit):
                connection.close(f"a frame is not complete after {self._idle_timeout_ms} ms")
        del connections[-_IDLE_SCAN_PER_TURN:]
        if connections:
            self._loop.call_soon_threadsafe(lambda: self._close_idle_of(connections))

    def on_closed(self, connection: Connection, reason: str) -> None:
        """FrameSink: remove the connection and notify the listener."""
        if self._connections.pop(connection.connection_id, None) is None:
            return
        self._port_dispatchers.pop(connection.connection_id, None)
        if len(self.responses):
            address = connection.remote_address
            self.responses.fail_address(address, RemotingSendRequestError(address, reason))
        if self._listener is not None:
            self._listener.on_close(connection, reason)

    # -- frames --------------------------------------------------------------------------------

    def on_data(self, connection: Connection, view: memoryview, end: int) -> int:
        """FrameSink: handle every whole frame of view[:end]."""
        if connection.connection_id in self._port_dispatchers:
            return split_frames(view, end, self._take_frame, connection)
        position = 0
        run = self._runs.get(view[TYPE_AT]) if end > HEAD_SIZE else None
        if run is not None:
            serialize_type, prefix, take = run
            headers, bodies, position = cut_run(view, end, serialize_type, prefix)
            if headers:
                try:
                    taken = take(connection, headers, bodies)
                except Exception as error:  # noqa: BLE001 - the request guard, as in _take_fast
                    for header in headers:
                        self._refuse(connection, serialize_type, header, error)
                    taken = len(headers)
                if taken < len(headers):
                    position = sum(map(whole_size, headers[:taken], bodies))
                if not connection.takes_frames:
                    return position
        return split_frames(view, end, self._take_fast, connection, position)

    def _take_fast(
        self, connection: Connection, serialize_type: int, header: bytes, body: memoryview
    ) -> bool:
        """A frame of a port with fast routes: part of the hot loop (see tests/bench/compare.py)."""
        try:
            if serialize_type == _JSON:
                for prefix, handler in self._fast:
                    if header.startswith(prefix):
                        if handler(connection, header, body):
                            return connection.takes_frames
                        break
            else:
                binary = self._binary_fast.get(header[:CODE_SIZE])
                if binary is not None and binary(connection, header, body):
                    return connection.takes_frames
        except Exception as error:  # noqa: BLE001 - the request guard, costs nothing until it raises
            self._refuse(connection, serialize_type, header, error)
            return connection.takes_frames
        return self._take_frame(connection, serialize_type, header, body)

    def _refuse(
        self, connection: Connection, serialize_type: int, header: bytes, error: Exception
    ) -> None:
        """A fast route raised: this request is answered, and the others go on."""
        self._dispatcher.refuse(connection, decode_command(header, serialize_type, b""), error)

    def _take_frame(
        self, connection: Connection, serialize_type: int, header: bytes, body: memoryview
    ) -> bool:
        command = decode_command(header, serialize_type, bytes(body))
        if command.is_response:
            self.responses.complete(command, connection.remote_address)
        else:
            self.turn_codes.add(command.code)
            dispatcher = self._port_dispatchers.get(connection.connection_id, self._dispatcher)
            dispatcher.dispatch(connection, command)
        return connection.takes_frames

    def flush(self) -> None:
        """End of turn: write what was queued for each connection, in one call each; the last thing
        that a turn does."""
        if self.turn_codes:
            self.turn_codes.clear()
        waiting = self._flush_list
        if not waiting:
            return
        batch = waiting[:]
        waiting.clear()
        for connection in batch:
            connection.flush()
