"""Closes the store: the files as the next start wants them, and the statement that they are whole.

Runs on the main thread of process `store` after its services have stopped and, for all that
changes the log, after the log's writer has. It knows no services.
"""

from __future__ import annotations

import logging

from ipc.control_page import ControlPage
from store.careful_dispatch import read_chunk
from store.clean_exit import delete_abort, describe_exit, write_clean_exit
from store.control_slots import (
    APPEND_END,
    DISPATCHED_OFFSET,
    FLUSHED_OFFSET,
    MAX_PHY_OFFSET,
    MIN_PHY_OFFSET,
)
from store.derived_files import DerivedFiles
from store.mapped_file import zero_range
from store.mapped_file_queue import MappedFileQueue
from store.message_store_config import MessageStoreConfig
from store.queue_states import save_queue_states
from store.record_arrays import ScanEnd

log = logging.getLogger(__name__)


def cut_incomplete_record(
    config: MessageStoreConfig, page: ControlPage, derived: DerivedFiles
) -> None:
    """Cut off an incomplete last record, which a slave may have received: the next start requests
    it again. Raises StoreError, OSError."""
    counters = page.counters
    start, end = counters[DISPATCHED_OFFSET], counters[MAX_PHY_OFFSET]
    if start >= end:
        return
    records, following = read_chunk(derived.source, start, end, end - start, derived.extractor)
    if following != start or records.end is ScanEnd.INVALID:
        return
    position = start % config.mapped_file_size_commit_log
    path = config.log_directories.path_of(start - position)
    zero_range(path, position, position + end - start)
    counters[MAX_PHY_OFFSET] = counters[APPEND_END] = counters[FLUSHED_OFFSET] = start
    log.info("the log ended within a record: truncated from %s to %s", end, start)


def mark_clean_exit(config: MessageStoreConfig, page: ControlPage, derived: DerivedFiles) -> None:
    """Write clean.exit and the queues' states, delete abort: the next start need not scan. Raises
    OSError."""
    counters = page.counters
    save_queue_states(config.queue_states_path, derived.queues, counters[MIN_PHY_OFFSET])
    files = MappedFileQueue(config.log_directories, config.mapped_file_size_commit_log)
    files.refresh()
    clean_exit = describe_exit(
        files,
        max_phy_offset=counters[MAX_PHY_OFFSET],
        dispatched_offset=counters[DISPATCHED_OFFSET],
        queue_count=len(derived.queues),
        batch_unit_count=derived.batch_queues.unit_count,
    )
    files.close()
    if clean_exit is not None:
        write_clean_exit(config.clean_exit_path, clean_exit)
    delete_abort(config.abort_path)
