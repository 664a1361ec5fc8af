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
_FLIP_REPORTS_EVERY: Final = 1 << 12
_CUT_EVERY: Final = 1 << 18
"""Bytes between two flips or cuts, on average; what a slave sends are reports, of 24 bytes each."""
_SEGMENT: Final = 1460
_LOSS: Final = 0.01
"""The share of segments that are lost. Most are sent again at once, after a round trip, since what
follows them arrives; the last of a piece only after a time-out."""
_TIME_OUT_S: Final = 0.2
"""Least retransmission time-out of Linux."""
_MOST_WAITING: Final = 64


class _Way:
    """One direction of a connection: what was read and is not written yet, with its time."""

    def __init__(self, source: socket.socket, target: socket.socket, *, to_slave: bool) -> None:
        self.source = source
        self.target = target
        self.to_slave = to_slave
        self.waiting: deque[tuple[float, bytes]] = deque()
        self.free_s = 0.0
        """Nothing arrives earlier: it stands behind what was lost."""
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
        self._one_way_s = 0.0
        self._ways: list[_Way] = []
        self._turns = 0
        self._end = threading.Event()
        self._drops = threading.Event()
        self.flipped = self.cuts = self.lost = 0
        self._thread = threading.Thread(target=self._run, name="Relay", daemon=True)
        self._thread.start()

    def set_mode(self, mode: FaultKind | None, round_trip_ms: float = 0.0) -> None:
        """The fault from now on; None: pass everything on. round_trip_ms: of lossy and delay. It is
        in force for every byte that is sent after the return."""
        self._one_way_s = round_trip_ms / 2_000
        self._mode = mode
        begun, pause = self._turns, threading.Event()
        while self._turns == begun and self._thread.is_alive():
            pause.wait(0.001)

    def drop(self) -> None:
        """Reset every connection; what is on its way never arrives. So it is when a host is lost
        that had bytes to send again."""
        self._drops.set()
        pause = threading.Event()
        while self._drops.is_set() and self._thread.is_alive():
            pause.wait(0.001)

    def lead_to(self, target: tuple[str, int]) -> None:
        """Where connections go from now on; those there are stay."""
        self._target = target

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
        self._turns += 1
        mode = self._mode
        if self._drops.is_set():
            while self._ways:
                self._close_pair(self._ways[0])
            self._drops.clear()
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
        selector.select(self._until_due_s() if busy else _LOOK_S if mode else 0.05)

    def _until_due_s(self) -> float:
        """Until the next piece arrives; a while, if one is due and cannot be written."""
        due = min(way.waiting[0][0] for way in self._ways if way.waiting)
        left_s = due - time.monotonic()
        return min(left_s, _LOOK_S) if left_s > 0 else 0.001

    def _reads(self, way: _Way, mode: FaultKind | None) -> bool:
        if way.ended or len(way.waiting) > _MOST_WAITING or mode is FaultKind.PARTITION:
            return False
        held = FaultKind.ONE_WAY_LOG if way.to_slave else FaultKind.ONE_WAY
        return mode is not held

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
            for sock in (slave, master):
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
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
        due = self._due(way, len(data), mode)
        if mode is FaultKind.FLIP:
            data = self._flip(data, _FLIP_EVERY if way.to_slave else _FLIP_REPORTS_EVERY)
        if mode is FaultKind.CUT and self._draw() < len(data) / _CUT_EVERY:
            self.cuts += 1
            data = data[: int(self._draw() * len(data))]
            way.ended = True
        way.waiting.append((due, data))

    def _due(self, way: _Way, size: int, mode: FaultKind | None) -> float:
        """When a piece that was read now arrives at the other end."""
        now = time.monotonic()
        if mode is FaultKind.SLOW:
            return now + _SLOW_S
        if mode is FaultKind.DELAY:
            return now + self._one_way_s
        if mode is not FaultKind.LOSSY:
            return now
        due = now + self._one_way_s
        segments = max(size // _SEGMENT, 1)
        if self._draw() < 1 - (1 - _LOSS) ** segments:
            self.lost += 1
            is_last = self._draw() < 1 / segments
            due += 2 * self._one_way_s + (_TIME_OUT_S if is_last else 0.0)
        way.free_s = max(way.free_s, due)
        return way.free_s

    def _flip(self, data: bytes, every: int) -> bytes:
        if self._draw() >= len(data) / every:
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
