"""Where a process keeps the records that it puts aside (store/put_aside.py).

Called by the composition roots of the processes that read the store, before anything is read.
"""

from __future__ import annotations

from broker.processes.child import Child
from ipc.clock import process_clock
from store.commit_log_reader import CommitLogReader
from store.message_store_config import MessageStoreConfig
from store.put_aside import RECORDS


def keep_records_aside(child: Child, store: MessageStoreConfig) -> None:
    """From now on they outlive the process, and the supervisor shows them."""
    reader = CommitLogReader(store.log_directories, store.mapped_file_size_commit_log, child.page)
    RECORDS.keep(store.root, child.page, child.index, reader.record_at, process_clock())
