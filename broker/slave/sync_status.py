"""SyncStatuses: what became of each kind of table that a slave copies, and what may go wrong.

Written by the thread of SlaveSynchronize, read by any. The counts lie in the control page, which
outlives the process. Knows no table.

Tested by tests/broker/slave/test_slave_synchronize.py.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Final

from broker.json_config_manager import JsonConfigManager
from broker.out.broker_outer_api import BrokerAnswerError
from broker.slave.sync_kind import SLAVE_SYNC_FAILURES, SLAVE_SYNC_SUCCESS, SyncKind
from ipc.clock import Clock
from ipc.command_channel import CommandError
from remoting.errors import RemotingError, RequestError

log = logging.getLogger(__name__)

TIMEOUT_MS: Final = 3_000
"""Timeout of each request, as in RocketMQ."""


class SlaveSyncError(Exception):
    """A table was copied, but not all resulting changes could be made."""


TROUBLE: Final = (
    RemotingError,
    BrokerAnswerError,
    RequestError,
    ValueError,
    CommandError,
    OSError,
    SlaveSyncError,
)
"""Errors of the network, of another broker's response, of process `store` and of the disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncStatus:
    """Status of one kind. Times are wall clock ms, 0 = never."""

    last_success_ms: int = 0
    """When the table that counts now was asked for."""
    failures: int = 0
    last_error_ms: int = 0
    last_error: str | None = None
    """The last failure, kept after a recovery; last_success_ms is later in that case."""


class SyncStatuses:
    """See the module. Each status is replaced atomically."""

    def __init__(self, counters: memoryview[int], clock: Clock) -> None:
        """counters: of the control page."""
        self._counters = counters
        self._clock = clock
        self._status = {
            kind: SyncStatus(
                last_success_ms=counters[SLAVE_SYNC_SUCCESS + kind],
                failures=counters[SLAVE_SYNC_FAILURES + kind],
            )
            for kind in SyncKind
        }

    def copy(self) -> dict[SyncKind, SyncStatus]:
        """The status of each kind. Any thread."""
        return self._status.copy()

    def succeeded(self, kind: SyncKind, master: str, asked_ms: int) -> None:
        """Copied from a table that was asked for at asked_ms."""
        old = self._status[kind]
        self._status[kind] = replace(old, last_success_ms=asked_ms)
        self._counters[SLAVE_SYNC_SUCCESS + kind] = asked_ms
        if old.last_success_ms <= old.last_error_ms:
            log.info("master %s: %s copied", master, kind.name)

    def failed(self, kind: SyncKind, master: str, error: Exception) -> None:
        """Could not be copied; said once."""
        old = self._status[kind]
        text = f"{type(error).__name__}: {error}"
        self._status[kind] = replace(
            old,
            failures=old.failures + 1,
            last_error=text,
            last_error_ms=self._clock.now_ms(),
        )
        self._counters[SLAVE_SYNC_FAILURES + kind] = old.failures + 1
        again = text == old.last_error and old.last_error_ms >= old.last_success_ms
        log.log(
            logging.DEBUG if again else logging.WARNING,
            "master %s: could not copy %s, retrying in the next round (%s failures): %s",
            master,
            kind.name,
            old.failures + 1,
            text,
        )


def save_copied(manager: JsonConfigManager) -> None:
    """Save a table that was taken over. Raises SlaveSyncError."""
    if not manager.save_if_changed():
        raise SlaveSyncError(f"{manager.path} could not be saved, see the preceding log lines")
