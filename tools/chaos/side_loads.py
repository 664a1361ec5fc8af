"""SideLoads: what is part of every run beside the producers: delays, timers, transactions, pops,
and changes of tables and rights, each at a small rate and judged by its own client's count.

Which of them a run can judge depends on its faults. A clock that jumps moves what is due by the
wall clock: timers and what was popped; with a fault that takes bytes in the same run, delays too.
The thread that leads the run calls; each load has threads of its own.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from tools.chaos import checks
from tools.chaos.delayed_load import DelayedLoad
from tools.chaos.judged_loads import PERIOD_S, JudgedLoads
from tools.chaos.mixed_load import Transactions
from tools.chaos.pop_load import PopLoad
from tools.chaos.rights_load import RightsLoad
from tools.chaos.schedule import TAKES_BYTES, FaultKind
from tools.chaos.table_load import TableChanges
from tools.chaos.workload import MayBeLost, Where

_TABLES_S: Final = 0.2


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
        transactions = Transactions(where, PERIOD_S, may_be_lost)
        delayed: DelayedLoad | None = None
        if not (jumps and takes_bytes):
            delayed = DelayedLoad(
                where, delayed_rate, with_timers=not jumps, may_be_lost=may_be_lost
            )
        pops: PopLoad | None = None
        if not jumps:
            keeps_acks = not takes_bytes and FaultKind.PROMOTE not in kinds
            pops = PopLoad(
                where, PERIOD_S, broker_name, may_be_lost=may_be_lost, keeps_acks=keeps_acks
            )
        self.judged = JudgedLoads(transactions, delayed, pops)
        self.tables = TableChanges(where, _TABLES_S)
        self.rights = RightsLoad(where, PERIOD_S) if has_accounts else None

    def start(self) -> None:
        """Begin."""
        self.judged.start()
        self.tables.start()
        if self.rights is not None:
            self.rights.start()

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
        self.judged.transactions.disturb()

    def read_again(self) -> None:
        """What the master holds goes on otherwise from some place on."""
        self.judged.transactions.disturb()
        self.judged.transactions.read_again()
        if self.judged.delayed is not None:
            self.judged.delayed.read_again()

    def stop_sending(self) -> None:
        """What is under way is finished from now on."""
        self.judged.stop_sending()

    def finish(self, *, only_ok: bool) -> tuple[list[str], list[str]]:
        """Wait for what has to come, and end. Violations, and a line about each load. only_ok: only
        what was answered SEND_OK has to come."""
        violations, told = self.judged.finish(only_ok=only_ok)
        changes: list[TableChanges | RightsLoad] = [self.tables]
        if self.rights is not None:
            changes.append(self.rights)
        for load in changes:
            load.stop()
            told.append(load.text())
            load.finish()
            violations += checks.shortened(load.violations)
        return violations, told
