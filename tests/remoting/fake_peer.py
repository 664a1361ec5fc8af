"""FakePeer: a listening peer that answers as its test says, on a thread of its own."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable

from remoting.errors import FrameError
from remoting.remoting_codec import encode_command
from remoting.remoting_command import RemotingCommand
from tests.support.frame_decoder import FrameDecoder

Answer = Callable[["PeerConnection", RemotingCommand], None]
DEADLINE_S = 5.0


def echo(connection: PeerConnection, command: RemotingCommand) -> None:
    """Answer with what came."""
    if not command.is_oneway and not command.is_response:
        connection.send(command.response(0, "echo", command.ext_fields, command.body))


class PeerConnection:
    """One accepted connection."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.closed = threading.Event()

    def send(self, command: RemotingCommand) -> None:
        self.sock.sendall(encode_command(command))

    def send_bytes(self, data: bytes) -> None:
        self.sock.sendall(data)

    def close(self) -> None:
        self.sock.shutdown(socket.SHUT_RDWR)

    def serve(self, answer: Answer, seen: Callable[[RemotingCommand], None]) -> None:
        decoder = FrameDecoder()
        try:
            while data := self.sock.recv(1 << 16):
                decoder.feed(data)
                while (command := decoder.next_command()) is not None:
                    seen(command)
                    answer(self, command)
        except (OSError, FrameError):
            pass
        finally:
            self.closed.set()
            self.sock.close()


class FakePeer:
    """Listens on a free port of the loopback; every connection gets a thread."""

    def __init__(self, answer: Answer = echo, host: str = "127.0.0.1") -> None:
        self.answer = answer
        self.connections: list[PeerConnection] = []
        self.commands: list[RemotingCommand] = []
        self._changed = threading.Condition()
        self._listening = socket.create_server((host, 0))
        self.address = f"{host}:{self._listening.getsockname()[1]}"
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def __enter__(self) -> FakePeer:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._thread.join(DEADLINE_S)
        self._listening.close()
        for connection in self.connections:
            if not connection.closed.is_set():
                try:
                    connection.close()
                except OSError:
                    continue

    def wait_for(self, commands: int = 0, connections: int = 0) -> None:
        """Until so many commands and connections have come."""
        with self._changed:
            assert self._changed.wait_for(
                lambda: len(self.commands) >= commands and len(self.connections) >= connections,
                DEADLINE_S,
            ), f"{len(self.commands)} commands, {len(self.connections)} connections came"

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listening.accept()
            except OSError:
                return
            connection = PeerConnection(sock)
            with self._changed:
                self.connections.append(connection)
                self._changed.notify_all()
            threading.Thread(
                target=connection.serve, args=(self.answer, self._seen), daemon=True
            ).start()

    def _seen(self, command: RemotingCommand) -> None:
        with self._changed:
            self.commands.append(command)
            self._changed.notify_all()
