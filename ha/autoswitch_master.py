"""AutoSwitchMaster: a master's side of one HA connection in controller mode, without the socket.

Pure: bytes, times and the log's bounds in, frames out. Owned by one thread, made anew for each
connection. It judges the slave's frames, and says which bytes of the log come next: within one file
of the log and within one epoch, with the epoch of the first byte as label (Java: often the next
one). What a slave acknowledges counts for others; here it only may not lie beyond what was sent.

Tested by tests/ha/test_autoswitch_ends.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final, NamedTuple

from ha.autoswitch_frame import (
    AutoSwitchFrameError,
    FramesOfSlave,
    MasterHandshakeFrame,
    SlaveFrame,
    SlaveHandshakeFrame,
    TransferFrame,
    encode_master_handshake,
)
from ha.epochs import EpochEntry, EpochList, frame_label, greeting_of
from ha.refusals import RefusalReason

_NOTHING_SENT: Final = -1
CONFIRM_DELAY_MS: Final = 20
"""So long after a frame its slave is told what has been confirmed since, unless another one leaves
before: the frames of steady traffic carry it anyway, and none is added to them."""


class LogBounds(NamedTuple):
    """A master's log at a moment (bytes)."""

    min_offset: int
    end: int
    confirm_offset: int


class NextTransfer(NamedTuple):
    """What to send now."""

    frame: TransferFrame
    """Without its body."""
    size: int
    """Bytes of the log from `frame.offset`; 0: a heartbeat."""


class AutoSwitchMaster:
    """See the module."""

    def __init__(self, *, file_size: int, max_size: int, heartbeat_interval_ms: int) -> None:
        """file_size: of a commit log file. max_size: most bytes of a frame."""
        self._file_size = file_size
        self._max_size = max_size
        self._heartbeat_interval_ms = heartbeat_interval_ms
        self._frames = FramesOfSlave()
        self._sent_ms: int | None = None
        self._position = _NOTHING_SENT
        """The next byte to send; not known before the first report."""
        self._told_confirm = _NOTHING_SENT
        """Of the last frame."""
        self.slave: SlaveHandshakeFrame | None = None
        """Once it has said who it is."""
        self.ack_offset: int | None = None
        """As reported last."""

    def receive(self, data: bytes | memoryview, log: LogBounds) -> Iterator[SlaveFrame]:
        """What is whole by now: the handshake, which `greeting` answers, then reports.

        A handshake that is repeated before the first report, as Java's slave does after five
        seconds, is not given: a second answer would end the connection there. Raises
        AutoSwitchFrameError.
        """
        for frame in self._frames.receive(data):
            if isinstance(frame, SlaveHandshakeFrame):
                if self._is_new(frame):
                    yield frame
            else:
                self._take_report(frame.max_offset, log)
                yield frame

    @property
    def position(self) -> int | None:
        """The next byte to send; None before the first report."""
        return None if self._position == _NOTHING_SENT else self._position

    def confirm_wait_ms(self, now_ms: int) -> int | None:
        """When to look again whether the confirm offset has moved; None: the slave knows that
        everything it was sent is confirmed, or nothing was sent yet."""
        if self._sent_ms is None or self._told_confirm >= self._position:
            return None
        left_ms = self._sent_ms + CONFIRM_DELAY_MS - now_ms
        return left_ms if left_ms > 0 else CONFIRM_DELAY_MS

    def _is_new(self, frame: SlaveHandshakeFrame) -> bool:
        if self.slave is None:
            self.slave = frame
            return True
        if frame != self.slave or self.ack_offset is not None:
            raise AutoSwitchFrameError(
                f"a second handshake of broker {frame.broker_id} on the connection of broker "
                f"{self.slave.broker_id}"
            )
        return False

    def _take_report(self, offset: int, log: LogBounds) -> None:
        if self.slave is None:
            raise AutoSwitchFrameError(f"a report of {offset} before the handshake")
        first = self.ack_offset is None
        limit = log.end if first else self._position
        if offset > limit:
            raise AutoSwitchFrameError(
                f"a report of {offset}, beyond {limit}, the end of what this master "
                f"{'has' if first else 'has sent'}",
                RefusalReason.BEYOND_MAX if first else RefusalReason.BEYOND_SENT,
            )
        if first:
            self._position = self._start(offset, log)
        self.ack_offset = offset

    def _start(self, offset: int, log: LogBounds) -> int:
        if offset == 0:
            assert self.slave is not None
            if self.slave.sync_from_last_file:
                return max(log.min_offset, log.end - log.end % self._file_size)
            return log.min_offset
        _check_kept(offset, log)
        return offset

    def greeting(self, epochs: EpochList, log: LogBounds) -> bytes:
        """The answer to the handshake. Raises AutoSwitchFrameError for too many epochs."""
        told = greeting_of(epochs)
        return encode_master_handshake(MasterHandshakeFrame(log.end, epochs.last_epoch, told))

    def next_transfer(self, epochs: EpochList, log: LogBounds, now_ms: int) -> NextTransfer | None:
        """What to send now, which counts as sent; None: nothing is due. A frame without bytes is a
        heartbeat; it also leaves soon after the confirm offset has moved, which RocketMQ's slave
        takes as often as it comes. Raises EpochOrderError for a log whose epochs begin later than
        its bytes, AutoSwitchFrameError if they are deleted."""
        position = self._position
        if position == _NOTHING_SENT:
            # RocketMQ's slave reports five seconds after the handshake, and hangs up when a
            # heartbeat names another offset than its own end before that.
            return None
        if self._sent_ms is None:
            self._sent_ms = now_ms
            before = _entry_before(position, epochs)
            if before is not None:
                return self._sent(position, 0, before, log, now_ms)
        label = frame_label(epochs, position)
        if position >= log.end:
            silent_ms = now_ms - self._sent_ms
            is_news = log.confirm_offset > self._told_confirm and silent_ms >= CONFIRM_DELAY_MS
            if not is_news and silent_ms < self._heartbeat_interval_ms:
                return None
            return self._sent(position, 0, label, log, now_ms)
        _check_kept(position, log)
        file_end = position - position % self._file_size + self._file_size
        epoch_end = epochs.end_of(label.epoch, log.end)
        size = min(self._max_size, file_end - position, epoch_end - position)
        return self._sent(position, size, label, log, now_ms)

    def _sent(
        self, position: int, size: int, label: EpochEntry, log: LogBounds, now_ms: int
    ) -> NextTransfer:
        self._sent_ms, self._told_confirm = now_ms, log.confirm_offset
        if size:
            self._position = position + size
        frame = TransferFrame(position, label.epoch, label.start_offset, log.confirm_offset, b"")
        return NextTransfer(frame, size)


def _entry_before(position: int, epochs: EpochList) -> EpochEntry | None:
    """The label of a first heartbeat to a slave whose log ends where an epoch begins; None: it
    needs none. When it compares the lists, Java's drops an epoch that it has no byte of, and takes
    it again with a label that is not the last one it has heard: over the connection before this one
    that may have been the same. It knows the entry before, and does not append it.
    """
    for entry, after in pairwise(epochs.entries):
        if after.start_offset == position:
            return entry
    return None


def _check_kept(offset: int, log: LogBounds) -> None:
    """Files go by age while a slave is away or slow."""
    if offset < log.min_offset:
        raise AutoSwitchFrameError(
            f"the slave is at {offset}, the bytes from there to {log.min_offset} are deleted here; "
            "it must start over as an empty one",
            RefusalReason.BELOW_MIN,
        )
