"""Stored records as the columns of `rocketmq`, many at once: for the records of a log's file.

Executors. A field of many records becomes an Arrow array in one step: where it begins and ends in
the window are the offsets of an array whose every other value is taken. The rules are those of
rows.py, which makes the same columns one message at a time, and what is not ordinary goes its way
(log_rows.py): a test compares both. Records are good, but what is in them came from any client.

Tested by tests/spark/sources/test_log_rows.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark.sources.rows import END_MS, FIRST_MS, KEYS, TAGS, UNIQ_KEY, host_text
from store.message_codec import encode_message_id
from store.record_arrays import RECORD_HEAD, Int64Array
from store.record_walk import RecordParts

_NAME_END: Final = 1
_PAIR_END: Final = 2
_PROPERTIES_AT: Final = 2
"""Behind the topic: its own size comes first."""


@dataclass(slots=True)
class Ordinary:
    """Records whose hosts are IPv4 and whose bodies are as they were sent. `heads`: RECORD_HEAD of
    each; positions are of the view."""

    view: memoryview
    parts: RecordParts
    heads: NDArray[np.void]

    def rows(self, chosen: NDArray[np.bool_] | Int64Array) -> Ordinary:
        """These of them."""
        return Ordinary(self.view, self.parts.rows(chosen), self.heads[chosen])

    @property
    def topics(self) -> pa.Array:
        """The topics, dictionary-encoded."""
        at = self.parts.topic_at
        return texts(slices(self.view, at, at + self.parts.topic_sizes)).dictionary_encode()


def read_heads(view: memoryview, parts: RecordParts) -> NDArray[np.void]:
    """RECORD_HEAD of each record; what is behind a born host that is IPv6 is wrong in it."""
    size = RECORD_HEAD.itemsize
    whole = np.ndarray((max(len(view) - size + 1, 0),), f"V{size}", view, 0, (1,))
    return whole[parts.at].view(RECORD_HEAD)


# -- arrays ------------------------------------------------------------------------------------


def slices(data: Any, starts: Int64Array, ends: Int64Array) -> pa.Array:
    """data[start:end] for each, copied, as an array of binary. They lie behind each other."""
    places = np.empty(2 * len(starts), np.int32)
    places[0::2], places[1::2] = starts, ends
    if not len(starts):
        return pa.array([], pa.binary())
    buffers = [None, pa.py_buffer(places), pa.py_buffer(data)]
    both = pa.Array.from_buffers(pa.binary(), len(places) - 1, buffers)
    return both.take(pa.array(np.arange(0, len(places), 2, dtype=np.int64)))


def texts(raw: pa.Array) -> pa.Array:
    """Bytes as text; what is not UTF-8 is replaced, as rows.py does."""
    found = raw.view(pa.string())
    try:
        found.validate(full=True)
    except pa.ArrowInvalid:
        return pa.array([str(value, "utf-8", "replace") for value in raw.to_pylist()], pa.string())
    return found


def _numbers(name: str) -> Callable[[Ordinary, Properties], pa.Array]:
    def make(records: Ordinary, _: Properties) -> pa.Array:
        column = records.heads[name]
        return pa.array(column.astype(column.dtype.newbyteorder("=")))

    return make


def _times(name: str) -> Callable[[Ordinary, Properties], pa.Array]:
    def make(records: Ordinary, _: Properties) -> pa.Array:
        times = records.heads[name].astype(np.int64)
        outside = (times < FIRST_MS) | (times >= END_MS)
        times[outside] = 0
        return pa.array(times * 1000, pa.int64(), mask=outside)

    return make


def _hosts(name: str) -> Callable[[Ordinary, Properties], pa.Array]:
    def make(records: Ordinary, _: Properties) -> pa.Array:
        hosts, numbers = np.unique(
            np.ascontiguousarray(records.heads[name]).view("u8"), return_inverse=True
        )
        names = pa.array([host_text(host.tobytes()) for host in hosts], pa.string())
        return names.take(pa.array(numbers))

    return make


def _topic(records: Ordinary, _: Properties) -> pa.Array:
    at = records.parts.topic_at
    return texts(slices(records.view, at, at + records.parts.topic_sizes))


def _body(records: Ordinary, _: Properties) -> pa.Array:
    return slices(records.view, records.parts.body_at, records.parts.body_end)


def _nothing(records: Ordinary, _: Properties) -> pa.Array:
    return pa.nulls(len(records.heads), pa.string())


_HEX: Final = np.frombuffer(b"0123456789ABCDEF", np.uint8)


def _offset_message_ids(records: Ordinary, _: Properties) -> pa.Array:
    raw = np.empty((len(records.heads), 16), np.uint8)
    for name, low in (("store_host", 0), ("phy_offset", 8)):
        column = np.ascontiguousarray(records.heads[name])
        raw[:, low : low + 8] = column.view(np.uint8).reshape(-1, 8)
    digits = np.empty((len(raw), 32), np.uint8)
    digits[:, 0::2], digits[:, 1::2] = _HEX[raw >> 4], _HEX[raw & 15]
    places = np.arange(0, 32 * len(raw) + 1, 32, dtype=np.int32)
    buffers = [None, pa.py_buffer(places), pa.py_buffer(digits)]
    return pa.Array.from_buffers(pa.string(), len(raw), buffers)


def _message_ids(records: Ordinary, properties: Properties) -> pa.Array:
    """The sender's unique key, where there is none the id of the place."""
    found = properties.values_of(UNIQ_KEY)
    if not found.null_count:
        return found
    missing = found.is_null()
    rows = np.flatnonzero(missing.to_numpy(zero_copy_only=False))
    heads = records.heads[rows]
    hosts, offsets = heads["store_host"].tolist(), heads["phy_offset"].tolist()
    ids = [encode_message_id(host, at) for host, at in zip(hosts, offsets, strict=True)]
    return pc.replace_with_mask(found, missing, pa.array(ids, pa.string()))


# -- properties --------------------------------------------------------------------------------


class Properties:
    """The properties of many records: names and values, and which record each is of."""

    def __init__(self, raw: pa.Array) -> None:
        """raw: as they are stored."""
        self._count = len(raw)
        _, places, data = raw.buffers()
        ends = np.frombuffer(places, np.int32)[1 : len(raw) + 1].astype(np.int64)
        found = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
        found = found[: int(ends[-1])] if len(ends) else found[:0]
        starts, name_ends, value_ends, rows = _pairs(found, ends)
        names = texts(slices(found, starts, name_ends))
        self.values = texts(slices(found, name_ends + 1, value_ends))
        self.rows = rows
        coded = names.dictionary_encode()
        self._names: list[str] = coded.dictionary.to_pylist()
        self._codes = coded.indices.to_numpy().astype(np.int64)
        self._drop_doubles()

    def _drop_doubles(self) -> None:
        """Of equal names of a record the last counts."""
        both = self.rows * max(len(self._names), 1) + self._codes
        _, last = np.unique(both[::-1], return_index=True)
        if len(last) < len(both):
            kept = np.sort(len(both) - 1 - last)
            self.values = self.values.take(pa.array(kept))
            self.rows, self._codes = self.rows[kept], self._codes[kept]

    def values_of(self, name: str) -> pa.Array:
        """The value of `name` for each record, null without one."""
        if name not in self._names:
            return pa.nulls(self._count, pa.string())
        pairs = np.flatnonzero(self._codes == self._names.index(name))
        rows = self.rows[pairs]
        if len(rows) == self._count:
            return self.values.take(pa.array(pairs))
        places = np.zeros(self._count, np.int64)
        places[rows] = pairs
        without = np.ones(self._count, np.bool_)
        without[rows] = False
        return self.values.take(pa.array(places, mask=without))

    def maps(self) -> pa.Array:
        """All of them: a map for each record."""
        places = np.zeros(self._count + 1, np.int32)
        np.cumsum(np.bincount(self.rows, minlength=self._count), out=places[1:])
        names = pa.array(self._names, pa.string()).take(pa.array(self._codes))
        return pa.MapArray.from_arrays(pa.array(places), names, self.values)


def _pairs(
    data: NDArray[np.uint8], ends: Int64Array
) -> tuple[Int64Array, Int64Array, Int64Array, Int64Array]:
    """Where names begin and end and values end in `data`, and the row of each; rows end at `ends`.
    A piece without a name or a value is none (store.message_properties.parse_properties)."""
    marks = np.flatnonzero(data == _PAIR_END)
    piece_ends = np.concatenate([ends, marks])
    order = np.argsort(piece_ends, kind="stable")
    piece_ends = piece_ends[order]
    is_row_end = order < len(ends)
    starts = np.zeros(len(piece_ends), np.int64)
    starts[1:] = np.where(is_row_end, piece_ends, piece_ends + 1)[:-1]
    rows: Int64Array = np.cumsum(is_row_end) - is_row_end
    middles = np.append(np.flatnonzero(data == _NAME_END), len(data))
    name_ends = middles[np.searchsorted(middles, np.minimum(starts, len(data)))]
    good = (name_ends > starts) & (name_ends + 1 < piece_ends)
    return starts[good], name_ends[good], piece_ends[good], rows[good]


NO_PROPERTIES: Final = Properties(pa.array([b""], pa.binary()))
"""For columns that need none."""


def read_properties(records: Ordinary) -> Properties:
    """The properties of all of them."""
    parts = records.parts
    starts = parts.topic_at + parts.topic_sizes + _PROPERTIES_AT
    return Properties(slices(records.view, starts, parts.end))


Maker = Callable[[Ordinary, Properties], pa.Array]
MAKERS: Final[dict[str, Maker]] = {
    "topic": _topic,
    "broker_name": _nothing,
    "queue_id": _numbers("queue_id"),
    "queue_offset": _numbers("queue_offset"),
    "message_id": _message_ids,
    "offset_message_id": _offset_message_ids,
    "keys": lambda _, properties: properties.values_of(KEYS),
    "tags": lambda _, properties: properties.values_of(TAGS),
    "properties": lambda _, properties: properties.maps(),
    "body": _body,
    "body_problem": _nothing,
    "born_timestamp": _times("born_timestamp"),
    "born_host": _hosts("born_host"),
    "store_timestamp": _times("store_timestamp"),
    "store_host": _hosts("store_host"),
    "reconsume_times": _numbers("reconsume_times"),
    "flag": _numbers("flag"),
    "sys_flag": _numbers("sys_flag"),
    "physical_offset": _numbers("phy_offset"),
}
"""One for each column of rows.COLUMNS."""
WITH_PROPERTIES: Final = frozenset({"message_id", "keys", "tags", "properties"})
"""Columns for which the properties are read."""
