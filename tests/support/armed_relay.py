"""A relay before a master's HA port that flips single bits of the log on their way to one slave.

One slave at a time. Threads: one accepts and passes reports on, one reads the master's frames.
"""

from __future__ import annotations

import contextlib
import random
import socket
import threading
from typing import Self

from ha.frame import FRAME_HEADER

_STEP_S = 0.2


class ArmedRelay:
    """`arm` asks for one flip in the next frame with bytes; `flipped` has the log offsets."""

    def __init__(self, target: tuple[str, int], seed: int) -> None:
        self._target = target
        self._chance = random.Random(seed)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.settimeout(_STEP_S)
        self.address = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self._armed = False
        self.flipped: list[tuple[int, int]] = []
        """(offset of the byte in the log, bit)."""
        self.links = 0
        self._stopping = False
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def arm(self) -> None:
        """Flip one bit in the next frame."""
        self._armed = True

    def close(self) -> None:
        self._stopping = True
        for thread in self._threads:
            thread.join(10)
        self._listening.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- threads -------------------------------------------------------------------------------

    def _accept(self) -> None:
        while not self._stopping:
            try:
                slave = self._listening.accept()[0]
            except TimeoutError:
                continue
            self.links += 1
            with contextlib.suppress(OSError):
                self._relay(slave, socket.create_connection(self._target))

    def _relay(self, slave: socket.socket, master: socket.socket) -> None:
        with slave, master:
            down = threading.Thread(target=self._down, args=(master, slave), daemon=True)
            down.start()
            self._up(slave, master)
            down.join(10)

    def _up(self, slave: socket.socket, master: socket.socket) -> None:
        """Reports, as they are, until one side has closed."""
        slave.settimeout(_STEP_S)
        while not self._stopping:
            try:
                data = slave.recv(65536)
            except TimeoutError:
                continue
            except OSError:
                data = b""
            if not data:
                break
            master.sendall(data)
        for end in (slave, master):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _down(self, master: socket.socket, slave: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while header := _read(master, FRAME_HEADER.size):
                offset, size = FRAME_HEADER.unpack(header)
                body = bytearray(_read(master, size))
                if size and self._armed:
                    self._armed = False
                    bit = self._chance.randrange(8 * size)
                    body[bit // 8] ^= 1 << bit % 8
                    self.flipped.append((offset + bit // 8, bit % 8))
                slave.sendall(header + body)
        with contextlib.suppress(OSError):
            slave.shutdown(socket.SHUT_RDWR)


def _read(sock: socket.socket, size: int) -> bytes:
    """`size` bytes; fewer when the other side has closed."""
    data = b""
    while len(data) < size and (more := sock.recv(size - len(data))):
        data += more
    return data if len(data) == size else b""
