"""The lines of a broker's dump files in a range of time, in order, one file at a time.

A thread of a request pool in process `remoting`, for request 28912. Opens only files whose name
says that they can have such lines; the supervisor may append to one, compress it or delete it
meanwhile. Knows the fields that a history is made of, not what is made of them.

Tested by tests/broker/metrics/test_dump_history.py.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Final

import msgspec

from broker.metrics.dump_file_names import DumpFile

_LONGEST: Final = 1 << 20
"""Bytes of a line; one with a hundred replicas has 60,000."""
_HOUR_MS: Final = 3_600_000


class ReplicaLine(msgspec.Struct):
    """Of a replica."""

    id: str
    state: str
    lag_bytes: int
    lag_ms: int
    lag_ms_max: int = 0
    """Not in version 1."""


class Sends(msgspec.Struct):
    """Counters of answers."""

    ok: int = 0
    flush_slave_timeout: int = 0
    slave_not_available: int = 0
    flush_disk_timeout: int = 0
    refused: int = 0


class AckLatency(msgspec.Struct):
    """Counters by bucket."""

    le: list[float] = []
    counts: list[int] = []


class Exposure(msgspec.Struct):
    """What would have been lost."""

    bytes_at_most: int


class Ended(msgspec.Struct):
    """The last counters of the life before, which was killed."""

    boot: str
    sends: Sends


class DumpLine(msgspec.Struct):
    """docs/metrics_dump.md says what the fields mean; version 1 lacks those with a default."""

    ts: int
    boot: str
    seq: int
    interval_ms: int
    role: str
    msgs_in: int
    ack_latency: AckLatency
    replicas: list[ReplicaLine]
    sends: Sends | None = None
    exposure: Exposure | None = None
    broker_id: int = 0
    host: str | None = None
    final: bool = False
    ended: Ended | None = None


_read_line: Final = msgspec.json.Decoder(DumpLine).decode
"""Made at import, by one thread: remoting/shared_decoders.py says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpOwner:
    """Whose lines are wanted: a broker's, under whatever broker id it wrote them. A failover gives
    it another one, and its group's other brokers may write into the same directory."""

    host: str
    """As in its lines."""
    broker_id: int
    """Its present one."""
    is_shared: bool
    """Whether others may write into the directory."""

    def has(self, line: DumpLine) -> bool:
        """Whether a life with this line is one of the broker's. In a directory of its own, lives
        under its present id are, whatever its address was then; so are those of version 1."""
        if line.host == self.host:
            return True
        return line.broker_id == self.broker_id and not (self.is_shared and line.host is not None)


class DumpLines:
    """Iterated once: the lines of these files. Owned by: one thread."""

    def __init__(
        self, files: list[DumpFile], begin_ms: int, end_ms: int, owner: DumpOwner | None = None
    ) -> None:
        """files: of one group; those that can have no line in [begin_ms, end_ms) are left out, and
        those of lives that are not the owner's (None: all are). One that is there both plain and
        compressed is read twice: its lines have the same `seq`."""
        self._files = [
            file for file in files if not file.hidden and _overlaps(file, begin_ms, end_ms)
        ]
        self._owner = owner
        self._lives: dict[tuple[int, str], bool] = {}
        """By broker id and boot, as in the names of files: whether it is the owner's."""
        self._range = (begin_ms, end_ms)
        self.bad = 0
        """Lines, and files that break off."""

    def __iter__(self) -> Iterator[DumpLine]:
        begin_ms, end_ms = self._range
        for file in self._in_order():
            if not self._is_owned(file):
                continue
            for line in self._lines_of(file):
                if begin_ms <= line.ts < end_ms:
                    yield line

    def _in_order(self) -> Iterator[DumpFile]:
        """Two lives of one minute by their first lines: a name has only its minute."""
        minutes: dict[tuple[str, str], list[DumpFile]] = {}
        for file in self._files:
            minutes.setdefault((file.day, file.hhmm), []).append(file)
        for minute in sorted(minutes):
            files = minutes[minute]
            yield from files if len(files) == 1 else sorted(files, key=self._first_ms)

    def _is_owned(self, file: DumpFile) -> bool:
        """By the first line of the life that is found; what has none is looked at again."""
        if self._owner is None:
            return True
        life = file.broker_id, file.boot
        known = self._lives.get(life)
        if known is None:
            first = self._first(file)
            if first is None:
                return file.broker_id == self._owner.broker_id
            known = self._lives[life] = self._owner.has(first)
        return known

    def _first(self, file: DumpFile) -> DumpLine | None:
        bad = self.bad
        first = next(self._lines_of(file), None)
        self.bad = bad  # They are counted when the file is read.
        return first

    def _first_ms(self, file: DumpFile) -> int:
        first = self._first(file)
        return 0 if first is None else first.ts

    def _lines_of(self, file: DumpFile) -> Iterator[DumpLine]:
        try:
            with _opened(file) as lines:
                while text := lines.readline(_LONGEST):
                    if not text.endswith(b"\n") and len(text) < _LONGEST and not file.packed:
                        return  # Being written: not a line yet.
                    try:
                        yield _read_line(text)
                    except (msgspec.DecodeError, UnicodeDecodeError):
                        self.bad += 1
        except FileNotFoundError:
            return  # Too old, and just deleted.
        except (OSError, EOFError, zlib.error):
            self.bad += 1


def _opened(file: DumpFile) -> IO[bytes] | gzip.GzipFile:
    """Of a plain file that was compressed since it was listed, the compressed one."""
    if file.packed:
        return gzip.open(file.path)
    try:
        return Path(file.path).open("rb")
    except FileNotFoundError:
        return gzip.open(file.path.with_name(f"{file.path.name}.gz"))


def _overlaps(file: DumpFile, begin_ms: int, end_ms: int) -> bool:
    """A file's lines are of one hour, the first of the minute in its name."""
    try:
        first = datetime.strptime(f"{file.day} {file.hhmm}", "%Y-%m-%d %H%M").replace(tzinfo=UTC)
    except ValueError:
        return False
    first_ms = int(first.timestamp()) * 1000
    return first_ms < end_ms and first_ms - first_ms % _HOUR_MS + _HOUR_MS > begin_ms
