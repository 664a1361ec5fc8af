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
from store.fence_keeper import FenceKeeper
from store.index_service import IndexService
from store.log_damage import LogDamage
from store.log_fences import fences_path
from store.message_store_config import MessageStoreConfig
from store.queue_states import note_deleted
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
        self._config = config
        self._page = page
        self.source: Final = self.new_source()
        self.extractor: Final = self.new_extractor()
        self.publisher: Final = QueueTableWriter(queue_table_fd)
        self.queues: Final = ConsumeQueueTable(
            ConsumeQueueFiles(
                config.consume_queue_path, config.mapped_file_size_consume_queue, writable=True
            ),
            self.publisher,
            on_left_out=functools.partial(_count, page),
            on_deleted=lambda queues: note_deleted(config.queue_states_path, queues),
        )
        self.index: Final = IndexService(
            config.index_path,
            config.max_hash_slot_num,
            config.max_index_num,
            clock,
            on_index_flushed,
        )
        self.damage: Final = LogDamage(
            FenceKeeper(fences_path(config.commit_log_path), page), self.queues, self.source
        )
        self._has_index = config.message_index_enable

    def new_source(self) -> CommitLogReader:
        """A reader of the log for another thread."""
        size = self._config.mapped_file_size_commit_log
        return CommitLogReader(self._config.log_directories, size, self._page)

    def new_extractor(self) -> PropertyExtractor:
        """For another thread."""
        config = self._config
        return PropertyExtractor(config.delay_level_ms, with_lmq=config.dispatches_lmq)

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
