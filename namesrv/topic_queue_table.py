"""TopicQueueTable: which broker names serve a topic, and with which queues (topicQueueTable).

One of the tables of RouteInfoManager, which calls it under its lock. Knows no addresses, clusters
or connections.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Final

from namesrv.registration_limits import check_topics
from remoting.body.route import QueueData
from remoting.body.topic_config import TopicConfig

log = logging.getLogger(__name__)

_TOPICS_LOGGED: Final = 100
"""Per registration: logging 10,000 lines delayed all other requests by a third of a second."""


class TopicQueueTable:
    """Topic to broker name to queues. Guarded by: the lock of RouteInfoManager."""

    def __init__(self, most: int) -> None:
        """most: the largest number of pairs of a topic and a broker name."""
        self._most = most
        self._pairs = 0
        self._table: dict[str, dict[str, QueueData]] = {}

    def __len__(self) -> int:
        return len(self._table)

    def find(self, topic: str) -> Mapping[str, QueueData] | None:
        """Broker name to queues; None for an unknown topic. Valid while the lock is held."""
        return self._table.get(topic)

    def topics(self) -> list[str]:
        """All topics."""
        return list(self._table)

    def topics_of(self, broker_names: AbstractSet[str]) -> list[str]:
        """The topics that at least one of the broker names serves."""
        return [
            topic for topic, by_name in self._table.items() if not broker_names.isdisjoint(by_name)
        ]

    def topics_by_sys_flag(self, wanted: Callable[[int], bool]) -> list[str]:
        """Topics by the flags of their first queue data (as in Java)."""
        return [
            topic
            for topic, by_name in self._table.items()
            if wanted(next(iter(by_name.values())).topic_sys_flag)
        ]

    def update(self, broker_name: str, configs: Mapping[str, TopicConfig]) -> None:
        """Take over the topics of a broker name's registration, after `check`."""
        changed: list[str] = []
        for topic, config in configs.items():
            queue_data = QueueData(
                broker_name=broker_name,
                read_queue_nums=config.read_queue_nums,
                write_queue_nums=config.write_queue_nums,
                perm=config.perm,
                topic_sys_flag=config.topic_sys_flag,
            )
            by_name = self._table.setdefault(config.topic_name or topic, {})
            old = by_name.get(broker_name)
            self._pairs += old is None
            if old != queue_data:
                by_name[broker_name] = queue_data
                changed.append(topic)
                if len(changed) <= _TOPICS_LOGGED:
                    log.info("topic %s: %s (was %s)", topic, queue_data, old)
        if len(changed) > _TOPICS_LOGGED:
            more = len(changed) - _TOPICS_LOGGED
            log.info(
                "broker %s: %s more topics changed, the last is %s", broker_name, more, changed[-1]
            )

    def add(self, topic: str, queue_datas: Mapping[str, QueueData]) -> None:
        """Add the broker names of `queue_datas` to the topic, or replace their queues. Raises
        RequestError, and changes nothing, if they are too many."""
        for broker_name in queue_datas:
            self.check(broker_name, [topic])
        by_name = self._table.setdefault(topic, {})
        self._pairs -= len(by_name)
        by_name.update(queue_datas)
        self._pairs += len(by_name)

    def check(self, broker_name: str, topics: Iterable[str]) -> None:
        """Raises RequestError if the table has no room for those topics of the broker name."""
        new = sum(broker_name not in self._table.get(topic, ()) for topic in topics)
        if new:
            check_topics(broker_name, self._pairs, new, self._most)

    def change_perm(self, broker_name: str, change: Callable[[int], int]) -> int:
        """Change the permissions of all topics of a broker name; returns their number."""
        count = 0
        for by_name in self._table.values():
            data = by_name.get(broker_name)
            if data is not None:
                by_name[broker_name] = replace(data, perm=change(data.perm))
                count += 1
        return count

    def lacks(self, topic: str, broker_name: str) -> bool:
        """Whether the broker name does not serve the topic."""
        return broker_name not in self._table.get(topic, ())

    def delete(self, topic: str) -> None:
        """Delete the topic, whoever serves it."""
        self._pairs -= len(self._table.pop(topic, ()))

    def remove(self, topic: str, broker_names: AbstractSet[str]) -> None:
        """Remove the broker names from the topic."""
        if self._remove(topic, broker_names):
            log.info("topic %s: removed, no broker serves it any longer", topic)

    def remove_broker_names(self, broker_names: AbstractSet[str]) -> None:
        """Remove the broker names from all topics: one walk, however many they are."""
        served = self.topics_of(broker_names)
        gone = [topic for topic in served if self._remove(topic, broker_names)]
        for topic in gone[:_TOPICS_LOGGED]:
            log.info("topic %s: removed, no broker serves it any longer", topic)
        if len(gone) > _TOPICS_LOGGED:
            more = len(gone) - _TOPICS_LOGGED
            names = ", ".join(sorted(broker_names))
            log.info(
                "broker name %s: %s more topics removed, the last is %s", names, more, gone[-1]
            )

    def _remove(self, topic: str, broker_names: AbstractSet[str]) -> bool:
        """True if no broker serves the topic any longer."""
        by_name = self._table.get(topic)
        if by_name is None:
            return False
        for broker_name in [name for name in by_name if name in broker_names]:
            del by_name[broker_name]
            self._pairs -= 1
        if by_name:
            return False
        del self._table[topic]
        return True
