"""Load for a broker that loadgen.c cannot make: over many topics, connections or consumer groups.

Runs in the process of the benchmark, one thread. Requests are written as RocketMQ's clients write
them; of an answer only the code is read, and of a pull's where to go on, so that little of the
machine is spent here. An answer that is no success raises RuntimeError, one that does not come
TimeoutError.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import select
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from typing import Final, Protocol

from tests.bench.idle import frame
from tests.support.readiness import events_of

BODY_BYTES: Final = 128
PULL_BATCH: Final = 32
_HEAD: Final = struct.Struct(">iI")
_HEADER_LENGTH: Final = 0xFFFFFF
_SUCCESS: Final = b'{"code":0,'
_BUSY: Final = b'{"code":2,'
_STALL_S: Final = 30.0
_READ_BYTES: Final = 1 << 18
_PROPERTIES: Final = (
    "KEYS\x01key-00\x02UNIQ_KEY\x017F00000100002A139F1B5D3E00000001\x02WAIT\x01true\x02TAGS\x01TagA"
)
"""Those of loadgen.c's messages."""


def send_frame(topic: str, queue_id: int) -> bytes:
    """Code 310 with a body of 128 bytes."""
    fields: dict[str, object] = {
        "a": "growth",
        "b": topic,
        "c": "TBW102",
        "d": 4,
        "e": queue_id,
        "f": 0,
        "g": int(time.time() * 1000),
        "h": 0,
        "i": _PROPERTIES,
        "j": 0,
        "k": "false",
        "m": "false",
    }
    return frame(310, 1, fields, b"x" * BODY_BYTES)


def pull_frame(group: str, topic: str, queue_id: int, offset: int, **more: object) -> bytes:
    """Code 11 of everything, which commits `offset` (sysFlag 1, and 4 for its subscription)."""
    fields: dict[str, object] = {
        "consumerGroup": group,
        "topic": topic,
        "queueId": queue_id,
        "queueOffset": offset,
        "maxMsgNums": PULL_BATCH,
        "sysFlag": 5,
        "commitOffset": offset,
        "suspendTimeoutMillis": 0,
        "subscription": "*",
        "subVersion": 0,
        "expressionType": "TAG",
        **more,
    }
    return frame(11, 1, fields)


def take_headers(data: bytearray) -> list[bytes]:
    """The header of each whole frame in `data`, which keeps the rest."""
    headers = []
    at = 0
    while len(data) - at >= _HEAD.size:
        length, mark = _HEAD.unpack_from(data, at)
        if len(data) - at < 4 + length:
            break
        headers.append(bytes(data[at + 8 : at + 8 + (mark & _HEADER_LENGTH)]))
        at += 4 + length
    del data[:at]
    return headers


def check_success(header: bytes) -> None:
    """Raises RuntimeError with the answer when its code is not 0."""
    if not header.startswith(_SUCCESS) and json.loads(header)["code"] != 0:
        raise RuntimeError(f"refused: {header.decode(errors='replace'):.300}")


def connect(port: int) -> socket.socket:
    """A blocking connection, within the time in which an answer has to come."""
    sock = socket.create_connection(("127.0.0.1", port), _STALL_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


@contextlib.contextmanager
def connections(port: int, count: int) -> Iterator[list[socket.socket]]:
    """So many of them, closed afterwards."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(connect(port)) for _ in range(count)]


class Traffic(Protocol):
    """What a load asks for; a lane is a connection's number."""

    def request(self, lane: int) -> bytes:
        """The next frame of a lane."""
        ...

    def answered(self, lane: int, header: bytes) -> None:
        """An answer came there. Raises RuntimeError when it is none that was wanted."""
        ...


class Sends:
    """The same frames again and again, whatever the lane. `refused` were too many for the broker at
    their moment, as a Java broker in haste says it."""

    def __init__(self, frames: Sequence[bytes]) -> None:
        self._frames = itertools.cycle(frames)
        self.refused = 0

    def request(self, lane: int) -> bytes:
        """The next of all."""
        return next(self._frames)

    def answered(self, lane: int, header: bytes) -> None:
        """Any success, or "busy"."""
        if header.startswith(_BUSY):
            self.refused += 1
        else:
            check_success(header)


class GroupPulls:
    """Groups in turn pull a topic, each from where it was; at the end of a queue from 0 again.

    A lane is a queue of the topic, with one pull in flight. `messages` were got so far.
    """

    def __init__(self, topic: str, queues: int, groups: int, queue_messages: int) -> None:
        """queue_messages: so many of each queue are pulled, a multiple of what a pull gets."""
        self._topic = topic
        self._queue_messages = queue_messages
        self._groups = [f"growth-group-{number}" for number in range(groups)]
        self._offsets = [[0] * groups for _ in range(queues)]
        self._turns = [0] * queues
        self.messages = 0

    def request(self, lane: int) -> bytes:
        """The pull of the group whose turn it is."""
        group = self._turns[lane]
        return pull_frame(self._groups[group], self._topic, lane, self._offsets[lane][group])

    def answered(self, lane: int, header: bytes) -> None:
        """Where that group goes on."""
        check_success(header)
        group, offsets = self._turns[lane], self._offsets[lane]
        following = int(json.loads(header)["extFields"]["nextBeginOffset"])
        if following <= offsets[group]:
            raise RuntimeError(f"{self._groups[group]} got nothing at {offsets[group]}")
        self.messages += following - offsets[group]
        offsets[group] = following % self._queue_messages
        self._turns[lane] = (group + 1) % len(self._groups)


def drive(port: int, traffic: Traffic, *, lanes: int, window: int, total: int) -> float:
    """`total` requests over `lanes` connections, `window` in flight on each; seconds it took."""
    with connections(port, lanes) as socks, select.epoll() as poll:
        lane_of = {sock.fileno(): lane for lane, sock in enumerate(socks)}
        for sock in socks:
            poll.register(sock, select.EPOLLIN)
        received = [bytearray() for _ in socks]
        began = time.perf_counter()
        sent = done = 0
        free = [window] * lanes
        while True:
            for lane, sock in enumerate(socks):
                count = min(free[lane], total - sent)
                if count:
                    sock.sendall(b"".join([traffic.request(lane) for _ in range(count)]))
                    free[lane] -= count
                    sent += count
            if done == total:
                return time.perf_counter() - began
            events = poll.poll(_STALL_S)
            if not events:
                raise TimeoutError(f"no answer within {_STALL_S:.0f} s, {done} of {total} came")
            for descriptor, _ in events:
                lane = lane_of[descriptor]
                for header in _answers(socks[lane], received[lane]):
                    traffic.answered(lane, header)
                    free[lane] += 1
                    done += 1


def _answers(sock: socket.socket, received: bytearray) -> list[bytes]:
    data = sock.recv(_READ_BYTES)
    if not data:
        raise ConnectionResetError("the broker closed the connection")
    received += data
    return take_headers(received)


def walk(socks: Sequence[socket.socket], request: bytes, total: int) -> float:
    """`total` requests, one in flight altogether, each on the next connection; seconds it took."""
    received = bytearray()
    began = time.perf_counter()
    for sock in itertools.islice(itertools.cycle(socks), total):
        sock.sendall(request)
        headers: list[bytes] = []
        while not headers:
            headers = _answers(sock, received)
        check_success(headers[0])
    return time.perf_counter() - began


class ParkedPulls:
    """Pulls that wait, each at the end of a queue of its own, `queues` on a connection.

    A connection's pulls are of its own topic; the topics have to be there.
    """

    def __init__(self, port: int, topics: Sequence[str], queues: int, count: int) -> None:
        """Every pull was written when this returns."""
        self._stack = contextlib.ExitStack()
        self._socks: list[socket.socket] = []
        for topic in topics:
            sock = self._stack.enter_context(connect(port))
            self._socks.append(sock)
            asked = min(queues, count)
            count -= asked
            for queue_id in range(asked):
                sock.sendall(self._pull(topic, queue_id))
            self._last = topic, asked - 1

    @staticmethod
    def _pull(topic: str, queue_id: int) -> bytes:
        waits = {"sysFlag": 6, "commitOffset": 0, "suspendTimeoutMillis": 3_600_000}
        return pull_frame("growth-parked", topic, queue_id, 0, **waits)

    def __enter__(self) -> ParkedPulls:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def check(self, port: int) -> None:
        """None was answered, and the last one is when its message comes. Raises RuntimeError."""
        if not self._socks:
            return
        answered = next((sock for sock in self._socks if events_of(sock)), None)
        if answered is not None:
            [header, *_] = _answers(answered, bytearray()) or [b"a part of an answer"]
            raise RuntimeError(f"a parked pull was answered: {header.decode():.300}")
        with connect(port) as sock:
            walk([sock], send_frame(*self._last), 1)
        received, headers = bytearray(), list[bytes]()
        while not headers:
            headers = _answers(self._socks[-1], received)
        check_success(headers[0])
