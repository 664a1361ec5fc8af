"""Merges the many dump files of one broker process on one date into few.

Plain Python for `mqreport compact`; starts no Spark and does not look into lines. The closed files
of one broker and boot (docs/metrics_dump.md, "Files") go into the first of them. At every moment
each line is in at least one file that readers see; the next run completes one that was killed:

    1. hidden file with all lines, synced, read again and compared
    2. hidden journal: which merged file, and which files are in it, synced
    3. the hidden file replaces the first one: from here on readers see lines twice
    4. the other files are removed, then the journal
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import fcntl
import gzip
import hashlib
import json
import os
import re
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from io import BufferedReader
from pathlib import Path
from typing import Final

from spark.dumps.dump_text import DEFAULT_BOUNDS, DEFAULT_MOST_MB, MB, LeftOutError
from spark.dumps.durable_files import naming, replace_file, sync_directory

MOST_BYTES: Final = 100_000_000
"""Of a merged file, about: a gz file is read by one task."""
MOST_TEXT_BYTES: Final = DEFAULT_MOST_MB * MB // 2
"""Of its lines, unless a single file has more: the report leaves out larger ones."""
_NAME: Final = re.compile(
    r"(?P<hhmm>\d{4})-(?P<broker_id>\d+)-(?P<boot>[0-9a-f]{8})-(?P<seq>\d{8,})\.jsonl(?P<gz>\.gz)?"
)
_HIDDEN: Final = ".compact-"
_JOURNAL: Final = f"{_HIDDEN}journal"
_CHUNK: Final = 1 << 18


@dataclass(frozen=True, slots=True)
class _Source:
    """A closed file; `size` and `changed_ns` tell whether it is still the same."""

    path: Path
    seq: int
    size: int
    changed_ns: int
    text_bytes: int = 0


@dataclass(slots=True)
class Compacted:
    """What was done. `notes`: files that were left as they are, each with the reason."""

    files: int = 0
    merged: int = 0
    notes: list[str] = field(default_factory=list)


class _DamagedError(Exception):
    """A file whose lines cannot all be read: says why."""


def compact(place: Path, now: datetime.datetime, done: Compacted) -> None:
    """Merges the files of one broker group's directory of a date. Raises OSError that names a
    file."""
    with contextlib.ExitStack() as locks:
        if not _lock(place, locks):
            done.notes.append(f"{place}: another run is compacting it")
            return
        _complete(place)
        for sources in _mergeable(place, now, done, locks):
            target = sources[0].path
            if target.suffix != ".gz":
                target = target.with_name(f"{target.name}.gz")
            try:
                _merge(target, sources)
            except _DamagedError as error:  # It was whole a moment ago: it is being changed.
                done.notes.append(f"{place}: kept: a file of {target.name}: {error}")
                continue
            done.files += len(sources)
            done.merged += 1


def _mergeable(
    place: Path, now: datetime.datetime, done: Compacted, locks: contextlib.ExitStack
) -> Iterator[list[_Source]]:
    """Closed files that belong into one, in the order of their lines; two at least."""
    lives: dict[tuple[str, str], list[_Source]] = defaultdict(list)
    for path in sorted(place.iterdir()):
        if path.name.startswith((".", "_")) or ".jsonl" not in path.name:
            continue
        name = _NAME.fullmatch(path.name)
        if name is None:
            done.notes.append(f"{path}: kept: not the name of a file that a broker writes")
        elif not _is_closed(path, name, now, locks):
            done.notes.append(f"{path}: kept: it is still being written")
        else:
            facts = path.stat()
            source = _Source(path, int(name["seq"]), facts.st_size, facts.st_mtime_ns)
            lives[name["broker_id"], name["boot"]].append(source)
    for life in lives.values():
        part: list[_Source] = []
        # Beside its .gz a plain file has the same lines: what a crash left; both count as they do.
        for source in sorted(life, key=lambda source: (source.seq, source.path.name)):
            try:
                text_bytes = sum(map(len, _content([source.path])))
            except _DamagedError as error:
                done.notes.append(f"{source.path}: kept: {error}")
                continue
            source = dataclasses.replace(source, text_bytes=text_bytes)
            if part and _is_too_large([*part, source]):
                yield from _if_several(part)
                part = []
            part.append(source)
        yield from _if_several(part)


def _is_too_large(part: Sequence[_Source]) -> bool:
    size, text_bytes = sum(one.size for one in part), sum(one.text_bytes for one in part)
    return size > MOST_BYTES or text_bytes > MOST_TEXT_BYTES


def _if_several(part: list[_Source]) -> Iterator[list[_Source]]:
    if len(part) > 1:
        yield part


def _is_closed(
    path: Path, name: re.Match[str], now: datetime.datetime, locks: contextlib.ExitStack
) -> bool:
    """Whether nothing writes it any more. A plain file stays locked until the end, so that no
    supervisor compresses it meanwhile; the current hour's may still grow, even in a copy."""
    if name["gz"]:
        return True
    date = path.parent.parent.parent.name.removeprefix("dt=")
    return f"{date} {name['hhmm'][:2]}" < f"{now:%Y-%m-%d %H}" and _lock(path, locks)


def _lock(path: Path, locks: contextlib.ExitStack) -> bool:
    """Takes the lock, which `locks` releases; False: another process holds it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    locks.callback(os.close, descriptor)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # A file system without locks has no second process, as far as can be known.
        return True
    return True


# -- merging ---------------------------------------------------------------------------------


def _merge(target: Path, sources: Sequence[_Source]) -> None:
    """`target` gets the lines of all sources, then the others go."""
    hidden = target.with_name(f"{_HIDDEN}{target.name}")
    paths = [source.path for source in sources]
    with naming(hidden), open(hidden, "wb") as raw:
        os.fchmod(raw.fileno(), paths[0].stat().st_mode & 0o777)
        with gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed:
            for data in _content(paths):
                packed.write(data)
        raw.flush()
        os.fsync(raw.fileno())
    if _digest([hidden]) != _digest(paths):
        hidden.unlink()
        raise OSError(None, "differs from its source files, which are kept", str(target))
    journal = {
        "target": target.name,
        "sha256": _file_digest(hidden),
        "sources": [
            [source.path.name, source.size, source.changed_ns]
            for source in sources
            if source.path != target
        ],
    }
    replace_file(target.parent / _JOURNAL, json.dumps(journal).encode())
    sync_directory(target.parent)
    os.replace(hidden, target)
    sync_directory(target.parent)
    _complete(target.parent)


def _complete(place: Path) -> None:
    """What a run that was killed left: its hidden files, and files that are in a merged one."""
    journal_path = place / _JOURNAL
    if journal_path.exists():
        journal = json.loads(journal_path.read_text(encoding="utf-8"))
        target = place / journal["target"]
        if target.exists() and _file_digest(target) == journal["sha256"]:
            for name, size, changed_ns in journal["sources"]:
                _remove_unchanged(place / name, size, changed_ns)
            sync_directory(place)
        journal_path.unlink()
    for path in place.glob(f"{_HIDDEN}*"):
        path.unlink()


def _remove_unchanged(path: Path, size: int, changed_ns: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        facts = path.stat()
        if (facts.st_size, facts.st_mtime_ns) == (size, changed_ns):
            path.unlink()


def _content(paths: Iterable[Path]) -> Iterator[bytes]:
    """The lines of the files, in pieces. Raises _DamagedError for what does not end as it should:
    merged, such an end would spoil the line behind it."""
    for path in paths:
        last, size = b"\n", 0
        with naming(path), _opened(path) as file:
            stored = path.stat().st_size
            while data := _read(file):
                last = data
                size += len(data)
                try:
                    DEFAULT_BOUNDS.check_text(size, stored)
                except LeftOutError as error:
                    raise _DamagedError(str(error)) from None
                yield data
        if not last.endswith(b"\n"):
            raise _DamagedError("its last line is incomplete")


def _opened(path: Path) -> gzip.GzipFile | BufferedReader:
    return gzip.GzipFile(path, "rb") if path.suffix == ".gz" else path.open("rb")


def _read(file: gzip.GzipFile | BufferedReader) -> bytes:
    try:
        return file.read(_CHUNK)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _DamagedError(f"damaged: {error}") from error


def _digest(paths: Iterable[Path]) -> str:
    """Of their lines. Raises _DamagedError."""
    digest = hashlib.sha256()
    for data in _content(paths):
        digest.update(data)
    return digest.hexdigest()


def _file_digest(path: Path) -> str:
    with naming(path), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
