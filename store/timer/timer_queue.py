"""TimerQueue: the timer topic's queue 0 as the wheel's builder reads it, in order.

Owned by: the thread of TimerMessageStore, with readers of its own. It knows records and consume
queue units, no slots.

Tested by tests/broker/timer/test_full_queue_table.py.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from ipc.control_page import ControlPage
from ipc.queue_table import QueueTableReader
from store.commit_log_reader import CommitLogReader
from store.consume_queue_reader import ConsumeQueueReader
from store.controller_mode import RoleNow
from store.errors import RecordDamagedError
from store.generation_aware_reader import GenerationAwareReader
from store.message_codec import RECORD_PLACE, read_properties, read_store_timestamp
from store.message_properties import find_property
from store.message_store_config import MessageStoreConfig
from store.put_aside import ReadBy, RecordGuard
from store.stored_units import CQ_UNIT, CQ_UNIT_SIZE, PRE_BLANK_SIZE

log = logging.getLogger(__name__)

TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
_QUEUE_ID: Final = 0
_OUT: Final = b"TIMER_OUT_MS"
_REAL_TOPIC: Final = b"REAL_TOPIC"
_DELETE_KEY: Final = b"TIMER_DEL_UNIQKEY"
_LARGEST: Final = 1 << 62
_DIGITS: Final = 19
_PHY_OFFSET: Final = Struct(">q")


class TimerRecord(NamedTuple):
    """What a record of the timer topic says. Times in ms."""

    queue_offset: int
    phy_offset: int
    size: int
    stored_ms: int
    out_ms: int
    topic: str
    deletes: bool


class TimerQueue:
    """See the module."""

    def __init__(
        self,
        config: MessageStoreConfig,
        page: ControlPage,
        table: QueueTableReader,
        role: RoleNow,
    ) -> None:
        """role: a slave's queue is entered as far as its master has."""
        self.role: Final = role
        self._table = table
        self._units = ConsumeQueueReader(config)
        self._current_units = GenerationAwareReader(self._units, table)
        self._log = CommitLogReader(
            config.log_directories, config.mapped_file_size_commit_log, page
        )
        self._guard = RecordGuard(ReadBy.TIMER_ENQUEUE)

    @property
    def bounds(self) -> tuple[int, int]:
        """(min, max) queue offset; (0, 0) without the topic."""
        return self._table.offsets(TIMER_TOPIC, _QUEUE_ID)

    @property
    def min_phy_offset(self) -> int:
        """First byte of the commit log that is still there."""
        return self._log.min_phy_offset

    @property
    def max_phy_offset(self) -> int:
        """End of the commit log."""
        return self._log.max_phy_offset

    def read(self, queue_offset: int, count: int) -> Iterator[tuple[int, TimerRecord | None]]:
        """(queue offset, record) of at most `count` units; None: there is none that can be entered,
        which is logged."""
        data = self._current_units.read_units(TIMER_TOPIC, _QUEUE_ID, queue_offset, count)
        for at in range(0, len(data) - CQ_UNIT_SIZE + 1, CQ_UNIT_SIZE):
            phy_offset, size, _ = CQ_UNIT.unpack_from(data, at)
            yield queue_offset, self._find(queue_offset, phy_offset, size)
            queue_offset += 1

    def phy_offset_at(self, queue_offset: int) -> int:
        """Where the record of a unit is; -1 without the unit."""
        data = self._current_units.read_units(TIMER_TOPIC, _QUEUE_ID, queue_offset, 1)
        found: int = _PHY_OFFSET.unpack_from(data)[0] if len(data) == CQ_UNIT_SIZE else -1
        return found

    def newest_stored_ms(self) -> int:
        """When the queue's last record was stored, ms; 0: it cannot be read, or there is none."""
        _low, high = self.bounds
        newest = [record for _offset, record in self.read(high - 1, 1)] if high else []
        return 0 if not newest or newest[0] is None else newest[0].stored_ms

    def offset_behind(self, phy_offset: int) -> int:
        """Queue offset of the first unit whose record is behind `phy_offset`."""
        low, high = self.bounds
        while low < high:
            middle = (low + high) // 2
            if self.phy_offset_at(middle) <= phy_offset:
                low = middle + 1
            else:
                high = middle
        return low

    def real_topic(self, phy_offset: int) -> str:
        """REAL_TOPIC of the record at `phy_offset`; empty when it cannot be read."""
        with self._guard.of(phy_offset):
            found = self._read(phy_offset)
            return "" if found is None else _text(found[2], _REAL_TOPIC)
        return ""

    def close(self) -> None:
        """Close the files; idempotent."""
        self._units.close()
        self._log.close()

    def _find(self, queue_offset: int, phy_offset: int, size: int) -> TimerRecord | None:
        if size == PRE_BLANK_SIZE or phy_offset < self._log.min_phy_offset:
            return None
        with self._guard.of(phy_offset):
            return self._find_at(queue_offset, phy_offset)
        return None

    def _find_at(self, queue_offset: int, phy_offset: int) -> TimerRecord | None:
        found = self._read(phy_offset)
        if found is None:
            log.warning("timer %s: no record at %s, skipped", queue_offset, phy_offset)
            return None
        size, stored_ms, properties = found
        out = find_property(properties, _OUT)
        if out is None or not out.isdigit() or len(out) > _DIGITS or int(out) > _LARGEST:
            log.warning(
                "timer %s at %s: TIMER_OUT_MS is %.60r, skipped", queue_offset, phy_offset, out
            )
            return None
        return TimerRecord(
            queue_offset,
            phy_offset,
            size,
            stored_ms,
            int(out),
            _text(properties, _REAL_TOPIC),
            find_property(properties, _DELETE_KEY) is not None,
        )

    def _read(self, phy_offset: int) -> tuple[int, int, bytes] | None:
        """Size, store time and properties of a record."""
        if phy_offset + RECORD_PLACE.size > self._log.max_phy_offset:
            return None
        view = self._log.view_of_file(phy_offset)
        position = phy_offset % self._log.file_size
        if view is None or self._log.fences.find(phy_offset):
            return None
        with view:
            if len(view) < position + RECORD_PLACE.size:
                return None
            size, _, _, place = RECORD_PLACE.unpack_from(view, position)
            if place != phy_offset:
                return None
            try:
                properties = read_properties(view, position)
            except RecordDamagedError:
                return None
            return size, read_store_timestamp(view, position), properties


def _text(properties: bytes, name: bytes) -> str:
    return str(find_property(properties, name) or b"", "utf-8", "replace")
