"""ConsumeQueueFiles: the files under consumequeue/ as positions of queues, behind few descriptors.

A queue is one row of bytes, cut into files of equal size named by their first byte:
<root>/<topic>/<queueId>/<20 digits>. Process `store` writes them, `remoting` reads them; each has
its own object. No maps: a map costs a descriptor, and there may be 80,000 queues. Files have their
full length at once but are sparse: 10,000 topics allocated in full would be 480 GB. Guarded by: the
lock of its owner, but for `sync`, which opens files for itself. It knows bytes, not units.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import resource
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar, Final

from store.descriptor_cache import DescriptorCache, FileKey
from store.errors import DiskFullError, FlushFailedError, StoreError, WrongFileSizeError
from store.file_system_sync import FileSystemSync
from store.mapped_file import NO_SPACE, file_name, find_start_offset, sync_directory
from store.unwritable_queues import UnwritableQueues

log = logging.getLogger(__name__)

DEFAULT_OPEN_FILES: Final = 400
"""Under the 1,024 descriptors that a process usually may have."""
_MOST_OPEN_FILES: Final = 20_000
_OTHER_FILES: Final = 600
"""Descriptors that the writer's process needs beside its queues, besides a tenth of all."""


def is_safe_topic(topic: str) -> bool:
    """Whether `topic` is a directory name that stays where it belongs."""
    return bool(topic) and topic not in (".", "..") and "/" not in topic and "\0" not in topic


def writers_open_files() -> int:
    """How many files the writer of queues may keep open: opening and closing a file for a unit
    costs 3 to 4 µs a message more when messages go round more queues than that."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return _MOST_OPEN_FILES
    return min(max(limit * 9 // 10 - _OTHER_FILES, DEFAULT_OPEN_FILES), _MOST_OPEN_FILES)


class ConsumeQueueFiles:
    """Reads and writes by (topic, queue_id, position)."""

    MOST_UNWRITABLE: ClassVar[int] = 0
    """Queues that may be unwritable while others go on."""

    def __init__(
        self,
        root: Path,
        file_size: int,
        *,
        writable: bool,
        open_files: int = DEFAULT_OPEN_FILES,
        size_setting: str = "mappedFileSizeConsumeQueue",
    ) -> None:
        """root: <storePathRootDir>/consumequeue. file_size: what `size_setting` says, bytes."""
        self.root = root
        self.file_size = file_size
        self._size_setting = size_setting
        self._root_text = str(root)
        self._mode = (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC
        self._cache = DescriptorCache(open_files, self._open)
        self._file_system = FileSystemSync(root)
        self.unwritable: Final = UnwritableQueues(root, self.MOST_UNWRITABLE)
        """Light queues; none in ordinary files."""

    # -- names ---------------------------------------------------------------------------------

    def path(self, topic: str, queue_id: int, start: int) -> str:
        """Path of the file whose first byte is `start`."""
        return f"{self._root_text}/{topic}/{queue_id}/{file_name(start)}"

    def _open(self, key: FileKey) -> int:
        return os.open(self.path(*key), self._mode)

    def list_starts(self, topic: str, queue_id: int) -> tuple[list[int], bool]:
        """First bytes of the files of a queue, in order, and whether one had to be completed.
        Raises WrongFileSizeError.

        A file that is too short (a crash in its creation, or damage) is completed with zeros;
        names that are no store file's are left alone.
        """
        sizes: dict[int, int] = {}
        directory = f"{self._root_text}/{topic}/{queue_id}"
        if not os.path.isdir(directory):
            return [], False
        for name in os.listdir(directory):
            start = find_start_offset(name)
            if start is None or start % self.file_size:
                log.warning("consume queue %s/%s: %s ignored", topic, queue_id, name)
            else:
                sizes[start] = os.stat(f"{directory}/{name}").st_size
        starts = sorted(sizes)
        # With another mappedFileSizeConsumeQueue no file would have this size.
        has_right = self.file_size in sizes.values()
        wrong = [start for start in starts if sizes[start] != self.file_size]
        for start in wrong:
            can_complete = has_right or start == starts[-1]
            self._judge_size(topic, queue_id, start, sizes[start], can_complete)
        return starts, bool(wrong)

    def _judge_size(
        self, topic: str, queue_id: int, start: int, size: int, can_complete: bool
    ) -> None:
        path = self.path(topic, queue_id, start)
        if not can_complete or size > self.file_size:
            raise WrongFileSizeError(
                f"{path} has {size} bytes, {self._size_setting} is {self.file_size}: set it back, "
                f"or delete the {self.root.name} directory: it is rebuilt from the commit log"
            )
        log.warning("%s has only %s of %s bytes: completed", path, size, self.file_size)
        os.truncate(path, self.file_size)

    def marks(self, topic: str, queue_id: int, start: int) -> tuple[int, int]:
        """When names came to or left a queue's directory, and when the file of `start` was written
        (both mtime, ns; 0: it is not there): others, when somebody has touched the queue."""
        return (
            _mtime_ns(f"{self._root_text}/{topic}/{queue_id}"),
            _mtime_ns(self.path(topic, queue_id, start)),
        )

    # -- bytes ---------------------------------------------------------------------------------

    def read(self, topic: str, queue_id: int, position: int, size: int) -> bytes:
        """Up to `size` bytes at `position`, none beyond the file's end; b"" without a file."""
        at = position % self.file_size
        try:
            fd = self._cache.get((topic, queue_id, position - at))
        except (FileNotFoundError, NotADirectoryError):
            return b""
        return os.pread(fd, min(size, self.file_size - at), at)

    def write(self, topic: str, queue_id: int, position: int, data: memoryview) -> bool:
        """Write `data`, over file ends where needed. True when a file was created.

        Raises DiskFullError, StoreError.
        """
        created = False
        try:
            while data:
                at = position % self.file_size
                key = (topic, queue_id, position - at)
                try:
                    fd = self._cache.get(key)
                except FileNotFoundError:
                    fd, created = self._create(key), True
                room = self.file_size - at
                written = os.pwrite(fd, data if len(data) <= room else data[:room], at)
                if written == len(data):
                    break
                data, position = data[written:], position + written
        except OSError as error:
            raise _write_error(topic, queue_id, position, error) from error
        return created

    def _create(self, key: FileKey) -> int:
        fd = make_file(self.path(*key), self._mode, self.file_size)
        self._cache.put(key, fd)
        return fd

    def make_whole(self, topic: str, queue_id: int, starts: Iterable[int]) -> int:
        """Have every file of `starts`, in its full length, where readers open it: what was deleted
        or cut is made again, with zeros. Returns how many were not as they should be. Raises
        DiskFullError, StoreError."""
        self.forget(topic, queue_id)
        made = 0
        for start in starts:
            path = self.path(topic, queue_id, start)
            try:
                size = os.stat(path).st_size
                if size < self.file_size:
                    os.truncate(path, self.file_size)
                    made += 1
            except FileNotFoundError:
                self._make(topic, queue_id, start)
                made += 1
        return made

    def _make(self, topic: str, queue_id: int, start: int) -> None:
        try:
            self._create((topic, queue_id, start))
        except OSError as error:
            raise _write_error(topic, queue_id, start, error) from error

    def has_data_at(self, topic: str, queue_id: int, position: int) -> bool:
        """Whether the file of `position` has allocated bytes there or behind it."""
        at = position % self.file_size
        try:
            os.lseek(self._cache.get((topic, queue_id, position - at)), at, os.SEEK_DATA)
        except OSError as error:
            if error.errno in (errno.ENXIO, errno.ENOENT):
                return False
            raise
        return True

    def zero_from(self, topic: str, queue_id: int, position: int) -> None:
        """Zero a file from `position` to its end, durably: nothing behind it comes back to life.
        Raises FlushFailedError, OSError."""
        at = position % self.file_size
        fd = self._cache.get((topic, queue_id, position - at))
        os.ftruncate(fd, at)
        os.ftruncate(fd, self.file_size)
        self._sync(fd, self.path(topic, queue_id, position - at))

    def delete(self, topic: str, queue_id: int, start: int) -> None:
        """Delete one file, if it is there."""
        self._cache.forget_file((topic, queue_id, start))
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path(topic, queue_id, start))

    def changed_ms(self, topic: str, queue_id: int) -> int:
        """Wall clock ms at which a file of the queue was last made or deleted."""
        return _mtime_ns(f"{self._root_text}/{topic}/{queue_id}") // 1_000_000

    def remove_directories(self, topic: str, queue_id: int) -> None:
        """Remove the queue's directory and the topic's, where they are empty."""
        for path in (f"{self._root_text}/{topic}/{queue_id}", f"{self._root_text}/{topic}"):
            try:
                os.rmdir(path)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.ENOENT):
                    raise

    # -- disk ----------------------------------------------------------------------------------

    def sync(self, topic: str, queue_id: int, start: int) -> None:
        """One file's bytes are on disk afterwards. Any thread. Raises FlushFailedError."""
        path = self.path(topic, queue_id, start)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return  # Deleted in the meantime.
        try:
            self._sync(fd, path)
        finally:
            os.close(fd)

    def _sync(self, fd: int, path: str) -> None:
        try:
            os.fdatasync(fd)
        except OSError as error:
            raise FlushFailedError(f"fdatasync of {path}: {error}") from error

    def sync_names(self, topic: str, queue_id: int) -> None:
        """The names of a queue's new files are on disk afterwards. Any thread."""
        for directory in (self.root / topic / str(queue_id), self.root / topic, self.root):
            with contextlib.suppress(FileNotFoundError):
                sync_directory(directory)

    def open(self) -> None:
        """Before the first write, for `sync_all`. Without the directory there is nothing to open.
        Raises OSError."""
        with contextlib.suppress(FileNotFoundError):
            self._file_system.open()

    def sync_all(self) -> bool:
        """Everything under `root` is on disk afterwards: one call for the whole file system, which
        writes one journal entry where a file each would write 80,000. False: it cannot be had that
        way, or something failed there: sync the files. Any thread."""
        return self._file_system.sync()

    def forget(self, topic: str, queue_id: int) -> None:
        """Close what is open of a queue: its files were deleted or made anew."""
        self._cache.forget_queue(topic, queue_id)

    def close(self) -> None:
        """Close all descriptors; idempotent."""
        self._cache.close()
        self._file_system.close()


def make_file(path: str, mode: int, size: int) -> int:
    """A descriptor of a queue's file that was not there, in its full length. Raises OSError."""
    flags = mode | os.O_CREAT | os.O_CLOEXEC
    try:
        fd = os.open(path, flags, 0o644)
    except FileNotFoundError:
        _make_directory(os.path.dirname(path))
        fd = os.open(path, flags, 0o644)
    try:
        os.ftruncate(fd, size)
    except OSError:
        os.close(fd)
        os.unlink(path)
        raise
    return fd


def _make_directory(directory: str) -> None:
    """Of a queue, whose topic's mostly is not there, either: os.makedirs looks at each name first,
    which 100,000 light queues would feel."""
    try:
        os.mkdir(os.path.dirname(directory))
    except FileExistsError:
        pass
    except FileNotFoundError:
        os.makedirs(directory, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.mkdir(directory)


def _write_error(topic: str, queue_id: int, position: int, error: OSError) -> StoreError:
    text = f"writing consume queue {topic}/{queue_id} at {position}: {error}"
    return DiskFullError(text) if error.errno in NO_SPACE else StoreError(text)


def _mtime_ns(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except FileNotFoundError:
        return 0
