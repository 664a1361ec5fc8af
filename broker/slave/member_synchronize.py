"""MemberSynchronize: SlaveSynchronize of a broker that may become the master while it copies.

In controller mode. Which broker is the master says the controller; its tables may be copied while
the HA link with it stands, which proves what is otherwise compared (trusted_master.py,
master_inspector.py): epochs and offsets of both logs were compared when the link was made. At the
end of the role nothing that was asked for before may come into the tables any more: `end` waits for
what is being put into them now, never for another broker.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Final

from broker.out.broker_outer_api import BrokerAnswerError, BrokerOuterAPI, TimerCheckPointAnswer
from broker.slave.cut_log import CutLog
from broker.slave.offset_synchronize import OffsetSynchronize
from broker.slave.slave_synchronize import MasterChecks, SlaveSynchronize
from broker.slave.topic_group_synchronize import TopicGroupSynchronize, vip_address
from ha.control_slots import MASTER_LINKED
from ipc.clock import Clock
from ipc.control_page import ControlPage
from remoting.remoting_command import RemotingCommand
from remoting.request_code import RequestCode


class CopiedTables(BrokerOuterAPI):
    """The master's tables, asked for with the lock on ours let go. Asks no name server."""

    def __init__(self, api: BrokerOuterAPI) -> None:
        super().__init__(api.client, [])
        self.lock: Final = threading.Lock()
        """Held while a round changes tables."""
        self.master: str | None = None
        """Who may be copied now; changed under the lock."""

    def get_page(
        self, broker: str, code: RequestCode, fields: Mapping[str, str], timeout_ms: int
    ) -> RemotingCommand | None:
        """See BrokerOuterAPI. Raises BrokerAnswerError if it is not our master any more."""
        self.lock.release()
        try:
            return super().get_page(broker, code, fields, timeout_ms)
        finally:
            self._take_lock(broker)

    def get_timer_check_point(self, broker: str, timeout_ms: int) -> TimerCheckPointAnswer:
        """See BrokerOuterAPI. Raises BrokerAnswerError if it is not our master any more."""
        self.lock.release()
        try:
            return super().get_timer_check_point(broker, timeout_ms)
        finally:
            self._take_lock(broker)

    def without_lock(self, function: Callable[[str], None]) -> Callable[[str], None]:
        """`function`, which may take long and changes no table that the lock is for."""

        def run(argument: str) -> None:
            self.lock.release()
            try:
                function(argument)
            finally:
                self.lock.acquire()

        return run

    def _take_lock(self, broker: str) -> None:
        self.lock.acquire()
        master = self.master
        if master is None or broker not in (master, vip_address(master)):
            raise BrokerAnswerError(f"broker {broker} is not our master any more")


class MemberSynchronize(SlaveSynchronize):
    """See the module. Any thread."""

    def __init__(
        self,
        own_address: str,
        source: CopiedTables,
        known: TopicGroupSynchronize,
        offsets: OffsetSynchronize,
        cut_log: CutLog,
        on_silence: Callable[[], None],
        page: ControlPage,
        clock: Clock,
    ) -> None:
        """source: from where `known` and `offsets` copy. on_silence: see MasterChecks."""
        checks = MasterChecks(self._find_link_objection, self._compare_by_link, on_silence)
        super().__init__(own_address, known, offsets, cut_log, checks, page, clock)
        self._source = source

    def follow(self, master: str) -> None:
        """Copy the tables of the master at "ip:port" from now on."""
        with self._source.lock:
            self._source.master = master
        self.set_master_address(master)

    def end(self) -> None:
        """This broker follows no more: nothing comes into the tables after this."""
        with self._source.lock:
            self._source.master = None
        self.set_master_address(None)
        self.link_lost()

    def _compare_by_link(self) -> None:
        self.logs_compared(self._source.master, None)

    def _find_link_objection(self, _master: str) -> str | None:
        if self._counters[MASTER_LINKED]:
            return None
        return "there is no HA link with the master that the controller names"

    def _run_round(self, master: str) -> None:
        with self._source.lock:
            if master == self._source.master:
                super()._run_round(master)

    def _take_all_waiting(self) -> None:
        with self._source.lock:
            if self._followed_master == self._source.master and self._counters[MASTER_LINKED]:
                super()._take_all_waiting()
