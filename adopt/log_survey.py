"""LogSurvey: what a commit log holds, counted by queue, and where it ends.

One thread, read-only, no broker may run on it. Its memory grows with the queues and the open
transactions, not with the messages. What a record must look like is the codec's matter; a log that
is damaged in the middle ends there for this module, which says so: a broker's recovery goes on
behind it, and nobody counts on what it will find.

Tested by tests/adopt/test_log_survey.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from store.errors import StoreError
from store.inner_batch import INNER_BATCH_FLAG, inner_num
from store.lmq_places import MULTI_DISPATCH, lmq_places, topic_allows_lmq
from store.mapped_file import MappedFile
from store.mapped_file_queue import StoreFile, list_store_files
from store.message import Message
from store.message_codec import (
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    SYS_FLAG_AT,
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
    TRANSACTION_NOT,
    RecordKind,
    check_record,
    decode_record,
)
from store.record_arrays import Int64Array, group_topics
from store.record_walk import RecordParts, good_parts

HALF_TOPICS: Final = ("RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC")
_OP_TOPICS: Final = ("RMQ_SYS_TRANS_OP_HALF_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC")
_OWN_TOPICS: Final = frozenset(topic.encode() for topic in (*HALF_TOPICS, *_OP_TOPICS))
_COUNTED: Final = (TRANSACTION_NOT, TRANSACTION_COMMIT)
_STEP: Final = 1 << 20
Progress = Callable[[int, int], None]
"""(bytes done, bytes in all)."""
QueueName = tuple[str, int]


@dataclass(slots=True)
class QueueCount:
    """Of one queue: messages; of them, those before `dispatched_to`; the first queue offset, and
    the one behind the last."""

    count: int = 0
    known: int = 0
    first: int = 0
    end: int = 0


@dataclass(slots=True)
class LogSurvey:
    """See the module. Offsets are positions of the log."""

    min_offset: int = 0
    end_offset: int = 0
    file_size: int = 0
    files: int = 0
    records: int = 0
    newest_ms: int = 0
    queues: dict[QueueName, QueueCount] = field(default_factory=dict)
    open_halves: set[tuple[str, int]] = field(default_factory=set)
    """Queue offsets of half messages that no operation ended."""
    behind: str = ""
    """What lies behind the end, for people; empty: nothing does."""

    def ends(self) -> dict[QueueName, int]:
        """Where each queue goes on."""
        return {name: found.end for name, found in self.queues.items()}


def survey_log(
    directory: Path,
    *,
    dispatched_to: int = 1 << 62,
    check_crc: bool = False,
    progress: Progress | None = None,
) -> LogSurvey:
    """Walk all of it. Raises StoreError: files are missing or of several sizes."""
    files = _check_files(directory, list_store_files(directory))
    found = LogSurvey(files=len(files))
    if not files:
        return found
    found.file_size = files[0].size
    found.min_offset = found.end_offset = files[0].start_offset
    for number, file in enumerate(files):
        _walk_file(found, file, dispatched_to, check_crc)
        if progress is not None:
            progress((number + 1) * file.size, len(files) * file.size)
        if found.end_offset < file.start_offset + file.size:
            _look_behind(found, files[number:])
            break
    return found


class Place(NamedTuple):
    """One record's place in one queue."""

    queue: QueueName
    queue_offset: int
    number: int
    """Queue offsets that it takes."""
    at: int
    size: int
    message: Message


def walk_places(directory: Path, end_offset: int, progress: Progress) -> Iterator[Place]:
    """Of all records of a log that was surveyed, in its order. Raises StoreError."""
    files = _check_files(directory, list_store_files(directory))
    for number, file in enumerate(files):
        with MappedFile.open(file.path, file.start_offset) as mapped, mapped.view() as view:
            position = 0
            while (at := file.start_offset + position) < end_offset:
                check = check_record(view, position, len(view), at, check_crc=False)
                if check.kind is not RecordKind.MESSAGE:
                    break
                message = decode_record(view, position)[0]
                for queue, queue_offset, taken in _places_of(message):
                    yield Place(queue, queue_offset, taken, at, check.size, message)
                position += check.size
        progress((number + 1) * file.size, len(files) * file.size)


def _check_files(directory: Path, files: list[StoreFile]) -> list[StoreFile]:
    for before, file in itertools.pairwise(files):
        if file.size != files[0].size or file.start_offset != before.start_offset + before.size:
            raise StoreError(
                f"{file.path}: {file.size} bytes; it should be {files[0].size}, right behind "
                f"{before.path.name}: files of {directory} are missing or cut short; copy them "
                "again, or from a replica"
            )
    if files and not files[0].size:
        raise StoreError(f"{files[0].path}: it is empty; copy it again, or from a replica")
    return files


def _walk_file(found: LogSurvey, file: StoreFile, dispatched_to: int, check_crc: bool) -> None:
    with MappedFile.open(file.path, file.start_offset) as mapped, mapped.view() as view:
        position = 0
        while True:
            at = file.start_offset + position
            with view[position : position + _STEP] as piece:
                parts = good_parts(piece, at, check_crc=check_crc)
                if len(parts.at):
                    _count_all(found, piece, parts, dispatched_to - at)
                    position += int(parts.end[-1])
                    continue
            check = check_record(view, position, len(view), at, check_crc=check_crc)
            if check.kind is not RecordKind.MESSAGE:
                break
            _count(found, decode_record(view, position)[0], at < dispatched_to)
            position += check.size
        if check.kind is RecordKind.BLANK:
            found.end_offset = file.start_offset + file.size
            return
        found.end_offset = file.start_offset + position
        if check.kind is RecordKind.INVALID:
            found.behind = f"{file.path}: position {position}: {check.reason}"


def _count_all(found: LogSurvey, piece: memoryview, parts: RecordParts, dispatched_to: int) -> None:
    """Records of a piece; those that begin before `dispatched_to` are known. Where all are plain
    ones, a tenth of what `_count` takes."""
    topics, topic_ids = group_topics(piece, parts.topic_at, parts.topic_sizes)
    sys_flags = _column(piece, parts.at + SYS_FLAG_AT, ">i4")
    if (
        (sys_flags & INNER_BATCH_FLAG).any()
        or not _OWN_TOPICS.isdisjoint(topics)
        or MULTI_DISPATCH in bytes(piece)
    ):
        for at in parts.at.tolist():
            _count(found, decode_record(piece, at)[0], at < dispatched_to)
        return
    found.records += len(parts.at)
    found.newest_ms = max(found.newest_ms, int(parts.timestamps.max()))
    rows = np.flatnonzero(np.isin(sys_flags & TRANSACTION_MASK, _COUNTED))
    queue_ids = _column(piece, parts.at[rows] + QUEUE_ID_AT, ">i4")
    offsets = _column(piece, parts.at[rows] + QUEUE_OFFSET_AT, ">i8")
    places = topic_ids[rows] << 32 | queue_ids & 0xFFFFFFFF
    is_known = parts.at[rows] < dispatched_to
    _, firsts, owners = np.unique(places, return_index=True, return_inverse=True)
    counts, known = np.bincount(owners), np.bincount(owners, is_known)
    lasts = len(rows) - 1 - np.unique(places[::-1], return_index=True)[1]
    for number in np.argsort(firsts).tolist():
        first, last = firsts[number], lasts[number]
        name = str(topics[topic_ids[rows[first]]], "utf-8", "replace"), int(queue_ids[first])
        queue = found.queues.setdefault(name, QueueCount(first=int(offsets[first])))
        queue.count += int(counts[number])
        queue.known += int(known[number])
        queue.end = int(offsets[last]) + 1


def _column(piece: memoryview, at: Int64Array, dtype: str) -> Int64Array:
    """The numbers at these places."""
    size = np.dtype(dtype).itemsize
    found: NDArray[np.generic] = np.ndarray((len(piece) - size + 1,), dtype, piece, 0, (1,))[at]
    return found.astype(np.int64)


def _count(found: LogSurvey, message: Message, is_known: bool) -> None:
    found.records += 1
    found.newest_ms = max(found.newest_ms, message.store_timestamp)
    topic, offset = message.topic, message.queue_offset
    if topic in HALF_TOPICS:
        found.open_halves.add((topic, offset))
    elif topic in _OP_TOPICS:
        half = HALF_TOPICS[_OP_TOPICS.index(topic)]
        for text in message.body.split(b","):
            if text.isdigit() and len(text) < 20:
                found.open_halves.discard((half, int(text)))
    for name, place, number in _places_of(message):
        _add(found, name, place, number, is_known)


def _places_of(message: Message) -> Iterator[tuple[QueueName, int, int]]:
    """Queues, queue offsets in them, and how many offsets are taken there."""
    if message.sys_flag & TRANSACTION_MASK not in _COUNTED:
        return
    number = inner_num(message.sys_flag, message.properties)
    yield (message.topic, message.queue_id), message.queue_offset, number
    if topic_allows_lmq(message.topic):
        for name, place in lmq_places(message.properties).items():
            yield (name, 0), place, 1


def _add(found: LogSurvey, name: QueueName, offset: int, number: int, is_known: bool) -> None:
    queue = found.queues.get(name)
    if queue is None:
        queue = found.queues[name] = QueueCount(first=offset)
    queue.count += 1
    queue.known += is_known
    queue.end = offset + number


def _look_behind(found: LogSurvey, files: list[StoreFile]) -> None:
    """Whether anything lies behind the end: damage, or what a kill left."""
    for file in files:
        with MappedFile.open(file.path, file.start_offset) as mapped, mapped.view() as view:
            start = max(found.end_offset - file.start_offset, 0)
            at = _find_nonzero(view, start)
        if at >= 0:
            found.behind = found.behind or f"{file.path}: byte {at} behind the end is not zero"
            return
    found.behind = ""


def _find_nonzero(view: memoryview, start: int) -> int:
    for at in range(start, len(view), _STEP):
        piece = np.flatnonzero(np.frombuffer(view[at : at + _STEP], np.uint8))
        if piece.size:
            return at + int(piece[0])
    return -1
