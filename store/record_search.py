"""Finds the next whole record behind damage in the commit log.

Used by process `store`: by recovery, and by dispatch when it meets bytes that are no record. A
record counts when its magic, its sizes, its own physicalOffset and its CRC are right: bytes that
are no record practically never are all that. One of an older use of the file (a Java broker leaves
what it cuts off) may be: it is older than what lies before it (BelievedTime), and does not count.
The search looks for the magic with bytes.find, not byte by byte, and steps over what the file
system knows to be empty. What it reads is linear in the bytes that it passes, whatever they are
(body_crcs.py). `guess_queue` reads what a damaged record still says. It changes nothing.

Tested by tests/store/test_record_search.py and tests/store/test_recovery.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from struct import Struct
from typing import Final

from store.body_crcs import BodyCrcs
from store.commit_log_reader import CommitLogReader
from store.inner_batch import INNER_BATCH_FLAG
from store.mapped_file import data_ranges
from store.mapped_file_queue import MappedFileQueue
from store.message_codec import (
    BLANK_SIZE,
    MAGIC_V1,
    MAGIC_V2,
    PHY_OFFSET_AT,
    PROPERTIES_LENGTH,
    SIZE_AND_MAGIC,
    SYS_FLAG_AT,
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
    TRANSACTION_NOT,
    RecordKind,
    check_record,
    read_store_timestamp,
    record_head,
)

_MAGICS: Final = tuple(magic.to_bytes(4, "big") for magic in (MAGIC_V1, MAGIC_V2))
_COMMON: Final = _MAGICS[0][:3]
assert all(magic.startswith(_COMMON) for magic in _MAGICS)
_MAGIC_AT: Final = 4
_LEAST_HEAD: Final = 88
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")
_TOPIC: Final = re.compile(rb"[%|a-zA-Z0-9_+-]{1,255}")
_STEP: Final = 1 << 20
_ZEROS: Final = bytes(_STEP + 3)
"""Compared with first: to look for a magic among zeros takes twenty times as long."""


def guess_queue(view: memoryview, position: int, limit: int) -> tuple[str, int, int] | None:
    """Topic, queue id and the next queue offset, by the damaged record at `position`, if it still
    says so; None when it does not, or when such a record has no unit in a simple queue. Not to be
    relied upon."""
    if position + _LEAST_HEAD > limit:
        return None
    (sys_flag,) = _INT32.unpack_from(view, position + SYS_FLAG_AT)
    if sys_flag & TRANSACTION_MASK not in (TRANSACTION_NOT, TRANSACTION_COMMIT):
        return None
    if sys_flag & INNER_BATCH_FLAG:
        return None
    head = record_head(sys_flag)
    if position + head.size >= limit:
        return None
    fields = head.unpack_from(view, position)
    queue_id, queue_offset, body_size = fields[3], fields[5], fields[14]
    topic_at = position + head.size + max(body_size, 0) + (1 if fields[1] != MAGIC_V2 else 2)
    if min(queue_id, queue_offset, body_size) < 0 or topic_at > limit:
        return None
    size = view[topic_at - 1]
    name = bytes(view[topic_at : topic_at + size])
    if len(name) < size or not _TOPIC.fullmatch(name):
        return None
    return name.decode("ascii"), queue_id, queue_offset + 1


def contradicts_itself(source: CommitLogReader, phy_offset: int, end: int) -> bool:
    """Whether what begins at `phy_offset` can never become a record, as far as it is there: before
    `end`. Raises StoreError."""
    view = source.view_of_file(phy_offset)
    if view is None:
        return False
    size, position = source.file_size, phy_offset % source.file_size
    with view:
        there = min(size, end - phy_offset + position)
        if there - position < _LEAST_HEAD:
            return False
        total, magic = SIZE_AND_MAGIC.unpack_from(view, position)
        (stored,) = _INT64.unpack_from(view, position + PHY_OFFSET_AT)
        if stored != phy_offset or position + total > size - BLANK_SIZE:
            return True
        head = record_head(_INT32.unpack_from(view, position + SYS_FLAG_AT)[0])
        if position + head.size > there or magic != MAGIC_V1:
            return False
        body_size = head.unpack_from(view, position)[14]
        topic_at = position + head.size + body_size
        if body_size < 0 or topic_at >= position + total:
            return True
        return topic_at < there and _parts_are_wrong(view, topic_at, position + total, there)


def _parts_are_wrong(view: memoryview, topic_at: int, record_end: int, there: int) -> bool:
    """Whether a V1 record's topic and properties do not end where its size says."""
    properties_at = topic_at + 1 + view[topic_at] + PROPERTIES_LENGTH.size
    if properties_at > there:
        return properties_at > record_end
    (size,) = PROPERTIES_LENGTH.unpack_from(view, properties_at - PROPERTIES_LENGTH.size)
    return bool(size < 0 or properties_at + size != record_end)


def is_within(source: CommitLogReader, phy_offset: int, end: int) -> bool:
    """Whether what begins at `phy_offset` is whole and ends behind `end`, where the reader stops:
    `end` lies within it. Raises StoreError."""
    published = source.max_phy_offset
    view = source.view_of_file(phy_offset) if end < published else None
    if view is None or source.fences.find(phy_offset) is not None:
        return False
    size, position = source.file_size, phy_offset % source.file_size
    with view:
        limit = min(size, published - phy_offset + position)
        found = check_record(view, position, limit, phy_offset, check_crc=False)
        if found.kind is RecordKind.BLANK:
            return end < phy_offset - position + size <= published
        return found.kind is RecordKind.MESSAGE and phy_offset + found.size > end


def find_in_view(
    view: memoryview,
    position: int,
    end: int,
    limit: int,
    file_start: int,
    *,
    not_before: int = 0,
    beat: Callable[[], None] = lambda: None,
    crcs: BodyCrcs | None = None,
) -> int:
    """Position of the first whole record that starts in [position, end) of a file's view; -1
    without one.

    limit: where in `view` a record must have ended. file_start: the log position of view[0].
    not_before: ms (BelievedTime); a record that was stored before does not count. crcs: of the
    scan; None: of this search alone.
    """
    crcs = crcs or BodyCrcs()
    for at in range(position, end, _STEP):
        size = min(_STEP, end - at)
        # A bit longer than the step, so that no magic is cut in two.
        step = bytes(view[at + _MAGIC_AT : min(at + _MAGIC_AT + size + 3, limit)])
        found = -1 if _ZEROS.startswith(step) else step.find(_COMMON)
        while 0 <= found < size:
            is_magic = step[found : found + 4] in _MAGICS
            if is_magic and _is_whole(view, at + found, limit, file_start, not_before, crcs):
                return at + found
            found = step.find(_COMMON, found + 1)
        beat()
    return -1


def _is_whole(
    view: memoryview,
    position: int,
    limit: int,
    file_start: int,
    not_before: int,
    crcs: BodyCrcs,
) -> bool:
    if position + _LEAST_HEAD > limit:
        return False
    phy_offset = file_start + position
    if _INT64.unpack_from(view, position + PHY_OFFSET_AT)[0] != phy_offset:
        return False
    found = check_record(view, position, limit, phy_offset, check_crc=crcs.crc)
    if found.kind is not RecordKind.MESSAGE:
        return False
    return read_store_timestamp(view, position) >= not_before


def find_published(source: CommitLogReader, phy_offset: int, end: int) -> int | None:
    """Log position of the first whole record in [phy_offset, end) of a log that is being written;
    None without one. Raises StoreError."""
    size, crcs = source.file_size, BodyCrcs()
    while phy_offset < end:
        start = phy_offset - phy_offset % size
        view = source.view_of_file(phy_offset)
        if view is not None:
            limit = min(size, end - start)
            with view:
                at = find_in_view(view, phy_offset - start, limit, limit, start, crcs=crcs)
            if at >= 0:
                return start + at
        phy_offset = start + size
    return None


def find_in_files(
    queue: MappedFileQueue,
    phy_offset: int,
    *,
    not_before: int = 0,
    beat: Callable[[], None] = lambda: None,
    crcs: BodyCrcs | None = None,
) -> int | None:
    """Log position of the first whole record at or behind `phy_offset`, in whatever file; None
    without one. Before any writer starts: it reads to the end of the last file. crcs: of the scan;
    None: of this search alone."""
    crcs = crcs or BodyCrcs()
    for start in queue.start_offsets:
        if start + queue.file_size <= phy_offset:
            continue
        low = max(phy_offset - start, 0)
        with queue.view_at(start) as view:
            for first, end in data_ranges(queue.path_of(start), low, len(view)):
                at = find_in_view(
                    view,
                    first,
                    end,
                    len(view),
                    start,
                    not_before=not_before,
                    beat=beat,
                    crcs=crcs,
                )
                if at >= 0:
                    return start + at
    return None
