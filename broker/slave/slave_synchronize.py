"""SlaveSynchronize: a slave copies its master's tables, every slaveSyncInterval.

Topics with the mappings of static ones (21), consumer offsets (43), delay offsets (45), consumer
groups (201), in this order, each saved right after it changed. A failed kind is counted, reported
by `status` and retried in the next round, independently of the others. Runs in process `remoting`
of a slave, on one thread of the scheduled executor; `set_master_address` and `status` may be called
by any thread. Follows SlaveSynchronize of RocketMQ, except for these rules:

- A table is replaced in one step, its data version copied exactly; contents are compared, not only
  data versions.
- Nothing is copied from a broker that is not known to be our master (trusted_master.py), or whose
  log was not compared with the local one.
- What topics and groups that disappear take with them: topic_group_synchronize.py.
- Offsets rest on records, so they wait for the local log, and their age counts from when they were
  asked for: offset_synchronize.py. Until a table counts no other is fetched: each newer one would
  wait for more. A new link ends the wait.

Limitations: it does not detect a topic that was deleted and recreated between two rounds, or
deletions while this process was down or followed another master. Such queues are kept and logged,
until mqadmin cleanUnusedTopic.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from broker.out.broker_outer_api import BrokerAnswerError
from broker.settings.broker_config import BrokerConfig
from broker.slave.cut_log import CutLog
from broker.slave.offset_synchronize import AwaitedTable, OffsetSynchronize
from broker.slave.sync_kind import SyncKind
from broker.slave.sync_status import TROUBLE, SlaveSyncError, SyncStatus, SyncStatuses
from broker.slave.topic_group_synchronize import TopicGroupSynchronize
from ipc.clock import Clock
from ipc.control_page import ControlPage
from ipc.scheduled_executor import ScheduledExecutor
from remoting.errors import RemotingError
from store.control_slots import MAX_PHY_OFFSET

log = logging.getLogger(__name__)

_LOOK_MS: Final = 100
"""How often it is looked whether the local log has come to where a waiting table counts."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A table of offsets for which the local log is not far enough yet."""

    table: AwaitedTable
    asked_ms: int
    """Wall clock, before the table was asked for."""
    link: int
    """Which link it was asked for under: a master that was started anew may have another log."""


@dataclass(frozen=True, slots=True)
class MasterChecks:
    """Whether a broker is one to copy from.

    find_objection: why nothing is taken from the broker at "ip:port"; see TrustedMaster.
    compare_logs compares the master's log with the local one and reports the result through
    `logs_compared`; it may take seconds. on_silence: the master did not respond in a round; must
    not block.
    """

    find_objection: Callable[[str], str | None]
    compare_logs: Callable[[], None]
    on_silence: Callable[[], None] = lambda: None


class SlaveSynchronize:
    """Guarded by: `_lock`, held during a round; the master's address and the statuses are replaced
    atomically.
    """

    def __init__(
        self,
        own_address: str,
        known: TopicGroupSynchronize,
        offsets: OffsetSynchronize,
        cut_log: CutLog,
        checks: MasterChecks,
        page: ControlPage,
        clock: Clock,
    ) -> None:
        """`own_address`: brokerIP1:listenPort."""
        self._own_address = own_address
        self._known = known
        self._offsets = offsets
        self._cut_log = cut_log
        self._find_objection = checks.find_objection
        self._compare_logs = checks.compare_logs
        self._on_silence = checks.on_silence
        self._distrust: str | None = None
        """Why this round takes nothing from the master."""
        self._is_complete = False
        """Whether the last round copied every table."""
        self._is_wanted = False
        """Whether a round was asked for since the last one began."""
        self._is_silent = False
        """Whether the master did not respond in this round."""
        self.also_copied: Final[list[Callable[[str], None]]] = []
        """Called with the master's address at the end of each round if the logs match; must not
        raise. Filled before the start."""
        self._executor: ScheduledExecutor | None = None
        self._counters = page.counters
        self._clock = clock
        self._lock = threading.Lock()
        self._master: str | None = None
        self._followed_master: str | None = None
        self._looked_at: str | None = None
        """The master whose log was compared with the local one, or found not comparable."""
        self._objection: str | None = None
        self._waiting: dict[SyncKind, _Waiting] = {}
        self._links = 0
        """How many links to a master have opened."""
        self._is_looking = False
        """Whether a look at what waits is scheduled."""
        self._statuses = SyncStatuses(self._counters, clock)

    # -- notifications ---------------------------------------------------------------------------

    def schedule_on(self, executor: ScheduledExecutor, config: BrokerConfig) -> None:
        """Start synchronizing; call after the tables were loaded and before clients are served.

        The first round begins when a master is known, and so does one when the master changes: a
        slave that is promoted before it copied the tables once would begin every group anew. The
        names in the files may come from another master or from this broker, so they are not used.
        """
        self._executor = executor
        executor.schedule(
            "slave-synchronize",
            self.sync_all,
            first_delay_ms=config.slave_sync_interval,
            period_ms=config.slave_sync_interval,
        )
        self.link_opened()

    def set_master_address(self, address: str | None) -> None:
        """Follow the master at "ip:port", with a round at once; None or this broker itself: no
        master."""
        if address != self._master:
            log.info("tables: master is %s, was %s", address, self._master)
            self._master = address
            self._is_complete = False
            self.link_opened()

    def link_opened(self) -> None:
        """The HA link is up, which makes its master ours: with a round at once, unless the last one
        copied everything. Any thread."""
        self._links += 1
        if self._executor is not None:
            self._is_wanted = True
            self._executor.submit("slave-synchronize-now", self._sync_unless_complete)

    def _sync_unless_complete(self) -> None:
        if not self._is_complete:
            self.sync_all()

    def logs_compared(self, master: str | None, objection: str | None) -> None:
        """The log of `master` was compared with the local one. With an objection the logs differ
        and nothing is copied: a master that was rebuilt from scratch must not clear the tables of
        its slave. Any thread."""
        self._objection = objection
        self._looked_at = master

    def logs_not_comparable(self, master: str | None) -> None:
        """`master` does not support comparing: its tables are copied anyway, unless there was an
        objection before. Any thread."""
        self._looked_at = master

    def link_lost(self) -> None:
        """The next broker at the master's address may have a different log. Any thread."""
        self._looked_at = None

    def status(self) -> dict[SyncKind, SyncStatus]:
        """The status of each kind."""
        return self._statuses.copy()

    # -- one round ------------------------------------------------------------------------------

    def sync_all(self) -> None:
        """Run one round over all kinds, and another one if the master has changed meanwhile, or if
        one was asked for and this one lacks something; does nothing without a master or during
        another round."""
        if not self._lock.acquire(blocking=False):
            self._is_wanted = True
            return
        try:
            done: str | None = None
            while (master := self._master) not in (None, self._own_address):
                assert master is not None
                if master == done and (self._is_complete or not self._is_wanted):
                    break
                self._is_wanted = False
                self._run_round(master)
                done = master
        finally:
            self._lock.release()

    def _run_round(self, master: str) -> None:
        self._is_silent, self._is_complete = False, True
        if master != self._followed_master:
            self._follow(master)
        self._distrust = self._find_objection(master)
        if master != self._looked_at and self._distrust is None:
            self._compare_logs()
        for kind, sync in (
            (SyncKind.TOPICS, self._known.sync_topics),
            (SyncKind.CONSUMER_OFFSETS, self._offsets.fetch_consumer_offsets),
            (SyncKind.DELAY_OFFSETS, self._offsets.fetch_delay_offsets),
            (SyncKind.SUBSCRIPTION_GROUPS, self._known.sync_groups),
        ):
            if master == self._master:
                self._sync(kind, sync, master)
        if self._is_silent:
            self._on_silence()
        if master == self._master and self._belongs(master):
            self._copy_others(master)

    def _copy_others(self, master: str) -> None:
        for copy in self.also_copied:
            copy(master)

    def _belongs(self, master: str) -> bool:
        return self._distrust is None and self._objection is None and self._looked_at == master

    def _follow(self, master: str) -> None:
        """Reset the state when the master changes: another master's names do not apply to this
        one."""
        self._known.forget_master(self._followed_master)
        self._followed_master = master
        self._offsets.forget_seen()
        self._waiting.clear()
        self._cut_log.begin_copy()

    def _sync(
        self, kind: SyncKind, sync: Callable[[str], AwaitedTable | None], master: str
    ) -> None:
        """sync: copies a table of the master; returns it if it has to wait for the local log."""
        try:
            for objection in (self._distrust, self._objection):
                if objection is not None:
                    raise SlaveSyncError(objection)
            if self._looked_at != master:
                raise SlaveSyncError("the local log has not been compared with the master's yet")
            self._take_waiting(kind, master)
            if kind not in self._waiting:
                asked_ms, link = self._clock.now_ms(), self._links
                table = sync(master)
                if table is None:
                    self._succeeded(kind, master, asked_ms)
                else:
                    self._waiting[kind] = _Waiting(table, asked_ms, link)
                    self._take_waiting(kind, master)
        except TROUBLE as error:
            self._is_silent |= isinstance(error, RemotingError)
            if isinstance(error, RemotingError | BrokerAnswerError):
                self._offsets.forget_seen()
            self._is_complete = False
            self._statuses.failed(kind, master, error)

    def _take_waiting(self, kind: SyncKind, master: str) -> None:
        """Put the table that waits in force, if the local log has come so far. Raises
        SlaveSyncError."""
        waiting = self._waiting.get(kind)
        if waiting is None:
            return
        if waiting.link != self._links:
            del self._waiting[kind]
            return
        if self._counters[MAX_PHY_OFFSET] < waiting.table.log_end:
            self._is_complete = False
            self._look_later()
            return
        del self._waiting[kind]
        waiting.table.take()
        self._succeeded(kind, master, waiting.asked_ms)

    def _succeeded(self, kind: SyncKind, master: str, asked_ms: int) -> None:
        self._statuses.succeeded(kind, master, asked_ms)
        self._cut_log.copied(kind)

    def _look_later(self) -> None:
        if self._executor is not None and not self._is_looking:
            self._is_looking = True
            self._executor.schedule(
                "slave-synchronize-waiting", self._look, first_delay_ms=_LOOK_MS, period_ms=None
            )

    def _look(self) -> None:
        """Between rounds: whether the local log has come to where waiting tables count. The last
        one ends the round that copied it."""
        self._is_looking = False
        if not self._lock.acquire(blocking=False):
            self._look_later()
            return
        try:
            self._take_all_waiting()
        finally:
            self._lock.release()
        if self._is_wanted:
            self._sync_unless_complete()

    def _take_all_waiting(self) -> None:
        master = self._followed_master
        if master is None or master != self._master or not self._belongs(master):
            return  # The next round begins anew.
        before = len(self._waiting)
        for kind in list(self._waiting):
            try:
                self._take_waiting(kind, master)
            except SlaveSyncError as error:
                self._statuses.failed(kind, master, error)
        if before and not self._waiting:
            self._copy_others(master)
