"""Dumps: lag, state and exposure of a broker group's past, from a directory of metrics dumps.

Any thread. The files are those that docs/metrics_dump.md describes; `bin/mqconsole --dumps` names
their directory. Forty days are some two thousand files a broker: a reading takes what its time
allows, what a file said is remembered (a closed file never changes), and the next reading goes on
where this one stopped. What cannot be read is a sentence. Must not know how it is shown, nor
anything of spark, whose report judges the same lines.

Tested by tests/console/test_dumps.py.
"""

from __future__ import annotations

import gzip
import hashlib
import re
import threading
import time
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Any, Final, cast
from urllib.parse import quote

import msgspec

from console.history import Series
from remoting.shared_decoders import decoder_of

HOUR_MS: Final = 3_600_000
MAX_LINE: Final = 1 << 20
MAX_FILE: Final = 256 << 20
"""Bytes of one file's lines; a broker's hour has some three megabytes."""
MAX_REPLICAS: Final = 64
MAX_SPELLS: Final = 1_000
KEPT_FILES: Final = 3_000
GAP_INTERVALS: Final = 3
"""After so many intervals without a line nobody knows what was."""
_NUMBER_LIMIT: Final = 1 << 62
_FILE: Final = re.compile(r"(\d\d)(\d\d)-.*\.jsonl(?:\.gz)?")
_SAFE_NAME: Final = 247
_KEPT_NAME: Final = 230
_BAD_STATES: Final = ("catching_up", "disconnected")

Name = tuple[str, str]
"""Cluster and broker group."""


class _ReplicaLine(msgspec.Struct, gc=False):
    id: str
    state: str
    lag_ms: int = 0
    lag_bytes: int = 0


class _RoleLine(msgspec.Struct, gc=False):
    ts: int
    role: str | None = None
    epoch: int = 0
    cause: str | None = None
    without_master_ms: int | None = None


class _Line(msgspec.Struct, gc=False):
    ts: int
    cluster: str
    broker: str
    seq: int = 0
    broker_id: int = 0
    interval_ms: int = 5_000
    replicas: list[_ReplicaLine] = []
    exposure: dict[str, Any] | None = None
    roles: list[_RoleLine] = []


@dataclass(frozen=True, slots=True)
class Spell:
    """A time in which something was not as it should be, or a moment (from = to)."""

    who: str
    what: str
    from_ms: int
    to_ms: int


@dataclass(slots=True)
class FileFigures:
    """What one file says of one group, by step: the worst of each."""

    lag_s: dict[str, dict[int, float]] = field(default_factory=dict)
    lag_bytes: dict[str, dict[int, float]] = field(default_factory=dict)
    exposed: dict[int, float] = field(default_factory=dict)
    spells: list[Spell] = field(default_factory=list)
    bad_lines: int = 0
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Stretch:
    """A group's past between two times, as far as it is read."""

    lag_s: dict[str, Series]
    lag_bytes: dict[str, Series]
    exposed: Series
    spells: list[Spell]
    files: int
    unread: int
    """Files that the time did not suffice for: read again for these."""
    problems: list[str]


class Dumps:
    """Reads one directory. Any thread: one reads at a time."""

    def __init__(self, directory: Path, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._directory = directory
        self._monotonic_s = monotonic_s
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[Any, ...], FileFigures] = OrderedDict()

    def read(
        self, name: Name, first_ms: int, last_ms: int, step_ms: int, patience_s: float = 1.5
    ) -> Stretch:
        """What the files say, for at most about `patience_s`; the newest first."""
        ends_s = self._monotonic_s() + patience_s
        found: list[FileFigures] = []
        unread = 0
        problems: list[str] = []
        with self._lock:
            files = self._files(name, first_ms, last_ms, problems)
            for path in files:
                if self._monotonic_s() > ends_s:
                    unread += 1
                    continue
                found.append(self._file(path, name, step_ms))
        return _stretch(found, (first_ms, last_ms, step_ms), len(files), unread, problems)

    def _files(self, name: Name, first_ms: int, last_ms: int, problems: list[str]) -> list[Path]:
        """Those that may have lines of the time, the newest first."""
        cluster, broker = map(path_component, name)
        found: list[tuple[int, Path]] = []
        for day in _days(first_ms - HOUR_MS, last_ms):
            place = self._directory / f"dt={day}" / f"cluster={cluster}" / f"broker={broker}"
            try:
                paths = list(place.iterdir())
            except FileNotFoundError:
                continue
            except OSError as error:
                problems.append(f"{place}: {error.strerror or error}")
                continue
            for path in paths:
                began_ms = _began_ms(day, path.name)
                if began_ms is not None and first_ms - HOUR_MS < began_ms <= last_ms:
                    found.append((began_ms, path))
        return [path for _, path in sorted(found, reverse=True)]

    def _file(self, path: Path, name: Name, step_ms: int) -> FileFigures:
        try:
            state = path.stat()
        except OSError:
            return FileFigures()  # compressed, or deleted as too old, meanwhile
        key = (path, state.st_size, state.st_mtime_ns, step_ms, name)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = read_file(path, name, step_ms)
            while len(self._known) > KEPT_FILES:
                self._known.popitem(last=False)
        self._known.move_to_end(key)
        return known


def path_component(name: str) -> str:
    """A name as a part of a dump's path (docs/metrics_dump.md, "Files")."""
    data = name.encode("utf-8", "replace")
    text = quote(data, safe="._-").replace("~", "%7E")
    if len(text) <= _SAFE_NAME:
        return text
    return f"{text[:_KEPT_NAME]}~{hashlib.sha256(data).hexdigest()[:16]}"


def read_file(path: Path, name: Name, step_ms: int) -> FileFigures:
    """One file: gzip or plain."""
    reading = _Reading(name, step_ms)
    try:
        with path.open("rb") as raw:
            is_gzip = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            stream = cast("IO[bytes]", gzip.GzipFile(fileobj=raw)) if is_gzip else raw
            for line in _lines(stream):
                reading.add(line)
    except FileNotFoundError:
        pass  # compressed, or deleted as too old, meanwhile
    except (OSError, EOFError, zlib.error) as error:
        reading.found.problem = f"{path.name} breaks off: {error}"
    except _TooMuchError:
        reading.found.problem = f"{path.name} has more than {MAX_FILE >> 20} MiB: the rest is left"
    reading.end()
    return reading.found


class _TooMuchError(Exception):
    """A file has more than any broker writes."""


def _lines(stream: IO[bytes]) -> Iterator[bytes]:
    """A line that is too long comes in pieces, none of which is a line; what is behind the last
    line break is not written wholly yet."""
    read = 0
    while line := stream.readline(MAX_LINE):
        read += len(line)
        if read > MAX_FILE:
            raise _TooMuchError
        if line.endswith(b"\n") or len(line) == MAX_LINE:
            yield line


class _Reading:
    """Adds the lines of one file up."""

    def __init__(self, name: Name, step_ms: int) -> None:
        self.found = FileFigures()
        self._name = name
        self._step_ms = step_ms
        self._decode = decoder_of(_Line).decode
        self._open: dict[str, Spell] = {}

    def add(self, line: bytes) -> None:
        try:
            read = self._decode(line)
        except (msgspec.DecodeError, ValueError, RecursionError):
            self.found.bad_lines += 1
            return
        if (read.cluster, read.broker) != self._name or not 0 < read.ts < _NUMBER_LIMIT:
            return
        if read.seq == 1:
            self._spell(Spell(_member(read), "was started", read.ts, read.ts))
        for taken in read.roles:
            self._spell(Spell(_member(read), _role(taken), taken.ts, taken.ts))
        for replica in read.replicas[:MAX_REPLICAS]:
            self._replica(read, replica)
        if read.exposure is not None:
            at_most = read.exposure.get("bytes_at_most")
            if isinstance(at_most, int):
                _raise(self.found.exposed, read.ts // self._step_ms, float(_bounded(at_most)))

    def end(self) -> None:
        """What is not over at the end of the file ends with it; the next file's goes on."""
        for spell in self._open.values():
            self._spell(spell)
        self._open.clear()

    def _replica(self, line: _Line, replica: _ReplicaLine) -> None:
        found, step = self.found, line.ts // self._step_ms
        if replica.id not in found.lag_s and len(found.lag_s) >= MAX_REPLICAS:
            return
        _raise(found.lag_s.setdefault(replica.id, {}), step, _bounded(replica.lag_ms) / 1000)
        _raise(found.lag_bytes.setdefault(replica.id, {}), step, float(_bounded(replica.lag_bytes)))
        running = self._open.pop(replica.id, None)
        if running is not None:
            is_known = line.ts - running.to_ms <= max(line.interval_ms, 1_000) * GAP_INTERVALS
            running = replace(running, to_ms=line.ts) if is_known else running
            if is_known and running.what == replica.state:
                self._open[replica.id] = running
                return
            self._spell(running)
        if replica.state in _BAD_STATES:
            self._open[replica.id] = Spell(replica.id, replica.state, line.ts, line.ts)

    def _spell(self, spell: Spell) -> None:
        if len(self.found.spells) < MAX_SPELLS:
            self.found.spells.append(spell)


def _member(line: _Line) -> str:
    return f"{line.broker}:{line.broker_id}"


def _role(taken: _RoleLine) -> str:
    gap_ms = taken.without_master_ms
    without = "" if gap_ms is None else f", {gap_ms} ms without a master"
    return f"{taken.role} in epoch {taken.epoch} ({taken.cause}){without}"


def _bounded(value: int) -> int:
    return min(max(value, 0), _NUMBER_LIMIT)


def _raise(values: dict[int, float], step: int, value: float) -> None:
    values[step] = max(values.get(step, 0.0), value)


def _began_ms(day: str, file: str) -> int | None:
    """When a file's first line was written, by its name, to the minute; None for another file."""
    match = _FILE.fullmatch(file)
    if match is None:
        return None
    try:
        at = datetime.strptime(f"{day} {match[1]}{match[2]}", "%Y-%m-%d %H%M").replace(tzinfo=UTC)
    except ValueError:
        return None
    return int(at.timestamp() * 1000)


def _days(first_ms: int, last_ms: int) -> Iterator[str]:
    day = datetime.fromtimestamp(max(first_ms, 0) / 1000, UTC).date()
    last = datetime.fromtimestamp(last_ms / 1000, UTC).date()
    while day <= last:
        yield day.isoformat()
        day += timedelta(days=1)


def _stretch(
    found: list[FileFigures],
    window: tuple[int, int, int],
    files: int,
    unread: int,
    problems: list[str],
) -> Stretch:
    lag_s: dict[str, dict[int, float]] = {}
    lag_bytes: dict[str, dict[int, float]] = {}
    exposed: dict[int, float] = {}
    spells: list[Spell] = []
    for one in found:
        for merged, own in ((lag_s, one.lag_s), (lag_bytes, one.lag_bytes)):
            for replica, values in own.items():
                if replica in merged or len(merged) < MAX_REPLICAS:
                    _merge(merged.setdefault(replica, {}), values)
        _merge(exposed, one.exposed)
        spells += one.spells
    bad = sum(one.bad_lines for one in found)
    said = [*problems, *(one.problem for one in found if one.problem)]
    if bad:
        said.append(f"{bad} lines cannot be read.")
    first_ms, last_ms, step_ms = window
    shown = [s for s in joined(spells) if s.to_ms >= first_ms and s.from_ms <= last_ms]
    return Stretch(
        {name: _series(values, *window) for name, values in sorted(lag_s.items())},
        {name: _series(values, *window) for name, values in sorted(lag_bytes.items())},
        _series(exposed, first_ms, last_ms, step_ms),
        shown,
        files,
        unread,
        said,
    )


def _merge(into: dict[int, float], values: dict[int, float]) -> None:
    for step, value in values.items():
        _raise(into, step, value)


def _series(values: dict[int, float], first_ms: int, last_ms: int, step_ms: int) -> Series:
    """Every step of the time: one without a line is None, a gap."""
    steps = range(first_ms // step_ms, last_ms // step_ms + 1)
    return Series([step * step_ms for step in steps], [values.get(step) for step in steps])


def joined(spells: list[Spell], gap_ms: int = 15_000) -> list[Spell]:
    """By their beginning; what goes on in the next file is one."""
    found: list[Spell] = []
    newest: dict[tuple[str, str], int] = {}
    for spell in sorted(set(spells), key=lambda spell: (spell.from_ms, spell.who, spell.what)):
        key = spell.who, spell.what
        at = newest.get(key)
        if at is not None and spell.from_ms - found[at].to_ms <= gap_ms:
            before = found[at]
            found[at] = Spell(*key, before.from_ms, max(before.to_ms, spell.to_ms))
        else:
            newest[key] = len(found)
            found.append(spell)
    return found
