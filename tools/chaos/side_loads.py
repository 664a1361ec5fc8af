"""SideLoads: what is part of every run beside the producers: delays, timers, transactions, pops,
and changes of tables and rights, each at a small rate and judged by its own client's count.

Which of them a run can judge depends on its faults. A clock that jumps moves what is due by the
wall clock: timers and what was popped; with a fault that takes bytes in the same run, delays too.
The thread that leads the run calls; each load has threads of its own.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection
from typing import Final

from tools.chaos import checks
from tools.chaos.delayed_load import DelayedLoad
from tools.chaos.mixed_load import Transactions
from tools.chaos.pop_load import PopLoad
from tools.chaos.rights_load import RightsLoad
from tools.chaos.schedule import TAKES_BYTES, FaultKind
from tools.chaos.scratch_group import ChaosError, wait_for
from tools.chaos.table_load import TableChanges
from tools.chaos.workload import MayBeLost, Where

SETTINGS: Final = {
    "transactionCheckInterval": 1_000,
    "transactionTimeOut": 1_000,
    "transactionCheckMax": 1_000_000,
    "flushConsumerOffsetInterval": 1_000,
    "reviveInterval": 500,
}
_PERIOD_S: Final = 0.1
_TABLES_S: Final = 0.2
_COMES_S: Final = 60.0
"""For all of them together."""


class SideLoads:
    """See the module. Used once."""

    def __init__(
        self,
        where: Where,
        kinds: Collection[FaultKind],
        *,
        delayed_rate: float,
        broker_name: str,
        may_be_lost: MayBeLost,
        has_accounts: bool = False,
    ) -> None:
        """kinds: those that the schedule has. may_be_lost: of what was stored. has_accounts: the
        brokers were given those of rights_load."""
        jumps = FaultKind.CLOCK_JUMP in kinds
        takes_bytes = not TAKES_BYTES.isdisjoint(kinds)
        self.transactions = Transactions(where, _PERIOD_S, may_be_lost)
        self.delayed: DelayedLoad | None = None
        if not (jumps and takes_bytes):
            self.delayed = DelayedLoad(
                where, delayed_rate, with_timers=not jumps, may_be_lost=may_be_lost
            )
        self.tables = TableChanges(where, _TABLES_S)
        self.rights = RightsLoad(where, _PERIOD_S) if has_accounts else None
        self.pops: PopLoad | None = None
        if not jumps:
            keeps_acks = not takes_bytes and FaultKind.PROMOTE not in kinds
            self.pops = PopLoad(
                where, _PERIOD_S, broker_name, may_be_lost=may_be_lost, keeps_acks=keeps_acks
            )

    def start(self) -> None:
        """Begin."""
        self.transactions.start()
        self.tables.start()
        if self.rights is not None:
            self.rights.start()
        if self.delayed is not None:
            self.delayed.start()
        if self.pops is not None:
            self.pops.start()

    def lacks(self, address: tuple[str, int], as_of_s: float, who: str) -> list[str]:
        """What a broker does not know of the tables and rights that were changed by `as_of_s`
        (monotonic seconds). who: how it is called. Raises OSError."""
        found = self.tables.violations_of(address, as_of_s, who)
        if self.rights is not None:
            found += self.rights.violations_of(address, as_of_s, who)
        return checks.shortened(found)

    def forget_since(self, time_s: float) -> None:
        """The master is lost, and nobody promised what it was told since."""
        self.tables.forget_since(time_s)
        if self.rights is not None:
            self.rights.forget_since(time_s)

    def disturb(self) -> None:
        """The master dies, or is another one."""
        self.transactions.disturb()

    def read_again(self) -> None:
        """What the master holds goes on otherwise from some place on."""
        self.transactions.disturb()
        self.transactions.read_again()
        if self.delayed is not None:
            self.delayed.read_again()

    def stop_sending(self) -> None:
        """What is under way is finished from now on."""
        self.transactions.decide_only()
        if self.pops is not None:
            self.pops.drain()
        if self.delayed is not None:
            self.delayed.stop_sending()

    def finish(self, *, only_ok: bool) -> tuple[list[str], list[str]]:
        """Wait for what has to come, and end. Violations, and a line about each load. only_ok: only
        what was answered SEND_OK has to come."""
        delayed, pops, transactions = self.delayed, self.pops, self.transactions
        until_s = time.monotonic() + _COMES_S
        _wait(lambda: not transactions.missing(only_ok=only_ok), until_s, "transactions")
        violations: list[str] = []
        told: list[str] = []
        if delayed is not None:
            _wait(lambda: delayed.has_all(only_ok=only_ok), until_s, "delayed messages")
            violations += checks.shortened(delayed.stop(only_ok=only_ok))
            told.append(delayed.text())
        if pops is not None:
            _wait(lambda: not pops.missing(only_ok=only_ok), until_s, "popped messages")
            pops.stop()
            violations += checks.shortened(pops.judge(only_ok=only_ok))
            told.append(pops.text())
        for load in (self.tables, self.rights):
            if load is not None:
                load.stop()
                told.append(load.text())
        self.tables.finish()
        violations += checks.shortened(self.tables.violations)
        if self.rights is not None:
            self.rights.finish()
            violations += checks.shortened(self.rights.violations)
        transactions.stop()
        violations += checks.shortened(transactions.judge(only_ok=only_ok))
        return violations, [*told, transactions.text()]


def _wait(condition: Callable[[], bool], until_s: float, what: str) -> None:
    """What does not come is said by the load's own judgement."""
    with contextlib.suppress(ChaosError):
        wait_for(condition, max(until_s - time.monotonic(), 1.0), what)
