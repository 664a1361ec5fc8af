"""BatchPull: pulls from topics with batch consume queues (queue.type=BatchCQ).

Runs on the loop thread. Records go out whole, also where a pull begins within one: an inner batch
is unpacked by the client. Statuses and limits are those of RocketMQ's
DefaultMessageStore.getMessage, where each unit counts as the messages that it holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from broker.filter.subscription_filter import tag_code
from broker.longpolling.pull_header import PullHeader, Wanted
from broker.pull.pull_read import PullRead
from broker.pull.pull_settings import PullSettings
from broker.store_access.batch_queues import BatchQueues
from remoting.connection import Buffer
from remoting.response_code import ResponseCode
from store.batch_units import BatchUnit
from store.commit_log_reader import CommitLogReader
from store.get_message_status import (
    FOUND,
    MESSAGE_WAS_REMOVING,
    NO_MATCHED_MESSAGE,
    OFFSET_FOUND_NULL,
)

_SCAN_TAGS: Final = 800
_SCAN_PROPERTIES: Final = 100
"""Units looked at in one read with a filter: the loop serves nothing else meanwhile."""


class BatchPull:
    """See the module. Owned by: the loop thread."""

    def __init__(self, queues: BatchQueues, log_files: CommitLogReader) -> None:
        self._queues = queues
        self._log = log_files

    def serves(self, topic: str) -> bool:
        """Whether pulls of `topic` are read here."""
        return self._queues.hold(topic)

    def read(
        self,
        header: PullHeader,
        queue_offset: int,
        wanted: Wanted,
        limits: PullSettings,
        bounds: tuple[int, int],
    ) -> PullRead:
        """What lies from `queue_offset` on, which is within `bounds`, the queue's offsets."""
        log_end = self._log.max_phy_offset
        most = max(header.maxMsgNums, 1)
        scan = max(min(most, limits.count_in_memory), 1)
        if wanted != (None, None):
            scan = _SCAN_TAGS if wanted[1] is None else _SCAN_PROPERTIES
        pieces: list[Buffer] = []
        count = size = 0
        next_offset, last_phy, removed = queue_offset, log_end, False
        units = self._queues.read(header.topic, header.queueId, queue_offset, scan, bounds[1])
        for unit, record in self._records(header, units, wanted):
            in_memory = unit.phy_offset >= log_end - limits.memory_limit
            most_bytes = limits.bytes_in_memory if in_memory else limits.bytes_in_disk
            most_count = limits.count_in_memory if in_memory else limits.count_in_disk
            if count and (
                count + unit.messages > most or size + unit.size > most_bytes or count >= most_count
            ):
                break
            next_offset, last_phy = unit.following, unit.phy_offset
            if record is None:
                removed = True
            elif record:
                pieces.append(record)
                size += unit.size
                count += unit.messages
        slow = log_end - last_phy > limits.memory_limit
        code, status = ResponseCode.SUCCESS, FOUND
        if next_offset == queue_offset:
            code, status = ResponseCode.PULL_NOT_FOUND, OFFSET_FOUND_NULL
        elif not count:
            code = ResponseCode.PULL_RETRY_IMMEDIATELY
            status = MESSAGE_WAS_REMOVING if removed else NO_MATCHED_MESSAGE
        return PullRead(
            code, status, next_offset, *bounds, slow, pieces=pieces, size=size, count=count
        )

    def _records(
        self, header: PullHeader, units: list[BatchUnit], wanted: Wanted
    ) -> Iterator[tuple[BatchUnit, Buffer | None]]:
        """Each unit with its record: empty for one that is not wanted, None for one that is gone;
        up to the first that is wrong."""
        codes, properties = wanted
        log_files = self._log
        for unit in units:
            if codes is not None and tag_code(unit.tags_code) not in codes:
                yield unit, b""
                continue
            phy_offset = unit.phy_offset
            view = log_files.view_of_file(phy_offset)
            is_gone = phy_offset < log_files.min_phy_offset or view is None
            if view is None or is_gone or log_files.fences.find(phy_offset) is not None:
                yield unit, None
                continue
            if not self._queues.is_right(log_files, header.topic, header.queueId, unit):
                return
            at = phy_offset % log_files.file_size
            matches = properties is None or properties.matches(view, at)
            yield unit, view[at : at + unit.size] if matches else b""
