"""Commit-log files of tests: written record by record, read back without Spark."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spark.sources.log_scan import Damage, LogFile, LogFileScan
from spark.sources.log_window import FileWindow
from store.mapped_file import file_name
from store.message_codec import encode_blank
from tests.support.memory_commit_log import MemoryCommitLog, message

NOW_MS = 1_796_000_000_000
BORN_MS = 1_795_000_000_000


@dataclass
class WrittenLog:
    """A file's bytes and where its records are."""

    data: bytearray
    start: int
    places: list[tuple[int, int]]
    """(position, end) of each record in the file."""

    def write(self, directory: Path) -> Path:
        """As the file of its place."""
        path = directory / file_name(self.start)
        path.write_bytes(self.data)
        return path

    def file(self, path: Path, **more: Any) -> LogFile:
        """To be scanned."""
        return LogFile(**{"path": str(path), "start": self.start, "size": len(self.data), **more})


def written_log(
    number: int = 50,
    *,
    seed: int = 1,
    start: int = 0,
    sizes: Sequence[int] = (0, 1, 20, 300, 1024),
    left: int = 100,
    blank: bool = True,
) -> WrittenLog:
    """`number` records of all kinds of hosts and versions, and a blank one or zeros behind."""
    choice = random.Random(seed)
    log = MemoryCommitLog(1 << 30, start)
    places = []
    for each in range(number):
        at = len(log.data)
        log.append(
            message(
                choice.choice(["T", "Topic", "日本"]),
                queue_id=choice.randrange(4),
                queue_offset=each,
                sys_flag=choice.choice([0, 0, 0, 8, 0x10, 0x20, 0x30]),
                body=choice.randbytes(choice.choice(sizes)),
                born_timestamp=BORN_MS + each,
                store_timestamp=BORN_MS + each,
                properties=b"UNIQ_KEY\x01%032X\x02TAGS\x01tag%d" % (each, each % 3),
            ),
            v2=choice.random() < 0.1,
        )
        places.append((at, len(log.data)))
    behind = encode_blank(left) if blank else b""
    return WrittenLog(bytearray(log.data) + behind.ljust(left, b"\0"), start, places)


@dataclass
class Scanned:
    """What a scan gave, in its order; places are positions in the log."""

    records: list[tuple[int, int]]
    damages: list[Damage]
    pieces: list[tuple[int, int]]


def scanned(file: LogFile, **more: Any) -> Scanned:
    """A scan's records and damage."""
    found = Scanned([], [], [])
    with FileWindow(file.path) as window:
        for each in LogFileScan(file, window, now_ms=NOW_MS, **more).run():
            if isinstance(each, Damage):
                found.damages.append(each)
                found.pieces.append((each.start, each.end))
                continue
            for at, end in zip(each.parts.at.tolist(), each.parts.end.tolist(), strict=True):
                found.records.append((each.start + at, each.start + end))
                found.pieces.append((each.start + at, each.start + end))
    return found


def holes(pieces: Sequence[tuple[int, int]], start: int) -> Iterator[tuple[int, int]]:
    """Where pieces do not follow each other, from `start` on."""
    for low, high in pieces:
        if low != start:
            yield start, low
        start = high
