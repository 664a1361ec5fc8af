"""A connection of a RemotingServer whose socket and loop are played: bytes in, answers out.

Everything runs on the caller's thread: pools answer at once, calls to the loop are made at once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from remoting.connection import Connection
from remoting.errors import FrameError
from remoting.receive_buffer import ReceiveBuffer
from remoting.remoting_codec import encode_command
from remoting.remoting_command import RemotingCommand
from remoting.remoting_server import RemotingServer
from remoting.request_dispatcher import RequestDispatcher
from remoting.request_executor import RequestExecutor
from remoting.selector_loop import SelectorLoop
from tests.support.frame_decoder import FrameDecoder

_ports = itertools.count(20_000)


class AtOnce:
    """An executor that runs what it is given, in the place of another one."""

    pending = 0

    def __init__(self, pool: RequestExecutor) -> None:
        self.shutdown = pool.shutdown

    def try_submit(self, run: Callable[[], None], _refuse: Callable[[str], None]) -> bool:
        """Run it."""
        run()
        return True

    def shutdown(self) -> None:
        """Nothing waits."""


class InlineLoop(SelectorLoop):
    """A loop that never runs: what is called soon is called now, in a turn of its own."""

    end_turn: Callable[[], None] | None = None
    """What a turn's end does: a pool's thread may wait for it."""

    def call_soon_threadsafe(self, function: Callable[[], None]) -> None:
        """Call it."""
        function()
        end_turn, self.end_turn = self.end_turn, None
        if end_turn is not None:
            end_turn()
            self.end_turn = end_turn


def serve_at_once(server: RemotingServer) -> None:
    """The pools of `server` run what they are given on the caller's thread, and at once."""
    dispatcher = server._dispatcher
    server._dispatcher = RequestDispatcher(
        dispatcher._routes,
        {name: AtOnce(pool) for name, pool in dispatcher._executors.items()},
        dispatcher._observer,
        dispatcher._gate,
    )


class _Socket:
    """Takes what is written."""

    def __init__(self, host: str, port: int) -> None:
        self._peer = (host, port or next(_ports))
        self.written = bytearray()

    def getpeername(self) -> tuple[str, int]:
        return self._peer

    def getsockname(self) -> tuple[str, int]:
        return ("127.0.0.1", 10911)

    def fileno(self) -> int:
        return -1

    def send(self, data: Any) -> int:
        self.written += data
        return len(data)

    def sendmsg(self, pieces: Sequence[Any]) -> int:
        return sum(self.send(piece) for piece in pieces)

    def close(self) -> None:
        """Nothing is open."""


class _AnsweringConnection(Connection):
    """A client that answers what the broker asks of it (307, 221, 326, …) before the broker
    waits: with `answer`, a code and a body."""

    __slots__ = ("answer", "server")

    def send_command(self, command: RemotingCommand) -> None:
        super().send_command(command)
        if not command.is_response and not command.is_oneway:
            code, body = self.answer
            self.server.responses.complete(command.response(code, None, {}, body))


class ServedConnection:
    """One peer."""

    def __init__(
        self,
        server: RemotingServer,
        loop: SelectorLoop,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        """port 0: one that no other has."""
        self._server = server
        self._socket = _Socket(host, port)
        self._decoder = FrameDecoder()
        self.connection = _AnsweringConnection(
            loop,
            self._socket,  # type: ignore[arg-type]
            server,
            receive=ReceiveBuffer(1024),
            flush_list=server._flush_list,
            high_water=1 << 30,
        )
        self.connection.server = server
        self.connection.answer = (0, b"")
        self._rest = b""
        server._connections[self.connection.connection_id] = self.connection
        if server._listener is not None:
            server._listener.on_open(self.connection)

    def feed(self, data: bytes) -> None:
        """Bytes that arrived; what is no frame closes the connection, as it does on a socket."""
        data = self._rest + data
        if not self.connection.is_open:
            return
        try:
            used = self._server.on_data(self.connection, memoryview(data), len(data))
        except FrameError as error:
            self.connection.close(f"bad frame: {error}")
        else:
            self._rest = data[used:]

    def answers(self) -> list[RemotingCommand]:
        """What was written since the last call. AssertionError: a frame announces more bytes than
        it has."""
        self._decoder.feed(bytes(self._socket.written))
        self._socket.written.clear()
        found = []
        while (command := self._decoder.next_command()) is not None:
            found.append(command)
        assert self._decoder.buffered == 0, "an answer announces bytes that were not sent"
        return found

    def close(self) -> None:
        """The peer is gone."""
        self.connection.close("end of the input")


def request(code: int, fields: Mapping[str, object], body: bytes = b"") -> bytes:
    """A frame."""
    texts = {name: str(value) for name, value in fields.items()}
    return encode_command(RemotingCommand.request(code, texts, body))
