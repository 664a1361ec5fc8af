"""ConsumerOffsetManager: the consumer offset of each group in each queue (14, 15, 43).

Kept in config/consumerOffset.json as {"offsetTable":{"<topic>@<group>":{<queueId>:<offset>}}}.
`commit_offset` is on the hot path (pulls with the commit flag): two dict operations, no lock; a
plain dict is safe for that under the GIL. Structural changes (delete, clone, merge on a slave) take
`_lock`. Saved by the scheduled executor every flushConsumerOffsetInterval and on shutdown. Offsets
are stored as sent; a lower one is logged as a warning.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final

from broker.json_config_manager import JsonConfigManager
from broker.offset.set_backs import SetBacks
from remoting.body.consumer_offset import ConsumerOffsetSerializeWrapper
from remoting.body.data_version import DataVersion
from remoting.errors import RequestError
from remoting.remoting_serializable import IntKeyMap, dumps_java
from remoting.response_code import ResponseCode
from store.lmq_places import LMQ_QUEUE_ID

log = logging.getLogger(__name__)

TOPIC_GROUP_SEPARATOR: Final = "@"

OffsetTable = Mapping[str, Mapping[int, int]]
"""Queue id to offset, by "topic@group"."""


class ConsumerOffsetManager(JsonConfigManager):
    """Offsets by topic@group and queue id."""

    def __init__(self, path: Path, own_groups: Collection[str] = ()) -> None:
        """own_groups: those whose offsets are the broker's own bookkeeping: only
        `commit_own_offset` changes them."""
        super().__init__(path)
        self._own_groups = frozenset(own_groups)
        self._lock = threading.Lock()
        self.state_version = 0
        """The epoch in which this broker leads; 0 without controller mode."""
        self.stores_resets = False
        """useServerSideResetOffset, as it is now."""
        self.known_to: Callable[[], int | None] = lambda: None
        """A position in the log: what the table says was so when the log had ended there, or later;
        None: it is not known. Of the table that was loaded, then copied, then of the writer's."""
        self._table: dict[str, dict[int, int]] = {}
        self._resets: dict[tuple[str, str, int], int] = {}
        """(group, topic, queue id) to the offset that the next pull is told to go on from; in
        memory only, as in RocketMQ."""
        self._pulled: dict[tuple[str, str, int], int] = {}
        """(group, topic, queue id) to the offset behind what was given to the group last; in memory
        only, as in RocketMQ (pullOffsetTable)."""
        self.set_backs: Final = SetBacks()

    # -- hot path -------------------------------------------------------------------------------

    def commit_offset(
        self, remote: str, group: str, topic: str, queue_id: int, offset: int
    ) -> None:
        """Store a group's offset; `remote` (ip:port) is only logged. One of the broker's own groups
        keeps its offset, with a warning."""
        if group in self._own_groups:
            log.warning(
                "group %s: rejected offset %s of %s for %s@%s: only the broker sets its offsets",
                group,
                offset,
                remote,
                topic,
                queue_id,
            )
            return
        self.commit_own_offset(remote, group, topic, queue_id, offset)

    def check_not_own(self, group: str) -> None:
        """Raises RequestError(NO_PERMISSION) for a group whose offsets only the broker changes."""
        if group in self._own_groups:
            raise RequestError(
                ResponseCode.NO_PERMISSION, f"the offsets of group {group} are the broker's own"
            )

    def commit_own_offset(
        self, remote: str, group: str, topic: str, queue_id: int, offset: int
    ) -> None:
        """Store the offset of any group: for the broker itself, whose progress (checks of
        transactions, revival) is that of a group of its own."""
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
            self.set_backs.note(key, (queue_id,))
        self.mark_changed()

    def query_offset(self, group: str, topic: str, queue_id: int) -> int | None:
        """The stored offset, or None (Java: -1)."""
        queues = self._table.get(f"{topic}@{group}")
        return None if queues is None else queues.get(queue_id)

    def commit_pull_offset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """The next pull of the group goes on from `offset`, as it was told."""
        self._pulled[group, topic, queue_id] = offset

    def query_pull_offset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Where the group pulls next; None before its first pull here."""
        return self._pulled.get((group, topic, queue_id))

    def take_reset_offset(self, group: str, topic: str, queue_id: int) -> int | None:
        """The reset offset of a queue, which is told once (Java: queryThenEraseResetOffset)."""
        return self._resets.pop((group, topic, queue_id), None) if self._resets else None

    # -- server-side reset ----------------------------------------------------------------------

    def assign_reset_offset(
        self, remote: str, group: str, topic: str, queue_id: int, offset: int
    ) -> None:
        """The group goes on from `offset` in a queue: stored, and told to its next pull there."""
        self._resets[group, topic, queue_id] = offset
        self.commit_offset(remote, group, topic, queue_id, offset)
        self.set_backs.note(f"{topic}@{group}", (queue_id,))

    def has_offset_reset(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether the group has not been told of a reset yet: what it commits is out of date."""
        return (group, topic, queue_id) in self._resets

    # -- other reads ----------------------------------------------------------------------------

    def query_offsets(self, group: str, topic: str) -> dict[int, int]:
        """Every stored offset of a group in a topic, by queue id."""
        return self._table.get(f"{topic}@{group}", {}).copy()

    def topics_of_group(self, group: str) -> list[str]:
        """Topics in which the group has offsets (Java: whichTopicByConsumer)."""
        return [topic for topic, found in self.pairs() if found == group]

    def groups_of_topic(self, topic: str) -> list[str]:
        """Groups that have offsets in the topic (Java: whichGroupByTopic)."""
        return [group for found, group in self.pairs() if found == topic]

    def lowest_offsets(
        self, topic: str, min_offset: Callable[[int], int], without: Collection[str]
    ) -> dict[int, int]:
        """The lowest offset of any group in each queue of `topic` (308), by queue id.

        Offsets below `min_offset(queue_id)` and the groups `without` do not count. (RocketMQ
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
                self.set_backs.note(f"{topic}@{target_group}", offsets)
                self.mark_changed()

    def remove_group(self, group: str) -> int:
        """Remove a group (207 with removeOffset); returns how many topics it had."""
        return self._remove(lambda _, found: found == group, f"group {group}")

    def remove_topic(self, topic: str) -> int:
        """Remove a topic (215): a topic that is created again must not start with old offsets."""
        return self._remove(lambda found, _: found == topic, f"topic {topic}")

    def remove_queue(self, group: str, topic: str, queue_id: int) -> None:
        """Forget where a group stands in one queue, without a look at others: of the queues of lite
        topics there may be very many."""
        with self._lock:
            queues = self._table.get(f"{topic}@{group}")
            if queues is not None and queues.pop(queue_id, None) is not None:
                self.set_backs.note(f"{topic}@{group}", (queue_id,))
                if not queues:
                    del self._table[f"{topic}@{group}"]
                self.mark_changed()
            for table in (self._resets, self._pulled):
                table.pop((group, topic, queue_id), None)

    def _remove(self, matches: Callable[[str, str], bool], what: str) -> int:
        with self._lock:
            gone = [f"{topic}@{group}" for topic, group in self.pairs() if matches(topic, group)]
            for name in gone:
                self.set_backs.note(name, self._table.pop(name))
            for table in (self._resets, self._pulled):
                for key in [key for key in list(table) if matches(key[1], key[0])]:
                    table.pop(key, None)
            if gone:
                self.mark_changed()
                log.warning("%s: offsets removed: %s", what, gone)
        return len(gone)

    def merge_from_master(self, table: OffsetTable, seen: OffsetTable) -> int:
        """On a slave: merge the master's offsets (43) using `merged_offset`; returns how many
        changed.

        `seen`: the master's previous table. Rows that the master does not have are kept. A
        concurrent commit may be overwritten; the consumer repeats it.
        """

        def merged(key: str, queue_id: int, stored: int | None, offset: int) -> int | None:
            return merged_offset(stored, offset, seen.get(key, {}).get(queue_id))

        return self._merge(table, merged)

    def replace_from_master(self, table: OffsetTable) -> int:
        """On a slave whose log was cut: take the master's offsets, also lower ones; returns how
        many changed.

        Of the broker's own groups nothing else stays, of no queue. Rows of other groups that the
        master does not have stay: to begin anew, a group may pass over more.
        """
        with self._lock:
            own = [(f"{topic}@{group}", group) for topic, group in self.pairs()]
            gone = 0
            for key in [key for key, group in own if group in self._own_groups]:
                kept = {
                    queue_id: offset
                    for queue_id, offset in self._table[key].items()
                    if queue_id in table.get(key, {})
                }
                if len(kept) < len(self._table[key]):
                    self.set_backs.note(key, self._table[key].keys() - kept.keys())
                gone += len(self._table[key]) - len(kept)
                self._table[key] = kept
                if not kept:
                    del self._table[key]
            if gone:
                self.mark_changed()
        return gone + self._merge(table, lambda _key, _queue_id, _stored, offset: offset)

    def raise_to(
        self,
        table: OffsetTable,
        max_offset: Callable[[str, int], int],
        *,
        only_own: bool = False,
    ) -> int:
        """On a master: adopt the larger offsets of a slave's table (43); returns how many changed.

        Offsets beyond the end of the queue are ignored: `max_offset(topic, queue_id)`, 0 if
        unknown. only_own: of the broker's own groups, by which it works through its queues.
        """
        if only_own:
            table = {
                key: queues
                for key, queues in table.items()
                if key.partition(TOPIC_GROUP_SEPARATOR)[2] in self._own_groups
            }

        def raised(key: str, queue_id: int, stored: int | None, offset: int) -> int | None:
            topic = key.partition(TOPIC_GROUP_SEPARATOR)[0]
            return max(stored or 0, min(offset, max_offset(topic, queue_id))) or stored

        return self._merge(table, raised)

    def limit_to(self, queue_ends: Callable[[str, int], int | None]) -> int:
        """Limit each offset to the end of its queue (None: unknown, unchanged); returns how many
        changed.

        A slave may have offsets of messages that were never replicated to it. After a promotion, a
        pull from beyond the end would be reset to the beginning of the queue, and all of its
        messages consumed again.
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
                        self.set_backs.note(key, (queue_id,))
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
                        if stored is not None and chosen < stored:
                            self.set_backs.note(key, (queue_id,))
            if changed:
                self.mark_changed()
        return changed

    def forget(self, topics: Collection[str], groups: Collection[str], keep: OffsetTable) -> int:
        """Remove the rows of deleted topics and groups, except the keys in `keep`; returns how
        many."""
        return self._remove(
            lambda topic, group: (
                (topic in topics or group in groups) and f"{topic}@{group}" not in keep
            ),
            "deleted on the master",
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
        version = DataVersion(counter=self.changes, state_version=self.state_version)
        return dumps_java({"dataVersion": version.to_json(), **self.snapshot()})


def merged_offset(stored: int | None, master: int, seen: int | None) -> int:
    """The offset that a slave keeps, given its own and its master's.

    It is the larger one, since consumers commit here while the master is down. But if the master's
    offset is below its previous value (`seen`), the offset was reset, and the master's is used.
    """
    if stored is None or (seen is not None and master < seen):
        return master
    return max(stored, master)


def parse_offset_table(value: dict[str, Any]) -> dict[str, dict[int, int]]:
    """The offsetTable of a consumerOffset.json or a reply to 43, with the light groups' offsets in
    queue 0; other members of 5.x are ignored.

    Raises ValueError naming what is wrong: a table that is missing is not an empty one.
    """
    if value.get("offsetTable") is None:
        raise ValueError("has no offsetTable")
    wrapper = ConsumerOffsetSerializeWrapper.from_json(value)
    light = wrapper.lmq_offset_table or {}
    return wrapper.offset_table | {key: {LMQ_QUEUE_ID: at} for key, at in light.items()}


def parse_pull_offset_table(value: dict[str, Any]) -> dict[str, dict[int, int]]:
    """The pullOffsetTable of a 5.5.1 broker's reply to 43; empty where there is none."""
    return ConsumerOffsetSerializeWrapper.from_json(value).pull_offset_table or {}
