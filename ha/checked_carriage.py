"""The frames of controller mode between two brokers of ours, with checksums: CheckedCarriage.

Pure; any thread. It follows our handshake (handshake.py), so that no Java peer ever sees it; what
it carries are the frames of autoswitch_frame.py, unchanged. Big-endian integers.

    master -> slave   int32 size of the frame, uint32 CRC32C of the frame, uint32 CRC32C of these 8
                      bytes, then the frame
    slave -> master   the frame, then 16 bytes: the first ones of HMAC-SHA256(key, frame)

The size has a checksum of its own: a damaged one would make the slave wait for bytes that nobody
sends. The key is of this one connection, and nobody without the secret knows it (reports.py).
"""

from __future__ import annotations

import hmac
from collections.abc import Iterator
from struct import Struct
from typing import Final

from ha.autoswitch_frame import (
    MAX_TRANSFER_BODY,
    REPORT_SIZE,
    SLAVE_HANDSHAKE_SIZE,
    TRANSFER_HEADER_SIZE,
    AutoSwitchFrameError,
    HAConnectionState,
)
from ha.frame_checksum import crc32c
from ha.refusals import RefusalReason

_HEAD: Final = Struct(">iII")
_SUMMED: Final = Struct(">iI")
_STATE: Final = Struct(">i")
assert (_HEAD.size, _SUMMED.size) == (12, 8)
HEAD_SIZE: Final = _HEAD.size
SEAL_SIZE: Final = 16
_MOST: Final = MAX_TRANSFER_BODY + TRANSFER_HEADER_SIZE
_SIZES: Final = {
    HAConnectionState.HANDSHAKE: SLAVE_HANDSHAKE_SIZE,
    HAConnectionState.TRANSFER: REPORT_SIZE,
}


def head_of(frame: bytes | memoryview, body: bytes | memoryview = b"") -> bytes:
    """What goes before a master's frame, of which `body` is the last part."""
    crc = crc32c(body, crc32c(frame))
    head = _SUMMED.pack(len(frame) + len(body), crc)
    return head + crc32c(head).to_bytes(4, "big")


class MasterBytes:
    """What a slave receives, as bytes of its master's frames. Owned by its reader's thread."""

    def __init__(self, *, is_checked: bool) -> None:
        """is_checked: the link began with our handshake."""
        self._is_checked = is_checked
        self._buffer = bytearray()

    def receive(self, data: memoryview) -> Iterator[bytes | memoryview]:
        """The frames that are whole and right; of an unchecked link just the bytes. At most one
        frame is kept. Raises AutoSwitchFrameError: damaged, nothing after it can be read."""
        if not self._is_checked:
            yield data
            return
        buffer = self._buffer
        buffer += data
        while len(buffer) >= _HEAD.size:
            size, crc, head_crc = _HEAD.unpack_from(buffer)
            if crc32c(bytes(buffer[: _SUMMED.size])) != head_crc:
                raise _damaged("a size")
            if not 0 < size <= _MOST:
                raise AutoSwitchFrameError(f"a frame of {size} bytes; a slave takes {_MOST}")
            end = _HEAD.size + size
            if len(buffer) < end:
                return
            with memoryview(buffer) as view:  # A slice of the buffer itself is one more copy.
                frame = bytes(view[_HEAD.size : end])
            if crc32c(frame) != crc:
                raise _damaged(f"{size} bytes")
            del buffer[:end]
            yield frame


class SlaveBytes:
    """What a slave sends, sealed and opened. Each end of a connection has one."""

    def __init__(self, key: bytes | None) -> None:
        """key: what the handshake made; None: frames are neither sealed nor checked."""
        self._key = key
        self._buffer = b""

    def pack(self, frame: bytes) -> bytes:
        """The bytes that carry a frame; none for none."""
        return frame if self._key is None or not frame else frame + _seal(self._key, frame)

    def receive(self, data: bytes) -> bytes:
        """The frames in `data` that are whole. Raises AutoSwitchFrameError."""
        if self._key is None:
            return data
        buffer, found, at = self._buffer + data, [], 0
        while (size := _size_at(buffer, at)) and at + size + SEAL_SIZE <= len(buffer):
            frame = buffer[at : at + size]
            seal = buffer[at + size : at + size + SEAL_SIZE]
            if not hmac.compare_digest(_seal(self._key, frame), seal):
                raise _damaged("a report")
            found.append(frame)
            at += size + SEAL_SIZE
        self._buffer = buffer[at:]
        return b"".join(found)


def _size_at(buffer: bytes, at: int) -> int:
    """Of the slave's frame at `at`; 0: not known yet."""
    if len(buffer) - at < _STATE.size:
        return 0
    (state,) = _STATE.unpack_from(buffer, at)
    if state not in _SIZES:
        raise AutoSwitchFrameError(f"state {state}: no frame of a group with a controller")
    return _SIZES[state]


def _seal(key: bytes, frame: bytes) -> bytes:
    return hmac.digest(key, frame, "sha256")[:SEAL_SIZE]


def _damaged(what: str) -> AutoSwitchFrameError:
    return AutoSwitchFrameError(
        f"{what} came with a wrong checksum: damaged in transit; it is asked for again. If it "
        "recurs, check the network (offloading, middleboxes) and both machines' memory",
        RefusalReason.BAD_CHECKSUM,
    )
