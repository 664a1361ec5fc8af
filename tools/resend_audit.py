"""ResendAudit: lines of JSON that say which dead letters were sent again, and which were not.

A file that only grows; written by the threads that resend, in any number of processes: each line is
one append, and a group's letters are resent by one run at a time. A line is on disk before the
message is sent (SENDING), its result before the next one is: a run that is killed in between leaves
the first, which says that nobody knows. Read back, the file says what need not be sent again, and
what may have been. It knows no broker.

Tested by tests/tools/test_dead_letter_resend.py.
"""

from __future__ import annotations

import fcntl
import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec

from tools.errors import AdminError

DEFAULT_AUDIT_FILE: Final = Path("~/logs/rocketmqlogs/dlq-resend.jsonl")
SEND_OK: Final = "SEND_OK"
SENDING: Final = "SENDING"
"""It is about to be sent."""
UNKNOWN: Final = "UNKNOWN"
"""No answer came: it may have been stored."""


LetterKey = tuple[str, int]
"""A letter's id, and when it was stored."""


class AuditLine(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What happened to one dead letter; times in milliseconds."""

    time_ms: int
    who: str
    """The account or user that asked for it."""
    origin: str
    """From where: a host, or an address."""
    group: str
    letter_id: str
    """Its offset id in the group's dead-letter topic."""
    stored_ms: int
    """When it was stored there: a new store at the same address begins with the same ids."""
    msg_id: str
    """Its sender's unique key."""
    topic: str | None
    """Where it was sent."""
    result: str
    """SEND_OK: it was resent. SENDING without another line behind it, and UNKNOWN: nobody knows.
    Everything else: it was not."""
    reason: str | None = None
    new_msg_id: str | None = None
    """The offset id that the copy has; also of one that is stored, but not as safely as asked."""


_read_line: Final = msgspec.json.Decoder(AuditLine).decode


@dataclass(frozen=True, slots=True)
class ToldLetters:
    """A group's letters that the file knows, each with the last line that says so."""

    resent: Mapping[LetterKey, AuditLine]
    unsure: Mapping[LetterKey, AuditLine]
    """Of which nobody knows whether they were resent, and since when: no answer came to the last
    attempt, or the run ended before it could say so."""


class ResendAudit:
    """The file, open for appending. Owned by: the thread that resends."""

    def __init__(self, path: Path) -> None:
        self.path = path.expanduser()
        self._fd = -1

    def __enter__(self) -> Self:
        """Open it, before anything is sent. Raises AdminError."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        with self._named():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(self.path, flags, 0o640)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._fd)

    def hold(self, group: str) -> None:
        """Have the group's letters for this run alone, until the file is closed: two at once would
        not see each other's lines. Raises AdminError."""
        # struct flock: a byte of the file stands for the group. Locks of the open file, not of the
        # process: a console resends in several threads.
        place = zlib.crc32(group.encode("utf-8", "surrogatepass"))
        lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, place, 1, 0)
        with self._named():
            try:
                fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, lock)
            except BlockingIOError as error:
                reason = f"dead letters of group {group} are being resent already"
                raise AdminError(f"{reason} (audit file {self.path})") from error

    def add(self, line: AuditLine) -> None:
        """Append a line, durably. Raises AdminError: then nothing more may be sent."""
        data = msgspec.json.encode(line) + b"\n"
        with self._named():
            if os.write(self._fd, data) != len(data):
                raise OSError("the line was cut")
            os.fsync(self._fd)

    def told(self, group: str) -> ToldLetters:
        """What the file says of a group's letters. Lines that cannot be read are left out: at worst
        a letter is taken for one that was not resent."""
        resent: dict[LetterKey, AuditLine] = {}
        last: dict[LetterKey, AuditLine] = {}
        with self._named():
            for line in self._lines():
                if line.group != group:
                    continue
                key = line.letter_id, line.stored_ms
                last[key] = line
                if line.result == SEND_OK:
                    resent[key] = line
        unsure = {
            key: line
            for key, line in last.items()
            if line.result in (SENDING, UNKNOWN) and key not in resent
        }
        return ToldLetters(resent, unsure)

    def _lines(self) -> Iterator[AuditLine]:
        try:
            with self.path.open("rb") as file:
                for text in file:
                    try:
                        yield _read_line(text)
                    except (msgspec.DecodeError, UnicodeDecodeError):
                        continue
        except FileNotFoundError:
            return

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise AdminError(f"audit file {self.path}: {error.strerror or error}") from error
