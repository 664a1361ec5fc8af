"""LogDirectories: the directories that hold the commit log's files, one or several.

Values and look-ups, any process and thread. storePathCommitLog may name several directories, and
readOnlyCommitLogStorePaths ones that get no new files any more. All files together are one log: the
file of an offset lies in exactly one of them. It knows no record and no settings. RocketMQ's
counterpart: MultiPathMappedFileQueue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from store.mapped_file import file_name, make_directory, sync_directory

IsFull = Callable[[Path], bool]
"""Whether a directory's partition is too full for a new file."""


@dataclass(frozen=True, slots=True)
class LogDirectories:
    """named: of storePathCommitLog, in its order. read_only: they get no new files; they may be
    among `named`."""

    named: tuple[Path, ...]
    read_only: tuple[Path, ...] = ()

    @staticmethod
    def of(place: Path | LogDirectories) -> LogDirectories:
        """One directory is the common case."""
        return place if isinstance(place, LogDirectories) else LogDirectories((place,))

    def __iter__(self) -> Iterator[Path]:
        """All of them, the first that is named first."""
        return iter(dict.fromkeys((*self.named, *self.read_only)))

    def __str__(self) -> str:
        return ", ".join(map(str, self))

    @property
    def first(self) -> Path:
        """Beside it lie our own files about the log (fences, digests, progress of the scrub)."""
        return self.named[0]

    @property
    def writable(self) -> list[Path]:
        """Those that get new files, sorted."""
        return sorted((path for path in self.named if path not in self.read_only), key=str)

    # -- files ---------------------------------------------------------------------------------

    def path_of(self, start_offset: int) -> Path:
        """The file that starts at `start_offset`; where it is not, its place in the first."""
        name = file_name(start_offset)
        if len(self.named) > 1 or self.read_only:
            for directory in self:
                if (directory / name).exists():
                    return directory / name
        return self.first / name

    def places_of_new(self, start_offset: int, file_size: int, is_full: IsFull) -> list[Path]:
        """Where the file of `start_offset` may be made, the best place first: in turn among the
        directories that are not full, where all are among all that get new files. As RocketMQ
        chooses; it tries the first only."""
        name = file_name(start_offset)
        writable = self.writable
        free = [path for path in writable if not is_full(path)] if len(writable) > 1 else writable
        choice = free or writable
        turn = start_offset // file_size % len(choice)
        in_turn = [*choice[turn:], *choice[:turn]]
        return [path / name for path in dict.fromkeys((*in_turn, *writable))]

    # -- directories ---------------------------------------------------------------------------

    def make(self) -> None:
        """Create those that get new files; the new names survive a power loss. Raises
        FlushFailedError, OSError."""
        for path in self.writable:
            make_directory(path)

    def remove(self, path: Path) -> None:
        """Unlink a file. Of several directories it is gone for good then: each disk writes names
        when it likes, and a power loss must not leave a gap between what stays and what comes
        back. Raises FlushFailedError, OSError."""
        path.unlink(missing_ok=True)
        if len(self.named) > 1 or self.read_only:
            sync_directory(path.parent)

    def sync(self) -> None:
        """fsync each: names created and removed survive a power loss. Raises FlushFailedError,
        OSError."""
        for path in self:
            if path.is_dir():
                sync_directory(path)
