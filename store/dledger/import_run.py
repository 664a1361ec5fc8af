"""The import of a DLedger store: survey, then a store of ours, then the comparison of both.

One process, which holds the locks of all stores that it reads or writes. First everything is read
and judged, so that nothing is begun that cannot be finished; then it is read again and written. The
target says that it is unfinished from before the first byte until all is on disk, and no broker
starts on it meanwhile (unfinished_import.py); an import that ended early is begun anew. What is
derived from the log is not written: the broker's first start builds it, with its settings.

Tested by tests/store/test_dledger_import.py.
"""

from __future__ import annotations

import shutil
import stat
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from conf.atomic_file import write_atomic
from store.dledger.entry import EntryHead
from store.dledger.group_log import GroupLog, open_nodes
from store.dledger.moved_record import MovedRecords
from store.dledger.node_files import NodeFiles
from store.dledger.node_log import Damage, Piece, Stored
from store.dledger.source_queues import read_queue_ends
from store.dledger.survey import Survey
from store.dledger.target_log import TargetLog
from store.dledger.unfinished_import import (
    QUEUES_NAME,
    is_unfinished,
    mark_finished,
    mark_unfinished,
    write_queue_ends,
)
from store.errors import DiskFullError, StoreError
from store.lost_range import LOST_MARK, LostRange
from store.mapped_file import MappedFile, sync_directory
from store.mapped_file_queue import list_store_files
from store.message import Message
from store.message_codec import (
    TRANSACTION_MASK,
    TRANSACTION_ROLLBACK,
    RecordKind,
    check_record,
    decode_record,
)
from store.store_lock import StoreLock

DAMAGED_NAME: Final = "dledger_import.damaged"
_LOCK_NAME: Final = "lock"
_LOST_TOPIC: Final = "SELF_TEST_TOPIC"
_LEAST_LOST: Final = 256
"""Bytes of the smallest record that takes the place of damage, with room to spare."""
_LARGEST_LOST: Final = 256 << 10
_SPARE: Final = 64 << 20
_COPY_STEP: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """What the operator said. `members`: nodes of the group; `file_size` None: as the source's."""

    source: Path
    others: tuple[Path, ...] = ()
    members: int = 3
    majority_only: bool = False
    skip_damaged: bool = False
    again: bool = False
    file_size: int | None = None


class DledgerImport(ExitStack):
    """Opened sources, locked until it is closed. Use in a `with`; then `look`, and what is wanted
    of `write` and `compare`."""

    def __init__(self, options: ImportOptions) -> None:
        """Raises StoreLockedError: a broker runs on one of them; StoreError."""
        super().__init__()
        self.options: Final = options
        self.dropped = 0
        """Entries that were left out, since no majority has them."""
        self.moved: Final = MovedRecords()
        self.majority_end: EntryHead | None = None
        with ExitStack() as undo:
            roots = (options.source, *options.others)
            _check_apart(roots)
            nodes = open_nodes(roots)
            for node in nodes:
                undo.callback(node.close)
            for root in roots:
                undo.enter_context(StoreLock(root))
            self.source: Final[NodeFiles] = nodes[0]
            self.group: Final = GroupLog(nodes[0], nodes[1:])
            self.survey: Final = Survey(nodes[0])
            self.push(undo.pop_all())

    # -- looking -------------------------------------------------------------------------------

    def look(self) -> None:
        """Read all of it. Raises StoreError: nothing can be imported from here so."""
        if self.options.majority_only:
            for _ in self.group.pieces():
                pass
            self.group.check_newest()
            self.majority_end = self._majority_end()
        for piece in self._pieces():
            self.survey.add(piece)
        self.group.check_newest()
        if not self.options.majority_only:
            self.majority_end = self.group.find_majority_end(self.options.members)
        self._check_committed()
        if not self.survey.records:
            raise StoreError(f"{self.source.root}: there is no message in it")

    def _majority_end(self) -> EntryHead:
        found = self.group.find_majority_end(self.options.members)
        if found is None:
            raise StoreError(
                f"--majority-only: {1 + len(self.options.others)} of {self.options.members} nodes "
                "were named, or have the same entries: not a majority; name more with --other"
            )
        return found

    def _check_committed(self) -> None:
        """What the node knew to be committed is there, damaged or not."""
        committed, last = self.source.committed_index, self.group.last
        if committed > (-1 if last is None else last.index):
            raise StoreError(
                f"{self.source.directory}: its checkpoint says that entry {committed} was "
                f"committed, its data ends with {-1 if last is None else last.index}: committed "
                "messages are missing here; import from another node of the group"
            )

    def _pieces(self) -> Iterator[Piece]:
        """Without what is to be left out at the end."""
        self.dropped = 0
        end = self.majority_end if self.options.majority_only else None
        for piece in self.group.pieces():
            start = piece.head.pos if isinstance(piece, Stored) and piece.head else None
            start = piece.start if isinstance(piece, Damage) else start
            if end is not None and start is not None and start >= end.pos + end.size:
                self.dropped += 1
            else:
                yield piece

    # -- writing -------------------------------------------------------------------------------

    @property
    def file_size(self) -> int:
        """Bytes of the target's commit log files."""
        return self.options.file_size or self.source.file_size

    def write(self, target: Path) -> None:
        """Make the store. After `look`. Raises StoreError, with nothing written where the target or
        the damage does not allow it; DiskFullError, OSError."""
        if self.survey.damaged.count and not self.options.skip_damaged:
            raise StoreError(
                f"{self.source.root}: {self.survey.damaged.count} places are damaged, nothing was "
                "written: import from another node, or name others with --other, from which they "
                "are taken; --skip-damaged leaves these messages out"
            )
        _check_apart((self.options.source, *self.options.others, target))
        with StoreLock(target):
            _check_target(target, again=self.options.again)
            self._check_space(target)
            mark_unfinished(target, self.options.source)
            _remove_remains(target)
            self._copy_tables(target)
            self._write_log(target)
            write_queue_ends(target, read_queue_ends(self.source.root / "consumequeue"))
            sync_directory(target)
            mark_finished(target)

    def _check_space(self, target: Path) -> None:
        files = self.survey.size // (self.file_size - self.survey.largest) + 2
        needed, free = files * self.file_size + _SPARE, shutil.disk_usage(target).free
        if needed > free:
            raise DiskFullError(f"{target}: {needed} bytes are needed, {free} are free")

    def _copy_tables(self, target: Path) -> None:
        """config/ as it is: what it says of places counts in queues."""
        for path in config_files(self.source.root):
            mode = stat.S_IMODE(path.stat().st_mode)
            write_atomic(target / "config" / path.name, path.read_bytes(), mode=mode)

    def _write_log(self, target: Path) -> None:
        size = self.file_size
        start = max(self.source.start, self.survey.room)
        aside = target / DAMAGED_NAME
        newest_ms = self.survey.first_ms
        with TargetLog(target / "commitlog", size, start + -start % size) as log:
            for piece in self._pieces():
                if isinstance(piece, Stored):
                    at = log.place_for(len(piece.record))
                    log.append(self.moved.move(piece.record, piece.phy_offset, at))
                elif isinstance(piece, Damage):
                    self._keep_aside(piece, aside)
                    self._fill_up(log, piece, newest_ms)

    def _keep_aside(self, damage: Damage, directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        with (directory / f"{damage.start:020d}").open("wb") as file:
            at = damage.start
            while at < damage.end:
                piece = self.source.bytes_at(at, min(_COPY_STEP, damage.end - at))
                file.write(piece)
                at += len(piece)

    def _fill_up(self, log: TargetLog, damage: Damage, time_ms: int) -> None:
        """Records that nobody reads take the place: a queue's next offset is believed only where
        those before it had room."""
        left = max(damage.end - damage.start, _LEAST_LOST)
        while left:
            size = left if left < _LARGEST_LOST + _LEAST_LOST else _LARGEST_LOST
            size = min(size, self.file_size // 2)
            at = log.place_for(size)
            record = LostRange(at, at + size, 1 << 62, _LOST_TOPIC, time_ms).records()
            assert record is not None, "large enough for a record"
            log.append(record)
            left = 0 if left - size < _LEAST_LOST else left - size

    # -- comparing -----------------------------------------------------------------------------

    def compare(self, target: Path) -> tuple[int, int | None]:
        """Read both message by message; how many there are, and where the target goes on behind
        them, if it does. Raises StoreError: they differ."""
        records = _read_target(target)
        count = 0
        for piece in self._pieces():
            if not isinstance(piece, Stored) or _is_filler(decode_record(piece.record, 0)[0]):
                continue
            ours = next(records, None)
            place = self.source.place(piece.phy_offset)
            if ours is None:
                raise StoreError(f"{place}: the message is missing in {target}, which ends before")
            if _without_places(ours[1]) != _without_places(decode_record(piece.record, 0)[0]):
                raise StoreError(f"{place}: the message differs from that at {ours[0]} of {target}")
            count += 1
        more = next(records, None)
        return count, None if more is None else more[0]


def _without_places(message: Message) -> Message:
    """All that an import keeps."""
    properties = message.properties
    head, mark, _ = properties.rpartition(b"__CRC32#\x01")
    return replace(
        message,
        phy_offset=0,
        prepared_transaction_offset=0,
        properties=head if mark else properties,
    )


def _is_filler(message: Message) -> bool:
    """What takes the place of damage; also in the source's log from before DLedger, if a broker of
    ours has written it. A client's message may begin with the same words."""
    return (
        message.topic == _LOST_TOPIC
        and message.sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK
        and message.body.startswith(LOST_MARK)
    )


def _read_target(target: Path) -> Iterator[tuple[int, Message]]:
    """Offset and message of each record but those in place of damage."""
    for file in list_store_files(target / "commitlog"):
        with MappedFile.open(file.path, file.start_offset) as mapped, mapped.view() as view:
            position = 0
            while position < len(view):
                offset = file.start_offset + position
                found = check_record(view, position, len(view), offset, check_crc=True)
                if found.kind is RecordKind.INVALID:
                    raise StoreError(f"{file.path}: position {position}: {found.reason}")
                if found.kind is not RecordKind.MESSAGE:
                    break
                message = decode_record(view, position)[0]
                if not _is_filler(message):
                    yield offset, message
                position += found.size


def config_files(root: Path) -> list[Path]:
    """The tables that are copied."""
    directory = root / "config"
    found = sorted(directory.iterdir()) if directory.is_dir() else []
    return [path for path in found if path.is_file() and path.suffix != ".tmp"]


def _check_apart(roots: tuple[Path, ...]) -> None:
    resolved = [root.resolve() for root in roots]
    for number, one in enumerate(resolved):
        for other in resolved[:number]:
            if one == other or one in other.parents or other in one.parents:
                raise StoreError(f"{one} and {other} are one directory, or one is in the other")


def _check_target(target: Path, *, again: bool) -> None:
    """Raises StoreError: it holds anything but an unfinished import that is to be begun anew."""
    if is_unfinished(target):
        if not again:
            raise StoreError(
                f"{target}: an import was begun here and not finished; --again removes what it has "
                "written and begins anew"
            )
        return
    if again:
        raise StoreError(f"{target}: --again: no import is unfinished here")
    found = sorted(path.name for path in target.iterdir() if path.name != _LOCK_NAME)
    if found:
        raise StoreError(
            f"{target}: not empty ({', '.join(found[:5])}): an import makes a new store, name a "
            "directory that is empty or does not exist"
        )


def _remove_remains(target: Path) -> None:
    """Of an import that ended early: what such a one makes."""
    for name in ("commitlog", "config", DAMAGED_NAME):
        if (target / name).is_dir():
            shutil.rmtree(target / name)
    (target / QUEUES_NAME).unlink(missing_ok=True)
