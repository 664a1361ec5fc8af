"""FenceKeeper: the one writer of the log's fences, and what is said about them.

Process `store`: recovery's findings on the main thread before the services, the dispatch thread's
afterwards. What it writes is on disk before anybody steps over damage; then the control page tells
the readers of all processes (CommitLogReader.fences). It judges no bytes.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from ipc.control_page import ControlPage
from store.control_slots import FENCE_COUNT, FENCED_BYTES, LOG_FENCES
from store.errors import DiskFullError, StoreError
from store.log_fences import Fence, LogFences, load_fences, save_fences
from store.mapped_file import NO_SPACE

log = logging.getLogger(__name__)


class FenceKeeper:
    """See the module. `fences`: changed under a lock, read by any thread."""

    def __init__(self, path: Path, page: ControlPage) -> None:
        """path: the fences' file (log_fences.fences_path)."""
        self._path = path
        self._counters = page.counters
        self._lock = threading.Lock()
        self.fences = LogFences()

    def load(self) -> bool:
        """Read the file, before recovery; False when it is not valid: then it is moved aside, and
        the whole log is to be searched for damage. Raises OSError."""
        try:
            self.fences = load_fences(self._path)
        except StoreError as error:
            bad = self._path.with_name(self._path.name + ".bad")
            self._path.replace(bad)
            log.error("%s; kept as %s; searching the whole log for damage", error, bad)
            return False
        return True

    def replace_all(self, fences: LogFences) -> None:
        """After recovery: these there are, of which those that are new get a log line. Raises
        OSError."""
        with self._lock:
            known = {fence.start for fence in self.fences}
            for fence in fences:
                if fence.start not in known:
                    _report(fence)
            self._publish(fences)
        if fences:
            log.error(
                "commit log: %s damaged ranges of %s bytes are fenced (%s)",
                len(fences),
                fences.byte_count,
                self._path,
            )

    def refresh(self) -> None:
        """At a rejoin: what the file says holds. Raises OSError."""
        self.load()
        with self._lock:
            self._publish(self.fences)

    def add(self, fence: Fence) -> None:
        """Nobody reads inside of `fence` from now on; one that starts there is replaced. Raises
        DiskFullError, OSError."""
        with self._lock:
            if self.fences.find(fence.start) is None:
                _report(fence)
            self._publish(self.fences.with_fence(fence))

    def lift(self, start: int) -> None:
        """What the fence that starts at `start` had inside can be read again. Raises OSError."""
        with self._lock:
            self._publish(self.fences.without(start))

    def _publish(self, fences: LogFences) -> None:
        try:
            save_fences(self._path, fences)
        except OSError as error:
            if error.errno in NO_SPACE:
                raise DiskFullError(f"{self._path}: {error.strerror}") from error
            raise
        self.fences = fences
        counters = self._counters
        counters[FENCE_COUNT] = len(fences)
        counters[FENCED_BYTES] = fences.byte_count
        counters[LOG_FENCES] += 1


def _report(fence: Fence) -> None:
    log.error(
        "commit log: damage is fenced, the records after it are kept: %s (%s bytes)",
        fence,
        fence.end - fence.start,
    )
