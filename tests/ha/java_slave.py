"""The epochs of a 5.3.3 slave behind a master of ours: EpochFileCache and AutoSwitchHAClient, over
the frames of an AutoSwitchMaster. Its log is a list of records, each one unit of offset."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from ha.autoswitch_frame import SlaveHandshakeFrame, encode_report, encode_slave_handshake
from ha.autoswitch_master import AutoSwitchMaster, LogBounds, NextTransfer
from ha.epochs import EpochList

Log = list[tuple[int, int]]
"""Records: (epoch, number)."""
_HEAD_SIZE = 20
_NEVER = -1


class JavaSlave:
    """See the module."""

    def __init__(self) -> None:
        self.log: Log = []
        self.epochs: dict[int, int] = {}
        """Epoch to start."""
        self._heard = _NEVER
        """currentReceivedEpoch: outlives a connection, but not a role."""

    def change_role(self) -> None:
        """It follows somebody else, or the same one in another epoch."""
        self._heard = _NEVER

    def follow(self, epochs: EpochList, log: Log, up_to: int, frames: int) -> None:
        """One connection, which ends after so many frames. up_to: where the master's log ends."""
        serving = AutoSwitchMaster(file_size=1 << 20, max_size=1, heartbeat_interval_ms=0)
        bounds = LogBounds(0, up_to, 0)
        assert [*serving.receive(encode_slave_handshake(SlaveHandshakeFrame(2)), bounds)]
        self._compare(serving.greeting(epochs, bounds), up_to)
        assert [*serving.receive(encode_report(len(self.log)), bounds)]
        for _ in range(frames):
            following = serving.next_transfer(epochs, bounds, 0)
            assert following is not None
            self._take(following, log)

    def _compare(self, greeting: bytes, master_end: int) -> None:
        if not self.epochs:
            return
        theirs = _with_ends(struct.iter_unpack(">iq", greeting[_HEAD_SIZE:]), master_end)
        for epoch, (start, end) in reversed(_with_ends(self.epochs.items(), len(self.log)).items()):
            if epoch in theirs and theirs[epoch][0] == start:
                point = min(end, theirs[epoch][1])
                break
        else:
            raise AssertionError("Failed to find a consistent point")
        del self.log[point:]
        self.epochs = {epoch: start for epoch, start in self.epochs.items() if start < point}

    def _take(self, following: NextTransfer, log: Log) -> None:
        frame, size = following
        assert frame.offset == len(self.log), "master pushed offset not equal the max phy offset"
        if frame.epoch != self._heard:
            self._heard = frame.epoch
            self._append(frame.epoch, frame.epoch_start_offset)
        self.log += log[frame.offset : frame.offset + size]

    def _append(self, epoch: int, start: int) -> None:
        if self.epochs:
            last, last_start = [*self.epochs.items()][-1]
            if epoch <= last or start <= last_start:
                return
        self.epochs[epoch] = start

    def labels(self) -> Iterator[int]:
        """The epoch of each record as its own list has it."""
        for at in range(len(self.log)):
            yield next(epoch for epoch, start in reversed(self.epochs.items()) if start <= at)


def _with_ends(entries: Iterable[tuple[int, int]], log_end: int) -> dict[int, tuple[int, int]]:
    """Epoch to start and end, in their order."""
    found = [*entries]
    ends = [start for _, start in found[1:]] + [log_end]
    return {epoch: (start, end) for (epoch, start), end in zip(found, ends, strict=True)}
