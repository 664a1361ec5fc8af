"""A connection of a RemotingServer whose socket and loop are played: bytes in, answers out.

Everything runs on the caller's thread: pools answer at once, calls to the loop are made at once.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from remoting.connection import Connection
from remoting.errors import FrameError
from remoting.receive_buffer import ReceiveBuffer
from remoting.remoting_codec import encode_command
from remoting.remoting_command import RemotingCommand
from remoting.remoting_server import RemotingServer
from remoting.response_table import ResponseFuture
from remoting.selector_loop import SelectorLoop
from tests.support.frame_decoder import FrameDecoder

_ports = itertools.count(20_000)


class _AtOnce:
    """In the place of the threads of a RequestExecutor: runs what it is given."""

    def submit(self, run: Callable[[], None]) -> None:
        """Run it."""
        run()

    def shutdown(self, **_how: bool) -> None:
        """There is nothing to end."""


class InlineCalls(deque[Callable[[], None]]):
    """In the place of what a loop is to call in its next turn: what comes is called now, in a turn
    of its own; what another thread hands over, with the next call or at `call_others`. Not a class
    beneath the loop's, which may be compiled."""

    end_turn: Callable[[], None] | None = None
    """What a turn's end does: a pool's thread may wait for it."""

    def __init__(self) -> None:
        super().__init__()
        self._thread = threading.get_ident()

    def append(self, function: Callable[[], None]) -> None:
        """Call it."""
        if threading.get_ident() != self._thread:
            super().append(function)
            return
        self.call_others()
        function()
        end_turn, self.end_turn = self.end_turn, None
        if end_turn is not None:
            end_turn()
            self.end_turn = end_turn

    def call_others(self) -> None:
        """Call what other threads have handed over."""
        while self:
            self.popleft()()


def call_at_once(loop: SelectorLoop) -> InlineCalls:
    """`loop` never runs: whatever is handed to it is called at once."""
    assert not loop._calls
    loop._calls = calls = InlineCalls()
    return calls


class _Answers:
    """In the place of ResponseTable.add: the client that is asked (307, 221, 326, …) has answered
    before the broker waits."""

    def __init__(self) -> None:
        self.peers: dict[str, ServedConnection] = {}
        """By address."""

    def __call__(self, future: ResponseFuture) -> None:
        code, body = self.peers[future.address].answer
        response = RemotingCommand(code, opaque=future.opaque, flag=1, body=body)
        future.callback(response, None)


def serve_at_once(server: RemotingServer) -> None:
    """The pools of `server` run what they are given on the caller's thread, and its clients answer,
    both at once."""
    for executor in server._dispatcher._executors.values():
        executor._pool.shutdown()
        executor._pool = _AtOnce()  # type: ignore[assignment]
    server.responses.add = _Answers()  # type: ignore[method-assign]


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


class ServedConnection:
    """One peer. answer: the code and the body of what it answers to requests of the broker."""

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
        self.answer = (0, b"")
        self.connection = Connection(
            loop,
            self._socket,  # type: ignore[arg-type]
            server,
            receive=ReceiveBuffer(1024),
            flush_list=server._flush_list,
            high_water=1 << 30,
        )
        self._peers: dict[str, ServedConnection] = server.responses.add.peers  # type: ignore[attr-defined]
        self._peers[self.connection.remote_address] = self
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
        self._peers.pop(self.connection.remote_address, None)
        self.connection.close("end of the input")


def request(code: int, fields: Mapping[str, object], body: bytes = b"") -> bytes:
    """A frame."""
    texts = {name: str(value) for name, value in fields.items()}
    return encode_command(RemotingCommand.request(code, texts, body))
