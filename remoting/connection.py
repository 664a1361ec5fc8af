"""Connection: one non-blocking socket, the frames that come in and the bytes that go out.

Runs on its SelectorLoop's thread; `send_command` and `close` may be called from any thread. Whole
frames are handed to a `FrameSink` as views into a receive buffer that all connections of a loop
share: a sink copies what outlives its call. frame.py cuts bytes into frames, the sink interprets
them.

The socket may be an encrypting one (tls_socket.py), which behaves like a plain one.

Back-pressure is derived from state: while more than `high_water` bytes wait to be written, the
socket is not read, and frames that were read already wait (`takes_frames`). A peer that lets 64 MiB
of answers pile up beyond that does not read them and is closed. The bytes of an incomplete frame
are accounted for in receive_buffer.py.
"""

from __future__ import annotations

import enum
import errno
import itertools
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from remoting.errors import FrameError
from remoting.frame import HEAD_SIZE, frame_size
from remoting.receive_buffer import ReceiveBuffer
from remoting.remoting_codec import encode_command
from remoting.remoting_command import RemotingCommand
from remoting.selector_loop import EVENT_READ, EVENT_WRITE, SelectorLoop

log = logging.getLogger(__name__)

_LARGE_FRAME: Final = 1 << 16
"""A larger frame that is incomplete gets a buffer of its own, which grows with what arrives."""
_SMALL_REST: Final = 1 << 12
"""So much of a frame is held without being counted: every second read ends with some."""
_PILE_LIMIT: Final = 64 << 20
"""Bytes that may wait to be written beyond the high-water mark: four of the largest frames."""
_IOV_MAX: Final = 512
_JOIN_LIMIT: Final = 1 << 16

Buffer = bytes | memoryview
_ids = itertools.count(1)


class StreamSocket(Protocol):
    """What is needed of a connected, non-blocking socket."""

    def fileno(self) -> int: ...
    def getpeername(self) -> Any: ...
    def getsockname(self) -> Any: ...
    def recv_into(self, view: memoryview, /) -> int: ...
    def send(self, data: Buffer, /) -> int: ...
    def sendmsg(self, pieces: Sequence[Buffer], /) -> int: ...
    def close(self) -> None: ...


class FrameSink(Protocol):
    """Takes the frames of a connection; runs on the loop's thread."""

    def on_data(self, connection: Connection, view: memoryview, end: int) -> int:
        """Handle every whole frame of view[:end] (split_frames); returns the bytes consumed.

        Raises FrameError as soon as the bytes, even only the first four, cannot be a frame; the
        connection is then closed.
        """

    def on_closed(self, connection: Connection, reason: str) -> None:
        """The connection is gone; called once."""


class Phase(enum.Enum):
    """Life of a connection: OPEN -> DRAINING (responses are sent, nothing is read) -> CLOSED."""

    OPEN = 1
    DRAINING = 2
    CLOSED = 3


class Connection:
    """One peer. Owned by: the loop's thread."""

    __slots__ = (
        "_dirty",
        "_flush_list",
        "_have",
        "_held",
        "_high_water",
        "_interest",
        "_large",
        "_loop",
        "_on_event",
        "_out",
        "_out_bytes",
        "_partial",
        "_receive",
        "_since_ms",
        "_sink",
        "_size",
        "_sock",
        "connection_id",
        "host",
        "is_from_this_machine",
        "last_read_ms",
        "last_write_ms",
        "local_port",
        "phase",
        "port",
        "remote_address",
        "state",
        "takes_frames",
    )

    def __init__(
        self,
        loop: SelectorLoop,
        sock: StreamSocket,
        sink: FrameSink,
        *,
        receive: ReceiveBuffer,
        flush_list: list[Connection],
        high_water: int,
    ) -> None:
        self._loop = loop
        self._sock = sock
        self._sink = sink
        self._receive = receive
        self._flush_list = flush_list
        self._high_water = high_water
        self._out: list[Buffer] = []
        self._out_bytes = 0
        self._dirty = False
        self._partial: bytes = b""
        """Read, not consumed: the beginning of a frame, or frames that wait for `takes_frames`."""
        self._large: bytearray | None = None
        self._have = self._size = 0
        """Of the large frame: bytes that arrived, bytes of all."""
        self._held = False
        """Whether the receive buffer's account has an entry for it."""
        self._since_ms = 0
        """When the incomplete frame began to be incomplete."""
        self._interest = EVENT_READ
        self._on_event: Callable[[int], None] = self._handle_event
        self.phase = Phase.OPEN
        self.connection_id = next(_ids)
        peer = sock.getpeername()
        self.host: str = peer[0]
        self.port: int = peer[1]
        local = sock.getsockname()
        self.local_port: int = local[1]
        self.is_from_this_machine: bool = local[0] == self.host
        self.remote_address = f"{self.host}:{self.port}"
        self.last_read_ms = self.last_write_ms = loop.now_ms
        self.state: object = None
        """Whatever the sink keeps about this peer."""
        self.takes_frames = True
        """Whether the sink shall go on with the next frame: it is open, and not too much waits."""

    def open(self) -> None:
        """Start reading; the owner has already added the connection to its table."""
        self._loop.register(self._sock, EVENT_READ, self._on_event)

    @property
    def is_open(self) -> bool:
        """Whether responses can still be sent."""
        return self.phase is Phase.OPEN

    @property
    def pending_bytes(self) -> int:
        """Bytes that wait to be written."""
        return self._out_bytes

    def is_incomplete_since(self, limit_ms: int) -> bool:
        """Whether a frame began to arrive before `limit_ms` (the loop's clock) and is not whole."""
        return self._since_ms < limit_ms and (bool(self._partial) or self._large is not None)

    # -- any thread ----------------------------------------------------------------------------

    def send_command(self, command: RemotingCommand) -> None:
        """Send `command`; a closed connection drops it."""
        frame = encode_command(command)
        if self._loop.in_loop_thread():
            self.write(frame)
        else:
            self._loop.call_soon_threadsafe(lambda: self.write(frame))

    def send_bytes(self, frame: bytes) -> None:
        """Send an encoded frame; a closed connection drops it."""
        if self._loop.in_loop_thread():
            self.write(frame)
        else:
            self._loop.call_soon_threadsafe(lambda: self.write(frame))

    def close(self, reason: str) -> None:
        """Close immediately, dropping unwritten bytes."""
        if self._loop.in_loop_thread():
            self._close(reason)
        else:
            self._loop.call_soon_threadsafe(lambda: self._close(reason))

    # -- loop thread ---------------------------------------------------------------------------

    def write(self, data: Buffer) -> None:
        """Queue `data`; it is sent at the end of the turn. A view must stay valid until then."""
        if self.phase is Phase.CLOSED:
            return
        self._out.append(data)
        self._out_bytes += len(data)
        if self._out_bytes > self._high_water:
            self.takes_frames = False
        if not self._dirty:
            self._dirty = True
            self._flush_list.append(self)

    def write_many(self, pieces: list[Buffer], size: int) -> None:
        """Queue several pieces of `size` bytes together."""
        if self.phase is Phase.CLOSED:
            return
        self._out.extend(pieces)
        self._out_bytes += size
        if self._out_bytes > self._high_water:
            self.takes_frames = False
        if not self._dirty:
            self._dirty = True
            self._flush_list.append(self)

    def send_now(self, pieces: list[Buffer], size: int) -> None:
        """`write_many` of what waits for nothing of this turn: it is sent before the turn is over
        unless something else waits to be sent, so that the peer works on it meanwhile. Written out
        for speed: by `write_many` and `flush` pulls of 32 lose 4 %."""
        if self._out or self.phase is not Phase.OPEN or len(pieces) > _IOV_MAX:
            self.write_many(pieces, size)
            return
        if size <= _JOIN_LIMIT:
            pieces = [b"".join(pieces)]
        try:
            sent = self._sock.send(pieces[0]) if len(pieces) == 1 else self._sock.sendmsg(pieces)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as error:
            self._close(f"write failed: {error.strerror or error}")
            return
        self.last_write_ms = self._loop.now_ms
        if sent < size:
            self.write_many(pieces, size)
            self._drop_sent(sent)

    def flush(self) -> None:
        """Write as much as the socket accepts; the rest follows when it is writable again."""
        self._dirty = False
        if self.phase is Phase.CLOSED or not self._out:
            return
        try:
            self._send_out()
        except OSError as error:
            self._close(f"write failed: {error.strerror or error}")
            return
        if self._out_bytes > self._high_water + _PILE_LIMIT:
            self._close(f"it does not read: {self._out_bytes} bytes wait", logging.WARNING)
            return
        self._update_interest()

    def drain_and_close(self, reason: str) -> None:
        """Stop reading; close when everything queued has been written."""
        if self.phase is not Phase.OPEN:
            return
        self.phase = Phase.DRAINING
        self.takes_frames = False
        if not self._out:
            self._close(reason)
            return
        self._update_interest()

    # -- reading -------------------------------------------------------------------------------

    def _handle_event(self, events: int) -> None:
        if self.phase is Phase.CLOSED:
            return
        if events & EVENT_WRITE:
            self.flush()
        if events & EVENT_READ and self.phase is Phase.OPEN:
            self._read()

    def _read(self) -> None:
        try:
            if self._large is None:
                self._read_shared()
            else:
                self._read_large(self._large)
        except (BlockingIOError, InterruptedError):
            return
        except FrameError as error:
            self._close(f"bad frame: {error}", logging.WARNING)
        except OSError as error:
            self._close(f"read failed: {error.strerror or error}")

    def _read_shared(self) -> None:
        view = self._receive.view
        carry = len(self._partial)
        if carry > _LARGE_FRAME:  # Not the beginning of one frame: they waited, and go first.
            self._take_kept()
            return
        if carry:
            view[:carry] = self._partial
        count = self._sock.recv_into(view[carry:])
        if not count:
            self._close("closed by the peer")
            return
        self.last_read_ms = self._loop.now_ms
        self._consume(view, carry, carry + count)

    def _consume(self, view: memoryview, carry: int, end: int) -> None:
        """Pass on what is whole of view[:end], whose first `carry` bytes were read before."""
        self._partial = b""
        if self._held:
            self._let_go()
        used = self._sink.on_data(self, view, end)
        if used < end and self.phase is Phase.OPEN:
            if used or not carry:
                self._since_ms = self._loop.now_ms
            self._keep(view, used, end)

    def _keep(self, view: memoryview, used: int, end: int) -> None:
        have = end - used
        # Of a shorter beginning nobody has checked yet whether it can be a frame's.
        size = frame_size(view, used) if have >= HEAD_SIZE else 0
        if size > _LARGE_FRAME and size > have:
            self._size, self._have = size, have
            self._large = bytearray(min(size, max(2 * have, _SMALL_REST)))
            self._large[:have] = view[used:end]
            self._hold(len(self._large))
            return
        self._partial = bytes(view[used:end])
        if have > _SMALL_REST:
            self._hold(have)

    def _read_large(self, large: bytearray) -> None:
        if self._have == len(large):
            # Doubled: each byte is copied once more at most, and no more is held than arrived.
            large.extend(bytes(min(self._size, 2 * len(large)) - len(large)))
            self._hold(len(large))
            if self.phase is Phase.CLOSED:
                return
        with memoryview(large) as view, view[self._have :] as rest:
            count = self._sock.recv_into(rest)
        if not count:
            self._close("closed by the peer in the middle of a frame")
            return
        self.last_read_ms = self._loop.now_ms
        self._have += count
        if self._have == self._size:
            self._large = None
            self._consume(memoryview(large), 0, self._size)

    def _hold(self, size: int) -> None:
        self._held = True
        self._receive.hold(self, size, self._loop.now_ms)

    def _let_go(self) -> None:
        self._held = False
        self._receive.release(self)

    def _take_kept(self) -> None:
        """Enough was written: the frames that waited, without another event of the socket."""
        carry = len(self._partial)
        if not carry or not self.takes_frames or self._large is not None:
            return
        try:
            self._consume(memoryview(self._partial), carry, carry)
        except FrameError as error:
            self._close(f"bad frame: {error}", logging.WARNING)

    # -- writing -------------------------------------------------------------------------------

    def _send_out(self) -> None:
        """Send until all is gone or the socket is full. Small pieces are joined: one copy of up
        to 64 KiB costs less than a long vector of views."""
        while self._out:
            if len(self._out) > 1 and self._out_bytes <= _JOIN_LIMIT:
                self._out = [b"".join(self._out)]
            batch = self._out if len(self._out) <= _IOV_MAX else self._out[:_IOV_MAX]
            try:
                sent = self._sock.send(batch[0]) if len(batch) == 1 else self._sock.sendmsg(batch)
            except (BlockingIOError, InterruptedError):
                return
            self.last_write_ms = self._loop.now_ms
            if sent == self._out_bytes:
                self._out = []
                self._out_bytes = 0
                return
            self._drop_sent(sent)
            if sent < sum(map(len, batch)):
                return

    def _drop_sent(self, sent: int) -> None:
        self._out_bytes -= sent
        index = 0
        out = self._out
        while index < len(out) and sent >= len(out[index]):
            sent -= len(out[index])
            index += 1
        rest = out[index:]
        if sent:
            rest[0] = memoryview(rest[0])[sent:]
        self._out = rest

    # -- interest and end ----------------------------------------------------------------------

    def _update_interest(self) -> None:
        if self.phase is Phase.DRAINING:
            if not self._out:
                self._close("drained")
                return
            wanted = EVENT_WRITE
        elif not self._out:
            wanted = EVENT_READ
        elif self._out_bytes > self._high_water:
            wanted = EVENT_WRITE
        else:
            wanted = EVENT_READ | EVENT_WRITE
        self._set_interest(wanted)
        if wanted & EVENT_READ and not self.takes_frames:
            self.takes_frames = True
            if self._partial:
                self._loop.call_soon_threadsafe(self._take_kept)

    def _set_interest(self, wanted: int) -> None:
        if wanted != self._interest:
            self._interest = wanted
            self._loop.modify(self._sock, wanted, self._on_event)

    def _close(self, reason: str, level: int = logging.INFO) -> None:
        if self.phase is Phase.CLOSED:
            return
        self.phase = Phase.CLOSED
        self.takes_frames = False
        self._out = []
        self._out_bytes = 0
        self._large = None
        self._partial = b""
        if self._held:
            self._let_go()
        try:
            self._loop.unregister(self._sock)
        except (KeyError, ValueError, OSError) as error:
            if getattr(error, "errno", None) not in (None, errno.EBADF):
                log.warning("%s: unregister failed: %s", self.remote_address, error)
        self._sock.close()
        log.log(level, "%s: connection closed: %s", self.remote_address, reason)
        self._sink.on_closed(self, reason)
