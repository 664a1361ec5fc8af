"""The limit that bin/bench compare puts beside a row: what a send and a pull cost without a broker.

`python -m tests.bench.stripped_broker PORT`, one process with one thread. It takes frames of
request codes 310 (send) and 11 (pull) as the load generator writes them, and does what no broker in
CPython can do without: it decodes the header, makes the record with its CRC and the unit of its
queue, copies the records of a turn into a mapping with one slice, and answers; a pull walks the
units and answers with views of the log. It checks nothing, knows no topic, keeps no index, writes
to no disk, replicates nothing, and forgets everything with its end: a measuring device.

Its memory is touched before it says that it serves. It ends when its log is full.
"""

from __future__ import annotations

import mmap
import select
import socket
import struct
import sys
import time
import zlib
from typing import Final

import msgspec

LOG_SIZE: Final = 1 << 30
_UNITS: Final = 2_000_000
"""Of each queue."""
_RECEIVE_SIZE: Final = 1 << 19
_SEND_BUFFER: Final = 1 << 20
_MADV_POPULATE_WRITE: Final = 23
_POPULATE_STEP: Final = 64 << 20
_HOST: Final = b"\x7f\0\0\x01\0\0\x2a\x9f"
_MAGIC: Final = -626843481
_EVENTS: Final = 64
_FRAME: Final = struct.Struct(">II")
_RECORD: Final = struct.Struct(">iiiiiqqiq8sq8siqi")
"""All fields of a record before its body, the body's length included."""
_LENGTH: Final = struct.Struct(">h")
_UNIT: Final = struct.Struct(">qiq")
_SEND: Final = b'{"code":310,'
_PULL: Final = b'{"code":11,"'
_SENT: Final = (
    b'{"code":0,"extFields":{"msgId":"7F00000100002A9F%016X","queueId":"%d","queueOffset":"%d",'
    b'"MSG_REGION":"DefaultRegion","TRACE_ON":"true"},"flag":1,"language":"PYTHON","opaque":%d,'
    b'"serializeTypeCurrentRPC":"JSON","version":401}'
)
_PULLED: Final = (
    b'{"code":%d,"extFields":{"suggestWhichBrokerId":"0","nextBeginOffset":"%d","minOffset":"0",'
    b'"maxOffset":"%d"},"flag":1,"language":"PYTHON","opaque":%d,'
    b'"serializeTypeCurrentRPC":"JSON","version":401}'
)


class _SendFields(msgspec.Struct):
    b: str
    e: str
    f: str
    g: str
    h: str
    i: str


class _SendHeader(msgspec.Struct):
    opaque: int
    extFields: _SendFields  # noqa: N815 - as it is written


class _PullFields(msgspec.Struct):
    topic: str
    queueId: str  # noqa: N815
    queueOffset: str  # noqa: N815
    maxMsgNums: str  # noqa: N815


class _PullHeader(msgspec.Struct):
    opaque: int
    extFields: _PullFields  # noqa: N815


class Queue:
    """The units of one queue."""

    __slots__ = ("count", "units")

    def __init__(self) -> None:
        self.units = mmap.mmap(-1, _UNITS * _UNIT.size)
        self.count = 0


class Log:
    """The records, and the queues."""

    def __init__(self) -> None:
        self.bytes = mmap.mmap(-1, LOG_SIZE)
        for at in range(0, LOG_SIZE, _POPULATE_STEP):
            self.bytes.madvise(_MADV_POPULATE_WRITE, at, _POPULATE_STEP)
        self.view = memoryview(self.bytes)
        self.end = 0
        self.queues: dict[tuple[str, int], Queue] = {}
        self.topics: dict[str, bytes] = {}

    def queue(self, topic: str, queue_id: int) -> Queue:
        """Made by whoever asks first."""
        key = (topic, queue_id)
        found = self.queues.get(key)
        if found is None:
            found = self.queues[key] = Queue()
        return found


class Connection:
    """One socket, blocking, and what was received of the next frame."""

    __slots__ = ("_buffer", "_filled", "_log", "sock")

    def __init__(self, sock: socket.socket, log: Log) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER)
        self.sock = sock
        self._log = log
        self._buffer = bytearray(_RECEIVE_SIZE)
        self._filled = 0

    def turn(self) -> bool:
        """Answer what is there; whether the connection is still open."""
        buffer = self._buffer
        received = self.sock.recv_into(memoryview(buffer)[self._filled :])
        if not received:
            return False
        filled, at = self._filled + received, 0
        view = memoryview(buffer)
        sends: list[tuple[_SendHeader, memoryview]] = []
        while filled - at >= _FRAME.size:
            length, header_length = _FRAME.unpack_from(buffer, at)
            if at + 4 + length > filled:
                break
            body_at = at + 8 + header_length
            header, kind = view[at + 8 : body_at], buffer[at + 8 : at + 20]
            if kind == _SEND:
                sends.append((_decode_send(header), view[body_at : at + 4 + length]))
            elif kind == _PULL:
                self._pull(_decode_pull(header))
            else:
                raise SystemExit(f"stripped_broker: not made for {bytes(header)!r:.100}")
            at += 4 + length
        if sends:
            self._send(sends)
        if at < filled:
            buffer[: filled - at] = buffer[at:filled]
        self._filled = filled - at
        return True

    def _send(self, sends: list[tuple[_SendHeader, memoryview]]) -> None:
        """The hot loop: the records of a turn, one copy, one answer."""
        log = self._log
        records: list[bytes | memoryview] = []
        answers: list[bytes] = []
        end, stored_ms = log.end, int(time.time() * 1000)
        topics, crc32 = log.topics, zlib.crc32
        for header, body in sends:
            fields = header.extFields
            topic = topics.get(fields.b)
            if topic is None:
                topic = topics[fields.b] = bytes((len(fields.b),)) + fields.b.encode()
            properties, queue_id = fields.i.encode(), int(fields.e)
            queue = log.queue(fields.b, queue_id)
            offset, size = queue.count, 90 + len(body) + len(topic) + len(properties)
            records += (
                _RECORD.pack(
                    *(size, _MAGIC, crc32(body) & 0x7FFFFFFF, queue_id, int(fields.f), offset, end),
                    *(int(fields.h), int(fields.g), _HOST, stored_ms, _HOST, 0, 0, len(body)),
                ),
                body,
                topic,
                _LENGTH.pack(len(properties)),
                properties,
            )
            _UNIT.pack_into(queue.units, offset * _UNIT.size, end, size, 0)
            queue.count = offset + 1
            answer = _SENT % (end, queue_id, offset, header.opaque)
            answers += (_FRAME.pack(4 + len(answer), len(answer)), answer)
            end += size
        if end > LOG_SIZE:
            raise SystemExit(f"stripped_broker: its log of {LOG_SIZE >> 20} MiB is full")
        log.bytes[log.end : end] = b"".join(records)
        log.end = end
        self.sock.sendall(b"".join(answers))

    def _pull(self, header: _PullHeader) -> None:
        fields = header.extFields
        queue = self._log.queue(fields.topic, int(fields.queueId))
        offset = int(fields.queueOffset)
        last = min(queue.count, offset + int(fields.maxMsgNums))
        units = queue.units[offset * _UNIT.size : last * _UNIT.size]
        log = self._log.view
        parts = [log[at : at + size] for at, size, _ in _UNIT.iter_unpack(units)]
        answer = _PULLED % (0 if parts else 19, last, queue.count, header.opaque)
        length = 4 + len(answer) + sum(map(len, parts))
        head = _FRAME.pack(length, len(answer)) + answer
        left = length + 4 - self.sock.sendmsg([head, *parts])
        if left:
            rest = head + b"".join(parts)
            self.sock.sendall(rest[-left:])


_decode_send: Final = msgspec.json.Decoder(_SendHeader).decode
_decode_pull: Final = msgspec.json.Decoder(_PullHeader).decode


def serve(port: int) -> None:
    """Until the process is ended."""
    log = Log()
    connections: dict[int, Connection] = {}
    with socket.create_server(("127.0.0.1", port), backlog=128) as listening:
        poll = select.epoll()
        poll.register(listening, select.EPOLLIN)
        print(f"The broker[stripped, 127.0.0.1:{port}] boot success", flush=True)
        while True:
            for fd, _ in poll.poll(-1, _EVENTS):
                if fd == listening.fileno():
                    connection = Connection(listening.accept()[0], log)
                    connections[connection.sock.fileno()] = connection
                    poll.register(connection.sock, select.EPOLLIN)
                elif not connections[fd].turn():
                    poll.unregister(fd)
                    connections.pop(fd).sock.close()


if __name__ == "__main__":
    serve(int(sys.argv[1]))
