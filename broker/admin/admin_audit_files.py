"""AdminAuditFiles: the audit of changes on disk, `adminAudit.jsonl` and what it was before.

A line of JSON (AdminAuditEntry) for each request, appended by one process, `remoting`. A file is at
most 4 MiB, then it becomes adminAudit.jsonl.1, and the one that was .15 is removed. Nothing is
flushed: a kill of the process loses nothing, a power cut may lose the last lines. A line that broke
off (a full disk, a power cut) is ended at the next write and skipped by readers. It must not know
which requests have lines.

Any thread; one lock around what changes files or their names.

Tested by tests/broker/admin/test_admin_audit.py.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from remoting.body.admin_audit import AdminAuditAnswer, AdminAuditEntry

FILE_NAME: Final = "adminAudit.jsonl"
FILE_LIMIT: Final = 4 << 20
FILES: Final = 16
LINE_LIMIT: Final = 8 << 10
"""A longer one is none of ours."""
ANSWER_LIMIT: Final = 1 << 20
_AROUND: Final = 1024
"""Bytes of an answer beside its entries, rounded up generously."""
_decode: Final = msgspec.json.Decoder(AdminAuditEntry).decode


class AdminAuditFiles:
    """See the module. Owned by: AdminAudit."""

    def __init__(self, directory: Path, file_limit: int = FILE_LIMIT) -> None:
        self._path = directory / FILE_NAME
        self._file_limit = file_limit
        self._lock = threading.Lock()
        self._fd: int | None = None
        self._size = 0
        self._number = 0
        """Of the last line."""

    def append(self, line_of: Callable[[int], bytes]) -> None:
        """Write a line, given its number. Raises OSError: it is not there, or not all of it."""
        with self._lock:
            try:
                self._append(line_of(self._open() + 1))
            except OSError:
                self._close()
                raise

    def close(self) -> None:
        """A later `append` opens it again."""
        with self._lock:
            self._close()

    def newest(
        self, most: int, before_number: int | None = None, before_ms: int | None = None
    ) -> AdminAuditAnswer:
        """The newest lines, at most `most`, of those before a number and before a time. Raises
        OSError."""
        found: list[AdminAuditEntry] = []
        room = ANSWER_LIMIT - _AROUND
        for line, entry in self._lines(before_number, before_ms):
            room -= len(line) + 1
            if found and (len(found) == most or room < 0):
                return AdminAuditAnswer(entries=found, before_number=found[-1].number)
            found.append(entry)
        return AdminAuditAnswer(entries=found)

    # -- writing: under the lock -------------------------------------------------------------------

    def _open(self) -> int:
        """The number of the last line."""
        if self._fd is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._number = max(self._number, self._last_number())
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            self._fd = os.open(self._path, flags, 0o644)
            self._size = os.fstat(self._fd).st_size
            if self._size and os.pread(self._fd, 1, self._size - 1) != b"\n":
                self._size += os.write(self._fd, b"\n")
        return self._number

    def _append(self, line: bytes) -> None:
        assert self._fd is not None
        if self._size and self._size + len(line) + 1 > self._file_limit:
            self._rotate()
            self._open()
        written = os.write(self._fd, line + b"\n")
        self._size += written
        if written <= len(line):
            raise OSError(f"{self._path}: only {written} bytes of a line were written")
        self._number += 1

    def _rotate(self) -> None:
        self._close()
        for number in range(FILES - 1, 0, -1):
            with contextlib.suppress(FileNotFoundError):
                self._rotated(number - 1).replace(self._rotated(number))

    def _rotated(self, number: int) -> Path:
        return self._path.with_name(f"{FILE_NAME}.{number}") if number else self._path

    def _close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _last_number(self) -> int:
        with contextlib.ExitStack() as stack:
            for file in self._files(stack):
                for _, entry in _backwards(file.read()):
                    return entry.number
        return 0

    # -- reading -----------------------------------------------------------------------------------

    def _files(self, stack: contextlib.ExitStack) -> list[BinaryIO]:
        """Newest first. Under the lock: they are opened under the names that they have now."""
        found: list[BinaryIO] = []
        for number in range(FILES):
            with contextlib.suppress(FileNotFoundError):
                found.append(stack.enter_context(self._rotated(number).open("rb")))
        return found

    def _lines(
        self, before_number: int | None, before_ms: int | None
    ) -> Iterator[tuple[bytes, AdminAuditEntry]]:
        """Newest first."""
        with contextlib.ExitStack() as stack:
            with self._lock:
                files = self._files(stack)
            for file in files:
                first = _find_entry(file.readline().rstrip())
                if first is not None and not _is_before(first, before_number, before_ms):
                    continue
                file.seek(0)
                for line, entry in _backwards(file.read()):
                    if _is_before(entry, before_number, before_ms):
                        yield line, entry


def _backwards(data: bytes) -> Iterator[tuple[bytes, AdminAuditEntry]]:
    """The lines that can be read, the last one first."""
    end = len(data)
    while end > 0:
        start = data.rfind(b"\n", 0, end) + 1
        line = data[start:end]
        entry = _find_entry(line)
        if entry is not None:
            yield line, entry
        end = start - 1


def _find_entry(line: bytes) -> AdminAuditEntry | None:
    """None: the line broke off, or somebody wrote into the file."""
    if len(line) > LINE_LIMIT:
        return None
    try:
        return _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _is_before(entry: AdminAuditEntry, number: int | None, time_ms: int | None) -> bool:
    return (number is None or entry.number < number) and (time_ms is None or entry.time < time_ms)
