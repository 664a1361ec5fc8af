"""MappedFileQueue: the files of a directory, or of several, as one sequence of bytes.

Lists the directory, checks it, finds the file of an offset and maps it on first use; when many
files are mapped, the least recently used are unmapped. Files that appear later are found when an
offset lies beyond the known ones. Owned by one thread: every thread and process that reads the log
has its own. It knows no record; the control page says how far a reader may read. Corresponds to
RocketMQ's MappedFileQueue.
"""

from __future__ import annotations

import bisect
import logging
import mmap
import os
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

from store.errors import StoreError, WrongFileSizeError
from store.log_directories import LogDirectories
from store.mapped_file import MappedFile, create_allocated, file_name, find_start_offset

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StoreFile:
    """One file as found in the directory. `mtime_ms`: when it was last written."""

    start_offset: int
    path: Path
    size: int
    mtime_ms: int


def list_store_files(place: Path | LogDirectories) -> list[StoreFile]:
    """The files with 20-digit names, by start offset; everything else is omitted.

    A directory that does not exist has none. Files that disappear meanwhile are omitted, and of
    several directories' files of one name all but that of LogDirectories.path_of.
    """
    if isinstance(place, Path):
        return _list_directory(place)
    found: dict[int, StoreFile] = {}
    for directory in place:
        for file in _list_directory(directory):
            found.setdefault(file.start_offset, file)
    return [found[start] for start in sorted(found)]


def _list_directory(directory: Path) -> list[StoreFile]:
    try:
        entries = list(os.scandir(directory))
    except FileNotFoundError:
        return []
    files = (_store_file(entry) for entry in entries)
    return sorted((f for f in files if f is not None), key=lambda f: f.start_offset)


def _store_file(entry: os.DirEntry[str]) -> StoreFile | None:
    start_offset = find_start_offset(entry.name)
    try:
        if start_offset is None or not entry.is_file():
            return None
        status = entry.stat()
    except FileNotFoundError:
        return None
    return StoreFile(start_offset, Path(entry.path), status.st_size, status.st_mtime_ns // 10**6)


class MappedFileQueue:
    """See the module. `file_size`: bytes of every file; files start at its multiples."""

    def __init__(self, place: Path | LogDirectories, file_size: int, *, max_maps: int = 16) -> None:
        """`max_maps`: most files mapped at once."""
        self.directories = LogDirectories.of(place)
        self.file_size = file_size
        self._max_maps = max_maps
        self._starts: list[int] = []
        self.completed: list[int] = []
        """Start offsets of the files that `load` found too short."""
        self._maps: OrderedDict[int, MappedFile] = OrderedDict()
        self._advice = mmap.MADV_NORMAL

    # -- the directory -------------------------------------------------------------------------

    def load(self) -> None:
        """Read and check the directories before recovery, by the `store` process.

        Ignores names that are not 20 digits; completes a short last file with zeros (recovery
        finds the tail in it), and short ones before it if another file has the right length:
        they were truncated, and what they lack is damage. Raises WrongFileSizeError for any
        other wrong length, StoreError for a gap between files or one that is there twice.
        """
        self.directories.make()
        self._check_directories()
        files = list_store_files(self.directories)
        is_known_size = any(file.size == self.file_size for file in files)
        for file in files[:-1]:
            if is_known_size and file.size < self.file_size:
                create_allocated(file.path, self.file_size)
                self.completed.append(file.start_offset)
                log_truncated(file.path, file.size, self.file_size)
            else:
                self._check_size(file)
        if files:
            self._complete_last(files[-1], alone=len(files) == 1)
        self._check_starts(files)
        self._starts = [file.start_offset for file in files]

    def refresh(self) -> None:
        """Read the directories again and unmap files that are gone."""
        self._starts = [file.start_offset for file in list_store_files(self.directories)]
        for start in [start for start in self._maps if start not in self._starts]:
            self._maps.pop(start).close()

    def _check_directories(self) -> None:
        """Report foreign names. Raises StoreError: a file is there twice, a directory missing."""
        seen: dict[str, Path] = {}
        before: list[Path] = []
        for directory in self.directories:
            if not directory.is_dir():
                raise StoreError(
                    f"{directory}: the directory is missing, and with it perhaps messages; mount "
                    "it, or take it out of readOnlyCommitLogStorePaths if all in it has expired"
                )
            for other in before:
                if directory.samefile(other):
                    raise StoreError(
                        f"{other} and {directory} are one directory; name it once, in both "
                        "settings by the same name"
                    )
            before.append(directory)
            names = sorted(path.name for path in directory.iterdir())
            strangers = [name for name in names if find_start_offset(name) is None]
            if strangers:
                log.warning("%s: ignored files with foreign names: %s", directory, strangers)
            for name in names:
                if name not in strangers and seen.setdefault(name, directory) != directory:
                    raise StoreError(
                        f"{seen[name] / name} and {directory / name} are the same part of the log; "
                        "move the one away that is not in use (of zeros only, or the older one)"
                    )

    def _check_size(self, file: StoreFile) -> None:
        if file.size != self.file_size:
            raise WrongFileSizeError(
                f"{file.path}: length {file.size} not matched message store config value "
                f"{self.file_size}; set the size this store was made with (for commitlog: "
                "mappedFileSizeCommitLog), or move the file away if it is foreign"
            )

    def _complete_last(self, file: StoreFile, *, alone: bool) -> None:
        """A crash while the last file was created leaves it short; nothing of it was written."""
        short = file.size < self.file_size
        if not short or (alone and not _starts_with_zeros(file.path)):
            self._check_size(file)
            return
        log.warning(
            "%s: %s bytes, completed to %s: its creation was interrupted",
            file.path,
            file.size,
            self.file_size,
        )
        create_allocated(file.path, self.file_size)
        self.completed.append(file.start_offset)

    def _check_starts(self, files: list[StoreFile]) -> None:
        expected = files[0].start_offset if files else 0
        for file in files:
            if file.start_offset % self.file_size:
                raise StoreError(
                    f"{file.path}: its name is not a multiple of the file size {self.file_size}; "
                    "set the size this store was made with, or move the file away"
                )
            if file.start_offset != expected:
                raise StoreError(
                    f"{self.directories}: {file_name(expected)} is missing before "
                    f"{file.path.name}; restore it, or move the files before the gap away"
                )
            expected += self.file_size

    # -- offsets -------------------------------------------------------------------------------

    @property
    def start_offsets(self) -> list[int]:
        """Start offsets of the known files, in order."""
        return list(self._starts)

    @property
    def min_offset(self) -> int | None:
        """Start of the first file, None without files."""
        return self._starts[0] if self._starts else None

    @property
    def end_offset(self) -> int:
        """End of the last known file, 0 without files."""
        return self._starts[-1] + self.file_size if self._starts else 0

    def path_of(self, start_offset: int) -> Path:
        """Path of the file that starts at `start_offset`."""
        return self.directories.path_of(start_offset)

    def next_file_offset(self, phy_offset: int) -> int:
        """Start of the file after the one that contains `phy_offset`."""
        return phy_offset - phy_offset % self.file_size + self.file_size

    # -- files and views -----------------------------------------------------------------------

    def find_file(self, phy_offset: int) -> MappedFile | None:
        """The mapped file that holds `phy_offset`, None when there is no such file."""
        start = phy_offset - phy_offset % self.file_size
        found = self._maps.get(start)
        if found is not None:
            self._maps.move_to_end(start)
            return found
        if phy_offset < 0 or not self._is_known(start):
            return None
        return self._map(start)

    def view_at(self, phy_offset: int) -> memoryview:
        """The bytes from `phy_offset` to the end of its file. Raises StoreError: no such file."""
        file = self._file(phy_offset)
        return file.view(phy_offset - file.start_offset)

    def view(self, phy_offset: int, size: int) -> memoryview:
        """[phy_offset, phy_offset + size), which must lie in one file. Raises StoreError."""
        file = self._file(phy_offset)
        return file.view(phy_offset - file.start_offset, size)

    def _file(self, phy_offset: int) -> MappedFile:
        file = self.find_file(phy_offset)
        if file is None:
            raise StoreError(f"{self.directories}: no file holds offset {phy_offset}")
        return file

    def _is_known(self, start: int) -> bool:
        if start >= self.end_offset:
            self.refresh()
        at = bisect.bisect_left(self._starts, start)
        return at < len(self._starts) and self._starts[at] == start

    def _map(self, start: int) -> MappedFile | None:
        path = self.path_of(start)
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            self.refresh()
            return None
        if size != self.file_size:
            raise WrongFileSizeError(f"{path}: length {size}, expected {self.file_size}")
        file = self._maps[start] = MappedFile.open(path, start)
        if self._advice != mmap.MADV_NORMAL:
            file.advise(self._advice)
        while len(self._maps) > self._max_maps:
            self._maps.popitem(last=False)[1].close()
        return file

    def advise(self, advice: int) -> None:
        """How the files are read (mmap.MADV_…): those that are mapped and those that will be.
        Raises OSError."""
        self._advice = advice
        for file in self._maps.values():
            file.advise(advice)

    # -- removal -------------------------------------------------------------------------------

    def drop_below(self, min_phy_offset: int) -> None:
        """Forget and unmap files that end at or before `min_phy_offset`."""
        while self._starts and self._starts[0] + self.file_size <= min_phy_offset:
            file = self._maps.pop(self._starts.pop(0), None)
            if file is not None:
                file.close()

    def delete_from(self, start_offset: int) -> list[Path]:
        """Unlink the files that start at or after `start_offset`, newest first."""
        deleted: list[Path] = []
        while self._starts and self._starts[-1] >= start_offset:
            start = self._starts.pop()
            file = self._maps.pop(start, None)
            if file is not None:
                file.close()
            path = self.path_of(start)
            self.directories.remove(path)
            deleted.append(path)
        return deleted

    def close(self) -> None:
        """Unmap everything; views that are still lent stay readable."""
        while self._maps:
            self._maps.popitem()[1].close()


def _starts_with_zeros(path: Path) -> bool:
    with path.open("rb") as file:
        return not any(file.read(8))


def log_truncated(path: Path, size: int, file_size: int) -> None:
    """Say that a file was short and is whole again."""
    log.error(
        "%s: truncated to %s bytes by somebody else, filled up with zeros to %s: the messages in "
        "between are damaged (docs/operations.md, damage in the commit log); all others stay",
        path,
        size,
        file_size,
    )
