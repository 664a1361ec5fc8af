"""CompactionReader: compaction logs as process `remoting` reads them, which does not write them.

What a log ends with, and that its files were replaced (another generation), is in the queue table.
Files may be replaced between that and a read: every record is compared with its unit, and what does
not agree is read again once the new generation is published. Owned by: the thread that uses it.

Tested by tests/store/test_compaction_failures.py.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Final, NamedTuple

from ipc.queue_table import QueueTableReader
from store.batch_units import BATCH_UNIT
from store.compaction.compaction_files import (
    CompactionDirectories,
    FileSizes,
    is_being_replaced,
)
from store.compaction.sparse_units import (
    NO_UNIT,
    find_unit,
    queue_offset_of,
)
from store.consume_queue_files import is_safe_topic
from store.descriptor_cache import DescriptorCache, FileKey
from store.mapped_file import file_name
from store.mapped_file_queue import list_store_files
from store.message_codec import RECORD_PLACE, has_magic
from store.message_store_config import BATCH_UNIT_SIZE, MessageStoreConfig

log = logging.getLogger(__name__)

_OPEN_FILES: Final = 64
_LOOKS: Final = 3
_UNITS: Final = 128
"""Units looked at for one read, at most."""

Wants = Callable[[int, bytes], bool]
"""(tags code, record): whether the reader wants it."""


@dataclass(slots=True)
class _Files:
    """What is known of the files of one generation."""

    generation: int
    starts: list[int] = field(default_factory=list)
    first_offsets: list[int] = field(default_factory=list)
    """Queue offset of the first record of each."""


class ReadLimits(NamedTuple):
    """Most records and bytes of one read; the first record always fits. Further than `memory`
    bytes behind the log's end the limits for what is on disk apply."""

    records: int
    size: int
    records_on_disk: int
    size_on_disk: int
    memory: int


class Compacted(NamedTuple):
    """What a read gave. next_offset: where to go on."""

    next_offset: int
    records: list[bytes]
    looked_at: int
    """Records, wanted or not; 0: nothing could be read now."""
    slow: bool
    """They are far behind the log's end."""


class CompactionReader:
    """See the module."""

    def __init__(self, config: MessageStoreConfig, table: QueueTableReader) -> None:
        self._root = config.compaction_path
        self._sizes = FileSizes.of(
            config.compaction_mapped_file_size, config.compaction_cq_mapped_file_size
        )
        self._table = table
        self._known: dict[tuple[str, int], _Files] = {}
        self._logs = DescriptorCache(_OPEN_FILES, lambda key: self._open(key, is_queue=False))
        self._queues = DescriptorCache(_OPEN_FILES, lambda key: self._open(key, is_queue=True))

    def bounds(self, topic: str, queue_id: int) -> tuple[int, int] | None:
        """(min, max) queue offset; None: there is no log, or it is not open yet. An empty one has
        min -1, as RocketMQ says."""
        generation, high = self._table.compacted(topic, queue_id)
        if not generation or not is_safe_topic(topic):
            return None
        files = self._files(topic, queue_id, generation)
        return (files.first_offsets[0] if files.first_offsets else -1), high

    def read(
        self, topic: str, queue_id: int, queue_offset: int, limits: ReadLimits, wants: Wants
    ) -> Compacted:
        """The next records from `queue_offset` on, which is below the max offset; of one file."""
        nothing = Compacted(queue_offset, [], 0, False)
        place = None
        for _ in range(_LOOKS):
            with contextlib.suppress(FileNotFoundError):
                place = self._find(topic, queue_id, queue_offset)
                found = nothing if place is None else self._read(place, limits, wants, nothing)
                if found.looked_at:
                    return found
            # Files are just being replaced.
            self._forget(topic, queue_id)
        with contextlib.suppress(FileNotFoundError):
            if place is not None:
                return self._pass_over(place, nothing)
        return nothing

    def close(self) -> None:
        """Close all files; idempotent."""
        self._logs.close()
        self._queues.close()

    def _read(
        self, place: tuple[FileKey, int], limits: ReadLimits, wants: Wants, nothing: Compacted
    ) -> Compacted:
        key, number = place
        next_offset, slow, looked_at, size_given = nothing.next_offset, False, 0, 0
        end = self._known[key[:2]].starts[-1] + self._sizes.log
        records: list[bytes] = []
        for position, size, tags_code, _, offset, *_ in self._units(key, number):
            slow = end - position > limits.memory
            most = min(limits.records, limits.records_on_disk) if slow else limits.records
            room = (limits.size_on_disk if slow else limits.size) - size_given
            if records and (len(records) >= most or size > room):
                break
            record = self._record(key, position, size, offset)
            if record is None:
                self._forget(*key[:2])
                break
            looked_at += 1
            next_offset = offset + 1
            if wants(tags_code, record):
                records.append(record)
                size_given += size
        return Compacted(next_offset, records, looked_at, slow)

    def _pass_over(self, place: tuple[FileKey, int], nothing: Compacted) -> Compacted:
        """What is not the record of its unit although nobody replaces files is damaged: who reads
        goes on behind it."""
        key, number = place
        directories = CompactionDirectories.of(self._root, *key[:2])
        if is_being_replaced(directories):
            return nothing
        for position, size, _, _, offset, *_ in self._units(key, number)[:1]:
            if self._record(key, position, size, offset) is None:
                self._forget(*key[:2])
                if not is_being_replaced(directories):
                    log.error("%s: no record at %s: skipping it", directories.log, position)
                    return nothing._replace(next_offset=offset + 1, looked_at=1)
        return nothing

    def _units(self, key: FileKey, number: int) -> list[tuple[int, ...]]:
        data = os.pread(self._queues.get(key), _UNITS * BATCH_UNIT_SIZE, number * BATCH_UNIT_SIZE)
        whole = len(data) // BATCH_UNIT_SIZE * BATCH_UNIT_SIZE
        high = self._table.compacted(key[0], key[1])[1]
        found = []
        for at in range(0, whole, BATCH_UNIT_SIZE):
            unit = data[at : at + BATCH_UNIT_SIZE]
            if queue_offset_of(unit) >= high:
                break  # No unit, or not published yet.
            found.append(BATCH_UNIT.unpack(unit))
        return found

    def _record(self, key: FileKey, position: int, size: int, queue_offset: int) -> bytes | None:
        """None: it is not the one of the unit."""
        start = key[2]
        if not start <= position <= start + self._sizes.log - size:
            return None
        record = os.pread(self._logs.get(key), size, position - start)
        place = (size, key[1], queue_offset, position)
        if len(record) < max(size, RECORD_PLACE.size) or RECORD_PLACE.unpack_from(record) != place:
            return None
        return record if has_magic(record) else None

    def _find(self, topic: str, queue_id: int, queue_offset: int) -> tuple[FileKey, int] | None:
        """File and number of the first unit at `queue_offset` or behind."""
        generation = self._table.compacted(topic, queue_id)[0]
        found = self._find_in(
            self._files(topic, queue_id, generation), topic, queue_id, queue_offset
        )
        if found is None:
            # It may be in a file that came since.
            self._known.pop((topic, queue_id), None)
            files = self._files(topic, queue_id, generation)
            found = self._find_in(files, topic, queue_id, queue_offset)
        return found

    def _find_in(
        self, files: _Files, topic: str, queue_id: int, queue_offset: int
    ) -> tuple[FileKey, int] | None:
        # Old files that are left behind new ones begin at lower offsets than these.
        before = takewhile(lambda first: first <= queue_offset, files.first_offsets)
        at = max(sum(1 for _ in before) - 1, 0)
        for start, first_offset in zip(files.starts[at:], files.first_offsets[at:], strict=True):
            key = (topic, queue_id, start)
            fd = self._queues.get(key)
            if queue_offset_of(os.pread(fd, BATCH_UNIT_SIZE, 0)) != first_offset:
                return None  # Replaced: what is wanted may be in a file before it now.
            number = find_unit(fd, self._sizes.queue, queue_offset)
            unit = os.pread(fd, BATCH_UNIT_SIZE, number * BATCH_UNIT_SIZE)
            if queue_offset_of(unit) != NO_UNIT:
                return key, number
        return None

    def _files(self, topic: str, queue_id: int, generation: int) -> _Files:
        known = self._known.get((topic, queue_id))
        if known is None or known.generation != generation or not known.starts:
            self._forget(topic, queue_id)
            known = _Files(generation)
            directories = CompactionDirectories.of(self._root, topic, queue_id)
            # They are replaced in order: who opens the last first never has an old one before a new
            # one, and so never misses what went from a file to the one before it.
            for file in reversed(list_store_files(directories.queue)):
                with contextlib.suppress(FileNotFoundError):
                    fd = self._queues.get((topic, queue_id, file.start_offset))
                    first = queue_offset_of(os.pread(fd, BATCH_UNIT_SIZE, 0))
                    if first != NO_UNIT:
                        known.starts.insert(0, file.start_offset)
                        known.first_offsets.insert(0, first)
            self._known[topic, queue_id] = known
        return known

    def _forget(self, topic: str, queue_id: int) -> None:
        self._known.pop((topic, queue_id), None)
        self._logs.forget_queue(topic, queue_id)
        self._queues.forget_queue(topic, queue_id)

    def _open(self, key: FileKey, *, is_queue: bool) -> int:
        topic, queue_id, start = key
        directories = CompactionDirectories.of(self._root, topic, queue_id)
        directory = directories.queue if is_queue else directories.log
        return os.open(directory / file_name(start), os.O_RDONLY | os.O_CLOEXEC)
