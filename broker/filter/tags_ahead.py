"""TagsAhead: which tags the newest messages of a queue have, worked out once for all held pulls.

Runs on the loop thread. A message wakes every pull that is held for its queue; most of those with a
tag expression want none of it. Their common question (which tags stand between here and the queue's
end?) is answered once, so that such a pull costs a set comparison instead of a read of its own. It
knows neither pulls nor connections.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.filter.subscription_filter import tag_code
from store.stored_units import CQ_UNIT, CQ_UNIT_SIZE

_MOST_UNITS: Final = 32
"""Further behind its queue's end than this, a pull is run."""


ReadUnits = Callable[[str, int, int, int], bytes]
"""(topic, queue id, queue offset, count) -> up to `count` units from there on, fewer before one
that cannot be right."""


class TagsAhead:
    """See the module. Owned by: the loop thread."""

    def __init__(self, read_units: ReadUnits) -> None:
        self._read_units = read_units
        self._asked: tuple[str, int, int, int, int] | None = None
        self._tags: frozenset[int] | None = None

    def none_of(
        self,
        codes: frozenset[int],
        topic: str,
        queue_id: int,
        queue_offset: int,
        high: int,
        generation: int,
    ) -> bool:
        """Whether no unit in [queue_offset, high) has one of `codes`. False also where that is not
        known: too many units, or one among them that cannot be right. generation: another number
        when the queue's files are others."""
        asked = topic, queue_id, queue_offset, high, generation
        if asked != self._asked:
            self._tags = self._read(topic, queue_id, queue_offset, high)
            self._asked = asked
        return self._tags is not None and codes.isdisjoint(self._tags)

    def _read(
        self, topic: str, queue_id: int, queue_offset: int, high: int
    ) -> frozenset[int] | None:
        count = high - queue_offset
        if not 0 < count <= _MOST_UNITS:
            return None
        raw = self._read_units(topic, queue_id, queue_offset, count)
        if len(raw) != count * CQ_UNIT_SIZE:
            return None
        return frozenset(tag_code(tags) for _phy, _size, tags in CQ_UNIT.iter_unpack(raw))
