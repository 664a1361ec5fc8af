"""Received records as fields and as columns, for those who judge them.

Pure functions over borrowed buffers. `read_good_records` finds, in whole columns, the records at
the start of some bytes whose parts surely add up (1.1 us a record with its CRC, 0.1 without);
`read_fields` takes one record apart. What a field may hold is not known here; the layout is that of
store/message_codec.py.

Tested by tests/ha/test_record_expectations.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from store.crc32 import crc32_for
from store.inner_batch import INNER_BATCH_FLAG, inner_num
from store.message_codec import (
    BODY_CRC_MASK,
    BORN_HOST_V6_FLAG,
    MAGIC_V1,
    PROPERTIES_LENGTH,
    STORE_HOST_V6_FLAG,
    SYS_FLAG_AT,
    record_head,
)
from store.record_arrays import RECORD_HEAD, Int64Array, walk_sizes

_INT32: Final = Struct(">i")
_ANY_V6: Final = BORN_HOST_V6_FLAG | STORE_HOST_V6_FLAG


def _head_with_host_parts() -> np.dtype[np.void]:
    """RECORD_HEAD, the layout of a record with IPv4 hosts up to its body, with the port apart."""
    parts = {
        "born_host": [("born_address", "V4"), ("born_port", ">i4")],
        "store_host": [("store_host", ">i8")],
    }
    fields: list[tuple[str, str]] = []
    for name in RECORD_HEAD.names or ():
        fields += parts.get(name, [(name, RECORD_HEAD[name].str)])
    return np.dtype(fields)


HEAD: Final = _head_with_host_parts()
assert HEAD.itemsize == RECORD_HEAD.itemsize


class RecordFields(NamedTuple):
    """The judged fields of one record. Hosts: the bytes as stored, address and port."""

    topic: bytes
    body_crc: int
    queue_id: int
    queue_offset: int
    phy_offset: int
    sys_flag: int
    born_timestamp: int
    born_port: int
    store_timestamp: int
    store_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    messages: int = 1
    """Queue offsets that it uses up."""


class RecordColumns(NamedTuple):
    """Records that follow each other, with IPv4 hosts. heads: of HEAD."""

    heads: NDArray[Any]
    topics: Sequence[bytes]
    """The different topics; topic_ids are positions in it."""
    topic_ids: Int64Array

    def row(self, index: int) -> RecordFields:
        """One record."""
        head = self.heads[index]
        return RecordFields(
            topic=self.topics[int(self.topic_ids[index])],
            store_host=host_bytes(head),
            **{name: int(head[name]) for name in _PLAIN_FIELDS},
        )


_PLAIN_FIELDS: Final = tuple(
    name for name in RecordFields._fields if name not in ("topic", "store_host", "messages")
)


def host_bytes(head: Any) -> bytes:
    """The storeHost of one row of HEAD, as it is stored."""
    return int(head["store_host"]).to_bytes(8, "big", signed=True)


def read_fields(record: memoryview) -> RecordFields:
    """What is judged of a record whose parts add up."""
    (sys_flag,) = _INT32.unpack_from(record, SYS_FLAG_AT)
    head = record_head(sys_flag)
    fields = head.unpack_from(record)
    length_size = 1 if fields[1] == MAGIC_V1 else 2
    length_at = head.size + fields[14]
    topic_at = length_at + length_size
    topic_size = int.from_bytes(record[length_at:topic_at], "big")
    properties_at = topic_at + topic_size + 2
    return RecordFields(
        bytes(record[topic_at : topic_at + topic_size]),
        body_crc=fields[2],
        queue_id=fields[3],
        queue_offset=fields[5],
        phy_offset=fields[6],
        sys_flag=sys_flag,
        born_timestamp=fields[8],
        born_port=_INT32.unpack(fields[9][-4:])[0],
        store_timestamp=fields[10],
        store_host=fields[11],
        reconsume_times=fields[12],
        prepared_transaction_offset=fields[13],
        messages=(
            inner_num(sys_flag, bytes(record[properties_at : fields[0]]))
            if sys_flag & INNER_BATCH_FLAG
            else 1
        ),
    )


# -- many records at once ----------------------------------------------------------------------

_NONE: Final = (
    RecordColumns(np.empty(0, HEAD), (), np.empty(0, np.int64)),
    np.empty(0, np.int64),
)


def read_good_records(
    view: memoryview, phy_offset: int, *, least: int, check_crc: bool
) -> tuple[RecordColumns, Int64Array]:
    """The records at the start of `view`, which lies at `phy_offset`, whose parts surely add up,
    and where in it each ends; none if there are fewer than `least`. Only V1 with IPv4 hosts is
    known here, and no inner batches."""
    at, _ = walk_sizes(view)
    if len(at) < least:
        return _NONE
    heads = _from_every_byte(view, f"V{HEAD.itemsize}")[at].view(HEAD)
    ends = at + heads["total_size"]
    is_good = (heads["magic"] == MAGIC_V1) & (heads["sys_flag"] & INNER_BATCH_FLAG == 0)
    is_good &= heads["phy_offset"] == at + phy_offset
    is_good &= heads["sys_flag"] & _ANY_V6 == 0
    topic_at = at + (HEAD.itemsize + 1) + heads["body_size"]
    sizes = _add_up(view, is_good, topic_at, ends, heads["body_size"])
    if not is_good.all():
        first = int(is_good.argmin())
        heads, ends = heads[:first], ends[:first]
        topic_at, sizes = topic_at[:first], sizes[:first]
    topics, topic_ids, without_zero = _group_topics(view, topic_at, sizes)
    is_good = without_zero[topic_ids]
    if check_crc:
        is_good &= _bodies_are_whole(view, heads, topic_at)
    if not is_good.all():
        first = int(is_good.argmin())
        heads, ends, topic_ids = heads[:first], ends[:first], topic_ids[:first]
    return RecordColumns(heads, topics, topic_ids), ends


def _from_every_byte(view: memoryview, dtype: str) -> NDArray[Any]:
    """`view` as an array of `dtype` that begins at every byte: its indices are positions."""
    kind = np.dtype(dtype)
    return np.ndarray((len(view) - kind.itemsize + 1,), kind, view, 0, (1,))


def _add_up(
    view: memoryview,
    is_good: NDArray[np.bool_],
    topic_at: Int64Array,
    ends: Int64Array,
    body_sizes: NDArray[Any],
) -> Int64Array:
    """Take from `is_good` the records that body, topic and properties do not fill; the topics'
    sizes."""
    least = 1 + PROPERTIES_LENGTH.size
    is_good &= (body_sizes >= 0) & (topic_at - 1 + least <= ends)
    inside = np.where(is_good, topic_at, ends - least + 1)
    sizes: Int64Array = _from_every_byte(view, "i1")[inside - 1].astype(np.int64)
    lengths_at = inside + sizes
    is_good &= (sizes >= 0) & (lengths_at + PROPERTIES_LENGTH.size <= ends)
    lengths_at = np.where(is_good, lengths_at, ends - PROPERTIES_LENGTH.size)
    lengths = _from_every_byte(view, ">i2")[lengths_at].astype(np.int64)
    is_good &= (lengths >= 0) & (lengths_at + PROPERTIES_LENGTH.size + lengths == ends)
    return sizes


def _group_topics(
    view: memoryview, topic_at: Int64Array, sizes: Int64Array
) -> tuple[list[bytes], Int64Array, NDArray[np.bool_]]:
    """The different topics, which of them each record has, and which have no zero byte."""
    numbers: dict[bytes, int] = {}
    ids = np.empty(len(topic_at), np.int64)
    for size in np.flatnonzero(np.bincount(sizes)).tolist():
        rows = np.flatnonzero(sizes == size)
        if not size:
            ids[rows] = numbers.setdefault(b"", len(numbers))
            continue
        names = _from_every_byte(view, f"V{size}")[topic_at[rows]]
        first = names[0].tobytes()
        if bytes(names.data) == first * len(rows):
            ids[rows] = numbers.setdefault(first, len(numbers))
            continue
        # "S" drops trailing zero bytes; names of one length still differ without them.
        spelled = [name.ljust(size, b"\0") for name in names.view(f"S{size}").tolist()]
        for name in set(spelled):
            numbers[name] = len(numbers)
        ids[rows] = np.fromiter(map(numbers.__getitem__, spelled), np.int64, len(rows))
    topics = list(numbers)
    return topics, ids, np.array([0 not in topic for topic in topics], np.bool_)


def _bodies_are_whole(
    view: memoryview, heads: NDArray[Any], topic_at: Int64Array
) -> NDArray[np.bool_]:
    """Whether the CRC of each body is the stored one; a body without a byte has none."""
    sizes = heads["body_size"]
    ends = topic_at - 1
    bodies = map(view.__getitem__, map(slice, (ends - sizes).tolist(), ends.tolist()))
    crc32 = crc32_for(int(sizes.mean()) if len(sizes) else 0)
    crcs = np.fromiter(map(crc32, bodies), np.int64, len(heads))
    found: NDArray[np.bool_] = (crcs & BODY_CRC_MASK == heads["body_crc"]) | (sizes == 0)
    return found
