"""Relay: a TCP relay on loopback between slave and master, which can be told to misbehave.

One thread with one selector; `set_mode` may be called from any thread. It knows no protocol: bytes
are held, delayed, cut or flipped at places drawn from the seed. In a partition nothing is read, so
that the sender's window fills as it does on a network that drops everything; a connection survives
it, and whether it does is the peers' business.
"""

from __future__ import annotations

import contextlib
import random
import selectors
import socket
import threading
import time
from collections import deque
from typing import Final

from tools.chaos.schedule import FaultKind

_PIECE: Final = 1 << 16
_SLOW_S: Final = 0.02
_LOOK_S: Final = 0.01
_FLIP_EVERY: Final = 1 << 15
_CUT_EVERY: Final = 1 << 18
"""Bytes between two flips or cuts, on average."""


class _Way:
    """One direction of a connection: what was read and is not written yet, with its time."""

    def __init__(self, source: socket.socket, target: socket.socket, *, to_slave: bool) -> None:
        self.source = source
        self.target = target
        self.to_slave = to_slave
        self.waiting: deque[tuple[float, bytes]] = deque()
        self.ended = False


class Relay:
    """See the module. Everything but the mode is its thread's."""

    def __init__(self, target: tuple[str, int], seed: int) -> None:
        """Listens at once; `port` says where."""
        self._target = target
        self._draw = random.Random(seed).random
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.setblocking(False)
        self.port: int = self._listening.getsockname()[1]
        self._mode: FaultKind | None = None
        self._ways: list[_Way] = []
        self._end = threading.Event()
        self.flipped = self.cuts = 0
        self._thread = threading.Thread(target=self._run, name="Relay", daemon=True)
        self._thread.start()

    def set_mode(self, mode: FaultKind | None) -> None:
        """The fault from now on; None: pass everything on."""
        self._mode = mode

    def close(self) -> None:
        """End every connection."""
        self._end.set()
        self._thread.join(10)

    # -- the thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            while not self._end.is_set():
                self._turn(selector)
        for way in self._ways:
            way.source.close()
        self._listening.close()

    def _turn(self, selector: selectors.BaseSelector) -> None:
        mode = self._mode
        self._accept()
        for way in self._ways:
            if self._reads(way, mode):
                self._read(way, mode)
            self._write(way)
        gone = [way for way in self._ways if way.ended and not way.waiting]
        for way in gone:
            self._close_pair(way)
        for key in list(selector.get_map().values()):
            selector.unregister(key.fileobj)
        readers = {way.source for way in self._ways if self._reads(way, mode)}
        for sock in (self._listening, *readers):
            selector.register(sock, selectors.EVENT_READ)
        busy = any(way.waiting for way in self._ways)
        selector.select(_LOOK_S if busy or mode else 0.05)

    def _reads(self, way: _Way, mode: FaultKind | None) -> bool:
        if way.ended or len(way.waiting) > 64 or mode is FaultKind.PARTITION:
            return False
        return mode is not FaultKind.ONE_WAY or way.to_slave

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError):
            slave, _address = self._listening.accept()
            if self._mode is FaultKind.PARTITION:
                slave.close()
                return
            try:
                master = socket.create_connection(self._target, timeout=2)
            except OSError:
                slave.close()
                return
            slave.setblocking(False)
            master.setblocking(False)
            self._ways.append(_Way(slave, master, to_slave=False))
            self._ways.append(_Way(master, slave, to_slave=True))

    def _read(self, way: _Way, mode: FaultKind | None) -> None:
        try:
            data = way.source.recv(_PIECE)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            way.ended = True
            return
        due = time.monotonic() + (_SLOW_S if mode is FaultKind.SLOW else 0.0)
        if mode is FaultKind.FLIP and way.to_slave:
            data = self._flip(data)
        if mode is FaultKind.CUT and self._draw() < len(data) / _CUT_EVERY:
            self.cuts += 1
            data = data[: int(self._draw() * len(data))]
            way.ended = True
        way.waiting.append((due, data))

    def _flip(self, data: bytes) -> bytes:
        if self._draw() >= len(data) / _FLIP_EVERY:
            return data
        self.flipped += 1
        changed = bytearray(data)
        changed[int(self._draw() * len(data))] ^= 1 << int(self._draw() * 8)
        return bytes(changed)

    def _write(self, way: _Way) -> None:
        while way.waiting:
            due, data = way.waiting[0]
            if due > time.monotonic():
                return
            try:
                sent = way.target.send(data)
            except BlockingIOError:
                return
            except OSError:
                way.waiting.clear()
                way.ended = True
                return
            if sent < len(data):
                way.waiting[0] = (due, data[sent:])
                return
            way.waiting.popleft()

    def _close_pair(self, way: _Way) -> None:
        pair = [
            each for each in self._ways if {each.source, each.target} == {way.source, way.target}
        ]
        for each in pair:
            self._ways.remove(each)
            each.source.close()
