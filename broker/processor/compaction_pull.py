"""CompactionPull: what a pull from a compaction topic finds; the loop of `remoting` only.

Statuses, codes and next offsets are those of RocketMQ's CompactionLog.getMessage, with two
differences. An offset that the queue has reached and its log has not (or will not: records without
a key) waits, where RocketMQ sends the consumer elsewhere. And the filters of the subscription
apply, which RocketMQ leaves to the consumer. It knows no connection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from broker.filter.subscription_filter import tag_code
from broker.longpolling.pull_header import PullHeader, Wanted
from broker.processor.pull_read import PullRead
from ipc.queue_table import QueueTableReader
from remoting.response_code import ResponseCode
from store.compaction.compaction_reader import CompactionReader, ReadLimits, Wants


class CompactionSettings(Protocol):
    """The settings of pulls that are used here (PullSettings)."""

    @property
    def count_in_memory(self) -> int:
        """Most messages of a pull."""

    @property
    def bytes_in_memory(self) -> int:
        """Most bytes of a pull."""

    @property
    def count_in_disk(self) -> int:
        """Most messages of what is not in memory."""

    @property
    def bytes_in_disk(self) -> int:
        """Most bytes of what is not in memory."""

    @property
    def memory_limit(self) -> int:
        """Bytes behind the log's end that count as in memory."""

    @property
    def is_slave(self) -> bool:
        """Whether this is a slave."""

    @property
    def offset_check_in_slave(self) -> bool:
        """Whether a slave corrects offsets, too."""


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
        settings: CompactionSettings,
    ) -> PullRead:
        """What there is at `queue_offset`."""
        topic, queue_id = header.topic, header.queueId
        _low, reached = self._table.offsets(topic, queue_id)
        bounds = self._reader.bounds(topic, queue_id)
        if bounds is None and reached:
            # Not open yet, or its records have no keys: what waits looks again when there is one.
            return _wait(b"OFFSET_FOUND_NULL", queue_offset, (0, 0))
        low, high = bounds = bounds or (0, 0)
        if high == 0 and reached == 0:
            status = b"NO_MESSAGE_IN_QUEUE"
            if queue_offset:
                return _moved(status, queue_offset, 0, bounds, settings)
            return _wait(status, queue_offset, bounds)
        if high <= queue_offset <= max(high, reached):
            return _wait(b"OFFSET_OVERFLOW_ONE", queue_offset, bounds)
        if queue_offset > high:
            following = high if low else 0
            return _moved(b"OFFSET_OVERFLOW_BADLY", queue_offset, following, bounds, settings)
        return self._find(header, queue_offset, wanted, settings, bounds)

    def _find(
        self,
        header: PullHeader,
        queue_offset: int,
        wanted: Wanted,
        settings: CompactionSettings,
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
            return _wait(b"OFFSET_FOUND_NULL", queue_offset, bounds)
        if not found.records:
            code = ResponseCode.PULL_RETRY_IMMEDIATELY
            return PullRead(code, b"NO_MATCHED_MESSAGE", found.next_offset, *bounds, found.slow)
        size = sum(map(len, found.records))
        return PullRead(
            0,
            b"FOUND",
            found.next_offset,
            *bounds,
            found.slow,
            found.records,
            size,
            len(found.records),
        )


def _wait(status: bytes, asked: int, bounds: tuple[int, int]) -> PullRead:
    return PullRead(ResponseCode.PULL_NOT_FOUND, status, asked, *bounds)


def _moved(
    status: bytes,
    asked: int,
    following: int,
    bounds: tuple[int, int],
    settings: CompactionSettings,
) -> PullRead:
    if settings.is_slave and not settings.offset_check_in_slave:
        return PullRead(ResponseCode.PULL_RETRY_IMMEDIATELY, status, asked, *bounds)
    return PullRead(ResponseCode.PULL_OFFSET_MOVED, status, following, *bounds)


def _wants(wanted: Wanted) -> Wants:
    codes, properties = wanted

    def wants(tags_code: int, record: bytes) -> bool:
        if codes is not None and tag_code(tags_code) not in codes:
            return False
        return properties is None or properties.matches(memoryview(record), 0)

    return wants
