"""Running flags: why the store refuses writes, as bits of one number in the control page.

Written by the `store` process, any of its threads (one lock); read by everybody. 0 = writable.
Values are RocketMQ's RunningFlags. It decides nothing: whoever finds a reason sets it, and clears
it when the reason no longer holds.
"""

from __future__ import annotations

import enum
import logging
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)


class RunningFlag(enum.IntFlag):
    """The reasons. DISK_FULL stops puts only, the others stop consumequeue building too."""

    NOT_READABLE = 1
    NOT_WRITABLE = 2
    WRITE_LOGICS_QUEUE_ERROR = 4
    WRITE_INDEX_FILE_ERROR = 8
    DISK_FULL = 16


class RunningFlags:
    """The set of reasons. Several may set a flag; it ends when the last one clears it."""

    def __init__(self, publish: Callable[[int, str], None]) -> None:
        """`publish` gets the new number (0 at once) and the reasons, under the lock; it must be
        quick."""
        self._publish = publish
        self._lock = threading.Lock()
        self._holders: dict[RunningFlag, dict[str, str]] = {}
        """By flag: who set it, and why."""
        self._flags = RunningFlag(0)
        publish(0, "")

    @property
    def value(self) -> RunningFlag:
        """All reasons at this moment."""
        return self._flags

    def is_set(self, flag: RunningFlag) -> bool:
        """Whether `flag` is among the reasons."""
        return bool(self._flags & flag)

    def is_held(self, flag: RunningFlag, *, by: str) -> bool:
        """Whether `by` is among those that say that `flag` holds."""
        with self._lock:
            return by in self._holders.get(flag, {})

    @property
    def is_queue_writable(self) -> bool:
        """Whether consumequeue and index may be built (a full disk does not stop that)."""
        return not self._flags & ~(RunningFlag.DISK_FULL | RunningFlag.NOT_READABLE)

    def set(self, flag: RunningFlag, reason: str, *, by: str) -> bool:
        """`by` (a service's name) says that `flag` holds. True, and a log line, when it is new."""
        with self._lock:
            holders = self._holders.setdefault(flag, {})
            if by in holders:
                return False
            holders[by] = reason
            self._update(self._flags | flag)
        log.error("rejecting writes: %s, set by %s: %s", flag.name, by, reason)
        return True

    def clear(self, flag: RunningFlag, reason: str, *, by: str) -> bool:
        """`by` withdraws its reason. True, and a log line, if it had set it."""
        with self._lock:
            holders = self._holders.get(flag, {})
            if by not in holders:
                return False
            del holders[by]
            self._update(self._flags if holders else self._flags & ~flag)
        log.warning("%s cleared by %s: %s", flag.name, by, reason)
        return True

    def _update(self, flags: RunningFlag) -> None:
        self._flags = flags
        reasons = (reason for holders in self._holders.values() for reason in holders.values())
        self._publish(int(flags), "; ".join(reasons))
