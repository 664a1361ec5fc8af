"""PopJournal: a mapped file from which the buffer of check points is rebuilt after a kill.

Owned by the loop thread of `remoting`; knows no request and no log. What was handed out and which
of it is acknowledged is mirrored here by plain stores, with no flush: the page cache outlives every
process, so nothing is lost by `kill -9`. It does not outlive the machine, and an OS crash may leave
it torn: a file of another boot is thrown away (consumer offsets stand before what it held, so those
messages are handed out again). An orderly stop stores everything in the log and removes the file.

    head     0  magic    8 bytes       8  boot id    16 bytes
            24  rows used   int64     32  queues used   int64
    queue   ROW of 512: in use, committed offset (int64); queue id, bytes of topic, bytes of group
            (int32); topic, group (UTF-8)
    row     200: sequence (0: free; written last), acknowledged bits, stored end, then
            queue, num, revive queue, flags (int32; 1: suspends), start offset, pop time,
            invisible time, next offset (int64), 32 differences to the start offset (int32)

Numbers are in the machine's byte order: the file never leaves it.

Tested by tests/broker/pop/test_pop_buffer_merge_service.py.
"""

from __future__ import annotations

import logging
import os
import struct
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import Final

from broker.pop.check_point import CheckPoint
from store.clean_exit import boot_id
from store.unflushed_map import map_unflushed, take_blocks

log = logging.getLogger(__name__)

_MAGIC: Final = b"MQPOPJ01"
_HEAD_SIZE: Final = 64
_USED_ROWS: Final = 3
_USED_QUEUES: Final = 4
"""Words (8 bytes) of the head."""
_QUEUES: Final = 65_536
_QUEUE_SIZE: Final = 512
_QUEUE_HEAD: Final = Struct("=qiii4x")
_QUEUE_HEAD_AT: Final = 8
_NAMES_AT: Final = _QUEUE_HEAD_AT + _QUEUE_HEAD.size
_ROW_SIZE: Final = 200
_ROW_BODY: Final = Struct("=iiiiqqqq")
_SUSPENDS: Final = 1
_ROW_BODY_AT: Final = 24
_DIFFS_AT: Final = _ROW_BODY_AT + _ROW_BODY.size
_DIFFS: Final = tuple(Struct(f"={count}i") for count in range(33))
assert _DIFFS_AT + _DIFFS[32].size == _ROW_SIZE
assert _QUEUE_SIZE % 8 == _ROW_SIZE % 8 == _HEAD_SIZE % 8 == 0
_ROWS_AT: Final = _HEAD_SIZE + _QUEUES * _QUEUE_SIZE
_MOST_SEQUENCE: Final = 1 << 62
_ROWS_A_STEP: Final = 1024
_QUEUES_A_STEP: Final = 128
"""Of which blocks are taken at a time."""
_SHOWN: Final = 64
"""Bytes of damaged names in a log line."""


def read_boot_id() -> bytes:
    """16 bytes that are others after each start of the machine."""
    return uuid.UUID(boot_id()).bytes


@dataclass(frozen=True, slots=True)
class JournalQueue:
    """A queue of a group as found in the file."""

    number: int
    topic: str
    group: str
    queue_id: int
    committed: int


@dataclass(frozen=True, slots=True)
class JournalRow:
    """A check point as found in the file, where it stands there, and what became of it."""

    point: CheckPoint
    queue: int
    row: int
    sequence: int
    bits: int
    stored_end: int


class PopJournal:
    """See the module."""

    def __init__(self, path: Path, capacity: int, boot_id: bytes) -> None:
        """capacity: rows."""
        self._path = path
        self._capacity = capacity
        self._boot_id = boot_id
        self._sequence = 0
        self._free_rows: list[int] = []
        self._free_queues: list[int] = []
        self._fd = -1
        self._rows_with_blocks = 0
        self._queues_with_blocks = 0

    # -- life ----------------------------------------------------------------------------------

    def open(self) -> tuple[list[JournalQueue], list[JournalRow]]:
        """Map the file; what it holds of this boot, rows in the order in which they were made."""
        size = _ROWS_AT + self._capacity * _ROW_SIZE
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            old_size = os.fstat(fd).st_size
            is_ours = old_size >= _ROWS_AT and os.pread(fd, 24, 0) == _MAGIC + self._boot_id
            if old_size and not is_ours:
                log.warning(
                    "%s was written before the machine was restarted: messages that were handed "
                    "out and not stored will be handed out again",
                    self._path,
                )
                os.ftruncate(fd, 0)
            size = max(size, old_size if is_ours else 0)
            os.ftruncate(fd, size)
            self._map = map_unflushed(fd, size, _HEAD_SIZE, self._path)
        except BaseException:
            os.close(fd)
            raise
        self._fd = fd
        self._view = memoryview(self._map)
        self._words = self._view.cast("Q")
        self._map[8:24] = self._boot_id
        self._map[:8] = _MAGIC
        self._capacity = (len(self._map) - _ROWS_AT) // _ROW_SIZE
        self._rows_with_blocks = min(self._words[_USED_ROWS], self._capacity)
        self._queues_with_blocks = min(self._words[_USED_QUEUES], _QUEUES)
        queues = self._read_queues()
        return queues, self._read_rows(queues)

    def close(self) -> None:
        """Let the file go as a kill of this process would; `open` takes it up again."""
        if self._fd >= 0:
            self._words.release()
            self._view.release()
            self._map.close()
            os.close(self._fd)
            self._fd = -1
        self._free_rows.clear()
        self._free_queues.clear()

    def remove(self) -> None:
        """All is in the log: an orderly stop needs no file."""
        self._path.unlink(missing_ok=True)

    # -- queues --------------------------------------------------------------------------------

    def add_queue(self, topic: str, group: str, queue_id: int, committed: int) -> int | None:
        """A queue's number; None: there are too many, its names are too long, a number does not
        fit, the disk is full, or this broker leads no more."""
        if self._fd < 0:
            return None
        names = topic.encode() + group.encode()
        if _NAMES_AT + len(names) > _QUEUE_SIZE:
            return None
        # Before a number is taken: what cannot be written down uses none up.
        try:
            head = _QUEUE_HEAD.pack(committed, queue_id, len(topic.encode()), len(group.encode()))
        except struct.error as error:
            log.error("pop journal: queue %s of %s@%s: %s", queue_id, topic, group, error)
            return None
        if self._free_queues:
            number = self._free_queues.pop()
        else:
            number = self._words[_USED_QUEUES]
            if number >= _QUEUES:
                return None
            if number >= self._queues_with_blocks:
                at = _HEAD_SIZE + number * _QUEUE_SIZE
                if not take_blocks(self._fd, at, _QUEUES_A_STEP * _QUEUE_SIZE):
                    return None
                self._queues_with_blocks = number + _QUEUES_A_STEP
            self._words[_USED_QUEUES] = number + 1
        at = _HEAD_SIZE + number * _QUEUE_SIZE
        self._map[at + _QUEUE_HEAD_AT : at + _NAMES_AT + len(names)] = head + names
        self._words[at >> 3] = 1
        return number

    def set_committed(self, queue: int, offset: int) -> None:
        """The group's offset in the queue moved."""
        self._words[(_HEAD_SIZE + queue * _QUEUE_SIZE >> 3) + 1] = offset

    def free_queue(self, queue: int) -> None:
        """No row is of this queue any more, and its offset is in consumerOffset.json."""
        self._words[_HEAD_SIZE + queue * _QUEUE_SIZE >> 3] = 0
        self._free_queues.append(queue)

    # -- rows ----------------------------------------------------------------------------------

    def add(self, queue: int, point: CheckPoint) -> int | None:
        """Write a row for the queue of this number; the row's, None: the file, or the disk, is
        full, or a number does not fit."""
        start_offset, diffs, pop_ms, invisible_ms, revive_queue_id, *more = point[3:]
        next_offset, suspends = more
        # Before a row is taken: what cannot be written down uses none up.
        try:
            body = _ROW_BODY.pack(
                queue,
                len(diffs),
                revive_queue_id,
                _SUSPENDS if suspends else 0,
                start_offset,
                pop_ms,
                invisible_ms,
                next_offset,
            ) + _DIFFS[len(diffs)].pack(*diffs)
        except (struct.error, IndexError) as error:
            log.error("pop journal: no row for %s of %s: %s", diffs, start_offset, error)
            return None
        if self._free_rows:
            number = self._free_rows.pop()
        else:
            number = self._words[_USED_ROWS]
            if number >= self._capacity:
                return None
            if number >= self._rows_with_blocks:
                steps = min(_ROWS_A_STEP, self._capacity - number)
                at = _ROWS_AT + number * _ROW_SIZE
                if not take_blocks(self._fd, at, steps * _ROW_SIZE):
                    return None
                self._rows_with_blocks = number + steps
            self._words[_USED_ROWS] = number + 1
        at = _ROWS_AT + number * _ROW_SIZE
        self._map[at + _ROW_BODY_AT : at + _ROW_BODY_AT + len(body)] = body
        words, word = self._words, at >> 3
        words[word + 1] = words[word + 2] = 0
        self._sequence += 1
        words[word] = self._sequence
        return number

    def set_bits(self, row: int, bits: int) -> None:
        """These of its messages are acknowledged."""
        self._words[(_ROWS_AT + row * _ROW_SIZE >> 3) + 1] = bits

    def set_stored(self, row: int, end: int) -> None:
        """It is in the commit log, which ends at `end` behind it. (Its record may be published
        after this: a row whose end is not in the log is stored again.)"""
        self._words[(_ROWS_AT + row * _ROW_SIZE >> 3) + 2] = end

    def free(self, row: int) -> None:
        """It is not needed any more."""
        self._words[_ROWS_AT + row * _ROW_SIZE >> 3] = 0
        self._free_rows.append(row)

    # -- reading -------------------------------------------------------------------------------

    def _read_queues(self) -> list[JournalQueue]:
        found = []
        for number in range(min(self._words[_USED_QUEUES], _QUEUES)):
            at = _HEAD_SIZE + number * _QUEUE_SIZE
            if not self._words[at >> 3]:
                self._free_queues.append(number)
                continue
            committed, queue_id, topic_size, group_size = _QUEUE_HEAD.unpack_from(
                self._map, at + _QUEUE_HEAD_AT
            )
            names = self._map[at + _NAMES_AT : at + _NAMES_AT + topic_size + group_size]
            try:
                topic, group = names[:topic_size].decode(), names[topic_size:].decode()
            except UnicodeDecodeError:
                topic = group = ""
            if not (topic and group and committed >= 0):
                log.error("pop journal: queue %s of %r dropped", number, names[:_SHOWN])
                self.free_queue(number)
                continue
            found.append(JournalQueue(number, topic, group, queue_id, committed))
        return found

    def _read_rows(self, queues: Iterable[JournalQueue] = ()) -> list[JournalRow]:
        """queues: whose names their check points get."""
        names = {one.number: (one.topic, one.group, one.queue_id) for one in queues}
        found = []
        for number in range(min(self._words[_USED_ROWS], self._capacity)):
            at = _ROWS_AT + number * _ROW_SIZE
            sequence, bits, stored_end = self._words[at >> 3 : (at >> 3) + 3]
            if not sequence:
                self._free_rows.append(number)
                continue
            queue, count, revive_queue_id, flags, *numbers = _ROW_BODY.unpack_from(
                self._map, at + _ROW_BODY_AT
            )
            start, pop_time_ms, invisible_time_ms, next_offset = numbers
            if sequence >= _MOST_SEQUENCE:
                log.error("pop journal: row %s of %s messages dropped", number, count)
                self.free(number)
                continue
            # Whose messages cannot be: it is for the buffer to say what it loses with them.
            is_whole = 0 <= count < len(_DIFFS)
            diffs = _DIFFS[count].unpack_from(self._map, at + _DIFFS_AT) if is_whole else (-1,)
            times = pop_time_ms, invisible_time_ms
            point = CheckPoint(
                *names.get(queue, ("", "", 0)),
                start,
                diffs,
                *times,
                revive_queue_id,
                next_offset,
                bool(flags & _SUSPENDS),
            )
            found.append(JournalRow(point, queue, number, sequence, bits, stored_end))
        found.sort(key=lambda row: row.sequence)
        self._sequence = found[-1].sequence if found else 0
        return found
