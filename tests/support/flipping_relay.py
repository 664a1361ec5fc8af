"""A TCP relay that flips one bit of what passes through it, where a test says.

It listens on loopback and passes everything on, both ways, with two threads a connection. Both ends
are closed together. The client is a slave that connects to its master's HA port through it.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType
from typing import Self


class FlippingRelay:
    """`flip` may be called at any time, for one bit after the other."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self.flipped = 0
        """How many bits were flipped."""
        self._left: int | None = None
        self._bit = 0
        self._towards_client = True
        self._lock = threading.Lock()
        self._ends: list[socket.socket] = []
        threading.Thread(target=self._accept, name="FlippingRelay", daemon=True).start()

    def flip(self, distance: int, bit: int, *, towards_client: bool = True) -> None:
        """Flip a bit (0 to 7) of the byte that is `distance` bytes away; an older wish is void.
        towards_client: False: of what the client says."""
        with self._lock:
            self._left, self._bit, self._towards_client = distance, bit, towards_client

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                try:
                    server = socket.create_connection(self._target, 10)
                except OSError:
                    client.close()
                    continue
                server.settimeout(None)
                for end in (client, server):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._ends += [client, server]
                for source, sink, to_client in ((server, client, True), (client, server, False)):
                    threading.Thread(
                        target=self._pump, args=(source, sink, to_client), daemon=True
                    ).start()

    def _pump(self, source: socket.socket, sink: socket.socket, to_client: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                sink.sendall(self._flip(data, to_client))
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _flip(self, data: bytes, to_client: bool) -> bytes:
        with self._lock:
            if self._left is None or to_client is not self._towards_client:
                return data
            if self._left >= len(data):
                self._left -= len(data)
                return data
            changed = bytearray(data)
            changed[self._left] ^= 1 << self._bit
            self._left = None
            self.flipped += 1
            return bytes(changed)

    def close(self) -> None:
        """The port and every connection."""
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for end in self._ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
