"""LmqConsumerOffsetManager: the offsets of a broker with light message queues (enableLmq).

Threads as ConsumerOffsetManager. Kept in config/lmqConsumerOffset.json, which takes the place of
consumerOffset.json:

    {"lmqOffsetTable":{"<topic>@%LMQ%<group>":<offset>},
     "offsetTable":{"<topic>@<group>":{<queueId>:<offset>}}}

A light group (%LMQ%…) has one offset in a topic, whatever the queue. Corresponds to RocketMQ's
LmqConsumerOffsetManager; unlike it, a first start takes over consumerOffset.json, and a slave the
light groups' offsets.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

from broker.json_config_manager import parse_object
from broker.offset.consumer_offset_manager import TOPIC_GROUP_SEPARATOR, ConsumerOffsetManager
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
