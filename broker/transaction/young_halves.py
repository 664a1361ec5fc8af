"""YoungHalves: half messages that were stored a moment ago, for the commits that follow.

In memory only; owned by the loop thread of `remoting`. Most halves are ended within a second: who
commits one of these need not read it from the log again. The oldest go when there are more than
16 MiB; those, and what was stored before the start, are read. Nothing is kept before somebody has
looked for one (with access control nobody does). Knows neither log nor requests, and not which
halves have ended.
"""

from __future__ import annotations

from typing import Final

from broker.transaction.young_half import YoungHalf
from store.message_codec import TRANSACTION_COMMIT
from store.record import Record

LIMIT: Final = 16 << 20
_OVERHEAD: Final = 600
"""Bytes that an entry takes besides body and properties."""


class YoungHalves:
    """See the module. Owned by: the loop thread."""

    def __init__(self, limit: int = LIMIT) -> None:
        """limit: bytes."""
        self._limit = limit
        self._halves: dict[int, YoungHalf] = {}
        """By queue offset, the oldest first."""
        self._size = 0
        self._is_wanted = False

    def __len__(self) -> int:
        return len(self._halves)

    def add(
        self, queue_offset: int, phy_offset: int, topic: str, queue_id: int, record: Record
    ) -> None:
        """A half was stored, of a message for a queue of `topic`. record: what was put, without
        transaction bits and with this broker's store host; its body may be a view."""
        if not self._is_wanted:
            return
        halves = self._halves
        if queue_offset in halves:
            self.drop(queue_offset)
        size = len(record.body) + len(record.properties) + _OVERHEAD
        # Made here, where the body has to be copied anyway: 0.7 us less than a copy and a record.
        committed = Record(
            queue_id=queue_id,
            flag=record.flag,
            sys_flag=record.sys_flag | TRANSACTION_COMMIT,
            born_timestamp=record.born_timestamp,
            born_host=record.born_host,
            reconsume_times=record.reconsume_times,
            prepared_transaction_offset=phy_offset,
            body=bytes(record.body),
            properties=record.properties,
        )
        halves[queue_offset] = YoungHalf(phy_offset, topic, committed, size)
        self._size += size
        while self._size > self._limit:
            self.drop(next(iter(halves)))

    def find(self, queue_offset: int) -> YoungHalf | None:
        """The half at `queue_offset` of the half queue, if it is known."""
        self._is_wanted = True
        return self._halves.get(queue_offset)

    def clear(self) -> None:
        """Forget all."""
        self._halves.clear()
        self._size = 0

    def drop(self, queue_offset: int) -> None:
        """Forget a half that is known."""
        self._size -= self._halves.pop(queue_offset).size
