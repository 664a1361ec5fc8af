"""ConsumerOffsetManager: how far each group has consumed each queue (14, 15, 43).

Kept in config/consumerOffset.json as {"offsetTable":{"<topic>@<group>":{<queueId>:<offset>}}}.
`commit_offset` is on the hot path (pulls with the commit flag): two dict operations, no lock; a
plain dict is safe for that under the interpreter's lock. Structural changes (delete, clone, merge
of a slave) take `_lock`. Saved by the scheduled executor every flushConsumerOffsetInterval and
at the stop. Values are taken as sent: lower ones too, with a warning.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final

from broker.json_config_manager import JsonConfigManager
from remoting.body.consumer_offset import ConsumerOffsetSerializeWrapper
from remoting.body.data_version import DataVersion
from remoting.remoting_serializable import IntKeyMap, dumps_java

log = logging.getLogger(__name__)

TOPIC_GROUP_SEPARATOR: Final = "@"

OffsetTable = Mapping[str, Mapping[int, int]]
"""Queue id to offset, by "topic@group"."""


class ConsumerOffsetManager(JsonConfigManager):
    """Offsets by topic@group and queue id."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._lock = threading.Lock()
        self._table: dict[str, dict[int, int]] = {}

    # -- hot path -------------------------------------------------------------------------------

    def commit_offset(
        self, remote: str, group: str, topic: str, queue_id: int, offset: int
    ) -> None:
        """Store what a group has consumed; `remote` (ip:port) is for the log only."""
        key = f"{topic}@{group}"
        queues = self._table.get(key)
        if queues is None:
            queues = self._table.setdefault(key, {})
        stored = queues.get(queue_id)
        queues[queue_id] = offset
        if stored is not None and offset < stored:
            log.warning(
                "group %s: %s committed %s@%s offset %s below the stored %s",
                group,
                remote,
                topic,
                queue_id,
                offset,
                stored,
            )
        self.mark_changed()

    def query_offset(self, group: str, topic: str, queue_id: int) -> int | None:
        """The stored offset, or None (Java: -1)."""
        queues = self._table.get(f"{topic}@{group}")
        return None if queues is None else queues.get(queue_id)

    # -- other reads ----------------------------------------------------------------------------

    def query_offsets(self, group: str, topic: str) -> dict[int, int]:
        """Every stored offset of a group in a topic, by queue id."""
        return self._table.get(f"{topic}@{group}", {}).copy()

    def topics_of_group(self, group: str) -> list[str]:
        """Topics the group has offsets in (Java: whichTopicByConsumer)."""
        return [topic for topic, found in self.pairs() if found == group]

    def groups_of_topic(self, topic: str) -> list[str]:
        """Groups that have offsets in the topic (Java: whichGroupByTopic)."""
        return [group for found, group in self.pairs() if found == topic]

    def lowest_offsets(
        self, topic: str, min_offset: Callable[[int], int], without: Collection[str]
    ) -> dict[int, int]:
        """The lowest offset of any group in each queue of `topic` (308), by queue id.

        Offsets below `min_offset(queue_id)` and the groups `without` do not count. (The original
        deletes the rows of those groups from its table; this is a read here.)
        """
        lowest: dict[int, int] = {}
        for group in self.groups_of_topic(topic):
            if group in without:
                continue
            for queue_id, offset in self.query_offsets(group, topic).items():
                if offset >= min_offset(queue_id):
                    lowest[queue_id] = min(offset, lowest.get(queue_id, offset))
        return lowest

    def pairs(self) -> list[tuple[str, str]]:
        """(topic, group) of each key; keys with more than one separator are skipped as in Java."""
        split = (key.split(TOPIC_GROUP_SEPARATOR) for key in self._table.copy())
        return [(parts[0], parts[1]) for parts in split if len(parts) == 2]

    # -- changes --------------------------------------------------------------------------------

    def clone_offset(self, source_group: str, target_group: str, topic: str) -> None:
        """Give `target_group` the offsets of `source_group` in `topic` (314)."""
        with self._lock:
            offsets = self._table.get(f"{topic}@{source_group}")
            if offsets is not None:
                self._table[f"{topic}@{target_group}"] = offsets.copy()
                self.mark_changed()

    def remove_group(self, group: str) -> int:
        """Forget a group (207 with removeOffset); how many topics it had."""
        return self._remove(lambda _, found: found == group, f"group {group}")

    def remove_topic(self, topic: str) -> int:
        """Forget a topic (215): a topic made again must not start with old offsets."""
        return self._remove(lambda found, _: found == topic, f"topic {topic}")

    def _remove(self, matches: Callable[[str, str], bool], what: str) -> int:
        with self._lock:
            gone = [f"{topic}@{group}" for topic, group in self.pairs() if matches(topic, group)]
            for key in gone:
                del self._table[key]
            if gone:
                self.mark_changed()
                log.warning("%s: offsets removed: %s", what, gone)
        return len(gone)

    def merge_from_master(self, table: OffsetTable, seen: OffsetTable) -> int:
        """A slave takes over its master's offsets (43) by `merged_offset`; how many changed.

        `seen`: what the master said before. Rows that the master does not name stay. A commit
        that arrives in the same instant may be overtaken; the consumer repeats it.
        """

        def merged(key: str, queue_id: int, stored: int | None, offset: int) -> int | None:
            return merged_offset(stored, offset, seen.get(key, {}).get(queue_id))

        return self._merge(table, merged)

    def raise_to(self, table: OffsetTable, max_offset: Callable[[str, int], int]) -> int:
        """A master takes the larger offsets from a slave's table (43); how many changed.

        None is taken beyond the end of its queue: `max_offset(topic, queue_id)`, 0 if unknown.
        """

        def raised(key: str, queue_id: int, stored: int | None, offset: int) -> int | None:
            topic = key.partition(TOPIC_GROUP_SEPARATOR)[0]
            return max(stored or 0, min(offset, max_offset(topic, queue_id))) or stored

        return self._merge(table, raised)

    def limit_to(self, queue_ends: Callable[[str, int], int | None]) -> int:
        """No offset lies beyond the end of its queue (None: unknown, left alone); how many did.

        A slave may know offsets of messages that it never got. Once it is the master, a pull
        from beyond the end would be sent back to the queue's beginning, and everything be
        consumed again.
        """
        changed = 0
        with self._lock:
            for key, queues in self._table.items():
                topic = key.partition(TOPIC_GROUP_SEPARATOR)[0]
                for queue_id, offset in queues.items():
                    end = queue_ends(topic, queue_id)
                    if end is not None and offset > end:
                        log.warning("%s queue %s: offset %s, end %s", key, queue_id, offset, end)
                        queues[queue_id] = end
                        changed += 1
            if changed:
                self.mark_changed()
        return changed

    def _merge(
        self, table: OffsetTable, choose: Callable[[str, int, int | None, int], int | None]
    ) -> int:
        """Set each offset that `choose(key, queue_id, stored, offered)` changes."""
        changed = 0
        with self._lock:
            for key, offered in table.items():
                queues = self._table.get(key, {})
                for queue_id, offset in offered.items():
                    stored = queues.get(queue_id)
                    chosen = choose(key, queue_id, stored, offset)
                    if chosen is not None and chosen != stored:
                        queues = self._table.setdefault(key, queues)
                        queues[queue_id] = chosen
                        changed += 1
            if changed:
                self.mark_changed()
        return changed

    def forget(self, topics: Collection[str], groups: Collection[str], keep: OffsetTable) -> int:
        """Remove the rows of topics and groups that are gone, but for keys in `keep`; how many."""
        return self._remove(
            lambda topic, group: (
                (topic in topics or group in groups) and f"{topic}@{group}" not in keep
            ),
            "gone from the master",
        )

    # -- file and body --------------------------------------------------------------------------

    def decode(self, value: dict[str, Any]) -> None:
        """Replace the table by the file's."""
        self._table = parse_offset_table(value)

    def snapshot(self) -> dict[str, Any]:
        """The file's shape."""
        return {
            "offsetTable": {
                key: IntKeyMap(queues.copy()) for key, queues in self._table.copy().items()
            }
        }

    def encode_for_5x(self) -> bytes:
        """The text with a dataVersion: its counter rises with each commit, it has no time."""
        version = DataVersion(counter=self.changes, state_version=0)
        return dumps_java({"dataVersion": version.to_json(), **self.snapshot()})


def merged_offset(stored: int | None, master: int, seen: int | None) -> int:
    """What a slave keeps of its own offset and its master's.

    The larger, since consumers commit here while the master is away; unless the master went back
    behind what it said before (`seen`): that is a reset, and is taken.
    """
    if stored is None or (seen is not None and master < seen):
        return master
    return max(stored, master)


def parse_offset_table(value: dict[str, Any]) -> dict[str, dict[int, int]]:
    """The offsetTable of a consumerOffset.json or a reply to 43; 5.x members are ignored.

    Raises ValueError naming what is wrong: a table that is missing is no empty one.
    """
    if value.get("offsetTable") is None:
        raise ValueError("has no offsetTable")
    return ConsumerOffsetSerializeWrapper.from_json(value).offset_table
