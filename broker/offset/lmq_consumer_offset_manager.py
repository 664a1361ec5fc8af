"""LmqConsumerOffsetManager: the offsets of a broker with light message queues (enableLmq).

Threads as ConsumerOffsetManager. Kept in config/lmqConsumerOffset.json, which takes the place of
consumerOffset.json:

    {"knownTo":<position in the log>,                        with lite topics only
     "lmqOffsetTable":{"<topic>@%LMQ%<group>":<offset>},
     "offsetTable":{"<topic>@<group>":{<queueId>:<offset>}}}

A light group (%LMQ%…) has one offset in a topic, whatever the queue. Of the queues of lite topics,
which end and begin again, a slave has what its master has. knownTo, which only we write, tells
offsets of a former life (lite/former_lives.py). Corresponds to RocketMQ's
LmqConsumerOffsetManager; unlike it, a first start takes over consumerOffset.json, and a slave the
light groups' offsets.

Tested by tests/broker/offset/test_lmq_consumer_offset_manager.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Final

from broker.json_config_manager import parse_object
from broker.offset.consumer_offset_manager import (
    TOPIC_GROUP_SEPARATOR,
    ConsumerOffsetManager,
    OffsetTable,
)
from remoting.lite_names import is_lite_queue, parse_lite_queue
from remoting.remoting_serializable import IntKeyMap
from store.lmq_places import LMQ_PREFIX, LMQ_QUEUE_ID, is_lmq

log = logging.getLogger(__name__)

_LIGHT_GROUP: Final = TOPIC_GROUP_SEPARATOR + LMQ_PREFIX


class LmqConsumerOffsetManager(ConsumerOffsetManager):
    """Offsets by topic@group; those of light groups are in queue 0."""

    def __init__(self, path: Path, ordinary: Path, own_groups: Collection[str] = ()) -> None:
        """path: lmqConsumerOffset.json. ordinary: consumerOffset.json, read while `path` is
        missing."""
        super().__init__(path, own_groups)
        self._ordinary = ConsumerOffsetManager(ordinary)

    def load(self) -> None:
        """Read the file, else consumerOffset.json. Raises ConfigFileError."""
        super().load()
        if not self.was_missing:
            return
        self._ordinary.load()
        if self._ordinary.was_missing:
            return
        self.decode(parse_object(self._ordinary.encode()))
        self.was_missing = False
        self.mark_changed()
        log.warning("%s: starting with the offsets of %s", self.path, self._ordinary.path)

    def commit_offset(
        self, remote: str, group: str, topic: str, queue_id: int, offset: int
    ) -> None:
        """Store a group's offset."""
        queue_id = LMQ_QUEUE_ID if is_lmq(group) else queue_id
        super().commit_offset(remote, group, topic, queue_id, offset)

    def query_offset(self, group: str, topic: str, queue_id: int) -> int | None:
        """The stored offset, or None."""
        return super().query_offset(group, topic, LMQ_QUEUE_ID if is_lmq(group) else queue_id)

    def snapshot(self) -> dict[str, Any]:
        """The file's shape, with light groups in a table of their own."""
        table = self._table.copy()
        light = {
            key: queues[LMQ_QUEUE_ID]
            for key, queues in table.items()
            if _LIGHT_GROUP in key and LMQ_QUEUE_ID in queues
        }
        ordinary = {
            key: IntKeyMap(queues.copy()) for key, queues in table.items() if key not in light
        }
        return {"lmqOffsetTable": light, "offsetTable": ordinary}

    # -- lite topics ---------------------------------------------------------------------------

    def lite_keys(self) -> set[str]:
        """The keys of groups that have got something of lite topics."""
        return {
            key
            for key, queues in self._table.copy().items()
            if _is_lite(key) and queues.get(LMQ_QUEUE_ID)
        }

    def merge_from_master(self, table: OffsetTable, seen: OffsetTable) -> int:
        """See ConsumerOffsetManager. A slave hands out nothing of lite topics, so what its master
        says of them is right, and what it says nothing of has ended."""
        lite = self._drop_ended(table)
        rest = {key: queues for key, queues in table.items() if key not in lite}
        merged = super().merge_from_master(rest, seen)
        return merged + self._merge(lite, lambda _key, _queue_id, _stored, offset: offset)

    def replace_from_master(self, table: OffsetTable) -> int:
        """See ConsumerOffsetManager; of lite topics nothing stays that the master does not have."""
        self._drop_ended(table)
        return super().replace_from_master(table)

    def _drop_ended(self, table: OffsetTable) -> OffsetTable:
        """What the master's table says of lite topics; what it says nothing of is gone here."""
        lite = {key: queues for key, queues in table.items() if _is_lite(key)}
        ended = [key for key in self._table.copy() if _is_lite(key) and key not in lite]
        with self._lock:
            for key in ended:
                self.set_backs.note(key, self._table.pop(key, ()))
            if ended:
                self.mark_changed()
        return lite

    def raise_to(
        self,
        table: OffsetTable,
        max_offset: Callable[[str, int], int],
        *,
        only_own: bool = False,
    ) -> int:
        """See ConsumerOffsetManager; without lite topics, of which a slave commits nothing."""
        rest = {key: queues for key, queues in table.items() if not _is_lite(key)}
        return super().raise_to(rest, max_offset, only_own=only_own)

    def decode(self, value: dict[str, Any]) -> None:
        """Replace the table by the file's."""
        known_to = value.get("knownTo")
        super().decode(value)
        if isinstance(known_to, int) and known_to >= 0:
            self.known_to = lambda: known_to

    def file_snapshot(self) -> dict[str, Any]:
        """With the position, which is taken before the table, if there are lite topics in it: other
        light queues' files are RocketMQ's."""
        known_to, tables = self.known_to(), self.snapshot()
        if known_to is None or not any(_is_lite(key) for table in tables.values() for key in table):
            return tables
        return {"knownTo": known_to, **tables}


def _is_lite(key: str) -> bool:
    """Whether the key is of a lite topic's queue. Applications may have light queues of their own
    whose names begin so ($SYS of MQTT)."""
    topic = key.partition(TOPIC_GROUP_SEPARATOR)[0] if is_lite_queue(key) else ""
    return parse_lite_queue(topic) is not None
