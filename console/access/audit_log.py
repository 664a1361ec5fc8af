"""AuditLog: one file of JSON lines that tells who changed what through this console.

Any thread; a line is on disk (fsync) before the writer goes on. **Two lines for a change**, with
the same number: "intends" before it, without which nothing is done, and "did" with its result,
before the reader sees it. One line could not do both: written before, it does not know the result;
written after, a change whose console was killed in between would leave no trace. An "intends"
without its "did" is shown as a change of unknown result, which is the truth. A sign-in is one line,
"did".

The file is rotated at 8 MiB (audit.log.1 is the next older one, ten are kept). Its lock keeps a
second console from writing it. Failed sign-ins are not in it: a stranger could push the rest out.

Tested by tests/console/access/test_audit_log.py.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from conf.atomic_file import make_directory, sync_directory
from conf.secret_names import without_secret

log = logging.getLogger(__name__)

MAX_FILE: Final = 8 << 20
KEPT_FILES: Final = 10
MAX_LINE: Final = 8 << 10
MAX_SHOWN: Final = 1_000
_VALUE_LIMITS: Final = (400, 100, 20, 0)
_BLOCK: Final = 64 << 10
INTENDS: Final = "intends"
DID: Final = "did"
DONE: Final = "done"
REFUSED: Final = "refused"
FAILED: Final = "failed"
UNKNOWN: Final = "unknown"


class AuditError(Exception):
    """The line cannot be written; the message is a sentence for the reader."""


@dataclass(frozen=True, slots=True)
class Who:
    """Who changes something, and from where."""

    name: str
    kind: str
    address: str
    """The client's."""
    host: str
    """The console's, as the reader reaches it."""


class Entry:
    """A change that has been announced. Exactly one of its methods is called, at its end."""

    def __init__(self, number: str, write: Callable[[dict[str, Any]], None]) -> None:
        self._number = number
        self._write = write

    def done(self, what: str = "") -> None:
        """It was done. AuditError: it was, but the line could not be written."""
        self._end(DONE, what)

    def refused(self, why: str) -> None:
        """A broker refused it, or what it was about does not exist."""
        self._end(REFUSED, why)

    def failed(self, why: str) -> None:
        """It failed, or some of it did; nobody knows whether a peer that did not answer did it."""
        self._end(FAILED, why)

    def _end(self, result: str, why: str) -> None:
        self._write({"id": self._number, "event": DID, "result": result, "why": why})


class AuditLog:
    """Owned by: Access. `now_ms`: wall clock."""

    def __init__(self, path: Path, now_ms: Callable[[], int], max_file: int = MAX_FILE) -> None:
        """AuditError if the file cannot be written, or another console writes it."""
        self._path = path
        self._now_ms = now_ms
        self._max_file = max_file
        self._lock = threading.Lock()
        self._fd = -1
        self._count = 0
        with _as_audit_error(path):
            make_directory(path.parent)
            flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
            self._owner = os.open(path.with_name(path.name + ".lock"), flags, 0o600)
            try:
                self._take_lock()
                self._open()
            except BaseException:
                os.close(self._owner)
                raise

    def intend(
        self,
        who: Who,
        action: str,
        fields: Mapping[str, str],
        secret_fields: Collection[str] = (),
    ) -> Entry:
        """Announce a change. AuditError: it must not be done."""
        number = self._new_number()
        shown = without_secrets(
            {name: text for name, text in fields.items() if name not in secret_fields}
        )
        self._write({"id": number, "event": INTENDS, **_who(who), "action": action}, shown)
        return Entry(number, self._write)

    def note(self, who: Who, action: str) -> None:
        """What changes nothing at a broker and has happened (a sign-in). Raises AuditError."""
        line = {"id": self._new_number(), "event": DID, **_who(who), "action": action}
        self._write({**line, "result": DONE}, {})

    def newest(self, count: int) -> list[dict[str, Any]]:
        """The newest changes, the newest first: the announcement with its `result` and `why`."""
        with self._lock:  # no rotation meanwhile
            return self._newest(min(count, MAX_SHOWN))

    def _newest(self, count: int) -> list[dict[str, Any]]:
        results: dict[str, dict[str, Any]] = {}
        found: list[dict[str, Any]] = []
        for line in self._lines_backward():
            if len(found) >= count:
                break
            entry = _parsed(line)
            if entry.get("event") == DID and "action" not in entry:
                results[str(entry.get("id"))] = entry
            elif entry.get("event") == INTENDS:
                ended = results.pop(str(entry.get("id")), {})
                entry["result"] = ended.get("result", UNKNOWN)
                entry["why"] = ended.get("why", "")
                found.append(entry)
            else:
                found.append(entry)
        return found

    def close(self) -> None:
        """Nothing is written any more."""
        with self._lock:
            os.close(self._fd)
            os.close(self._owner)
            self._fd = -1

    # -- writing -------------------------------------------------------------------------------

    def _new_number(self) -> str:
        with self._lock:
            self._count += 1
            return f"{self._now_ms():x}-{os.getpid():x}-{self._count:x}"

    def _write(self, line: dict[str, Any], fields: Mapping[str, str] | None = None) -> None:
        at_ms = self._now_ms()
        at = datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
        data = encoded({"at_ms": at_ms, "at": at, **line}, fields)
        with self._lock, _as_audit_error(self._path):
            if self._fd < 0:
                raise AuditError("The audit log is closed.")
            if not self._is_in_place():
                self._reopen()
            size = os.fstat(self._fd).st_size
            if size and size + len(data) > self._max_file:
                self._rotate()
                size = 0
            try:
                if os.write(self._fd, data) != len(data):
                    raise OSError("the disk took a part of the line only")
                os.fsync(self._fd)
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(self._fd, size)
                raise

    def _take_lock(self) -> None:
        try:
            fcntl.flock(self._owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise AuditError(f"Another console writes {self._path}.") from error

    def _open(self) -> None:
        """A line that a crash cut short is ended, so that the next one is whole."""
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._fd = os.open(self._path, flags, 0o600)
        sync_directory(self._path.parent)
        size = os.fstat(self._fd).st_size
        if size and os.pread(self._fd, 1, size - 1) != b"\n":
            os.write(self._fd, b"\n")

    def _rotate(self) -> None:
        """Renames upward, the oldest over the one before it. If one fails, so does the line."""
        for number in range(KEPT_FILES - 1, 0, -1):
            if (older := self._older(number)).exists():
                os.replace(older, self._older(number + 1))
        os.replace(self._path, self._older(1))
        self._reopen()

    def _reopen(self) -> None:
        """Go on with the file of the path's name: it was rotated, or somebody took it away, and a
        line in a file without a name is no line. Tried again at the next line if it fails."""
        before = self._fd
        self._open()
        os.close(before)

    def _is_in_place(self) -> bool:
        """Whether the open file is the one that has the name."""
        try:
            named, own = os.stat(self._path), os.fstat(self._fd)
        except FileNotFoundError:
            return False
        return (named.st_dev, named.st_ino) == (own.st_dev, own.st_ino)

    def _older(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")

    # -- reading -------------------------------------------------------------------------------

    def _lines_backward(self) -> Iterator[bytes]:
        for path in (self._path, *map(self._older, range(1, KEPT_FILES + 1))):
            with _as_audit_error(path), contextlib.suppress(FileNotFoundError):
                yield from _lines_backward(path)


def without_secrets(fields: Mapping[str, str]) -> dict[str, str]:
    """Of what is a secret by its name only that there was one. A field `value` has the name that
    `key` says, and may be JSON with names of its own: whoever sends a form past the page's refusals
    leaves no secret in this file either."""
    found = {}
    for name, text in fields.items():
        names = f"{fields.get('key', '')} {text}" if name == "value" else name
        found[name] = without_secret(names, text)
    return found


def encoded(line: Mapping[str, Any], fields: Mapping[str, str] | None) -> bytes:
    """One line, at most 8 KiB. ASCII: control characters, line separators and marks that turn the
    direction of writing are escaped. What is too long is cut, and its length and hash are told."""
    for limit in _VALUE_LIMITS:
        whole = {name: _cut(text, max(limit, 60)) for name, text in line.items()}
        if fields is not None:
            whole["fields"] = {
                _cut(name, 60): _cut(text, limit) for name, text in list(fields.items())[:100]
            }
        data = json.dumps(whole, ensure_ascii=True, separators=(",", ":")).encode() + b"\n"
        if len(data) <= MAX_LINE:
            return data
    whole["fields"] = f"{len(fields or {})} fields, too many to be shown"
    return json.dumps(whole, ensure_ascii=True, separators=(",", ":")).encode() + b"\n"


def _cut(text: Any, limit: int) -> Any:
    if not isinstance(text, str) or len(text) <= limit:
        return text
    digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
    return f"{text[:limit]}… ({len(text)} characters, SHA-256 {digest}…)"


def _who(who: Who) -> dict[str, str]:
    return {"who": who.name, "kind": who.kind, "from": who.address, "console": who.host}


def _parsed(line: bytes) -> dict[str, Any]:
    """A line that a crash cut short is shown as such."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {"event": "damaged", "result": UNKNOWN}


def _lines_backward(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        rest = b""
        while end > 0:
            start = max(0, end - _BLOCK)
            file.seek(start)
            first, *lines = (file.read(end - start) + rest).split(b"\n")
            yield from (line for line in reversed(lines) if line)
            rest, end = first[: 2 * MAX_LINE], start
        if rest:
            yield rest


@contextlib.contextmanager
def _as_audit_error(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise AuditError(f"The audit log {path} cannot be used: {reason}") from error
