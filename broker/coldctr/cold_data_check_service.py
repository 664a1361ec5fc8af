"""ColdDataCheckService: whether a record is cold, by its distance from the log's end and, with
coldDataScanEnable, by what of the log the page cache holds.

The loop thread asks; a thread of its own looks at the log's files every
timerColdDataCheckIntervalMs and replaces the whole table at once. While nothing is to be looked at
it sleeps. RocketMQ's counterpart: CommitLog.ColdDataCheckService of 5.3.3.
"""

from __future__ import annotations

import logging
import mmap
import time
from collections.abc import Callable, Mapping, Sequence

from ipc.service_thread import FailureHandler, ServiceThread
from store.mapped_file_queue import StoreFile
from store.message_store_config import MessageStoreConfig
from store.page_residency import sampled_residency

log = logging.getLogger(__name__)

_ASLEEP_MS = 3_600_000
_SLOW_S = 30
_DEFAULT_SAMPLE_STEPS = 32


class ColdDataCheckService(ServiceThread):
    """The table is owned by its thread, replaced whole and only read by others."""

    def __init__(
        self,
        config: MessageStoreConfig,
        hot_bytes: int,
        list_files: Callable[[], Sequence[StoreFile]],
        *,
        on_failure: FailureHandler | None = None,
    ) -> None:
        """hot_bytes: records so near to the log's end are never cold. list_files: the log's."""
        super().__init__("ColdDataCheckService", on_failure=on_failure)
        self._config = config
        self._file_size = config.mapped_file_size_commit_log
        self._hot_bytes = hot_bytes
        self._list_files = list_files
        self._resident: Mapping[int, bytes] = {}
        """Start of a file to its sampled pages. A file that is not here counts as hot."""

    def use(self, config: MessageStoreConfig) -> None:
        """Apply changed settings. Any thread."""
        self._config = config
        self.wakeup()

    def cold_edge(self, max_phy_offset: int) -> int:
        """Records before this offset are far enough from the log's end to be cold."""
        return max_phy_offset - self._hot_bytes

    def is_in_page_cache(self, phy_offset: int) -> bool:
        """Of a record before the cold edge: whether the last look found its page; False where
        nothing looks."""
        if not _scans(self._config):
            return False
        position = phy_offset % self._file_size
        pages = self._resident.get(phy_offset - position)
        if pages is None:
            return True
        index = position // mmap.PAGESIZE // _sample_step(self._config)
        return index < len(pages) and bool(pages[index] & 1)

    # -- the thread ------------------------------------------------------------------------------

    def step(self) -> None:
        """Look, or forget; then sleep."""
        config = self._config
        if not _scans(config):
            self._resident = {}
            self.wait_for_running(_ASLEEP_MS)
            return
        began_s = time.monotonic()
        self._resident = self._look(_sample_step(config))
        took_s = time.monotonic() - began_s
        level = logging.WARNING if took_s > _SLOW_S else logging.DEBUG
        log.log(level, "page cache: checked %s files in %.1f s", len(self._resident), took_s)
        self.wait_for_running(config.timer_cold_data_check_interval_ms)

    def _look(self, step: int) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        for file in self._list_files():
            if self.stopped:
                break
            try:
                found[file.start_offset] = sampled_residency(file.path, step)
            except FileNotFoundError:
                continue
            except OSError as error:
                log.warning(
                    "%s: cannot be checked, treated as being in memory: %s", file.path, error
                )
        return found


def _scans(config: MessageStoreConfig) -> bool:
    """Whether the page cache is looked at."""
    return config.cold_data_flow_control_enable and config.cold_data_scan_enable


def _sample_step(config: MessageStoreConfig) -> int:
    """Each so many-th page is looked at."""
    return config.sample_steps if config.sample_steps > 0 else _DEFAULT_SAMPLE_STEPS
