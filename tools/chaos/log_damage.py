"""Damage in a commit log, done to the files of a broker that has ended: a torn tail, a flipped bit.

Knows of RocketMQ's record what is needed to find one: four bytes of size, four of magic, and
somewhere behind them a body of this kit (tools/chaos/ack_log.py). No process, no clock.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_MAGIC: Final = bytes.fromhex("daa320a7")
_SIZE_AND_MAGIC: Final = re.compile(rb"(?s)(.{4})" + re.escape(_MAGIC))
_BODY: Final = re.compile(rb"(\d+):(\d{10}):[0-9a-f]{8}:")
_FROM_END: Final = 10
"""A record that rots has so many behind it: what has none is a torn tail."""

Draw = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Record:
    """Where a record lies in its file, and whose message it is."""

    start: int
    end: int
    body: int
    message: tuple[int, int]
    """(producer, sequence)."""


def log_files(store: Path) -> list[Path]:
    """In order."""
    return sorted((store / "commitlog").glob("[0-9]" * 20))


def last_file(store: Path) -> Path | None:
    """The one in which the log ends; None: it has no record."""
    return next((path for path in reversed(log_files(store)) if find_records(path)), None)


def find_records(path: Path) -> list[Record]:
    """Those of this kit's messages, whole or not."""
    data = path.read_bytes()
    found = []
    for body in _BODY.finditer(data):
        start = data.rfind(_MAGIC, 0, body.start()) - 4
        if start >= 0:
            size = int.from_bytes(data[start : start + 4])
            message = (int(body[1]), int(body[2]))
            found.append(Record(start, start + size, body.start(), message))
    return found


def ends_of_others(data: bytes | bytearray, records: Sequence[Record]) -> list[int]:
    """Where records end that are none of this kit's messages: of other topics, and the broker's."""
    starts = {record.start for record in records}
    return [
        found.start() + int.from_bytes(found[1])
        for found in _SIZE_AND_MAGIC.finditer(data)
        if found.start() not in starts
    ]


def tear_tail(store: Path, kind: str, promised: set[tuple[int, int]], draw: Draw) -> str:
    """Cut ("cut") or garble ("garble") all of the log from a byte on, behind every promised
    message and every record of other loads; where all are promised, the end of the log gets a piece
    of a record that was never whole. Returns what was done. Raises OSError."""
    path = last_file(store)
    if path is None:
        return "the log has no record yet"
    records = find_records(path)
    data = bytearray(path.read_bytes())
    others = ends_of_others(data, records)
    low = max([r.end for r in records if r.message in promised] + others + [records[0].start])
    high = max(records[-1].end, *others, 0)
    if low < high:
        at = low + int(draw() * (high - low))
        end = len(data) if kind == "cut" else high
        data[at:end] = bytes(end - at) if kind == "cut" else _noise(end - at, draw)
        path.write_bytes(data)
        return f"{path.name}: bytes {at} to {end} of {high}, which nobody was promised: {kind}"
    last = records[-1]
    size = 1 + int(draw() * (last.end - last.start - 1))
    piece = bytes(data[last.start : last.start + size]) if kind == "cut" else _noise(size, draw)
    piece = piece[: len(data) - high]
    data[high : high + len(piece)] = piece
    path.write_bytes(data)
    return f"{path.name}: {len(piece)} bytes of a record that was never whole, at {high}: {kind}"


def flip_bit(store: Path, other: Path, draw: Draw) -> tuple[Path, int, bytes] | None:
    """Invert a bit in a stored body that the log `other` has at the same place, and that has
    records behind it. Returns the file, the place and the good byte; None: there is none such.
    Raises OSError."""
    path = last_file(store)
    copy = None if path is None else other / "commitlog" / path.name
    if path is None or copy is None or not copy.exists():
        return None
    data, same = bytearray(path.read_bytes()), copy.read_bytes()
    records = [
        record
        for record in find_records(path)[:-_FROM_END]
        if data[record.start : record.end] == same[record.start : record.end]
    ]
    if not records:
        return None
    record = records[int(draw() * len(records))]
    at = record.body + int(draw() * 20)
    good = bytes(data[at : at + 1])
    data[at] ^= 1 << int(draw() * 8)
    path.write_bytes(data)
    return path, at, good


def _noise(size: int, draw: Draw) -> bytes:
    return bytes(int(draw() * 256) for _ in range(size))
