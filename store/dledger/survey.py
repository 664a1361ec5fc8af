"""Survey: what a source holds, counted before anything is written, and what was noticed.

One thread. It has one range for each queue and names the first of each kind of trouble: its memory
grows with the queues, not with the messages.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from store.dledger.node_files import NodeFiles
from store.dledger.node_log import Damage, LogEnd, Piece, Stored
from store.inner_batch import inner_num
from store.message_codec import TRANSACTION_COMMIT, TRANSACTION_MASK, TRANSACTION_NOT, decode_record
from store.record_arrays import MIN_RECORD_SIZE

_NAMED: Final = 20
_COUNTED: Final = (TRANSACTION_NOT, TRANSACTION_COMMIT)


@dataclass(slots=True)
class QueueRange:
    """`count` messages of one queue, from queue offset `first` to before `end`."""

    count: int
    first: int
    end: int


@dataclass(slots=True)
class Named:
    """`count` of something, the first of them by name."""

    count: int = 0
    texts: list[str] = field(default_factory=list)

    def add(self, text: str) -> None:
        """One more."""
        self.count += 1
        if len(self.texts) < _NAMED:
            self.texts.append(text)

    def lines(self, what: str) -> list[str]:
        """For people; none without one."""
        if not self.count:
            return []
        more = [f"  … and {self.count - len(self.texts)} more"] if self.count > _NAMED else []
        return [f"{what}: {self.count}", *(f"  {text}" for text in self.texts), *more]


class Survey:
    """See the module. Times in ms, sizes in bytes."""

    def __init__(self, files: NodeFiles) -> None:
        self._files: Final = files
        self.queues: Final[dict[tuple[str, int], QueueRange]] = {}
        self.records = 0
        self.of_old_log = 0
        self.size = 0
        """Of all records, and of what takes the place of damage."""
        self.largest = 0
        self.first_ms = 0
        """Store timestamp of the first record."""
        self.room = 0
        """The log has to begin there at least: a queue offset is believed only where its records
        have had room in the log (store/queue_jumps.py)."""
        self.damaged: Final = Named()
        self.jumps: Final = Named()
        self.end: LogEnd | None = None

    def add(self, piece: Piece) -> None:
        """The next piece of the log."""
        if isinstance(piece, Stored):
            self._add_record(piece)
        elif isinstance(piece, Damage):
            place = self._files.place(piece.start)
            self.damaged.add(f"{place}, {piece.end - piece.start} bytes: {piece.reason}")
            self.size += piece.end - piece.start
        else:
            self.end = piece

    def _add_record(self, piece: Stored) -> None:
        message = decode_record(piece.record, 0)[0]
        self.records += 1
        self.of_old_log += piece.head is None
        self.size += len(piece.record)
        self.largest = max(self.largest, len(piece.record))
        self.first_ms = self.first_ms or message.store_timestamp
        if message.sys_flag & TRANSACTION_MASK not in _COUNTED:
            return
        name, offset = (message.topic, message.queue_id), message.queue_offset
        following = offset + inner_num(message.sys_flag, message.properties)
        known = self.queues.get(name)
        if known is None:
            self.queues[name] = QueueRange(1, offset, following)
            self._make_room(piece, name, offset)
            return
        if offset != known.end:
            place = self._files.place(piece.phy_offset)
            self.jumps.add(f"{place}: {name[0]} {name[1]}: {offset} after {known.end - 1}")
        known.count += 1
        known.end = following

    def _make_room(self, piece: Stored, name: tuple[str, int], offset: int) -> None:
        needed = (offset + 1) * MIN_RECORD_SIZE
        if 0 <= needed <= piece.phy_offset + len(piece.record):
            self.room = max(self.room, needed - self.size)
        else:
            place = self._files.place(piece.phy_offset)
            self.jumps.add(f"{place}: {name[0]} {name[1]}: {offset} is its first: too far ahead")
