"""CompactionPull: what a pull from a compaction topic finds; the loop of `remoting` only.

Statuses, codes and next offsets are those of RocketMQ's CompactionLog.getMessage, with two
differences. An offset that the queue has reached and its log has not (or will not: records without
a key) waits, where RocketMQ sends the consumer elsewhere. And the filters of the subscription
apply, which RocketMQ leaves to the consumer. It knows no connection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.filter.subscription_filter import tag_code
from broker.longpolling.pull_header import PullHeader, Wanted
from broker.pull.pull_read import PullRead, read_outside
from broker.pull.pull_settings import PullSettings
from ipc.queue_table import QueueTableReader
from remoting.response_code import ResponseCode
from store.compaction.compaction_reader import CompactionReader, ReadLimits, Wants
from store.get_message_status import (
    FOUND,
    NO_MATCHED_MESSAGE,
    OFFSET_FOUND_NULL,
    OFFSET_OVERFLOW_BADLY,
    OFFSET_OVERFLOW_ONE,
    Outside,
    find_outside,
)


class CompactionPull:
    """See the module. Owned by: the loop thread."""

    def __init__(
        self,
        reader: CompactionReader,
        table: QueueTableReader,
        serves: Callable[[str], bool],
    ) -> None:
        """serves: whether pulls of a topic belong here."""
        self._reader = reader
        self._table = table
        self.serves: Final = serves

    def read(
        self,
        header: PullHeader,
        queue_offset: int,
        wanted: Wanted,
        settings: PullSettings,
    ) -> PullRead:
        """What there is at `queue_offset`."""
        topic, queue_id = header.topic, header.queueId
        _low, reached = self._table.offsets(topic, queue_id)
        bounds = self._reader.bounds(topic, queue_id)
        if bounds is None and reached:
            # Not open yet, or its records have no keys: what waits looks again when there is one.
            waits = Outside(OFFSET_FOUND_NULL, queue_offset, False)
            return read_outside(waits, queue_offset, 0, 0, settings)
        low, high = bounds = bounds or (0, 0)
        if (outside := _find_outside(low, high, reached, queue_offset)) is not None:
            return read_outside(outside, queue_offset, low, high, settings)
        return self._find(header, queue_offset, wanted, settings, bounds)

    def _find(
        self,
        header: PullHeader,
        queue_offset: int,
        wanted: Wanted,
        settings: PullSettings,
        bounds: tuple[int, int],
    ) -> PullRead:
        most = max(header.maxMsgNums, 1)
        found = self._reader.read(
            header.topic,
            header.queueId,
            queue_offset,
            ReadLimits(
                min(most, settings.count_in_memory),
                settings.bytes_in_memory,
                settings.count_in_disk,
                settings.bytes_in_disk,
                settings.memory_limit,
            ),
            _wants(wanted),
        )
        if not found.looked_at:
            waits = Outside(OFFSET_FOUND_NULL, queue_offset, False)
            return read_outside(waits, queue_offset, *bounds, settings)
        if not found.records:
            code = ResponseCode.PULL_RETRY_IMMEDIATELY
            return PullRead(code, NO_MATCHED_MESSAGE, found.next_offset, *bounds, found.slow)
        size = sum(map(len, found.records))
        return PullRead(
            0,
            FOUND,
            found.next_offset,
            *bounds,
            found.slow,
            found.records,
            size,
            len(found.records),
        )


def _wants(wanted: Wanted) -> Wants:
    codes, properties = wanted

    def wants(tags_code: int, record: bytes) -> bool:
        if codes is not None and tag_code(tags_code) not in codes:
            return False
        return properties is None or properties.matches(memoryview(record), 0)

    return wants


def _find_outside(low: int, high: int, reached: int, queue_offset: int) -> Outside | None:
    """What an offset is in a compaction log of [low, high), whose queue has reached `reached`
    already; None: the log is looked at, also before its first record."""
    if high == 0 and reached == 0:
        return find_outside(0, 0, queue_offset)
    if high <= queue_offset <= max(high, reached):
        return Outside(OFFSET_OVERFLOW_ONE, queue_offset, False)
    if queue_offset > high:
        return Outside(OFFSET_OVERFLOW_BADLY, high if low else 0, True)
    return None
