"""DerivedFiles: everything that is built from the commit log: consume queues, index, queue table.

Constructed on the main thread of process `store`; filled by StoreOpening before the services run
and by ReputMessageService afterwards. The log stays the truth: all of this can be deleted and
built again. It knows neither how the log was recovered nor who reads the queues.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Final

from ipc.clock import Clock
from ipc.control_page import ControlPage
from ipc.queue_table import QueueTableWriter
from store.commit_log_reader import CommitLogReader
from store.consume_queue_files import ConsumeQueueFiles
from store.consume_queue_table import ConsumeQueueTable
from store.control_slots import RECORDS_LEFT_OUT
from store.index_service import IndexService
from store.message_store_config import MessageStoreConfig
from store.record_properties import PropertyExtractor
from store.reput_message_service import Dispatcher


class DerivedFiles:
    """See the module."""

    def __init__(
        self,
        config: MessageStoreConfig,
        page: ControlPage,
        queue_table_fd: int,
        clock: Clock,
        on_index_flushed: Callable[[int], None],
    ) -> None:
        """No file is touched. on_index_flushed gets the store timestamp (ms) of what is on disk."""
        size = config.mapped_file_size_commit_log
        self.source: Final = CommitLogReader(config.commit_log_path, size, page)
        self.extractor: Final = PropertyExtractor(config.delay_level_ms)
        self.publisher: Final = QueueTableWriter(queue_table_fd)
        self.queues: Final = ConsumeQueueTable(
            ConsumeQueueFiles(
                config.consume_queue_path, config.mapped_file_size_consume_queue, writable=True
            ),
            self.publisher,
            functools.partial(_count, page),
        )
        self.index: Final = IndexService(
            config.index_path,
            config.max_hash_slot_num,
            config.max_index_num,
            clock,
            on_index_flushed,
        )
        self._has_index = config.message_index_enable

    def dispatchers(self) -> Sequence[Dispatcher]:
        """What builds them from records, in order."""
        if self._has_index:
            return self.queues.dispatch, self.index.dispatch
        return (self.queues.dispatch,)

    def close(self) -> None:
        """Flush and close the index, close the queues; the source stays readable."""
        if self._has_index:
            self.index.shutdown()
        self.queues.close()


def _count(page: ControlPage) -> None:
    page.counters[RECORDS_LEFT_OUT] += 1
