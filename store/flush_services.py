"""Which service flushes the log: at once for who waits, or a little behind the writer.

Called once, by the main thread of process `store`. In controller mode a change of the role waits
for a flush whatever flushDiskType says, so that the service of ASYNC_FLUSH serves it, too.

Tested by tests/store/test_controlled_store.py.
"""

from __future__ import annotations

from ipc.clock import Clock
from ipc.control_page import ControlPage
from ipc.service_thread import FailureHandler
from store.control_slots import FLUSHED_OFFSET, MAX_PHY_OFFSET, SYNC_FLUSH_WANTED
from store.controller_mode import RoleNow
from store.flush_real_time_service import FlushRealTimeService
from store.group_commit_service import GroupCommitService
from store.log_flusher import LogFlusher
from store.message_store_config import FlushDiskType, MessageStoreConfig


def build_flush(
    flusher: LogFlusher,
    config: MessageStoreConfig,
    page: ControlPage,
    role: RoleNow,
    clock: Clock,
    on_failure: FailureHandler,
) -> FlushRealTimeService | GroupCommitService:
    """The service, not started."""
    counters = page.counters
    if config.flush_disk_type is FlushDiskType.SYNC_FLUSH:
        return GroupCommitService(
            flusher, lambda: counters[SYNC_FLUSH_WANTED], on_failure=on_failure
        )
    if not role.is_controlled:
        return FlushRealTimeService(flusher, config, clock, on_failure=on_failure)

    def is_wanted() -> bool:
        wanted = min(counters[SYNC_FLUSH_WANTED], counters[MAX_PHY_OFFSET])
        return counters[FLUSHED_OFFSET] < wanted

    return FlushRealTimeService(flusher, config, clock, is_wanted=is_wanted, on_failure=on_failure)
