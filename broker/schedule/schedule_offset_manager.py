"""ScheduleOffsetManager: the delivery progress of each delay level (45, delayOffset.json).

The table half of Java's ScheduleMessageService: level -> queue offset of the next message to
examine in SCHEDULE_TOPIC_XXXX. The delivering half advances it; a slave overwrites it with its
master's. Saved by the scheduled executor every flushDelayOffsetInterval and on shutdown. One lock;
reads take none.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from broker.json_config_manager import JsonConfigManager
from remoting.body.consumer_offset import DelayOffsetSerializeWrapper
from remoting.body.data_version import DataVersion
from remoting.remoting_serializable import IntKeyMap, dumps_java


class ScheduleOffsetManager(JsonConfigManager):
    """Delay level (from 1) to queue offset."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._lock = threading.Lock()
        self._table: dict[int, int] = {}
        self._own: dict[int, int] = {}
        """Of a slave that delivered in its master's place: how far, in this life of the process."""

    def find_offset(self, level: int) -> int | None:
        """The offset of a level, or None if nothing was delivered from it."""
        return self._table.get(level)

    def update_offset(self, level: int, offset: int) -> None:
        """Set the offset of the next message of `level` to examine."""
        with self._lock:
            if self._table.get(level) != offset:
                self._table[level] = offset
                self.mark_changed()

    def update_own(self, level: int, offset: int) -> None:
        """The same by a slave in its master's place: no table of a master that does not know of it
        yet takes that back."""
        self._own[level] = offset
        self.update_offset(level, offset)

    def offsets(self) -> dict[int, int]:
        """A copy of the table."""
        return self._table.copy()

    def replace_all(self, table: dict[int, int]) -> None:
        """Replace the table by the master's (45), including lower offsets: after a promotion,
        deliveries continue from it. Marks a change; the caller saves (save_if_changed).
        """
        own = self._own.copy().items()
        table = {**table, **{level: max(offset, table.get(level, 0)) for level, offset in own}}
        with self._lock:
            if table != self._table:
                self._table = dict(table)
                self.mark_changed()

    def raise_to(self, table: dict[int, int]) -> int:
        """Adopt the larger offsets of a slave that has delivered in this broker's place; returns
        how many changed."""
        with self._lock:
            larger = {
                level: offset
                for level, offset in table.items()
                if offset > self._table.get(level, 0)
            }
            if larger:
                self._table.update(larger)
                self.mark_changed()
            return len(larger)

    def decode(self, value: dict[str, Any]) -> None:
        """Replace the table by the file's."""
        table = parse_delay_offset_table(value)
        with self._lock:
            self._table = table

    def snapshot(self) -> dict[str, Any]:
        """The file's shape."""
        return {"offsetTable": IntKeyMap(self._table.copy())}

    def encode_for_5x(self) -> bytes:
        """The text with a dataVersion, without which a master that comes online asks for ever: its
        counter rises with each change, it has no time."""
        version = DataVersion(counter=self.changes, state_version=0)
        return dumps_java({"dataVersion": version.to_json(), **self.snapshot()})


def parse_delay_offset_table(value: dict[str, Any]) -> dict[int, int]:
    """The offsetTable of a delayOffset.json or a reply to 45; 5.x members are ignored.

    Raises ValueError naming what is wrong: a table that is missing is not an empty one.
    """
    if value.get("offsetTable") is None:
        raise ValueError("has no offsetTable")
    return DelayOffsetSerializeWrapper.from_json(value).offset_table
