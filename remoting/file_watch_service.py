"""FileWatchService: a thread that watches files for changes.

Polls size, modification time and inode twice a second, following symbolic links, so that a file
replaced by another one (as Kubernetes does) counts as changed. Knows nothing of the contents.
Follows RocketMQ's service of this name, which reads the files each time.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from typing import Final

INTERVAL_S: Final = 0.5
_STOP_S: Final = 5.0

_State = tuple[int, int, int] | None


class FileWatchService:
    """Watches a fixed set of files. `start` and `shutdown` once each, from one thread."""

    def __init__(
        self,
        paths: Iterable[str],
        on_changed: Callable[[frozenset[str]], None],
        *,
        interval_s: float = INTERVAL_S,
    ) -> None:
        """on_changed: called on the service's thread with the changed files, including created and
        deleted ones. It must not raise."""
        self._states = {path: _state_of(path) for path in paths}
        self._on_changed = on_changed
        self._interval_s = interval_s
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="FileWatchService", daemon=True)

    def start(self) -> None:
        """Start watching."""
        self._thread.start()

    def shutdown(self) -> None:
        """Stop watching and wait for the thread. Idempotent."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(_STOP_S)

    def _run(self) -> None:
        while not self._stopping.wait(self._interval_s):
            self.look()

    def look(self) -> None:
        """Poll once."""
        now = {path: _state_of(path) for path in self._states}
        changed = frozenset(path for path, state in now.items() if state != self._states[path])
        self._states = now
        if changed:
            self._on_changed(changed)


def _state_of(path: str) -> _State:
    """The state of a file; None if it does not exist or is not accessible."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns, found.st_ino
