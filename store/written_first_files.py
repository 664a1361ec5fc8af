"""WrittenFirstFiles: consume queue files some of whose units are written later.

Whatever is done with the files of a queue finds them written. In process `store`, the base of
LightQueueFiles. Guarded by: the lock of ConsumeQueueTable.

Tested by tests/store/test_light_queue_files.py.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

from store.consume_queue_files import ConsumeQueueFiles


class WrittenFirstFiles(ConsumeQueueFiles, ABC):
    """See the module."""

    @abstractmethod
    def _written(self, topic: str, queue_id: int) -> None:
        """What the queue has is in its files from now on. Raises DiskFullError, StoreError."""

    def list_starts(self, topic: str, queue_id: int) -> tuple[list[int], bool]:
        """See ConsumeQueueFiles."""
        self._written(topic, queue_id)
        return super().list_starts(topic, queue_id)

    def marks(self, topic: str, queue_id: int, start: int) -> tuple[int, int]:
        """See ConsumeQueueFiles."""
        self._written(topic, queue_id)
        return super().marks(topic, queue_id, start)

    def write(self, topic: str, queue_id: int, position: int, data: memoryview) -> bool:
        """See ConsumeQueueFiles."""
        self._written(topic, queue_id)
        return super().write(topic, queue_id, position, data)

    def make_whole(self, topic: str, queue_id: int, starts: Iterable[int]) -> int:
        """See ConsumeQueueFiles."""
        self._written(topic, queue_id)
        return super().make_whole(topic, queue_id, starts)

    def has_data_at(self, topic: str, queue_id: int, position: int) -> bool:
        """See ConsumeQueueFiles."""
        self._written(topic, queue_id)
        return super().has_data_at(topic, queue_id, position)

    def zero_from(self, topic: str, queue_id: int, position: int) -> None:
        """See ConsumeQueueFiles."""
        self._written(topic, queue_id)
        super().zero_from(topic, queue_id, position)
