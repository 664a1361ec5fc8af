"""TopicQueueMappingTable: which logic queues of a static topic each broker name leads.

One of the tables of RouteInfoManager, which calls it under its lock (Java:
topicQueueMappingInfoTable). Java's keeps an entry for good, so that a topic that was deleted and
created again as an ordinary one would still be shown as static; here it goes with the topic. Knows
no addresses and no connections.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet

from remoting.body.topic_queue_mapping import TopicQueueMappingInfo

log = logging.getLogger(__name__)


class TopicQueueMappingTable:
    """Topic to broker name to mapping. Guarded by: the lock of RouteInfoManager."""

    def __init__(self) -> None:
        self._table: dict[str, dict[str, TopicQueueMappingInfo]] = {}

    def find(self, topic: str) -> dict[str, TopicQueueMappingInfo] | None:
        """Mapping by broker name, a copy; None for an ordinary topic."""
        by_name = self._table.get(topic)
        return dict(by_name) if by_name else None

    def update(
        self,
        broker_name: str,
        mappings: Mapping[str, TopicQueueMappingInfo],
        serves: Callable[[str], bool],
    ) -> None:
        """Take over what a broker name registers. serves: whether it is known to have a topic."""
        for topic, info in mappings.items():
            if info.bname != broker_name or not serves(topic):
                log.warning(
                    "broker %s: mapping of topic %s ignored, it names broker %s",
                    broker_name,
                    ascii(topic),
                    ascii(info.bname),
                )
                continue
            by_name = self._table.setdefault(topic, {})
            if by_name.get(broker_name) != info:
                by_name[broker_name] = info
                led = len(info.curr_id_map)
                log.info(
                    "static topic %s: broker %s leads %s queues of %s, epoch %s",
                    *(topic, broker_name, led, info.total_queues, info.epoch),
                )

    def delete(self, topic: str) -> None:
        """The topic was deleted, whoever serves it."""
        self._table.pop(topic, None)

    def remove(self, topic: str, broker_names: AbstractSet[str]) -> None:
        """The broker names do not serve the topic any longer."""
        by_name = self._table.get(topic)
        if by_name is None:
            return
        for name in broker_names & by_name.keys():
            del by_name[name]
        if not by_name:
            del self._table[topic]

    def remove_broker_names(self, broker_names: AbstractSet[str]) -> None:
        """The broker names are gone."""
        for topic in list(self._table):
            self.remove(topic, broker_names)
