"""ElectionLoads: what runs beside the producers of a group whose master changes: delays, timers,
transactions, pops and committed offsets, each at a small rate and judged by its own client's count.

What was answered SEND_OK survives each election. An acknowledgement of a pop, and the end of a
transaction, may be lost with the master that has just answered it: so such a message may come again
while masters change, but not after the last fault; unless the controllers, which were broken last,
replace one more master. The thread that leads the run calls.

Tested by tests/tools/chaos/test_election_run.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tools.chaos.delayed_load import DelayedLoad
from tools.chaos.judged_loads import PERIOD_S, JudgedLoads
from tools.chaos.mixed_load import Transactions
from tools.chaos.pop_load import PopLoad
from tools.chaos.promotion import CommittedOffsets
from tools.chaos.scratch_group import BROKER_NAME
from tools.chaos.workload import Where

_DELAYED_A_SECOND: Final = 20.0
_INVISIBLE_MS: Final = 2_000
_AGAIN_S: Final = 3.0
"""A message that comes again although it was acknowledged has come by then: its invisible time, and
a second for the revival."""


def _never_lost(_answered_s: float, _code: int) -> bool:
    return False


class ElectionLoads:
    """See the module. Used once."""

    def __init__(
        self,
        where: Where,
        topic: str,
        position: Callable[[], int],
        epoch: Callable[[], int | None],
        *,
        jumps: bool,
    ) -> None:
        """topic: the producers', whose name the others' begin with. position: of a consumer in its
        queue 0. epoch: the group's, None where nobody says it. jumps: wall clocks are set, by which
        delays and invisible times go."""
        self._epoch = epoch
        self._last_epoch: int | None = None
        self.offsets = CommittedOffsets(where, position, topic)
        transactions = Transactions(where, PERIOD_S, topic=f"{topic}Transactions")
        delayed: DelayedLoad | None = None
        pops: PopLoad | None = None
        if not jumps:
            delayed = DelayedLoad(
                where, _DELAYED_A_SECOND, with_timers=True, topic=f"{topic}Delayed"
            )
            pops = PopLoad(
                where,
                PERIOD_S,
                BROKER_NAME,
                may_be_lost=_never_lost,
                keeps_acks=False,
                topic=f"{topic}Pops",
                invisible_ms=_INVISIBLE_MS,
            )
        self._judged = JudgedLoads(transactions, delayed, pops)

    @staticmethod
    def topics(topic: str) -> list[str]:
        """The names of all topics, the producers' among them."""
        return [topic, *(f"{topic}{name}" for name in ("Transactions", "Delayed", "Pops"))]

    def start(self) -> None:
        """Begin."""
        self._judged.start()

    def disturb(self) -> None:
        """The master may be lost now."""
        self._judged.transactions.disturb()

    def stop_sending(self) -> None:
        """No fault comes any more; what is under way is finished from now on."""
        self.disturb()
        self._judged.stop_sending()

    def healed(self) -> None:
        """All members are in the set: no former master is left that does not know of its
        successor, and whose answers to acknowledgements nobody would keep (seed 7234)."""
        if self._judged.pops is not None:
            self._judged.pops.keep_acks()
        self._last_epoch = self._epoch()

    def finish(self) -> tuple[list[str], list[str]]:
        """Wait for what has to come, and for what must not come again, and end. Violations, and a
        line about each load."""
        found = self._judged.finish(only_ok=True, quiet_s=_AGAIN_S, acks_kept=self._acks_kept)
        self.offsets.stop()
        return found

    def _acks_kept(self) -> bool:
        """Whether the master that all had when it was healed is the master still."""
        return self._last_epoch is not None and self._epoch() == self._last_epoch
