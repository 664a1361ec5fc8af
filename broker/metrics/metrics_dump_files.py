"""DumpFiles: the files of one broker's metrics dump (docs/metrics_dump.md, "Files").

Runs on the dump's thread in the supervisor. Appends whole lines, closes a file at the turn of the
hour, compresses what is closed, finds what a predecessor left, removes what is too old or too
much. Brokers may share the directory: a file belongs to the broker whose cluster, name and id it
carries, and whoever writes it holds a lock on it. It knows lines as bytes, and of their content
only what tells one life of a broker from the next.
"""

from __future__ import annotations

import contextlib
import fcntl
import gzip
import hashlib
import os
import re
import string
import zlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from conf.atomic_file import sync_directory

_SAFE: Final = frozenset((string.ascii_letters + string.digits + "._-").encode())
_NAME: Final = re.compile(
    r"(?P<hidden>\.)?(?P<hhmm>\d{4})-(?P<broker_id>\d+)-(?P<boot>[0-9a-f]{8})-(?P<seq>\d{8,})"
    r"\.jsonl(?P<packed>\.gz)?"
)
_DATE: Final = re.compile(r"dt=(\d{4}-\d{2}-\d{2})")
_CHUNK: Final = 64 << 10
_GZIP: Final = 31
"""zlib's word for: the largest window, and the head and tail of a gzip file, without a time."""
_DAY_MS: Final = 86_400_000
_PACKED_A_CALL_MAX: Final = 2
"""Files that one call of `tidy` compresses: the next line must not be late."""
_REMOVED_A_CALL_MAX: Final = 2
"""Files that one call of `tidy` removes: a wall clock that is wrong for a minute must not cost
every file."""
_LIVES_READ_MAX: Final = 8
"""How many earlier lives are looked at to find the last one."""
_COMPONENT_MAX: Final = 255 - len("cluster=")
"""Characters of a name in a path: what a file system takes for one directory, less our word."""
_DIGEST_DIGITS: Final = 16

Tell = Callable[[str, Exception, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpSettings:
    """Whose dump it is, and its bounds. `directory` is metricsDumpPath."""

    directory: Path
    cluster: str
    broker: str
    broker_id: int
    interval_ms: int
    max_bytes: int
    keep_days: int


class Mark(msgspec.Struct, frozen=True):
    """What a line says of where it stands; other fields are ignored."""

    boot: str
    boot_ts: int
    seq: int
    prev_boot: str | None = None


@dataclass(frozen=True, slots=True)
class DumpFile:
    """A file of the dump, by its name."""

    path: Path
    day: str
    hhmm: str
    boot: str
    seq: int
    hidden: bool
    packed: bool

    @property
    def age_key(self) -> tuple[str, str, int]:
        """Sorts the oldest first."""
        return self.day, self.hhmm, self.seq


@dataclass(slots=True)
class _OpenFile:
    """The file being written. `size`: bytes of its whole lines."""

    path: Path
    fd: int
    hour: str
    size: int = 0


def path_component(name: str) -> str:
    """`name` as part of a path: everything but letters, digits, `.`, `_` and `-` as %XX. What is
    too long for a directory is cut; it ends in `~` (in no other name) and a digest of the whole."""
    data = name.encode("utf-8", "surrogateescape")
    text = "".join(chr(byte) if byte in _SAFE else f"%{byte:02X}" for byte in data)
    if len(text) <= _COMPONENT_MAX:
        return text
    end = f"~{hashlib.sha256(data).hexdigest()[:_DIGEST_DIGITS]}"
    return text[: _COMPONENT_MAX - len(end)] + end


def _day(at_ms: int) -> str:
    """The UTC date, as `dt` has it."""
    return f"{datetime.fromtimestamp(max(at_ms, 0) / 1000, UTC):%Y-%m-%d}"


class DumpFiles:
    """See the module. Owned by: one thread."""

    def __init__(self, settings: DumpSettings, boot: str, tell: Tell) -> None:
        """boot: 16 hexadecimal digits. tell(what, error, then): of trouble that costs no line,
        and what follows."""
        self._settings = settings
        self._place = Path(
            f"cluster={path_component(settings.cluster)}",
            f"broker={path_component(settings.broker)}",
        )
        self._boot = boot[:8]
        self._tell = tell
        self._open: _OpenFile | None = None
        self._unpacked: deque[Path] = deque()
        """Closed files that wait for their compression."""
        self._count_due = True
        """Whether files may be too old or too many."""
        self._room_bytes = 0
        """What was left of the bound when files were counted, less what was written since."""

    # -- writing -------------------------------------------------------------------------------

    def append(self, ts_ms: int, seq: int, line: bytes) -> None:
        """Write one line, durably: when it returns, neither a kill nor a power cut loses it.

        ts_ms: the line's wall clock, which names its directory. Raises OSError; then nothing of
        the line counts, and the next one begins another file.
        """
        moment = datetime.fromtimestamp(ts_ms / 1000, UTC)
        hour = f"{moment:%Y-%m-%d %H}"
        if self._open is not None and (self._open.hour != hour or self._has_vanished(self._open)):
            self._let_go()
        if self._open is None:
            self._open = self._create(moment, hour, seq)
        file = self._open
        try:
            written = os.write(file.fd, line)
            if written != len(line):
                raise OSError(f"only {written} of {len(line)} bytes were written to {file.path}")
            os.fdatasync(file.fd)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(file.fd, file.size)
            self._let_go()
            raise
        file.size += len(line)
        self._room_bytes -= len(line)
        if self._room_bytes < 0:
            self._count_due = True

    def close(self) -> None:
        """Close and compress the file being written; idempotent. Raises OSError."""
        if self._open is not None:
            path = self._open.path
            self._let_go()
            if path in self._unpacked:
                self._unpacked.remove(path)
                self._pack(path)

    def _create(self, moment: datetime, hour: str, seq: int) -> _OpenFile:
        settings = self._settings
        parent = settings.directory / f"dt={moment:%Y-%m-%d}" / self._place
        path = parent / f"{moment:%H%M}-{settings.broker_id}-{self._boot}-{seq:08}.jsonl"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        try:
            _make_directory(parent)
            fd = os.open(path, flags, 0o644)
        except FileNotFoundError:  # Another broker has just removed an empty directory.
            _make_directory(parent)
            fd = os.open(path, flags, 0o644)
        file = _OpenFile(path, fd, hour)
        try:
            _lock(fd)
            sync_directory(parent)
        except OSError:
            os.close(fd)
            with contextlib.suppress(OSError):
                os.unlink(path)
            raise
        return file

    def _has_vanished(self, file: _OpenFile) -> bool:
        """Somebody has removed or moved it; what is written to it now would be lost."""
        try:
            there = os.path.samestat(os.stat(file.path), os.fstat(file.fd))
        except FileNotFoundError:
            there = False
        if not there:
            error = FileNotFoundError(str(file.path))
            self._tell("the file being written has vanished", error, "another one begins")
        return not there

    def _let_go(self) -> None:
        """Write no more to the open file; what it holds is compressed later."""
        file, self._open = self._open, None
        if file is None:
            return
        self._count_due = True
        with contextlib.suppress(OSError):
            os.close(file.fd)
        if file.size:
            self._unpacked.append(file.path)
        else:
            with contextlib.suppress(OSError):
                os.unlink(file.path)

    # -- housekeeping --------------------------------------------------------------------------

    def take_over(self) -> None:
        """Find what earlier lives have left to do. Raises OSError; then call it again."""
        files = [file for file in self._files() if file.boot != self._boot]
        plain = {file.path for file in files if not file.hidden and not file.packed}
        self._unpacked.extend(sorted(plain.difference(self._unpacked)))
        for file in files:
            if file.hidden and _plain_path(file.path) not in plain:
                os.unlink(file.path)

    def tidy(self, now_ms: int) -> None:
        """A bounded part of the housekeeping: compress up to two files, remove up to two.
        Raises OSError; what failed is tried again by a later call."""
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
        """Compress a closed file, and remove it; its torn end is cut off. At every moment each of
        its lines is in at least one file that readers see."""
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        packed = path.with_name(f"{path.name}.gz")
        try:
            if not _lock(fd):
                return  # Another broker of our name and id writes it.
            size = _whole_lines(fd)
            if size < os.fstat(fd).st_size:
                os.ftruncate(fd, size)
            if size and not packed.exists():
                _write_packed(fd, packed)
            os.unlink(path)
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
        """Closed files to be removed: first those of days to come (the wall clock was ahead), which
        no age would remove, then the oldest. Counts the room that is left without them."""
        today, oldest_day = _day(now_ms), _day(now_ms - self._settings.keep_days * _DAY_MS)
        current = None if self._open is None else self._open.path
        files = [(file, _size(file.path)) for file in self._files() if not file.hidden]
        files.sort(key=lambda entry: (entry[0].day <= today, entry[0].age_key))
        room_bytes = self._settings.max_bytes - sum(size for _, size in files)
        excess = []
        for file, size in files:
            if room_bytes >= 0 and file.day >= oldest_day:
                continue
            if file.packed or (file.path != current and not _is_written(file.path)):
                room_bytes += size
                excess.append(file.path)
        self._room_bytes = room_bytes
        return excess

    @staticmethod
    def _remove_empty(directory: Path) -> None:
        """The file's directories, from the inner one outwards, as far as they are empty."""
        for path in (directory, directory.parent, directory.parent.parent):
            try:
                os.rmdir(path)
            except OSError:  # Not empty, or already gone with another broker's help.
                return

    def _files(self) -> list[DumpFile]:
        """This broker's own files of all its lives. Raises OSError."""
        found = []
        for day in _names(self._settings.directory):
            match = _DATE.fullmatch(day)
            if match is None:
                continue
            parent = self._settings.directory / day / self._place
            for name in _names(parent):
                parts = _NAME.fullmatch(name.removesuffix(".tmp"))
                if parts is None or int(parts["broker_id"]) != self._settings.broker_id:
                    continue
                if name.endswith(".tmp") != bool(parts["hidden"]):
                    continue
                found.append(
                    DumpFile(
                        path=parent / name,
                        day=match[1],
                        hhmm=parts["hhmm"],
                        boot=parts["boot"],
                        seq=int(parts["seq"]),
                        hidden=bool(parts["hidden"]),
                        packed=bool(parts["packed"]),
                    )
                )
        return found

    # -- the life before -----------------------------------------------------------------------

    def find_last_mark(self) -> Mark | None:
        """The last line of this broker's last life; None where there is none. Lives whose file is
        being written are another broker's. Raises OSError or msgspec.DecodeError for a file that
        cannot be read: then nobody knows which line was the last."""
        lives: dict[str, list[DumpFile]] = {}
        for file in self._files():
            if not file.hidden:
                lives.setdefault(file.boot, []).append(file)
        newest = sorted(lives.values(), key=lambda life: max(f.age_key for f in life))[
            -_LIVES_READ_MAX:
        ]
        marks = [mark for life in newest if (mark := _last_mark_of(life)) is not None]
        # Lives are chained: the last one is nobody's predecessor, even if the wall clock went back.
        earlier = {mark.prev_boot for mark in marks}
        ends = [mark for mark in marks if mark.boot not in earlier]
        return max(ends, key=lambda mark: mark.boot_ts, default=None)


def _last_mark_of(life: list[DumpFile]) -> Mark | None:
    """Of the last whole line of a life's files; None also while somebody writes one."""
    if any(not file.packed and _is_written(file.path) for file in life):
        return None
    for file in sorted(life, key=lambda file: file.seq, reverse=True):
        line = _last_line(file)
        if line is not None:
            return msgspec.json.decode(line, type=Mark)
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


def _is_written(path: Path) -> bool:
    """Whether another process holds the lock of a plain file."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return not _lock(fd)
    finally:
        os.close(fd)


def _lock(fd: int) -> bool:
    """Take the writer's lock, which the descriptor's end gives back; False: another has it. A file
    system without locks has no second writer either, as far as we can know."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _whole_lines(fd: int) -> int:
    """The size of a file up to its last newline."""
    end = os.fstat(fd).st_size
    while end:
        start = max(end - _CHUNK, 0)
        at = os.pread(fd, end - start, start).rfind(b"\n")
        if at >= 0:
            return start + at + 1
        end = start
    return 0


def _write_packed(fd: int, packed: Path) -> None:
    """The content of `fd`, compressed, as `packed`: there whole or not at all. Chunk by chunk, as
    zlib lets other threads run while it works on one."""
    temporary = packed.with_name(f".{packed.name}.tmp")
    out = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        try:
            packer = zlib.compressobj(wbits=_GZIP)
            at = 0
            while data := os.pread(fd, _CHUNK, at):
                at += len(data)
                _write_all(out, packer.compress(data))
            _write_all(out, packer.flush())
            os.fsync(out)
        finally:
            os.close(out)
        os.rename(temporary, packed)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    sync_directory(packed.parent)


def _write_all(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def _plain_path(temporary: Path) -> Path:
    """Of what a hidden file was being made."""
    return temporary.with_name(temporary.name.removeprefix(".").removesuffix(".gz.tmp"))


def _make_directory(path: Path) -> None:
    """With its parents, each durable in its own. Raises OSError."""
    if path.is_dir():
        return
    _make_directory(path.parent)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path)
    sync_directory(path.parent)


def _names(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)
    except FileNotFoundError:
        return []


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0
