"""LmqUnits: the places of many records in light queues, found in one chunk of the log.

Used by record_arrays on its caller's thread (dispatch, recovery, rebuild), only where the settings
have light queues. One search over the chunk's bytes finds the records that name any; each of those
is read one by one. It knows no file and no setting. Corresponds to RocketMQ's
ConsumeQueue.multiDispatchLmqQueue.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from store.lmq_places import MULTI_QUEUE_OFFSET, lmq_places, topic_allows_lmq
from store.message_properties import NAME_END

Int64Array = NDArray[np.int64]
_MARK: Final = MULTI_QUEUE_OFFSET + NAME_END


@dataclass(slots=True)
class LmqUnits:
    """One entry for each place of a record in a light queue, in log order."""

    queues: list[bytes]
    """The different light queues (UTF-8); queue_ids are positions in it."""
    numbers: Int64Array
    """Position in `queues` of each entry."""
    records: Int64Array
    """Position of each entry's record in the arrays."""
    queue_offsets: Int64Array


def find_lmq_units(
    view: memoryview,
    properties_at: Int64Array,
    properties_sizes: Int64Array,
    topics: list[bytes],
    topic_ids: Int64Array,
) -> LmqUnits | None:
    """The places of the records whose properties lie there in `view`; None if they have none."""
    allowed = [topic_allows_lmq(str(topic, "utf-8", "replace")) for topic in topics]
    if not any(allowed) or not len(properties_at):
        return None
    found = _Found({}, [], [], [])
    begin = int(properties_at[0])
    data = bytes(view[begin : int(properties_at[-1] + properties_sizes[-1])])
    hit = data.find(_MARK)
    while hit >= 0:
        row = int(np.searchsorted(properties_at, hit + begin, "right")) - 1
        start = int(properties_at[row]) - begin
        end = start + int(properties_sizes[row])
        if hit >= end:
            # In a body: on to the properties behind it.
            hit = data.find(_MARK, hit + 1)
            continue
        if allowed[int(topic_ids[row])]:
            found.add(row, lmq_places(data[start:end]))
        hit = data.find(_MARK, end)
    return found.units()


@dataclass(slots=True)
class _Found:
    number_of: dict[str, int]
    numbers: list[int]
    records: list[int]
    queue_offsets: list[int]

    def add(self, row: int, places: dict[str, int]) -> None:
        for name, queue_offset in places.items():
            self.numbers.append(self.number_of.setdefault(name, len(self.number_of)))
            self.records.append(row)
            self.queue_offsets.append(queue_offset)

    def units(self) -> LmqUnits | None:
        if not self.numbers:
            return None
        return LmqUnits(
            queues=[name.encode("utf-8", "replace") for name in self.number_of],
            numbers=np.array(self.numbers, np.int64),
            records=np.array(self.records, np.int64),
            queue_offsets=np.array(self.queue_offsets, np.int64),
        )
