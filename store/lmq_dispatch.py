"""LmqDispatch: gives records their places in light message queues before they are written.

Used by CommitLog on the loop thread of `remoting`, the log's only writer, where the settings have
light queues. A record whose properties name light queues (INNER_MULTI_DISPATCH) gets the next queue
offset of each, as INNER_MULTI_QUEUE_OFFSET in its properties; the offsets count once the record has
its place. Corresponds to RocketMQ's LmqDispatch (5.x) and MultiDispatch (4.9).

Tested by tests/store/test_lmq_units.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from store.lmq_places import (
    LMQ_QUEUE_ID,
    MULTI_DISPATCH,
    MULTI_QUEUE_OFFSET,
    is_lmq,
    is_lmq_name,
    split_names,
    topic_allows_lmq,
)
from store.message_properties import (
    NAME_END,
    PAIR_END,
    PROPERTIES_LIMIT,
    append_properties,
    find_property,
)
from store.queue_room import QueueRoom

if TYPE_CHECKING:
    from store.commit_log import TopicLog

log = logging.getLogger(__name__)

_MARK: Final = MULTI_DISPATCH + NAME_END
_OFFSET_DIGITS: Final = 20
_BROKERS_OWN: Final = 768
"""What a broker adds before the offsets: CLUSTER and REAL_TOPIC (names of at most 255 bytes),
REAL_QID, DELAY, TIMER_OUT_MS and what a timer adds when it is due."""


class LmqDispatch:
    """The light queues of the writer. Owned by: the loop thread."""

    def __init__(
        self,
        find_queue: Callable[[str], TopicLog],
        most_queues: int,
        room: QueueRoom | None = None,
    ) -> None:
        """find_queue: the writer's entry, made on first use. most_queues:
        maxLmqConsumeQueueNum. room: asked for new queues; None: there is always room."""
        self._room = room
        self._find_queue = find_queue
        self._most_queues = most_queues
        self._queues: set[str] = set()
        self.on_made: Callable[[str], None] = lambda _name: None
        """Hears of each light queue that gets its first record."""

    @property
    def queue_count(self) -> int:
        """Light queues that hold records or held some (lmqConsumeQueueNum)."""
        return len(self._queues)

    def load(self, names: Iterable[str]) -> None:
        """The light ones among `names` exist, and no others."""
        self._queues = set(filter(is_lmq, names))

    def made(self, topic: str) -> None:
        """A record of `topic` itself makes its queue."""
        if is_lmq(topic) and topic not in self._queues:
            self._queues.add(topic)
            self.on_made(topic)

    def forget(self, name: str) -> None:
        """The queue was deleted."""
        self._queues.discard(name)

    def has_room(self, names: Iterable[str]) -> bool:
        """Whether records may be dispatched to `names`: queues that exist, or few enough new ones.
        (RocketMQ 4.9 refuses every such record once there is one queue too many; 5.3 has no
        limit.)"""
        new = [name for name in set(names) if name not in self._queues]
        if not new:
            return True
        if len(self._queues) + len(new) > self._most_queues:
            return False
        return self._room is None or self._room.has_room(new)

    def wrap(
        self, topic: str, all_properties: Sequence[bytes]
    ) -> tuple[list[bytes], dict[str, int]]:
        """The properties of records of one topic with their places in light queues, and the queue
        offset that follows in each of these; those without light queues stay as they are.

        Nothing is counted before `advance`. What a sender said of places is replaced.
        """
        following: dict[str, int] = {}
        if not topic_allows_lmq(topic):
            return list(all_properties), following
        return [self._wrap(properties, following) for properties in all_properties], following

    def _wrap(self, properties: bytes, following: dict[str, int]) -> bytes:
        names = named_queues(properties)
        if not names:
            return without_offsets(properties)
        offsets = [self._next(name, following) if is_lmq_name(name) else "" for name in names]
        pair = MULTI_QUEUE_OFFSET + NAME_END + ",".join(offsets).encode()
        wrapped = append_properties(without_offsets(properties), pair)
        if len(wrapped) > PROPERTIES_LIMIT:
            log.error("%s light queues: their offsets do not fit the properties", len(names))
            return without_offsets(properties)
        for name, offset in zip(names, offsets, strict=True):
            if offset:
                following[name] = int(offset) + 1
        return wrapped

    def _next(self, name: str, following: dict[str, int]) -> str:
        offset = following.get(name)
        if offset is None:
            offset = self._find_queue(name).next_offsets.get(LMQ_QUEUE_ID, 0)
        return str(offset)

    def advance(self, following: Mapping[str, int]) -> None:
        """The records of `wrap` have been placed: their offsets in light queues are used up."""
        for name, offset in following.items():
            if name not in self._queues:
                self._queues.add(name)
                if self._room is not None:
                    self._room.note(name, LMQ_QUEUE_ID)
                self.on_made(name)
            self._find_queue(name).next_offsets[LMQ_QUEUE_ID] = offset


def named_queues(properties: bytes) -> list[str]:
    """The names in INNER_MULTI_DISPATCH; none if the record has none."""
    if _MARK not in properties:
        return []
    text = find_property(properties, MULTI_DISPATCH)
    return [] if text is None or not text.strip() else split_names(str(text, "utf-8", "replace"))


def without_offsets(properties: bytes) -> bytes:
    """`properties` without INNER_MULTI_QUEUE_OFFSET."""
    mark = MULTI_QUEUE_OFFSET + NAME_END
    if mark not in properties:
        return properties
    pairs = properties.split(PAIR_END)
    return PAIR_END.join(pair for pair in pairs if not pair.startswith(mark))


def grown_size(properties: bytes, names: Sequence[str]) -> int:
    """Most bytes that the `properties` of a send will have with the offsets of `names`, after a
    delay or a transaction, too."""
    return (
        _BROKERS_OWN
        + len(properties)
        + len(MULTI_QUEUE_OFFSET)
        + 2
        + len(names) * (_OFFSET_DIGITS + 1)
    )
