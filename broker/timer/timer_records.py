"""TimerRecords: the records of the timer topic as the delivery reads them. Loop thread."""

from __future__ import annotations

from typing import Final

from broker.timer.asked_time import find_asked_ms
from broker.topic.system_topics import TIMER_TOPIC
from store.commit_log_reader import CommitLogReader
from store.message import Message
from store.message_codec import decode_record
from store.put_aside import ReadBy, RecordGuard


class TimerRecords:
    """See the module. Any of its calls raises StoreError."""

    def __init__(self, reader: CommitLogReader, precision_ms: int) -> None:
        self._reader = reader
        self._precision_ms = precision_ms
        self.guard: Final = RecordGuard(ReadBy.TIMER_DELIVERY)
        """Records that raise are none of the topic."""

    def message(self, phy_offset: int) -> Message | None:
        """The checked record at a phy offset; None where there is none of the topic."""
        with self.guard.of(phy_offset):
            raw = self._reader.record_at(phy_offset)
            message = None if raw is None else decode_record(raw, 0)[0]
            return message if message is not None and message.topic == TIMER_TOPIC else None
        return None

    def asked_ms(self, phy_offset: int) -> int | None:
        """See find_asked_ms; the record is not checked."""
        with self.guard.of(phy_offset):
            head = self._reader.head_at(phy_offset)
            return None if head is None else find_asked_ms(head, self._precision_ms)
        return None
