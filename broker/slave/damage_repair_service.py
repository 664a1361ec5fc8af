"""DamageRepairService: when damage of this broker's log is repaired, and its digests are compared.

A thread of process `remoting`, on masters and slaves. While ranges of the log are fenced
(store/log_fences.py) it has each repaired (FenceRepair). When a scrub's pass has ended, or an
operator asks, it has the digests of the log compared (DigestComparison).

Tested by tests/faults/test_log_damage.py.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, replace
from typing import Final

from broker.slave.digest_comparison import DigestComparison
from broker.slave.fence_repair import FenceRepair
from broker.slave.group_members import FindMembers
from broker.slave.repair_commands import RepairCommands
from ipc.clock import Clock
from ipc.command_channel import CommandError
from ipc.control_page import ControlPage
from ipc.service_thread import FailureHandler, ServiceThread
from remoting.body.log_verification import ReplicaComparison
from store.control_slots import DIFFERING_CHUNKS, SCRUB_PASSES
from store.errors import StoreError

log = logging.getLogger(__name__)

_FIRST_MS: Final = 1_000
_LONGEST_MS: Final = 30_000
_REREAD_MS: Final = 60_000
_REREAD_PAUSE_MS: Final = 100


@dataclass(frozen=True, slots=True)
class ComparisonState:
    """Numbers count comparisons. What the last one that ended has found; error: why it could not
    be made."""

    number: int = 0
    ended: int = 0
    seconds: float = 0.0
    error: str | None = None
    replicas: tuple[ReplicaComparison, ...] = ()


class DamageRepairService(ServiceThread):
    """See the module. Owned by: its own thread, but for `request_comparison` and `state`."""

    def __init__(
        self,
        members: FindMembers,
        repair: FenceRepair,
        commands: RepairCommands,
        comparison: DigestComparison,
        page: ControlPage,
        clock: Clock,
        *,
        on_failure: FailureHandler | None = None,
    ) -> None:
        """members: the other members of the group (GroupMembers)."""
        super().__init__("DamageRepairService", on_failure=on_failure)
        self._members = members
        self._repair = repair
        self._commands = commands
        self._comparison = comparison
        self._counters = page.counters
        self._clock = clock
        self._pause_ms = _FIRST_MS
        self._lock: Final = threading.Lock()
        self._state = ComparisonState()
        """Replaced under the lock."""
        self._passes = page.counters[SCRUB_PASSES]
        """How many passes of the scrub had ended when the digests were compared last."""

    def request_comparison(self) -> int:
        """Compare the digests of the log soon; returns the number of that comparison. Any
        thread."""
        with self._lock:
            self._state = replace(self._state, number=self._state.number + 1)
            number = self._state.number
        self.wakeup()
        return number

    @property
    def state(self) -> ComparisonState:
        """Any thread."""
        return self._state

    def step(self) -> None:
        """Try every fence once, compare if that is due, then rest; longer each time that nothing
        helps."""
        if self._repair.try_all(lambda: self.stopped):
            self._pause_ms = _FIRST_MS
        else:
            self._pause_ms = min(2 * self._pause_ms, _LONGEST_MS)
        state, passes = self._state, self._counters[SCRUB_PASSES]
        if state.number > state.ended or passes != self._passes:
            self._passes = passes
            self._compare(state.number)
        self.wait_for_running(self._pause_ms)

    # -- digests -------------------------------------------------------------------------------

    def _compare(self, number: int) -> None:
        """All closed files, with every other member."""
        started_ms = self._clock.monotonic_ms()
        rows: list[ReplicaComparison] = []
        error = None
        try:
            self._wait_until_reread()
            members = self._members()
            if members is None:
                error = "no name server answers: the other brokers of the group are unknown"
            else:
                rows = self._comparison.compare(members, lambda: self.stopped)
                self._counters[DIFFERING_CHUNKS] = sum(row.different_chunks for row in rows)
        except (StoreError, OSError, CommandError) as failure:
            error = str(failure)
        if error is not None:
            log.error("the log's digests could not be compared: %s", error)
        seconds = (self._clock.monotonic_ms() - started_ms) / 1_000
        with self._lock:
            self._state = replace(
                self._state, ended=number, seconds=seconds, error=error, replicas=tuple(rows)
            )

    def _wait_until_reread(self) -> None:
        """What was repaired just now is read again by the scrub, which makes its digests."""
        deadline_ms = self._clock.monotonic_ms() + _REREAD_MS
        while self._commands.scrub_status()["unread_repairs"] and not self.stopped:
            if self._clock.monotonic_ms() > deadline_ms:
                return
            self.wait_for_running(_REREAD_PAUSE_MS)
