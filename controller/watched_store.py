"""WatchedStore: a store of groups whose calls are counted and timed, for /metrics and /readyz.

Called on the store's thread; `seen` on the loop's.
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
        self._trouble = ""
        self._began_s: float | None = None

    @property
    def seen(self) -> StoreSeen:
        """How it does now."""
        began_s = self._began_s
        busy_ms = 0 if began_s is None else int((time.monotonic() - began_s) * 1000)
        return StoreSeen(self._trouble, busy_ms)

    def swap(self, swap: Swap) -> SwapEnded:
        """See GroupStore."""
        began_s = time.monotonic()
        failed = True
        try:
            with self._watched():
                ended = self._store.swap(swap)
            failed, self._trouble = False, ""
        finally:
            self._metrics.wrote(time.monotonic() - began_s, failed=failed)
        return ended

    def load(self, broker_name: str) -> Stored:
        """See GroupStore."""
        try:
            with self._watched():
                return self._store.load(broker_name)
        except (OSError, ControllerStoreError):
            self._metrics.read_failed()
            raise

    def close(self) -> None:
        """See GroupStore."""
        self._store.close()

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Trouble stays until a write works; one group that cannot be read is none of the store."""
        self._began_s = time.monotonic()
        try:
            yield
        except UnreadableGroupError:
            raise
        except (OSError, ControllerStoreError) as error:
            self._trouble = str(error)
            raise
        finally:
            self._began_s = None
