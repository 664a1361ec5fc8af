"""RecordArrays: many commit-log records at once, as numpy arrays over record offsets.

Used by ReputMessageService in process `store` (its dispatch thread) and by recovery. One walk over
the record sizes, one gather of the fixed heads, then everything is arithmetic on whole columns; a
loop over fields costs four times as much. Small batches (a quiet broker) are parsed one by one,
since numpy's fixed costs would be too high; tests show that both give the same result. Every array
is a copy: the view of the mapped file is only borrowed for the call. It checks what it reads
(sizes, magic, physical offset, lengths that must add up) but not the body's CRC, as RocketMQ's
reput does. It must not know what consume queues or index files look like. The record layout itself
is in store/message_codec.py. Corresponds to RocketMQ's CommitLog.checkMessageAndReturnSize.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from store.inner_batch import INNER_BATCH_FLAG, inner_place
from store.lmq_units import LmqUnits, find_lmq_units
from store.message_codec import (
    BORN_HOST_V6_FLAG,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    PHY_OFFSET_AT,
    PROPERTIES_LENGTH,
    SIZE_AND_MAGIC,
    STORE_HOST_V6_FLAG,
    SYS_FLAG_AT,
    TOPIC_LENGTH_V2,
    TOPIC_LIMIT,
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
    TRANSACTION_ROLLBACK,
    fixed_size,
    is_blank_at,
    record_head,
    store_timestamp_position,
)
from store.record_properties import PropertyExtractor

Int64Array = NDArray[np.int64]

MIN_RECORD_SIZE: Final = fixed_size(0) + 1
"""No body, no topic, no properties, V1, both hosts IPv4."""
assert MIN_RECORD_SIZE == 91

RECORD_HEAD: Final = np.dtype(
    [
        ("total_size", ">i4"),
        ("magic", ">u4"),
        ("body_crc", ">i4"),
        ("queue_id", ">i4"),
        ("flag", ">i4"),
        ("queue_offset", ">i8"),
        ("phy_offset", ">i8"),
        ("sys_flag", ">i4"),
        ("born_timestamp", ">i8"),
        ("born_host", "V8"),
        ("store_timestamp", ">i8"),
        ("store_host", "V8"),
        ("reconsume_times", ">i4"),
        ("prepared_transaction_offset", ">i8"),
        ("body_size", ">i4"),
    ]
)
assert RECORD_HEAD.itemsize == record_head(0).size
_STORE_TIMESTAMP_AT: Final = store_timestamp_position(0)
_BODY_AT: Final = record_head(0).size
_V6_EXTRA: Final = record_head(BORN_HOST_V6_FLAG).size - _BODY_AT
_ANY_V6: Final = BORN_HOST_V6_FLAG | STORE_HOST_V6_FLAG
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_SMALL_BATCH: Final = 24
"""Below this many records parsing one by one is faster (tests/bench/dispatch.py prints both)."""
_RUN_AFTER: Final = 4
_RUN_AFTER_MAX: Final = 256
_RUN_WORTH_IT: Final = 16
_RUN_GUESS: Final = 32
_RUN_GUESS_MAX: Final = 8192


class ScanEnd(enum.Enum):
    """Why a batch of records ended."""

    COMPLETE = "the view ends with a whole record"
    PARTIAL = "the view ends inside a record"
    BLANK = "a blank record: the rest of the file is unused"
    INVALID = "no valid record"


@dataclass(slots=True)
class RecordArrays:
    """The records of one view, in log order. All arrays but those of keys have `count` entries.

    consumed: bytes of the view that these records fill. end: what follows them; for INVALID
    `reason` says what is wrong there, for PARTIAL `needed` is the size of the incomplete record (0
    if even its size is incomplete).
    """

    count: int
    consumed: int
    end: ScanEnd
    reason: str
    needed: int
    phy_offsets: Int64Array
    sizes: Int64Array
    queue_ids: Int64Array
    queue_offsets: Int64Array
    sys_flags: Int64Array
    store_timestamps: Int64Array
    topics: list[bytes]
    """The different topics (UTF-8); topic_ids are positions in it."""
    topic_ids: Int64Array
    tags_codes: Int64Array
    """As in a consume queue unit: hash of TAGS, or the delivery time of a delayed record."""
    key_hashes: Int64Array
    """Index hash of every key (UNIQ_KEY, each of KEYS, TAGS) of every record that is indexed."""
    key_records: Int64Array
    """For every key the position of its record in the arrays above."""
    lmq_units: LmqUnits | None = None
    """Places in light queues; None: no record has one, or the settings have none."""
    inner_batches: dict[int, tuple[int, int]] | None = None
    """By position: queue offset and number of messages of those that are inner batches; None: no
    record has the flag."""
    in_batch_queues: NDArray[np.bool_] | None = None
    """For each record whether its unit is in a batch consume queue, as BatchConsumeQueueTable has
    found; None: of none."""

    def unit_records(self) -> Int64Array | None:
        """Positions of the records that get a consume queue unit; None = all of them.

        Transaction type NOT or COMMIT do, PREPARED and ROLLBACK do not; nor do those of batch
        consume queues.
        """
        kinds = self.sys_flags & TRANSACTION_MASK
        if self.in_batch_queues is None and not kinds.any():
            return None
        wanted = (kinds == 0) | (kinds == TRANSACTION_COMMIT)
        if self.in_batch_queues is not None:
            wanted &= ~self.in_batch_queues
        return np.flatnonzero(wanted)


@dataclass(slots=True)
class _Heads:
    """Columns of the fixed part, and positions of the variable parts in the view."""

    at: Int64Array
    sizes: Int64Array
    queue_ids: Int64Array
    queue_offsets: Int64Array
    phy_offsets: Int64Array
    sys_flags: Int64Array
    store_timestamps: Int64Array
    topic_at: Int64Array
    topic_sizes: Int64Array
    properties_at: Int64Array
    properties_sizes: Int64Array

    def cut(self, count: int) -> _Heads:
        """The first `count` records only."""
        return _Heads(*(getattr(self, name)[:count] for name in _HEAD_COLUMNS))


_HEAD_COLUMNS: Final = tuple(_Heads.__slots__)


def parse_records(view: memoryview, phy_offset: int, extractor: PropertyExtractor) -> RecordArrays:
    """The whole records at the start of `view`, whose first byte is `phy_offset` of the log.

    The view must not extend beyond the end of its file. Never raises for bad data: see
    RecordArrays.end. The result does not refer to the view.
    """
    at, stopped_at = walk_sizes(view)
    end, reason, needed = _judge_stop(view, stopped_at, phy_offset)
    if len(at) < _SMALL_BATCH:
        heads, wrong = _read_heads_plainly(view, at.tolist(), phy_offset)
    else:
        heads, wrong = _read_heads(view, at, phy_offset)
    if wrong is not None:
        stopped_at, end, reason, needed = wrong
    topics, topic_ids = group_topics(view, heads.topic_at, heads.topic_sizes)
    tags_codes, key_hashes, key_records = extractor.extract(
        view,
        heads.properties_at,
        heads.properties_sizes,
        topics,
        topic_ids,
        heads.store_timestamps,
    )
    rolled_back = (heads.sys_flags & TRANSACTION_MASK) == TRANSACTION_ROLLBACK
    if rolled_back.any():
        indexed = ~rolled_back[key_records]
        key_hashes, key_records = key_hashes[indexed], key_records[indexed]
    return RecordArrays(
        count=len(heads.at),
        consumed=stopped_at,
        end=end,
        reason=reason,
        needed=needed,
        phy_offsets=heads.phy_offsets,
        sizes=heads.sizes,
        queue_ids=heads.queue_ids,
        queue_offsets=heads.queue_offsets,
        sys_flags=heads.sys_flags,
        store_timestamps=heads.store_timestamps,
        topics=topics,
        topic_ids=topic_ids,
        tags_codes=tags_codes,
        key_hashes=key_hashes,
        key_records=key_records,
        lmq_units=(
            find_lmq_units(view, heads.properties_at, heads.properties_sizes, topics, topic_ids)
            if extractor.with_lmq
            else None
        ),
        inner_batches=_find_inner_batches(view, heads),
    )


def _find_inner_batches(view: memoryview, heads: _Heads) -> dict[int, tuple[int, int]] | None:
    flagged = heads.sys_flags & INNER_BATCH_FLAG
    if not flagged.any():
        return None
    found: dict[int, tuple[int, int]] = {}
    for row in np.flatnonzero(flagged).tolist():
        at = int(heads.properties_at[row])
        place = inner_place(bytes(view[at : at + int(heads.properties_sizes[row])]))
        found[row] = place or (int(heads.queue_offsets[row]), 1)
    return found


# -- where the records begin -------------------------------------------------------------------


def walk_sizes(view: memoryview) -> tuple[Int64Array, int]:
    """Positions of all whole records (and a long blank) in `view`, and where they end.

    Hot loop: 0.1 us a record of mixed sizes; runs of equal sizes are guessed and compared at once,
    at 0.01 us a record.
    """
    end = len(view)
    unpack = _INT32.unpack_from
    pieces: list[Int64Array] = []
    found: list[int] = []
    position = last = same = 0
    guess, patience = _RUN_GUESS, _RUN_AFTER
    while position + MIN_RECORD_SIZE <= end:
        (size,) = unpack(view, position)
        if size < MIN_RECORD_SIZE or position + size > end:
            break
        found.append(position)
        position += size
        if size != last:
            last, same = size, 0
            continue
        same += 1
        if same < patience:
            continue
        run = _run_of_size(view, position, size, guess)
        if run:
            pieces.append(np.array(found, np.int64))
            pieces.append(np.arange(position, position + run * size, size, dtype=np.int64))
            found = []
            position += run * size
        if run == guess:
            same, guess = patience - 1, min(guess * 4, _RUN_GUESS_MAX)
            continue
        same, guess = 0, _RUN_GUESS
        patience = _RUN_AFTER if run >= _RUN_WORTH_IT else min(patience * 2, _RUN_AFTER_MAX)
    pieces.append(np.array(found, np.int64))
    return (pieces[0] if len(pieces) == 1 else np.concatenate(pieces)), position


def walk_records(view: memoryview) -> tuple[Int64Array, int]:
    """Like walk_sizes, but a blank at the end is not a record: the walk ends before it."""
    at, stopped = walk_sizes(view)
    if len(at) and is_blank_at(view, int(at[-1])):
        return at[:-1], int(at[-1])
    return at, stopped


def _run_of_size(view: memoryview, position: int, size: int, most: int) -> int:
    """How many records of exactly `size` bytes follow at `position`, at most `most`."""
    count = min((len(view) - position) // size, most)
    if count == 0:
        return 0
    sizes = np.ndarray((count,), ">i4", view, position, (size,))
    different = sizes != size
    first = int(different.argmax())
    return first if different[first] else count


def _judge_stop(view: memoryview, at: int, phy_offset: int) -> tuple[ScanEnd, str, int]:
    left = len(view) - at
    if left == 0:
        return ScanEnd.COMPLETE, "", 0
    if left < SIZE_AND_MAGIC.size:
        return ScanEnd.PARTIAL, "", 0
    size, magic = SIZE_AND_MAGIC.unpack_from(view, at)
    if magic == MAGIC_BLANK:
        return ScanEnd.BLANK, "", 0
    if magic not in (MAGIC_V1, MAGIC_V2):
        return ScanEnd.INVALID, f"magic {magic:#010x} at {phy_offset + at}", 0
    if size < MIN_RECORD_SIZE:
        return ScanEnd.INVALID, f"record size {size} at {phy_offset + at}", 0
    return ScanEnd.PARTIAL, "", size


# -- the heads ---------------------------------------------------------------------------------

_Wrong = tuple[int, ScanEnd, str, int]


def _wrong(view: memoryview, at: int, phy_offset: int) -> _Wrong:
    """What is wrong with the record (or long blank) at `at`."""
    size, magic = SIZE_AND_MAGIC.unpack_from(view, at)
    if magic == MAGIC_BLANK:
        return at, ScanEnd.BLANK, "", 0
    where = phy_offset + at
    if magic not in (MAGIC_V1, MAGIC_V2):
        return at, ScanEnd.INVALID, f"magic {magic:#010x} at {where}", 0
    (stored,) = _INT64.unpack_from(view, at + PHY_OFFSET_AT)
    if stored != where:
        return at, ScanEnd.INVALID, f"the record at {where} says that it is at {stored}", 0
    reason = f"the record at {where} has size {size}, its parts do not add up to it"
    return at, ScanEnd.INVALID, reason, 0


def _byte_strided(view: memoryview, dtype: str) -> NDArray[np.generic]:
    """`view` as an array of `dtype` beginning at every byte: index it with byte positions."""
    kind = np.dtype(dtype)
    return np.ndarray((max(len(view) - kind.itemsize + 1, 0),), kind, view, 0, (1,))


def _read_heads(view: memoryview, at: Int64Array, phy_offset: int) -> tuple[_Heads, _Wrong | None]:
    raw = _byte_strided(view, f"V{RECORD_HEAD.itemsize}")[at].view(RECORD_HEAD)
    last = len(view) - 4
    sizes = raw["total_size"].astype(np.int64)
    sys_flags = raw["sys_flag"].astype(np.int64)
    magics = raw["magic"].astype(np.int64)
    store_timestamps = raw["store_timestamp"].astype(np.int64)
    body_sizes = raw["body_size"].astype(np.int64)
    topic_at = at + _BODY_AT
    if (sys_flags & _ANY_V6).any():
        born_extra = (sys_flags & BORN_HOST_V6_FLAG) // BORN_HOST_V6_FLAG * _V6_EXTRA
        store_extra = (sys_flags & STORE_HOST_V6_FLAG) // STORE_HOST_V6_FLAG * _V6_EXTRA
        topic_at += born_extra + store_extra
        times_at = np.minimum(at + _STORE_TIMESTAMP_AT + born_extra, last - 4)
        store_timestamps = _byte_strided(view, ">i8")[times_at].astype(np.int64)
        body_sizes = _byte_strided(view, ">i4")[np.minimum(topic_at - 4, last)].astype(np.int64)
    topic_at += body_sizes
    ends = at + sizes
    # A wrong length must not read outside the view; it is detected below.
    bad = (body_sizes < 0) | (topic_at + 3 > ends)
    is_v2 = magics == MAGIC_V2
    topic_sizes = _byte_strided(view, "i1")[np.clip(topic_at, 0, last + 3)].astype(np.int64)
    topic_at += 1
    if is_v2.any():
        wide = _byte_strided(view, ">i2")[np.clip(topic_at - 1, 0, last + 2)].astype(np.int64)
        topic_sizes = np.where(is_v2, wide, topic_sizes)
        topic_at += is_v2
    properties_at = topic_at + topic_sizes + 2
    lengths_at = np.clip(properties_at - 2, 0, last + 2)
    properties_sizes = _byte_strided(view, ">i2")[lengths_at].astype(np.int64)
    phy_offsets = raw["phy_offset"].astype(np.int64)
    bad |= (topic_sizes < 0) | (properties_sizes < 0) | (properties_at + properties_sizes != ends)
    bad |= (phy_offsets - at != phy_offset) | ((magics != MAGIC_V1) & ~is_v2)
    heads = _Heads(
        at=at,
        sizes=sizes,
        queue_ids=raw["queue_id"].astype(np.int64),
        queue_offsets=raw["queue_offset"].astype(np.int64),
        phy_offsets=phy_offsets,
        sys_flags=sys_flags,
        store_timestamps=store_timestamps,
        topic_at=topic_at,
        topic_sizes=topic_sizes,
        properties_at=properties_at,
        properties_sizes=properties_sizes,
    )
    if not bad.any():
        return heads, None
    first = int(bad.argmax())
    return heads.cut(first), _wrong(view, int(at[first]), phy_offset)


def _read_heads_plainly(
    view: memoryview, at: list[int], phy_offset: int
) -> tuple[_Heads, _Wrong | None]:
    """The same for a few records, one by one."""
    rows: list[tuple[int, ...]] = []
    wrong: _Wrong | None = None
    for position in at:
        row = read_record_head(view, position, phy_offset)
        if row is None:
            wrong = _wrong(view, position, phy_offset)
            break
        rows.append(row)
    columns = np.array(rows, np.int64).reshape(len(rows), len(_HEAD_COLUMNS)).T.copy()
    return _Heads(*columns), wrong


def read_record_head(view: memoryview, at: int, phy_offset: int) -> tuple[int, ...] | None:
    """One row of _Heads: the record at `at` of a view that begins at `phy_offset` of the log; None
    when it is no whole, right record."""
    (sys_flag,) = _INT32.unpack_from(view, at + SYS_FLAG_AT)
    head = record_head(sys_flag)
    if at + head.size > len(view):
        return None
    fields = head.unpack_from(view, at)
    size, magic, body_size = fields[0], fields[1], fields[14]
    end = at + size
    topic_at = at + head.size + body_size
    if body_size < 0 or topic_at + 3 > end or fields[6] != phy_offset + at:
        return None
    if magic == MAGIC_V1:
        topic_size = view[topic_at]
        topic_at += 1
    elif magic == MAGIC_V2:
        (topic_size,) = TOPIC_LENGTH_V2.unpack_from(view, topic_at)
        topic_at += 2
    else:
        return None
    properties_at = topic_at + topic_size + 2
    most = TOPIC_LIMIT if magic == MAGIC_V1 else end - topic_at
    if not 0 <= topic_size <= most or properties_at > end:
        return None
    (properties_size,) = PROPERTIES_LENGTH.unpack_from(view, properties_at - 2)
    if properties_size < 0 or properties_at + properties_size != end:
        return None
    return (
        at,
        size,
        fields[3],
        fields[5],
        fields[6],
        sys_flag,
        fields[10],
        topic_at,
        topic_size,
        properties_at,
        properties_size,
    )


# -- topics ------------------------------------------------------------------------------------


class _Numbering(dict[bytes, int]):
    """Numbers its keys in the order of their first use."""

    def __missing__(self, key: bytes) -> int:
        number = self[key] = len(self)
        return number


def group_topics(
    view: memoryview, topic_at: Int64Array, topic_sizes: Int64Array
) -> tuple[list[bytes], Int64Array]:
    """The different topics and, for each record, which of them it has; whose topics begin at
    `topic_at`."""
    count = len(topic_at)
    numbering = _Numbering()
    ids = np.zeros(count, np.int64)
    if count < _SMALL_BATCH:
        places = zip(topic_at.tolist(), topic_sizes.tolist(), strict=True)
        for position, (at, size) in enumerate(places):
            ids[position] = numbering[bytes(view[at : at + size])]
        return list(numbering), ids
    for size in np.flatnonzero(np.bincount(topic_sizes)).tolist():
        rows = np.flatnonzero(topic_sizes == size)
        ids[rows] = _number_topics(view, topic_at[rows], size, numbering)
    return list(numbering), ids


def _number_topics(
    view: memoryview, at: Int64Array, size: int, numbering: _Numbering
) -> Int64Array | int:
    """Numbers of the topics of `size` bytes at the positions `at`; one number if all are equal."""
    if size == 0:
        return numbering[b""]
    names = _byte_strided(view, f"V{size}")[at]
    table = names.view(np.uint8).reshape(len(at), size)
    if (table.min(axis=0) == table.max(axis=0)).all():
        return numbering[table[0].tobytes()]
    # "S" drops trailing zero bytes; names of one length still differ without them.
    spelled = [name.ljust(size, b"\0") for name in names.view(f"S{size}").tolist()]
    return np.fromiter(map(numbering.__getitem__, spelled), np.int64, len(at))
