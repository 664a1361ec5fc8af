"""Which files a read of the log `rocketmq_log` takes, and what is missing between them.

Driver, while a DataFrame is planned; each file is a partition. It lists directories, reads the
first bytes of files and what is noted beside them (log_notes.py), opens nothing for writing and
changes nothing. What a file holds behind its first record is the executors' matter (log_scan.py).

Tested by tests/spark/sources/test_log_files.py.
"""

from __future__ import annotations

import itertools
import os
import stat
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from spark.sources.errors import OptionError, SourceError
from spark.sources.log_filter import LogFilter
from spark.sources.log_notes import noted_parts
from spark.sources.log_scan import LONGEST_HEAD, Damage, LogFile, NotedPart
from store.mapped_file import find_start_offset
from store.message_codec import (
    PHY_OFFSET_AT,
    SIZE_AND_MAGIC,
    has_magic,
    read_born_timestamp,
    read_store_timestamp,
)

COMMIT_LOG: Final = "commitlog"
CLOCK_MS: Final = 3_600_000
"""A broker's clock may have been set back so far, before a file counts as too old or too new."""
BORN_BEFORE_MS: Final = 86_400_000
_SHOWN: Final = 5
_END: Final = 1 << 63
"""Of all offsets."""


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A file and its first record's store time (ms); None where that is not known."""

    file: LogFile
    first_ms: int | None


@dataclass(frozen=True, slots=True)
class LogPlan:
    """The files, by their place in the log, and what lacks between them."""

    files: tuple[PlannedFile, ...]
    gaps: tuple[Damage, ...]

    def wanted(self, chosen: LogFilter) -> list[LogFile]:
        """The files that may hold what `chosen` leaves. Times grow along a log, but for clocks that
        are set back (CLOCK_MS)."""
        places, times = chosen.of("physical_offset"), chosen.of("store_timestamp")
        found = []
        following: int | None = None
        for each in reversed(self.files):
            file = each.file
            low = times.low if each.first_ms is None else each.first_ms - CLOCK_MS
            high = times.high if following is None else following + CLOCK_MS
            if places.meets(file.start, file.start + file.size - 1) and times.meets(low, high):
                found.append(file)
            following = following if each.first_ms is None else each.first_ms
        return found[::-1]


def plan_log(paths: Sequence[str], *, is_written: bool) -> LogPlan:
    """The log of these directories and files. is_written: a broker may be writing. OptionError:
    there is none."""
    if not paths:
        raise OptionError(
            "no log is named: give load(...) or the option path a commitlog directory, a store's "
            "directory, or files, separated by commas"
        )
    found = [file for path in paths for file in _files_at(path)]
    found.sort(key=lambda file: file.start)
    if found[-1].start + max(file.size for file in found) >= _END:
        raise OptionError(f"{found[-1].path}: no log has a file that begins at {found[-1].start}")
    for one, other in itertools.pairwise(found):
        if one.start == other.start:
            raise OptionError(f"{one.path} and {other.path} are the same part of a log")
    noted = [
        part
        for place in map(_place, paths)
        if place.is_dir()
        for part in noted_parts(place, is_live=is_written)
    ]
    return _plan([_with_notes(file, noted) for file in _with_sizes(found)], is_written)


def _place(path: str) -> Path:
    """The file, or the directory that holds the files."""
    place = Path(path.removeprefix("file://"))
    return place / COMMIT_LOG if (place / COMMIT_LOG).is_dir() else place


def _files_at(path: str) -> list[LogFile]:
    place = _place(path)
    try:
        if not place.is_dir():
            return [_named_file(place)]
        entries = sorted(os.listdir(place))
        found = [
            LogFile(str(place / name), start, (place / name).stat().st_size)
            for name in entries
            if (start := find_start_offset(name)) is not None and (place / name).is_file()
        ]
    except OSError as error:
        raise _no_log(path, error) from None
    if not found:
        seen = ", ".join(entries[:_SHOWN]) or "nothing"
        raise OptionError(
            f"{place}: no file of a commit log, whose names are 20 digits; there is: {seen}"
        )
    return found


def _no_log(path: str, error: OSError) -> OptionError:
    if "://" in path and not path.startswith("file://"):
        return OptionError(f"{path}: only files that are mounted on the driver and every executor")
    return OptionError(f"{path}: {error.strerror}: the driver must see the log, as every executor")


def _named_file(path: Path) -> LogFile:
    """A file that is named itself may be called anything: its first record says where it was."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise OptionError(f"{path}: neither a directory nor a regular file")
    start = find_start_offset(path.name)
    if start is None:
        head = _read_head(path)
        if len(head) < LONGEST_HEAD or not has_magic(head):
            raise OptionError(
                f"{path}: its name is not that of a commit-log file (20 digits), and it does not "
                "begin with a record, which would say where in the log it was: rename it"
            )
        start = int.from_bytes(head[PHY_OFFSET_AT : PHY_OFFSET_AT + 8], "big", signed=True)
    return LogFile(str(path), max(start, 0), status.st_size)


def _read_head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(LONGEST_HEAD)


def _with_sizes(files: Sequence[LogFile]) -> list[LogFile]:
    """With the size that each should have: that of most. One that is larger keeps its own."""
    sizes = Counter(file.size for file in files if file.size)
    if not sizes:
        return list(files)
    usual = max(sizes, key=lambda size: (sizes[size], size))
    found = []
    for number, file in enumerate(files):
        room = files[number + 1].start - file.start if number + 1 < len(files) else None
        size = max(usual, file.size)
        found.append(replace(file, size=size if room is None else min(size, room)))
    return found


def _with_notes(file: LogFile, noted: Sequence[NotedPart]) -> LogFile:
    """With what of the noted parts lies within it."""
    end = file.start + file.size
    within = [
        replace(part, start=max(part.start, file.start), end=min(part.end, end))
        for part in noted
        if part.start < end and part.end > file.start
    ]
    return replace(file, noted=tuple(sorted(within, key=lambda part: part.start)))


def _plan(files: list[LogFile], is_written: bool) -> LogPlan:
    planned = [PlannedFile(file, _first_ms(file)) for file in files]
    newest = len(files) - 1
    while newest > 0 and _is_unused(files[newest]):
        newest -= 1
    gaps = []
    for number, each in enumerate(planned):
        if number >= newest:
            file = replace(each.file, is_newest=True, is_written=is_written)
            planned[number] = replace(each, file=file)
        if number + 1 < len(files):
            end, following = each.file.start + each.file.size, files[number + 1]
            if end < following.start:
                reason = f"no file between {each.file.path} and {following.path}"
                gaps.append(Damage("missing", end, following.start, reason))
    return LogPlan(tuple(planned), tuple(gaps))


def _is_unused(file: LogFile) -> bool:
    """Made before it was needed, as brokers do."""
    return not any(_head_of(file)[: SIZE_AND_MAGIC.size])


def _first_ms(file: LogFile) -> int | None:
    """Believed where the time of birth, as far from damage, says nearly the same."""
    head = _head_of(file)
    if len(head) < LONGEST_HEAD or not has_magic(head):
        return None
    found = read_store_timestamp(head, 0)
    return found if abs(found - read_born_timestamp(head, 0)) <= BORN_BEFORE_MS else None


def _head_of(file: LogFile) -> bytes:
    """What an executor will find damaged is nothing here."""
    try:
        return _read_head(Path(file.path))
    except FileNotFoundError:
        raise SourceError(f"{file.path}: gone since the log was listed: read it again") from None
    except OSError:
        return b"?" * SIZE_AND_MAGIC.size
