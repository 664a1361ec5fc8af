"""DerivedFiles: everything that is built from the commit log: consume queues, index, queue table.

Constructed on the main thread of process `store`; filled by StoreOpening before the services run
and by ReputMessageService afterwards. The log stays the truth: all of this can be deleted and
built again. It knows neither how the log was recovered nor who reads the queues.

Tested by tests/store/test_slave_message_store.py.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from typing import Final

from ipc.clock import Clock
from ipc.control_page import ControlPage, ProcessIndex
from ipc.queue_table import QueueTableWriter
from store.batch_consume_queue_table import BatchConsumeQueueTable
from store.batch_topics import BatchTopics
from store.careful_dispatch import CarefulDispatch, Dispatcher
from store.clean_consume_queue_service import clean_table
from store.clean_exit import left_light_queues
from store.commit_log_reader import CommitLogReader
from store.consume_queue_files import ConsumeQueueFiles, writers_open_files
from store.consume_queue_table import ConsumeQueueTable
from store.control_slots import (
    LIGHT_QUEUES_UNWRITABLE,
    MIN_PHY_OFFSET,
    RECORDS_LEFT_OUT,
    STORE_STATE,
    StoreState,
)
from store.fence_keeper import FenceKeeper
from store.few_records import FewRecordsDispatch
from store.index_service import IndexService
from store.light_queue_files import LightQueueFiles
from store.light_queue_table import LightQueueTable
from store.log_damage import LogDamage
from store.log_dispatch import dispatch_range
from store.log_fences import fences_path
from store.message_store_config import MessageStoreConfig
from store.queue_states import note_deleted
from store.record_properties import PropertyExtractor

log = logging.getLogger(__name__)


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
        """No file is written. on_index_flushed gets the store timestamp (ms) of what is on disk."""
        self._config = config
        self._page = page
        self._has_light = config.dispatches_lmq or _has_unfinished_light_queues(config)
        self.source: Final = self.new_source()
        self.extractor: Final = self.new_extractor()
        self.publisher: Final = QueueTableWriter(queue_table_fd)
        root, file_size = config.consume_queue_path, config.mapped_file_size_consume_queue
        open_files = writers_open_files()
        self.light_files: Final = (
            LightQueueFiles(root, file_size, self.publisher, open_files=open_files)
            if self._has_light
            else None
        )
        on_left_out = functools.partial(_count, page)
        on_deleted = functools.partial(note_deleted, config.queue_states_path)
        self.queues: Final = (
            ConsumeQueueTable(
                ConsumeQueueFiles(root, file_size, writable=True, open_files=open_files),
                self.publisher,
                on_left_out=on_left_out,
                on_deleted=on_deleted,
            )
            if self.light_files is None
            else LightQueueTable(
                self.light_files, self.publisher, on_left_out=on_left_out, on_deleted=on_deleted
            )
        )
        if self.light_files is not None:
            note_count = functools.partial(page.counters.__setitem__, LIGHT_QUEUES_UNWRITABLE)
            self.light_files.unwritable.on_change = note_count
            note_count(0)
        self.batch_queues: Final = BatchConsumeQueueTable(
            ConsumeQueueFiles(
                config.batch_consume_queue_path,
                config.mapper_file_size_batch_consume_queue,
                writable=True,
                size_setting="mapperFileSizeBatchConsumeQueue",
            ),
            self.publisher,
            self.queues,
            BatchTopics(config.config_path / "topics.json"),
            self._rebuild,
            clock.monotonic_ms,
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
        self._has_index = config.writes_index

    def new_source(self) -> CommitLogReader:
        """A reader of the log for another thread."""
        size = self._config.mapped_file_size_commit_log
        return CommitLogReader(self._config.log_directories, size, self._page)

    def new_extractor(self) -> PropertyExtractor:
        """For another thread."""
        config = self._config
        return PropertyExtractor(config.delay_level_ms, with_lmq=self._has_light)

    def dispatchers(self, on_moved: Callable[[], None] = lambda: None) -> Sequence[Dispatcher]:
        """What builds them from records, in order: batch queues leave the rest to the others.
        on_moved: called once consumers can read the records, before they are indexed."""
        queues = (self.batch_queues.dispatch, self.queues.dispatch, lambda records: on_moved())
        return (*queues, self.index.dispatch) if self._has_index else queues

    def careful_dispatch(self, on_moved: Callable[[], None]) -> CarefulDispatch:
        """What hands records to the dispatchers. on_moved: as of `dispatchers`."""
        return CarefulDispatch(self.source, self.extractor, self.dispatchers(on_moved))

    def few_records(self, on_moved: Callable[[], None]) -> FewRecordsDispatch:
        """What builds them from a few records at once. on_moved: as of `dispatchers`."""
        index = self.index if self._has_index else None
        return FewRecordsDispatch(
            self.source,
            self.extractor,
            self.queues,
            self.batch_queues.concerns,
            index,
            on_moved,
        )

    def _rebuild(self, start: int, end: int, dispatcher: Dispatcher) -> None:
        """Dispatch the records of [start, end) once more, on the thread of dispatch."""
        dispatch_range(
            self.source,
            max(start, self.source.min_phy_offset),
            end,
            self.new_extractor(),
            (dispatcher,),
            lambda _at: self._beat(),
            fence_off=self.damage.fence_off,
        )

    def _beat(self) -> None:
        """It may take longer than a process may be silent."""
        is_ready = self._page.counters[STORE_STATE] == StoreState.READY
        beat = self._page.beat if is_ready else self._page.beat_starting
        beat(ProcessIndex.STORE)

    def max_phy_offset(self) -> int:
        """End of the newest record that has a unit in any queue; 0 for an empty store."""
        return max(self.queues.max_phy_offset(), self.batch_queues.max_phy_offset())

    def queue_end(self, topic: str, queue_id: int) -> tuple[int, int]:
        """The next offset of a queue, and the end of its last record; zeros for none."""
        queue = self.queues.find(topic, queue_id) or self.batch_queues.find(topic, queue_id)
        return (0, 0) if queue is None else (queue.max_offset, queue.max_phy_offset)

    def publish_queues(self) -> None:
        """After recovery: all queues, with their min offsets corrected."""
        low = self._page.counters[MIN_PHY_OFFSET]
        self.queues.publish_all(min_phy_offset=low)
        self.batch_queues.publish_all(min_phy_offset=low)

    def unwritten_units(self) -> tuple[int, int]:
        """See FlushedQueues."""
        units, light = self.publisher.unwritten, self.light_files
        return units.end, -1 if light is not None and light.unwritable else units.begin

    def write_units(self, until: int) -> bool:
        """See FlushedQueues."""
        return self.light_files is not None and self.light_files.write_out(until, self.queues.lock)

    def flush_queues(self, least_pages: int) -> int:
        """See ConsumeQueueTable.flush."""
        return self.queues.flush(least_pages) + self.batch_queues.flush(least_pages)

    def clean_queues(self, min_phy_offset: int, pause: Callable[[], bool]) -> int:
        """See clean_table."""
        deleted = clean_table(self.queues, min_phy_offset, pause)
        return deleted + clean_table(self.batch_queues, min_phy_offset, pause)

    def close(self) -> None:
        """Flush and close the index, close the queues; the source stays readable."""
        if self._has_index:
            self.index.shutdown()
        self.queues.close()
        self.batch_queues.close()


def _has_unfinished_light_queues(config: MessageStoreConfig) -> bool:
    """Whether those that the log lacks are built although the settings have none, until a stop is
    clean: switched off after a kill they would never get what waited for their files."""
    if not left_light_queues(config.abort_path):
        return False
    log.warning(
        "%s: the store had light queues and was not stopped cleanly: what messages have in them is "
        "built although enableLmq and enableMultiDispatch are off",
        config.abort_path,
    )
    return True


def _count(page: ControlPage) -> None:
    page.counters[RECORDS_LEFT_OUT] += 1
