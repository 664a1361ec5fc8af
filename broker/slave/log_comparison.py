"""LogComparison: whether this broker's commit log matches the master's, and up to which offset.

Runs in process `remoting` of a slave, for MasterInspector, and of a master that verifies a slave's
claim (replica_verification). Reads the local log files and fetches single records from the other
broker, "the master", through RemoteLog; makes no decisions. Two logs that agree at a record agree
before it: a record contains its physical offset, its time and its queue offset, so no other log has
the same bytes there. The last record therefore tells whether the logs match, and a binary search
(over the files' first records, then over the records of one file) finds the last common record.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from store.commit_log_reader import CommitLogReader
from store.errors import QueueDamagedError
from store.message_codec import (
    BLANK_SIZE,
    MAGIC_BLANK,
    SIZE_AND_MAGIC,
    RecordKind,
    check_record,
    encode_blank,
    is_blank_at,
)
from store.record_arrays import Int64Array, walk_records

if TYPE_CHECKING:
    from broker.slave.remote_log import RemoteLog
    from broker.store_access.store_access import StoreAccess

_QUEUES_ASKED: Final = 512
_QUEUES_SEARCHED: Final = 32
_LONGEST_REST: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes of the local log at `offset`: a whole record, or the start of the data that follows
    it."""

    offset: int
    data: bytes
    is_record: bool


class OwnLog:
    """The local log in [min_offset, max_offset). Owned by: the comparing thread."""

    def __init__(
        self,
        reader: CommitLogReader,
        min_offset: int,
        max_offset: int,
        near_end: Callable[[], int] = lambda: 0,
    ) -> None:
        """near_end: returns the offset of some record, preferably close to the end; 0 for none.
        Called at most once: the scan for the end starts there instead of at the file's start."""
        self._reader = reader
        self.min_offset = min_offset
        self.max_offset = max_offset
        self.file_size = reader.file_size
        self._near_end = near_end

    def tail(self) -> list[Piece]:
        """The last whole record and the data after it: a blank, a partial record, or both."""
        pieces: list[Piece] = []
        start = (self.max_offset - 1) - (self.max_offset - 1) % self.file_size
        hint = self._near_end()
        while start >= self.min_offset:
            last, rest = self._end_of_file(start, hint)
            pieces[:0] = [piece for piece in (last, rest) if piece is not None]
            if last is not None:
                break
            start -= self.file_size
        return pieces

    def last_record(self) -> Piece | None:
        """The last whole record."""
        return next((piece for piece in self.tail() if piece.is_record), None)

    def record_at(self, phy_offset: int) -> bytes | None:
        """The whole record at this offset, with its CRC checked."""
        return self._reader.record_at(phy_offset)

    def record_offsets(self, start: int) -> Int64Array:
        """The offsets of all whole records in the file that starts at `start`."""
        view = self._view(start)
        if view is None:
            return walk_records(memoryview(b""))[0]
        at, _ = walk_records(view)
        return at + start

    def _view(self, start: int) -> memoryview | None:
        view = self._reader.view_of_file(start)
        return None if view is None else view[: max(0, self.max_offset - start)]

    def _end_of_file(self, start: int, hint: int) -> tuple[Piece | None, Piece | None]:
        view = self._view(start)
        if view is None:
            return None, None
        begin = self._checked(view, start, hint)
        at, stopped = walk_records(view[begin:])
        stopped += begin
        last = rest = None
        if len(at):
            position = begin + int(at[-1])
            last = Piece(start + position, bytes(view[position:stopped]), True)
        if stopped < len(view):
            most = BLANK_SIZE if is_blank_at(view, stopped) else _LONGEST_REST
            rest = Piece(start + stopped, bytes(view[stopped : stopped + most]), False)
        return last, rest

    def _checked(self, view: memoryview, start: int, hint: int) -> int:
        """The hint's position in the view if a record starts there, else 0."""
        position = hint - start
        if not 0 <= position < len(view):
            return 0
        found = check_record(view, position, len(view), hint, check_crc=True)
        return position if found.kind is RecordKind.MESSAGE else 0


def newest_queued_offset(store: StoreAccess) -> int:
    """The largest physical offset among the newest entries of a few hundred queues; 0 if none."""
    queues = list(store.queues())
    step = -(-len(queues) // _QUEUES_ASKED) or 1
    newest = 0
    for topic, queue_id in queues[::step]:
        low, high = store.offsets(topic, queue_id)
        unit = _unit_at(store, topic, queue_id, high - 1) if high > low else None
        if unit is not None:
            newest = max(newest, unit[0])
    return newest


def queued_offset_before(store: StoreAccess, limit: int) -> int:
    """The largest physical offset below `limit` among the entries of some queues; 0 if none."""
    queues = list(store.queues())
    step = -(-len(queues) // _QUEUES_SEARCHED) or 1
    newest = 0
    for topic, queue_id in queues[::step]:
        low, high = store.offsets(topic, queue_id)
        while low < high:
            middle = (low + high) // 2
            unit = _unit_at(store, topic, queue_id, middle)
            if unit is not None and unit[0] < limit:
                newest, low = max(newest, unit[0]), middle + 1
            else:
                high = middle
    return newest


def _unit_at(
    store: StoreAccess, topic: str, queue_id: int, queue_offset: int
) -> tuple[int, int, int] | None:
    """None, too, for a damaged one: it is only where to look first."""
    try:
        return store.unit_at(topic, queue_id, queue_offset)
    except QueueDamagedError:
        return None


# -- comparing ---------------------------------------------------------------------------------


def has_same_end(own: OwnLog, master: RemoteLog) -> bool:
    """Whether the end of the local log equals the master's bytes there. The local log must not be
    longer.

    Data that the master has already deleted cannot be compared, and counts as equal.
    """
    return all(
        is_same(piece, master.record_at(piece.offset), own.file_size)
        for piece in own.tail()
        if piece.offset >= master.min_offset
    )


def is_same(piece: Piece, theirs: bytes | None, file_size: int) -> bool:
    """Whether `theirs`, the data of another log at the same offset, starts with the piece's
    bytes."""
    if theirs is None or _is_blank(theirs):
        # A Java broker returns a blank; this one reports that there is no record.
        blank = encode_blank(file_size - piece.offset % file_size)
        return not piece.is_record and blank.startswith(piece.data[:BLANK_SIZE])
    if piece.is_record:
        return theirs == piece.data
    return theirs.startswith(piece.data)


def _is_blank(data: bytes) -> bool:
    return len(data) >= BLANK_SIZE and SIZE_AND_MAGIC.unpack_from(data)[1] == MAGIC_BLANK


def find_common_end(own: OwnLog, master: RemoteLog) -> int:
    """The end of the last record that both logs have at the same offset; -1 if there is none.

    Needs about log2(files) + log2(records of a file) requests to the master.
    """
    size = own.file_size
    low = max(own.min_offset, master.min_offset)
    files = range(low + -low % size, min(own.max_offset, master.max_offset), size)

    def is_common(phy_offset: int) -> bool:
        record = own.record_at(phy_offset)
        if record is None or phy_offset + len(record) > master.max_offset:
            return False
        return master.record_at(phy_offset) == record

    common = _count_true(len(files), lambda n: is_common(files[n]))
    if common == 0:
        return -1
    offsets = own.record_offsets(files[common - 1])
    count = _count_true(len(offsets), lambda n: is_common(int(offsets[n])))
    last = own.record_at(int(offsets[count - 1])) if count else None
    return -1 if last is None else int(offsets[count - 1]) + len(last)


def _count_true(count: int, is_true: Callable[[int], bool]) -> int:
    """Binary search: how many of 0..count-1 are true, if no true one follows a false one."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if is_true(middle):
            low = middle + 1
        else:
            high = middle
    return low
