"""Rows: the frame cutter of a connection, and both forms of a header."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from remoting.connection import Connection
from remoting.errors import EncodeError, FrameError
from remoting.frame import split_frames
from remoting.receive_buffer import ReceiveBuffer
from remoting.remoting_codec import decode_command, encode_header
from remoting.remoting_command import SerializeType
from tests.fuzz.mutation import mutate_frames, mutate_json
from tests.fuzz.target import Stateless, Target
from tests.remoting.golden_frames import golden_frames


class _Pieces:
    """A socket that gives what it holds in pieces."""

    def __init__(self, data: bytes, piece: int) -> None:
        self._data, self._piece = data, piece

    def getpeername(self) -> tuple[str, int]:
        return ("127.0.0.1", 1)

    getsockname = getpeername

    def recv_into(self, view: memoryview) -> int:
        part = self._data[: min(self._piece, len(view))]
        if not part:
            raise BlockingIOError
        self._data = self._data[len(part) :]
        view[: len(part)] = part
        return len(part)

    def close(self) -> None:
        self._data = b""

    @property
    def is_empty(self) -> bool:
        return not self._data


class _Sink:
    """Notes frames, and the end."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, bytes, bytes]] = []
        self.is_closed = False

    def on_data(self, connection: Connection, view: memoryview, end: int) -> int:
        return split_frames(view, end, self._take, connection)

    def _take(self, _peer: Connection, kind: int, header: bytes, body: memoryview) -> bool:
        self.seen.append((kind, header, bytes(body)))
        return True

    def on_closed(self, _connection: Connection, _reason: str) -> None:
        self.is_closed = True


_LOOP: Any = SimpleNamespace(
    now_ms=0, in_loop_thread=lambda: True, unregister=lambda _sock: None, modify=lambda *_: None
)


def _received(data: bytes, piece: int) -> _Sink:
    sink, sock = _Sink(), _Pieces(data, piece)
    connection = Connection(
        _LOOP,
        sock,  # type: ignore[arg-type]
        sink,
        receive=ReceiveBuffer(),
        flush_list=[],
        high_water=1 << 20,
    )
    while not sock.is_empty and not sink.is_closed:
        connection._handle_event(1)
    return sink


def _cut(data: bytes) -> None:
    """However the bytes arrive, the frames are the same."""
    whole = _received(data, len(data) or 1)
    parts = _received(data, 1 + zlib.crc32(data) % 40)
    assert whole.seen == parts.seen
    assert whole.is_closed == parts.is_closed
    for kind, header, body in whole.seen:
        try:
            decode_command(header, kind, body)
        except FrameError:
            continue


def _decoded(kind: SerializeType) -> Callable[[bytes], None]:
    def decode(header: bytes) -> None:
        """What was read is written and read again: the same."""
        command = decode_command(header, kind)
        command.serialize_type = kind
        if kind is SerializeType.ROCKETMQ:
            # A block of nothing but empty names is read as fields, and not written.
            command.has_ext_fields = bool(command.ext_fields)
        written = encode_header(command)
        again = decode_command(written[8:], kind)
        again.serialize_type = kind
        assert again == command, f"{command!r} became {again!r}"

    return decode


def _headers(kind: SerializeType) -> Sequence[bytes]:
    found = {}
    for frame in golden_frames():
        size = int.from_bytes(frame.frame[5:8], "big")
        if frame.frame[4] == kind:
            found.setdefault(frame.path.parent, frame.frame[8 : 8 + size])
    return list(found.values())


@functools.cache
def _frames() -> Sequence[bytes]:
    ours = [frame.frame for frame in golden_frames() if len(frame.frame) < 1500]
    return [*ours[::9], ours[0] + ours[1] + ours[2], b"", bytes(8), b"\x00\x00\x00\x04"]


@functools.cache
def _names() -> Sequence[bytes]:
    words = {b"code", b"flag", b"language", b"opaque", b"remark", b"version", b"extFields", b"JAVA"}
    return [*sorted(words), b"serializeTypeCurrentRPC", b"ROCKETMQ", b"\\u0000", b"\\ud800"]


def _header_row(name: str, kind: SerializeType, what: str) -> Target:
    def world(_root: Path) -> Stateless:
        return Stateless(_decoded(kind), (FrameError, EncodeError))

    return Target(
        name=name,
        what=what,
        world=world,
        seeds=lambda: _headers(kind),
        rooms=("remoting",),
        mutate=mutate_json,
        tokens=_names,
    )


ROWS = (
    Target(
        name="frames",
        what="a connection's bytes: cut into frames whole and in pieces, headers decoded",
        world=lambda _root: Stateless(_cut),
        seeds=_frames,
        rooms=("remoting",),
        mutate=mutate_frames,
        tokens=_names,
    ),
    _header_row("json-header", SerializeType.JSON, "headers of JSON"),
    _header_row("binary-header", SerializeType.ROCKETMQ, "headers of the form ROCKETMQ"),
)
