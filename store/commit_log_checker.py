"""Judges the commit log offline: record by record, file by file, and the bytes behind the end.

What is fenced (store/log_fences.py) is named, and the records behind it are judged like the others.
One thread, read-only. What it walked over it gives back as arrays, for the checkers of the derived
files. It takes the file size from the files.

Tested by tests/store/test_store_checker.py.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from store.check_report import CheckReport
from store.inner_batch import inner_num
from store.lmq_places import lmq_places, topic_allows_lmq
from store.log_directories import LogDirectories
from store.log_fences import NO_FENCES, LogFences, fences_path, load_fences
from store.lost_range import LOST_MARK
from store.mapped_file import MappedFile
from store.mapped_file_queue import StoreFile, list_store_files
from store.message import Message
from store.message_codec import (
    BLANK_SIZE,
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
    TRANSACTION_NOT,
    RecordKind,
    check_record,
    decode_record,
    read_store_timestamp,
)

Int64Array = NDArray[np.int64]
_COUNTED = (TRANSACTION_NOT, TRANSACTION_COMMIT)


@dataclass(slots=True)
class WalkedLog:
    """Every record of the log, in order. `queue_of[i]` indexes `queues`, -1: has no unit."""

    fences: LogFences = NO_FENCES
    min_offset: int = 0
    end_offset: int = 0
    max_store_timestamp: int = 0
    queues: dict[tuple[str, int], int] = field(default_factory=dict)
    phy_offsets: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    queue_of: list[int] = field(default_factory=list)
    queue_offsets: list[int] = field(default_factory=list)
    lmq: dict[str, dict[int, int]] = field(default_factory=dict)
    """Queue offset by phy_offset of each light queue's records."""
    dispatched_offset: int = sys.maxsize
    """Records from there on have no units: a member of a group with a controller was closed before
    they were confirmed."""

    def arrays(self) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array]:
        """phy_offsets, sizes, queue_of, queue_offsets."""
        return (
            np.array(self.phy_offsets, np.int64),
            np.array(self.sizes, np.int64),
            np.array(self.queue_of, np.int64),
            np.array(self.queue_offsets, np.int64),
        )


def check_commit_log(place: Path | LogDirectories, report: CheckReport) -> WalkedLog:
    """Walk all files of the log's directory, or directories; findings go into `report`. Raises
    StoreError: the fences' file is not valid."""
    directories = LogDirectories.of(place)
    fences = load_fences(fences_path(directories.first))
    for fence in fences:
        report.error(f"{directories}: fenced, cannot be read: {fence}")
    return _Walk(report, fences).run(list_store_files(directories))


class _Walk:
    def __init__(self, report: CheckReport, fences: LogFences) -> None:
        self._report = report
        self._fences = fences
        self._log = WalkedLog(fences=fences)
        self._next_offsets: dict[int, int] = {}
        self._seen_since_fence: set[int] | None = None
        """Queues that had a record behind the last fence or lost range; None before the first."""
        self._ended_at: str | None = None

    def run(self, files: list[StoreFile]) -> WalkedLog:
        if not files:
            return self._log
        self._log.min_offset = self._log.end_offset = files[0].start_offset
        expected = files[0].start_offset
        for file in files:
            self._report.count("commit log files")
            if file.size != files[0].size:
                self._report.error(
                    f"{file.path}: {file.size} bytes, the first file has {files[0].size}"
                )
                return self._log
            if file.start_offset != expected:
                self._report.error(f"{file.path}: the file of offset {expected} is missing")
                return self._log
            expected += file.size
            self._file(file)
        return self._log

    def _file(self, file: StoreFile) -> None:
        if file.size == 0:
            return
        with MappedFile.open(file.path, file.start_offset) as mapped, mapped.view() as view:
            if self._ended_at is None:
                self._records(file, view)
            elif _find_nonzero(view, 0) >= 0:
                self._report.unfinished(f"{file.path}: holds bytes behind the end of the log")

    def _records(self, file: StoreFile, view: memoryview) -> None:
        position = max(self._log.end_offset - file.start_offset, 0)
        while True:
            offset = file.start_offset + position
            if (fence := self._fences.find(offset)) is not None:
                self._seen_since_fence = set()
                position = fence.end - file.start_offset
                self._log.end_offset = fence.end
                if position >= len(view):
                    return
                continue
            found = check_record(view, position, len(view), offset, check_crc=True)
            if found.kind is not RecordKind.MESSAGE:
                break
            self._record(file, view, position, found.size)
            position += found.size
        if found.kind is RecordKind.BLANK:
            if bytes(view[position + BLANK_SIZE :][: len(LOST_MARK)]) == LOST_MARK:
                self._seen_since_fence = set()
            self._log.end_offset = file.start_offset + file.size
            self._report.count("blank records")
            return
        self._log.end_offset = file.start_offset + position
        self._ended_at = f"{file.path}: position {position}"
        if found.kind is RecordKind.INVALID:
            self._report.unfinished(f"{self._ended_at}: {found.reason}")
        elif (at := _find_nonzero(view, position)) >= 0:
            self._report.unfinished(f"{file.path}: byte {at} behind the end is not zero")

    def _record(self, file: StoreFile, view: memoryview, position: int, size: int) -> None:
        message = decode_record(view, position)[0]
        walked = self._log
        queue = -1
        if message.sys_flag & TRANSACTION_MASK in _COUNTED:
            queue = walked.queues.setdefault((message.topic, message.queue_id), len(walked.queues))
            self._check_next(file, position, queue, message)
            if topic_allows_lmq(message.topic):
                for name, offset in lmq_places(message.properties).items():
                    walked.lmq.setdefault(name, {})[file.start_offset + position] = offset
        elif message.body.startswith(LOST_MARK):
            self._seen_since_fence = set()
        walked.phy_offsets.append(file.start_offset + position)
        walked.sizes.append(size)
        walked.queue_of.append(queue)
        walked.queue_offsets.append(message.queue_offset)
        timestamp = read_store_timestamp(view, position)
        walked.max_store_timestamp = max(walked.max_store_timestamp, timestamp)
        self._report.count("records")

    def _check_next(self, file: StoreFile, position: int, queue: int, message: Message) -> None:
        """In one queue offsets are consecutive, but for those inside of a fence or lost with its
        range; 0 again after its topic was deleted."""
        queue_offset = message.queue_offset
        expected = self._next_offsets.get(queue, queue_offset)
        following = queue_offset + inner_num(message.sys_flag, message.properties)
        self._next_offsets[queue] = following
        if self._seen_since_fence is not None and queue not in self._seen_since_fence:
            self._seen_since_fence.add(queue)
            expected = max(expected, queue_offset)
        if queue_offset not in (0, expected):
            self._report.error(
                f"{file.path}: position {position}: queueOffset {queue_offset}, expected {expected}"
            )


_STEP = 1 << 20


def _find_nonzero(view: memoryview, start: int) -> int:
    """Position of the first byte that is not zero, -1 without one."""
    for at in range(start, len(view), _STEP):
        found = np.flatnonzero(np.frombuffer(view[at : at + _STEP], np.uint8))
        if found.size:
            return at + int(found[0])
    return -1
