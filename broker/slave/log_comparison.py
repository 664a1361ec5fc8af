"""LogComparison: are our commit log and the master's the same, and up to where?

Runs in process `remoting` of a slave, for MasterInspector, and of a master that checks what a
slave claims (replica_verification). Reads our log's files and asks the other broker, "the master",
for single records through a Protocol; decides nothing. Two logs that agree at a record
agree before it: a record holds its place, its time and its queue offset, no other log has the same
bytes there. So the last record tells whether they belong together, and a bisection (first over
the files' first records, then over one file's records) finds the last common one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from store.commit_log_reader import CommitLogReader
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

_QUEUES_ASKED: Final = 512
_QUEUES_SEARCHED: Final = 32
_LONGEST_REST: Final = 1 << 20


class MasterLog(Protocol):
    """The master's log as it can be asked. `record_at` may raise what its maker says."""

    @property
    def min_offset(self) -> int:
        """Where it begins."""

    @property
    def max_offset(self) -> int:
        """Where it ends."""

    def record_at(self, phy_offset: int) -> bytes | None:
        """What is stored there: a whole record or a blank; None when no record starts there."""


class QueueTable(Protocol):
    """What is needed of QueueTableReader."""

    def __iter__(self) -> Iterator[tuple[str, int, int]]:
        """(topic, queueId, row) of every queue."""

    def offsets(self, topic: str, queue_id: int) -> tuple[int, int]:
        """(min, max) queue offsets."""


class QueueUnits(Protocol):
    """What is needed of StoreAccess."""

    def unit_at(self, topic: str, queue_id: int, queue_offset: int) -> tuple[int, int, int] | None:
        """(phy_offset, size, tags code) of a queue entry."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes of our log from `offset` on: a whole record, or the beginning of what follows it."""

    offset: int
    data: bytes
    is_record: bool


class OwnLog:
    """Our log in [min_offset, max_offset). Owned by: the thread that compares."""

    def __init__(
        self,
        reader: CommitLogReader,
        min_offset: int,
        max_offset: int,
        near_end: Callable[[], int] = lambda: 0,
    ) -> None:
        """near_end: the offset of some record, the nearer to the end the better; 0 for none.
        Asked at most once: the walk to the end begins there instead of at the file's start."""
        self._reader = reader
        self.min_offset = min_offset
        self.max_offset = max_offset
        self.file_size = reader.file_size
        self._near_end = near_end

    def tail(self) -> list[Piece]:
        """The last whole record, then what follows it: a blank, a part of a record, or both."""
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
        """The whole record there, its CRC checked."""
        return self._reader.record_at(phy_offset)

    def record_offsets(self, start: int) -> Int64Array:
        """The offsets of the whole records of the file that begins at `start`."""
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
        """The hint's position in the view if a record really is there, else 0."""
        position = hint - start
        if not 0 <= position < len(view):
            return 0
        found = check_record(view, position, len(view), hint, check_crc=True)
        return position if found.kind is RecordKind.MESSAGE else 0


def newest_queued_offset(table: QueueTable, units: QueueUnits) -> int:
    """The largest offset among the newest entries of some hundred queues; 0 without any."""
    queues = [(topic, queue_id) for topic, queue_id, _row in table]
    step = -(-len(queues) // _QUEUES_ASKED) or 1
    newest = 0
    for topic, queue_id in queues[::step]:
        low, high = table.offsets(topic, queue_id)
        unit = units.unit_at(topic, queue_id, high - 1) if high > low else None
        if unit is not None:
            newest = max(newest, unit[0])
    return newest


def queued_offset_before(table: QueueTable, units: QueueUnits, limit: int) -> int:
    """The largest offset below `limit` among the entries of some queues; 0 without any."""
    queues = [(topic, queue_id) for topic, queue_id, _row in table]
    step = -(-len(queues) // _QUEUES_SEARCHED) or 1
    newest = 0
    for topic, queue_id in queues[::step]:
        low, high = table.offsets(topic, queue_id)
        while low < high:
            middle = (low + high) // 2
            unit = units.unit_at(topic, queue_id, middle)
            if unit is not None and unit[0] < limit:
                newest, low = max(newest, unit[0]), middle + 1
            else:
                high = middle
    return newest


# -- comparing ---------------------------------------------------------------------------------


def has_same_end(own: OwnLog, master: MasterLog) -> bool:
    """Whether the end of our log is the master's bytes there. Our log must not be the longer.

    What the master does not have any more cannot be compared, and counts as the same.
    """
    return all(
        is_same(piece, master.record_at(piece.offset), own.file_size)
        for piece in own.tail()
        if piece.offset >= master.min_offset
    )


def is_same(piece: Piece, theirs: bytes | None, file_size: int) -> bool:
    """Whether `theirs`, what another log has at the piece's place, begins with our bytes."""
    if theirs is None or _is_blank(theirs):
        # Java gives a blank when asked for it, ours says that there is no record.
        blank = encode_blank(file_size - piece.offset % file_size)
        return not piece.is_record and blank.startswith(piece.data[:BLANK_SIZE])
    if piece.is_record:
        return theirs == piece.data
    return theirs.startswith(piece.data)


def _is_blank(data: bytes) -> bool:
    return len(data) >= BLANK_SIZE and SIZE_AND_MAGIC.unpack_from(data)[1] == MAGIC_BLANK


def find_common_end(own: OwnLog, master: MasterLog) -> int:
    """The end of the last record that both logs have at the same place; -1 without one.

    About log2(files) + log2(records of a file) questions to the master.
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
    """How many of 0..count-1 are true, where no true one follows a false one."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if is_true(middle):
            low = middle + 1
        else:
            high = middle
    return low
