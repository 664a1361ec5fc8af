"""WatchedStore: a store of groups whose calls are counted and timed, for /metrics and /readyz.

Called on the store's thread; `seen` on the loop's. Trouble of writing stays until a write works, as
a full disk can be read; that of reading until anything works: weeks may pass until the next write.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from controller.controller_metrics import ControllerMetrics
from controller.controller_seen import StoreSeen
from controller.events import Stored, Swap, SwapEnded
from controller.group_store import ControllerStoreError, GroupStore, UnreadableGroupError


class WatchedStore:
    """A GroupStore."""

    def __init__(self, store: GroupStore, metrics: ControllerMetrics) -> None:
        self._store = store
        self._metrics = metrics
        # Single assignments: the loop reads them.
        self._write_trouble = ""
        self._read_trouble = ""
        self._began_s: float | None = None

    @property
    def seen(self) -> StoreSeen:
        """How it does now."""
        began_s = self._began_s
        busy_ms = 0 if began_s is None else int((time.monotonic() - began_s) * 1000)
        return StoreSeen(self._write_trouble or self._read_trouble, busy_ms)

    def swap(self, swap: Swap) -> SwapEnded:
        """See GroupStore."""
        began_s = time.monotonic()
        failed = True
        try:
            with self._timed():
                ended = self._store.swap(swap)
            failed, self._write_trouble, self._read_trouble = False, "", ""
        except (OSError, ControllerStoreError) as error:
            self._write_trouble = str(error)
            raise
        finally:
            self._metrics.wrote(time.monotonic() - began_s, failed=failed)
        return ended

    def load(self, broker_name: str) -> Stored:
        """See GroupStore."""
        try:
            with self._timed():
                stored = self._store.load(broker_name)
        except UnreadableGroupError:
            # One group that cannot be read is no trouble of the store.
            self._metrics.read_failed()
            raise
        except (OSError, ControllerStoreError) as error:
            self._read_trouble = str(error)
            self._metrics.read_failed()
            raise
        self._read_trouble = ""
        return stored

    def close(self) -> None:
        """See GroupStore."""
        self._store.close()

    @contextmanager
    def _timed(self) -> Iterator[None]:
        self._began_s = time.monotonic()
        try:
            yield
        finally:
            self._began_s = None
