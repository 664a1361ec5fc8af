"""AutoSwitchSlave: a slave's side of one HA connection in controller mode, without the socket.

Pure: bytes and times in, bytes and frames out. Owned by one thread, made anew for each connection.
It judges the order of frames and their offsets. Between the master's handshake and the first frame
somebody else compares both lists of epochs, cuts the log where they part, and writes the master's
list down; then `follow`. RocketMQ's slave reports five seconds after that, ours at once: a master
sends nothing before.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ha.autoswitch_frame import (
    AutoSwitchFrameError,
    FramesOfMaster,
    MasterFrame,
    MasterHandshakeFrame,
    SlaveHandshakeFrame,
    TransferFrame,
    encode_report,
    encode_slave_handshake,
)
from ha.refusals import RefusalReason

EMPTY: Final = 0
"""The end of an empty log, which begins wherever its master's does."""


class AutoSwitchSlave:
    """See the module."""

    def __init__(self, own: SlaveHandshakeFrame, *, report_interval_ms: int) -> None:
        """report_interval_ms: a report is due after so much silence (haSendHeartbeatInterval)."""
        self._own = own
        self._report_interval_ms = report_interval_ms
        self._frames = FramesOfMaster()
        self._greeted = False
        self._next_offset: int | None = None
        """Where the next frame must begin; None: not following yet."""
        self._reported_offset = 0
        self._reported_ms = 0

    def hello(self) -> bytes:
        """The first bytes of the connection."""
        return encode_slave_handshake(self._own)

    def receive(self, data: bytes | memoryview) -> Iterator[MasterFrame]:
        """What is whole by now, in its order. A frame has been appended when the next one is taken.

        Raises AutoSwitchFrameError for a frame that cannot come now, or not for this log.
        """
        for frame in self._frames.receive(data):
            if isinstance(frame, MasterHandshakeFrame):
                self._check_greeting()
            else:
                self._check_transfer(frame)
            yield frame

    def _check_greeting(self) -> None:
        if self._greeted:
            raise AutoSwitchFrameError("a second handshake of the master on one connection")
        self._greeted = True

    def _check_transfer(self, frame: TransferFrame) -> None:
        if not self._greeted:
            raise AutoSwitchFrameError("a frame before the master's handshake")
        if not frame.body:
            return
        expected = self._next_offset
        if expected is None:
            raise AutoSwitchFrameError("bytes of the log before this slave has reported anything")
        if frame.offset != expected and expected != EMPTY:
            raise AutoSwitchFrameError(
                f"a frame for offset {frame.offset}, where {expected} comes next",
                RefusalReason.OFFSET_MISMATCH,
            )
        self._next_offset = frame.offset + len(frame.body)

    def follow(self, own_end: int, now_ms: int) -> bytes:
        """The log up to `own_end` is the beginning of the master's: the first report. Raises
        AutoSwitchFrameError before the master's handshake."""
        if not self._greeted:
            raise AutoSwitchFrameError("nothing is known of the master's log yet")
        self._next_offset = own_end
        return self._reported(own_end, now_ms)

    def due_report(self, own_end: int, now_ms: int) -> bytes:
        """A report if the log has grown, or after silence; else nothing. own_end: what the master
        may count on: flushed, if reports mean that."""
        if self._next_offset is None:
            return b""
        grown = own_end > self._reported_offset
        silent = now_ms - self._reported_ms >= self._report_interval_ms
        return self._reported(own_end, now_ms) if grown or silent else b""

    def _reported(self, own_end: int, now_ms: int) -> bytes:
        self._reported_offset, self._reported_ms = own_end, now_ms
        return encode_report(own_end)
