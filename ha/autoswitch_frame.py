"""The HA wire format of RocketMQ's controller mode (AutoSwitchHA of 5.3.3): both ends, both ways.

Pure: bytes in, frames out; no socket, no file, no clock; any thread. Big-endian integers. Each
frame begins with the sender's state (HAConnectionState), which says how long its header is:

    slave -> master    handshake   int32 1, int16 sync from last file, int16 async learner, int64
                                   broker id
                       report      int32 2, int64 max phy offset
    master -> slave    handshake   int32 1, int32 size of the body, int64 max phy offset, int32 last
                                   epoch; body: int32 epoch, int64 start offset, for each epoch
                       transfer    int32 2, int32 size of the body, int64 offset, int32 epoch, int64
                                   start offset of that epoch, int64 confirm offset; then the bytes
                                   of the log from `offset` on; size 0 is a heartbeat, whose offset
                                   is the next one that will be sent, or -1 before the first

Epoch and start on a transfer frame are what its sender says, and nothing may rest on them: Java
labels the last frame of an epoch with the next one (docs/failover.md, P24). The order of frames is
not judged here: a Java slave repeats its handshake after five seconds without an answer. The
protocol without a controller is in frame.py.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from struct import Struct
from typing import Final, Generic, NamedTuple, TypeVar

from ha.epochs import MAX_ENTRIES, EpochList, EpochOrderError, greeted
from ha.frame import MAX_FRAME_BODY
from ha.refusals import RefusalReason

_STATE: Final = Struct(">i")
_SLAVE_HANDSHAKE: Final = Struct(">ihhq")
_REPORT: Final = Struct(">iq")
_MASTER_HANDSHAKE: Final = Struct(">iiqi")
_EPOCH_ENTRY: Final = Struct(">iq")
_TRANSFER: Final = Struct(">iiqiqq")
assert (_SLAVE_HANDSHAKE.size, _REPORT.size, _EPOCH_ENTRY.size) == (16, 12, 12)
assert (_MASTER_HANDSHAKE.size, _TRANSFER.size) == (20, 36)

SLAVE_HANDSHAKE_SIZE: Final = _SLAVE_HANDSHAKE.size
REPORT_SIZE: Final = _REPORT.size
TRANSFER_HEADER_SIZE: Final = _TRANSFER.size
MAX_TRANSFER_BODY: Final = MAX_FRAME_BODY + 12 - _TRANSFER.size
"""A Java slave's buffer of 4 MiB holds the header, too."""
_MAX_HANDSHAKE_BODY: Final = MAX_ENTRIES * _EPOCH_ENTRY.size
_NOTHING_SENT: Final = -1
_NO_CONFIRM_OFFSET: Final = -1
_MAX_OFFSET: Final = 2**63 - 1


class HAConnectionState(enum.IntEnum):
    """RocketMQ's states of an HA connection; only the second and the third are ever sent."""

    READY = 0
    HANDSHAKE = 1
    TRANSFER = 2
    SUSPEND = 3
    SHUTDOWN = 4


class AutoSwitchFrameError(ValueError):
    """Bytes that no peer of this protocol sends; the message names the field and its value."""

    def __init__(self, text: str, reason: RefusalReason = RefusalReason.BAD_FRAME) -> None:
        """reason: what the end of the connection is counted as."""
        super().__init__(text)
        self.reason: Final = reason


class SlaveHandshakeFrame(NamedTuple):
    """What a slave says first."""

    broker_id: int
    """Of the controller, from 1."""
    sync_from_last_file: bool = False
    """With an empty log: begin at the master's newest file."""
    async_learner: bool = False
    """It never belongs into the SyncStateSet."""

    def __str__(self) -> str:
        """For people; it may be a stranger's word."""
        return f"of broker {self.broker_id}"


class ReportFrame(NamedTuple):
    """How far a slave's log goes; 0: it is empty."""

    max_offset: int


class MasterHandshakeFrame(NamedTuple):
    """A master's answer to a handshake."""

    max_offset: int
    last_epoch: int
    """Of a Java master it may be newer than the list, which is read a moment earlier."""
    epochs: EpochList


class TransferFrame(NamedTuple):
    """Bytes of a master's log, or a heartbeat."""

    offset: int
    epoch: int
    epoch_start_offset: int
    confirm_offset: int
    body: bytes


SlaveFrame = SlaveHandshakeFrame | ReportFrame
MasterFrame = MasterHandshakeFrame | TransferFrame


# Writing


def encode_slave_handshake(frame: SlaveHandshakeFrame) -> bytes:
    """The first 16 bytes of a slave."""
    return _SLAVE_HANDSHAKE.pack(
        HAConnectionState.HANDSHAKE,
        frame.sync_from_last_file,
        frame.async_learner,
        frame.broker_id,
    )


def encode_report(max_offset: int) -> bytes:
    """A slave's report."""
    return _REPORT.pack(HAConnectionState.TRANSFER, max_offset)


def encode_master_handshake(frame: MasterHandshakeFrame) -> bytes:
    """A master's handshake. Raises AutoSwitchFrameError for a list that is too long for one."""
    entries = frame.epochs.entries
    if len(entries) > MAX_ENTRIES:
        raise AutoSwitchFrameError(f"{len(entries)} epochs, a handshake holds {MAX_ENTRIES}")
    body = b"".join(_EPOCH_ENTRY.pack(*entry) for entry in entries)
    state = HAConnectionState.HANDSHAKE
    return _MASTER_HANDSHAKE.pack(state, len(body), frame.max_offset, frame.last_epoch) + body


def encode_transfer_header(frame: TransferFrame, body_size: int) -> bytes:
    """The 36 bytes before `body_size` bytes of the log, which are sent by themselves;
    `frame.body` is not looked at."""
    return _TRANSFER.pack(
        HAConnectionState.TRANSFER,
        body_size,
        frame.offset,
        frame.epoch,
        frame.epoch_start_offset,
        frame.confirm_offset,
    )


# Reading

_FrameT = TypeVar("_FrameT")


class _Incoming(Generic[_FrameT]):
    """The bytes of one connection as frames, however they are cut. Owned by its reader's thread."""

    def __init__(self, take: Callable[[bytearray], tuple[_FrameT, int] | None]) -> None:
        """take: the frame at the beginning of a buffer and its size; None: not whole yet."""
        self._take = take
        self._buffer = bytearray()

    def receive(self, data: bytes | memoryview) -> Iterator[_FrameT]:
        """All frames that are whole with `data`, which is kept until they are taken. Raises
        AutoSwitchFrameError at the first that is wrong; nothing after it can be read."""
        self._buffer += data
        while (taken := self._take(self._buffer)) is not None:
            frame, size = taken
            del self._buffer[:size]
            yield frame


class FramesOfSlave(_Incoming[SlaveFrame]):
    """What a master hears."""

    def __init__(self) -> None:
        super().__init__(_take_slave_frame)


class FramesOfMaster(_Incoming[MasterFrame]):
    """What a slave hears. Holds at most one frame, of at most 4 MiB."""

    def __init__(self) -> None:
        super().__init__(_take_master_frame)


def _state_of(buffer: bytearray) -> HAConnectionState | None:
    """None: it has not come yet."""
    if len(buffer) < _STATE.size:
        return None
    (state,) = _STATE.unpack_from(buffer)
    if state not in (HAConnectionState.HANDSHAKE, HAConnectionState.TRANSFER):
        raise AutoSwitchFrameError(f"state {state}: no frame of a group with a controller")
    return HAConnectionState(state)


def _take_slave_frame(buffer: bytearray) -> tuple[SlaveFrame, int] | None:
    state = _state_of(buffer)
    layout = _SLAVE_HANDSHAKE if state is HAConnectionState.HANDSHAKE else _REPORT
    if state is None or len(buffer) < layout.size:
        return None
    if state is HAConnectionState.HANDSHAKE:
        _, from_last_file, learner, broker_id = layout.unpack_from(buffer)
        if broker_id < 1:
            raise AutoSwitchFrameError(f"broker id {broker_id} of a slave; they begin at 1")
        if from_last_file not in (0, 1) or learner not in (0, 1):
            raise AutoSwitchFrameError(f"flags {from_last_file} and {learner}, which are 0 or 1")
        return SlaveHandshakeFrame(broker_id, bool(from_last_file), bool(learner)), layout.size
    _, max_offset = layout.unpack_from(buffer)
    if max_offset < 0:
        raise AutoSwitchFrameError(f"a report of {max_offset}")
    return ReportFrame(max_offset), layout.size


def _take_master_frame(buffer: bytearray) -> tuple[MasterFrame, int] | None:
    state = _state_of(buffer)
    if state is None:
        return None
    if state is HAConnectionState.HANDSHAKE:
        return _take_master_handshake(buffer)
    return _take_transfer(buffer)


def _take_master_handshake(buffer: bytearray) -> tuple[MasterHandshakeFrame, int] | None:
    head = _MASTER_HANDSHAKE
    if len(buffer) < head.size:
        return None
    _, size, max_offset, last_epoch = head.unpack_from(buffer)
    if not 0 <= size <= _MAX_HANDSHAKE_BODY or size % _EPOCH_ENTRY.size:
        raise AutoSwitchFrameError(f"a list of epochs of {size} bytes")
    if max_offset < 0:
        raise AutoSwitchFrameError(f"a master whose log ends at {max_offset}")
    if len(buffer) < head.size + size:
        return None
    try:
        epochs = greeted(_EPOCH_ENTRY.iter_unpack(buffer[head.size : head.size + size]))
    except EpochOrderError as error:
        raise AutoSwitchFrameError(f"a list of epochs that is none: {error}") from error
    if last_epoch < epochs.last_epoch:
        raise AutoSwitchFrameError(
            f"last epoch {last_epoch} with a list up to epoch {epochs.last_epoch}"
        )
    return MasterHandshakeFrame(max_offset, last_epoch, epochs), head.size + size


def _take_transfer(buffer: bytearray) -> tuple[TransferFrame, int] | None:
    head = _TRANSFER
    if len(buffer) < head.size:
        return None
    _, size, offset, epoch, start, confirm_offset = head.unpack_from(buffer)
    if not 0 <= size <= MAX_TRANSFER_BODY:
        raise AutoSwitchFrameError(f"a frame of {size} bytes; a slave takes {MAX_TRANSFER_BODY}")
    if not (0 if size else _NOTHING_SENT) <= offset <= _MAX_OFFSET - size:
        raise AutoSwitchFrameError(f"a frame of {size} bytes for offset {offset}")
    if confirm_offset < _NO_CONFIRM_OFFSET:
        raise AutoSwitchFrameError(f"confirm offset {confirm_offset}")
    if len(buffer) < head.size + size:
        return None
    with memoryview(buffer) as view:  # A slice of the buffer itself would be one more copy.
        body = bytes(view[head.size : head.size + size])
    return TransferFrame(offset, epoch, start, confirm_offset, body), head.size + size
