"""DumpFiles: the files of one broker's metrics dump (docs/metrics_dump.md, "Files").

Runs on the dump's thread in the supervisor. Appends whole lines, closes a file at every full hour,
compresses closed files, finds the files of previous runs, and deletes files by age and total size.
Brokers may share the directory: a file belongs to the broker whose cluster, name and id are in its
path, and its writer holds a lock on it. Lines are opaque bytes here, except for the fields that
distinguish the runs of a broker. Tested by tests/broker/metrics/test_metrics_dump.py.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import os
import sys
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from broker.metrics.dump_file_access import (
    file_size,
    is_written,
    lock,
    make_directory,
    whole_lines,
    write_packed,
)
from broker.metrics.dump_file_names import DumpFile, find_dump_files, place_of
from broker.metrics.dump_life import PastLife
from conf.atomic_file import sync_directory

_DAY_MS: Final = 86_400_000
_PACKED_A_CALL_MAX: Final = 2
"""Files that one call of `tidy` compresses, so that the next line is not late."""
_REMOVED_A_CALL_MAX: Final = 2
"""Files that one call of `tidy` deletes, so that a wall clock that is wrong for a minute does not
delete everything."""
_LIVES_READ_MAX: Final = 8
"""How many previous runs are read to find the latest one."""

Report = Callable[[str, Exception, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpSettings:
    """Identity of the broker, and the limits of its dump. `directory` is metricsDumpPath."""

    directory: Path
    cluster: str
    broker: str
    broker_id: int
    interval_ms: int
    max_bytes: int
    keep_days: int
    host: str = ""
    """As in the lines."""
    past_life: Path | None = None
    """The file that says under which broker id this store's last life wrote
    (broker/metrics/dump_life.py)."""

    @property
    def is_shared(self) -> bool:
        """Whether other brokers of the group may write there: it is not beneath the store."""
        root = None if self.past_life is None else self.past_life.parent
        return root is None or not self.directory.is_relative_to(root)


class Mark(msgspec.Struct, frozen=True):
    """The fields that give the position of a line; others are ignored."""

    boot: str
    boot_ts: int
    seq: int
    prev_boot: str | None = None
    digest: str = ""
    """line_digest of the line; not a field of it."""


_read_mark: Final = msgspec.json.Decoder(Mark).decode


def line_digest(line: bytes) -> str:
    """SHA-256 of a line's bytes without its line break, 64 hexadecimal digits."""
    return hashlib.sha256(line.removesuffix(b"\n")).hexdigest()


@dataclass(slots=True)
class _OpenFile:
    """The file being written. `size`: bytes of its whole lines."""

    path: Path
    fd: int
    hour: str
    size: int = 0


def _day(at_ms: int) -> str:
    """The UTC date in the format of `dt`."""
    return f"{datetime.fromtimestamp(max(at_ms, 0) / 1000, UTC):%Y-%m-%d}"


class DumpFiles:
    """See the module. Owned by: one thread."""

    def __init__(self, settings: DumpSettings, boot: str, report: Report) -> None:
        """boot: 16 hexadecimal digits. report(what, error, then): reports an error that does not
        lose a line, and its consequence."""
        self._settings = settings
        self._place = place_of(settings.cluster, settings.broker)
        self._boot = boot[:8]
        self._report = report
        self._open: _OpenFile | None = None
        self._unpacked: deque[Path] = deque()
        """Closed files to be compressed."""
        self._uncut: dict[Path, int] = {}
        """Files whose last line failed and could not be cut off: bytes of their whole lines."""
        self._count_due = True
        """Whether there may be files to delete."""
        self._room_bytes = 0
        """Remaining size budget when files were last counted, less the bytes written since."""

    # -- writing -------------------------------------------------------------------------------

    def append(self, ts_ms: int, seq: int, line: bytes) -> None:
        """Write one line durably: once it returns, neither a kill nor a power failure loses it.

        ts_ms: the line's wall clock time, which determines its directory. Raises OSError; then the
        line is not part of the dump, and the next one starts a new file.
        """
        moment = datetime.fromtimestamp(ts_ms / 1000, UTC)
        hour = f"{moment:%Y-%m-%d %H}"
        if self._open is not None and (self._open.hour != hour or self._is_deleted(self._open)):
            self._abandon()
        if self._open is None:
            self._open = self._create(moment, hour, seq)
        file = self._open
        try:
            written = os.write(file.fd, line)
            if written != len(line):
                raise OSError(f"only {written} of {len(line)} bytes were written to {file.path}")
            os.fdatasync(file.fd)
        except OSError:
            self._cut(file)
            self._abandon()
            raise
        file.size += len(line)
        self._room_bytes -= len(line)
        if self._room_bytes < 0:
            self._count_due = True

    def _cut(self, file: _OpenFile) -> None:
        """Cut off what there is of a line that failed; when it is compressed if not now."""
        try:
            os.ftruncate(file.fd, file.size)
        except OSError:
            self._uncut[file.path] = file.size

    def close(self) -> None:
        """Close and compress the file being written; idempotent. Raises OSError."""
        if self._open is not None:
            path = self._open.path
            self._abandon()
            if path in self._unpacked:
                self._unpacked.remove(path)
                self._pack(path)

    def _create(self, moment: datetime, hour: str, seq: int) -> _OpenFile:
        settings = self._settings
        parent = settings.directory / f"dt={moment:%Y-%m-%d}" / self._place
        path = parent / f"{moment:%H%M}-{settings.broker_id}-{self._boot}-{seq:08}.jsonl"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        try:
            make_directory(parent)
            fd = os.open(path, flags, 0o644)
        except FileNotFoundError:  # Another broker has just removed the empty directory.
            make_directory(parent)
            fd = os.open(path, flags, 0o644)
        file = _OpenFile(path, fd, hour)
        try:
            lock(fd)
            sync_directory(parent)
        except OSError:
            os.close(fd)
            with contextlib.suppress(OSError):
                os.unlink(path)
            raise
        return file

    def _is_deleted(self, file: _OpenFile) -> bool:
        """Whether the file was deleted or moved; lines written to it now would be lost."""
        try:
            there = os.path.samestat(os.stat(file.path), os.fstat(file.fd))
        except FileNotFoundError:
            there = False
        if not there:
            error = FileNotFoundError(str(file.path))
            self._report("the current file was deleted or moved", error, "starting a new one")
        return not there

    def _abandon(self) -> None:
        """Abandon the open file; its lines are compressed later."""
        file, self._open = self._open, None
        if file is None:
            return
        self._count_due = True
        with contextlib.suppress(OSError):
            os.close(file.fd)
        if file.size:
            self._unpacked.append(file.path)
        else:
            self._uncut.pop(file.path, None)
            with contextlib.suppress(OSError):
                os.unlink(file.path)

    # -- housekeeping --------------------------------------------------------------------------

    def take_over(self) -> None:
        """Find files of previous runs to be compressed. Raises OSError; then call it again."""
        files = [file for file in self._files() if file.boot != self._boot]
        plain = {file.path for file in files if not file.hidden and not file.packed}
        self._unpacked.extend(sorted(plain.difference(self._unpacked)))
        for file in files:
            if file.hidden and _plain_path(file.path) not in plain:
                os.unlink(file.path)

    def tidy(self, now_ms: int) -> None:
        """Do a bounded part of the housekeeping: compress up to two files, delete up to two. Raises
        OSError; a later call retries."""
        try:
            for _ in range(min(_PACKED_A_CALL_MAX, len(self._unpacked))):
                path = self._unpacked.popleft()
                try:
                    self._pack(path)
                except OSError:
                    self._unpacked.append(path)
                    raise
        finally:
            self._remove_some(now_ms)

    def _pack(self, path: Path) -> None:
        """Compress a closed file and delete it; a partial last line is dropped. At every moment
        each of its lines is in at least one file visible to readers."""
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        packed = path.with_name(f"{path.name}.gz")
        try:
            if not lock(fd):
                return  # Another broker with our name and id is writing it.
            size = min(whole_lines(fd), self._uncut.get(path, sys.maxsize))
            if size < os.fstat(fd).st_size:
                os.ftruncate(fd, size)
            if size and not packed.exists():
                write_packed(fd, packed)
            os.unlink(path)
            self._uncut.pop(path, None)
        finally:
            os.close(fd)

    def _remove_some(self, now_ms: int) -> None:
        if not self._count_due:
            return
        excess = self._excess(now_ms)
        for path in excess[:_REMOVED_A_CALL_MAX]:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            self._remove_empty(path.parent)
        self._count_due = len(excess) > _REMOVED_A_CALL_MAX

    def _excess(self, now_ms: int) -> list[Path]:
        """Closed files to be deleted: first those dated in the future (the wall clock was ahead),
        which would never expire, then the oldest. Updates the remaining size budget."""
        today, oldest_day = _day(now_ms), _day(now_ms - self._settings.keep_days * _DAY_MS)
        current = None if self._open is None else self._open.path
        files = [(file, file_size(file.path)) for file in self._files() if not file.hidden]
        files.sort(key=lambda entry: (entry[0].day <= today, entry[0].age_key))
        room_bytes = self._settings.max_bytes - sum(size for _, size in files)
        excess = []
        for file, size in files:
            if room_bytes >= 0 and file.day >= oldest_day:
                continue
            if file.packed or (file.path != current and not is_written(file.path)):
                room_bytes += size
                excess.append(file.path)
        self._room_bytes = room_bytes
        return excess

    @staticmethod
    def _remove_empty(directory: Path) -> None:
        """Remove the file's directories, from the innermost outwards, as far as they are empty."""
        for path in (directory, directory.parent, directory.parent.parent):
            try:
                os.rmdir(path)
            except OSError:  # Not empty, or already removed by another broker.
                return

    def _files(self, broker_id: int | None = None) -> list[DumpFile]:
        """This broker's files of all runs; or those of another broker id. Raises OSError."""
        wanted_id = self._settings.broker_id if broker_id is None else broker_id
        return find_dump_files(self._settings.directory, self._place, wanted_id)

    # -- the previous run -----------------------------------------------------------------------

    def find_last_mark(self, past: PastLife | None = None) -> Mark | None:
        """The last line of this broker's previous run; None if there is none. `past`: the last life
        of its store, whose broker id may have been another one. Runs whose file is being written
        belong to another broker. Raises OSError or msgspec.DecodeError for an unreadable file,
        since the last line is then unknown."""
        settings = self._settings
        marks = self._marks(settings.broker_id)
        if past is not None and past.broker_id != settings.broker_id:
            own = (settings.cluster, settings.broker, settings.host)
            is_own = (past.cluster, past.broker, past.host) == own
            # Lives of this id may come from it, too: whose note was not written.
            every = [*self._marks(past.broker_id), *marks] if is_own else []
            found = _last_from(past.boot, every)
            if found is not None:
                return found
        # Runs are chained: the latest is no run's predecessor, even if the wall clock went back.
        earlier = {mark.prev_boot for mark in marks}
        ends = [mark for mark in marks if mark.boot not in earlier]
        return max(ends, key=lambda mark: mark.boot_ts, default=None)

    def _marks(self, broker_id: int) -> list[Mark]:
        """The last lines of the newest runs under a broker id. Raises as `find_last_mark`."""
        lives: dict[str, list[DumpFile]] = {}
        for file in self._files(broker_id):
            if not file.hidden:
                lives.setdefault(file.boot, []).append(file)
        newest = sorted(lives.values(), key=lambda life: max(f.age_key for f in life))[
            -_LIVES_READ_MAX:
        ]
        return [mark for life in newest if (mark := _last_mark_of(life)) is not None]


def _last_from(boot: str, marks: Sequence[Mark]) -> Mark | None:
    """The mark of a run, or of the last one of those that come from it."""
    found = next((mark for mark in marks if mark.boot == boot), None)
    for _ in marks:
        after = next((mark for mark in marks if found and mark.prev_boot == found.boot), None)
        found = after or found
    return found


def _last_mark_of(life: list[DumpFile]) -> Mark | None:
    """The mark of the last whole line of a run's files; None also while one is being written."""
    if any(not file.packed and is_written(file.path) for file in life):
        return None
    for file in sorted(life, key=lambda file: file.seq, reverse=True):
        line = _last_line(file)
        if line is not None:
            mark = _read_mark(line)
            return msgspec.structs.replace(mark, digest=line_digest(line))
    return None


def _last_line(file: DumpFile) -> bytes | None:
    """Raises OSError."""
    last = None
    try:
        with gzip.open(file.path) if file.packed else open(file.path, "rb") as lines:
            for line in lines:
                if line.endswith(b"\n"):
                    last = line
    except (EOFError, zlib.error) as error:
        raise OSError(f"{file.path} is damaged: {error}") from error
    return last


def _plain_path(temporary: Path) -> Path:
    """The path of the file that a temporary (hidden) file was being made from."""
    return temporary.with_name(temporary.name.removeprefix(".").removesuffix(".gz.tmp"))
