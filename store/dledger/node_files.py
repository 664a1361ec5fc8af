"""NodeFiles: the files of one DLedger node, found and mapped; heads and records at their places.

One thread, read-only, no broker may run on the directory. It knows where things lie, not in which
order they have to come (node_log.py).

Tested by tests/store/test_dledger_import.py.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

from store.closing import Closing
from store.dledger.entry import (
    ENTRY_HEAD_SIZE,
    POS_AT,
    UNIT_SIZE,
    Blank,
    EntryHead,
    HeadProblem,
    find_unit,
    read_head,
)
from store.errors import StoreError
from store.mapped_file import MappedFile
from store.mapped_file_queue import StoreFile, list_store_files
from store.message_codec import RecordCheck, RecordKind, check_record

_FIRST_STEP: Final = 4 << 10
_STEP: Final = 1 << 20
"""Bytes that are searched at once: few at first, as the next entry is mostly near."""
_PREFIX: Final = "dledger-"


class NodeFiles(Closing):
    """See the module. `root`: the node's storePathRootDir."""

    __slots__ = (
        "_index_files",
        "_index_map",
        "_map",
        "committed_index",
        "data_files",
        "directory",
        "old_files",
        "root",
    )

    def __init__(self, root: Path) -> None:
        """Raises StoreError: there is no such store, or files of it are missing."""
        self.root: Final = root
        self.directory: Final = _find_directory(root)
        self.data_files: Final = _check_files(list_store_files(self.directory / "data"))
        self.old_files: Final = _check_files(list_store_files(root / "commitlog"))
        """Of the commit log from before DLedger."""
        self._index_files: Final = list_store_files(self.directory / "index")
        self.committed_index: Final = _read_committed_index(self.directory / "checkpoint")
        """Up to where the node knew entries to be committed when it wrote so last (every three
        seconds, and in an orderly stop); -1: it did not know, or there is no checkpoint."""
        self._map: MappedFile | None = None
        self._index_map: MappedFile | None = None
        if not self.data_files:
            raise StoreError(
                f"{self.directory / 'data'}: no data files; a store without entries is opened "
                "as it is: start the broker with enableDLegerCommitLog=false"
            )
        if not self._index_files:
            raise StoreError(
                f"{self.directory / 'index'}: no files: nobody can tell the end of the "
                "entries from damage; start the group of Java's brokers once, which builds them"
            )
        if self.old_files and self.old_end != self.data_files[0].start_offset:
            raise StoreError(
                f"{root}: its commit log ends at {self.old_end}, its entries begin at "
                f"{self.data_files[0].start_offset}: files in between are missing"
            )

    @property
    def node(self) -> str:
        """dLegerSelfId."""
        return self.directory.name.removeprefix(_PREFIX)

    def find_leader(self) -> str | None:
        """Whom the node voted for last; None: it does not say. Raises OSError."""
        return _read_properties(self.directory / "currterm").get("voteLeader")

    def close(self) -> None:
        """Unmap."""
        self._close_data()
        self._close_index()

    def _close_data(self) -> None:
        if self._map is not None:
            self._map.close()
            self._map = None

    def _close_index(self) -> None:
        if self._index_map is not None:
            self._index_map.close()
            self._index_map = None

    @property
    def file_size(self) -> int:
        """Bytes of a data file."""
        return self.data_files[0].size

    @property
    def start(self) -> int:
        """Where the first file begins, of the old log if there is one."""
        return (self.old_files or self.data_files)[0].start_offset

    @property
    def old_end(self) -> int:
        """dividedCommitlogOffset: where the old commit log ends."""
        last = self.old_files[-1]
        return last.start_offset + last.size

    @property
    def end(self) -> int:
        """The end of the last data file."""
        return self.data_files[-1].start_offset + self.file_size

    # -- places --------------------------------------------------------------------------------

    def place(self, pos: int) -> str:
        """For people: the file, and the position in it."""
        file = self._file_of(pos)
        return (
            f"{self.root}: {pos}"
            if file is None
            else f"{file.path}: position {pos - file.start_offset}"
        )

    def _file_of(self, pos: int) -> StoreFile | None:
        files = self.old_files if self.old_files and pos < self.old_end else self.data_files
        number = (pos - files[0].start_offset) // files[0].size
        return files[number] if 0 <= number < len(files) else None

    def view_of_file(self, pos: int) -> tuple[memoryview, int] | None:
        """The bytes of the whole file that holds `pos`, and where it starts. Release the view
        before the next file's."""
        file = self._file_of(pos)
        if file is None:
            return None
        if self._map is None or self._map.path != file.path:
            self._close_data()
            self._map = MappedFile.open(file.path, file.start_offset)
        return self._map.view(), file.start_offset

    def head_at(self, pos: int) -> EntryHead | Blank | HeadProblem:
        """What begins at `pos` of the entries."""
        found = self.view_of_file(pos)
        if found is None:
            return HeadProblem("no file", is_empty=True)
        view, start = found
        with view:
            return read_head(view, pos - start, pos)

    def bytes_at(self, pos: int, size: int) -> bytes:
        """Of one file; fewer at its end."""
        found = self.view_of_file(pos)
        if found is None:
            return b""
        view, start = found
        with view:
            return bytes(view[pos - start : pos - start + size])

    def record_of(self, head: EntryHead) -> bytes:
        """The record in an entry."""
        return self.bytes_at(head.pos + ENTRY_HEAD_SIZE, head.size - ENTRY_HEAD_SIZE)

    def unit_of(self, index: int) -> EntryHead | None:
        """What the index says of an entry; None: nothing."""
        at = index * UNIT_SIZE
        number = bisect_right(self._index_files, at, key=lambda file: file.start_offset) - 1
        if index < 0 or number < 0:
            return None
        file = self._index_files[number]
        if at >= file.start_offset + file.size:
            return None
        if self._index_map is None or self._index_map.path != file.path:
            self._close_index()
            self._index_map = MappedFile.open(file.path, file.start_offset)
        at -= file.start_offset
        with self._index_map.view() as view:
            found = find_unit(bytes(view[at : at + UNIT_SIZE]))
        return found if found is not None and found.index == index else None

    def heads_from(self, pos: int) -> Iterator[EntryHead]:
        """The entries that know their own places, wherever they lie from `pos` on. Linear in the
        bytes; holds the view of a file while it is asked."""
        while pos < self.end:
            found = self.view_of_file(pos)
            if found is None:
                return
            view, start = found
            with view:
                for at in self_naming(view, pos - start, start, POS_AT):
                    head = read_head(view, at, start + at)
                    if isinstance(head, EntryHead):
                        yield head
            pos = start + self.file_size


def check_entry(head: EntryHead, record: bytes) -> RecordCheck:
    """Judge the record in an entry, its body's CRC included."""
    found = check_record(record, 0, len(record), head.pos + ENTRY_HEAD_SIZE, check_crc=True)
    if found.kind is RecordKind.MESSAGE and found.size != len(record):
        return RecordCheck(
            RecordKind.INVALID, 0, f"a record of {found.size} bytes in {len(record)}"
        )
    return found


def self_naming(view: memoryview, position: int, start: int, field_at: int) -> Iterator[int]:
    """The positions in a file's bytes, from `position` on, whose int64 at `field_at` behind is
    their own place; the file's first byte is `start`."""
    last = len(view) - field_at - 8
    step = _FIRST_STEP
    while position <= last:
        count = min(step, last + 1 - position)
        step = min(step * 2, _STEP)
        with view[position : position + count + field_at + 7] as piece:
            found = _naming(piece, count, start + position, field_at)
        yield from (position + at for at in found)
        position += count


def _naming(piece: memoryview, count: int, pos: int, field_at: int) -> list[int]:
    if not np.frombuffer(piece, np.uint8).any():
        return []
    places = np.ndarray((count,), ">i8", piece, field_at, (1,))
    found: list[int] = np.flatnonzero(places == np.arange(pos, pos + count)).tolist()
    return found


def _find_directory(root: Path) -> Path:
    if not root.is_dir():
        raise StoreError(f"{root}: there is no such directory; name a broker's storePathRootDir")
    found = sorted(path for path in root.glob(f"{_PREFIX}*") if (path / "data").is_dir())
    if len(found) == 1:
        return found[0]
    names = ", ".join(path.name for path in found) or "none"
    raise StoreError(
        f"{root}: not the root directory of one DLedger node: it holds {names} of "
        f"{_PREFIX}<id>/data (with storePathDLedgerCommitLog set, link that directory there)"
    )


def _check_files(files: list[StoreFile]) -> list[StoreFile]:
    for before, file in itertools.pairwise(files):
        if file.size != files[0].size:
            raise StoreError(f"{file.path}: {file.size} bytes, the first file has {files[0].size}")
        if file.start_offset != before.start_offset + before.size:
            raise StoreError(f"{file.path}: the files before it are missing, from {before.path} on")
    if files and (files[0].size == 0 or files[0].start_offset % files[0].size):
        raise StoreError(f"{files[0].path}: {files[0].size} bytes do not fit its name")
    return files


def _read_properties(path: Path) -> dict[str, str]:
    """Of Java; empty without a file."""
    lines = path.read_text("ascii", "replace").splitlines() if path.exists() else []
    pairs = (line.partition("=") for line in lines)
    return {name.strip(): text.strip() for name, _, text in pairs}


def _read_committed_index(path: Path) -> int:
    """Of a properties file of Java. Raises StoreError: it is there and says something else."""
    values = _read_properties(path)
    if not path.exists():
        return -1
    try:
        return int(values["committedIndex"])
    except (KeyError, ValueError) as error:
        raise StoreError(
            f"{path}: not a checkpoint of DLedger ({error!r}); remove it: then nobody knows up to "
            "where the node had seen entries committed"
        ) from error
