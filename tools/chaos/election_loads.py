"""ElectionLoads: what runs beside the producers of a group whose master changes: delays, timers,
transactions, pops and committed offsets, each at a small rate and judged by its own client's count.

What was answered SEND_OK survives each election. What an answered acknowledgement of a pop, and the
end of a transaction, say is in the master's memory for a moment: such a message may come again
while masters change, and not after the end. The thread that leads the run calls.

Tested by tests/tools/chaos/test_election_run.py.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Final

from tools.chaos import checks
from tools.chaos.delayed_load import DelayedLoad
from tools.chaos.mixed_load import Transactions
from tools.chaos.pop_load import PopLoad
from tools.chaos.promotion import CommittedOffsets
from tools.chaos.scratch_group import BROKER_NAME, ChaosError, wait_for
from tools.chaos.workload import Where

SETTINGS: Final = {
    "transactionCheckInterval": 1_000,
    "transactionTimeOut": 1_000,
    "transactionCheckMax": 1_000_000,
    "flushConsumerOffsetInterval": 1_000,
    "reviveInterval": 500,
}
_PERIOD_S: Final = 0.1
_DELAYED_A_SECOND: Final = 20.0
_INVISIBLE_MS: Final = 2_000
_AGAIN_S: Final = 3.0
"""So long after it was acknowledged a message that comes again has come: its invisible time, and a
second for the revival."""
_COMES_S: Final = 60.0


def _never_lost(_answered_s: float, _code: int) -> bool:
    return False


class ElectionLoads:
    """See the module. Used once."""

    def __init__(
        self, where: Where, topic: str, position: Callable[[], int], *, jumps: bool
    ) -> None:
        """topic: the producers', whose name the others' begin with. position: of a consumer in its
        queue 0. jumps: wall clocks are set, by which delays and invisible times go."""
        self.offsets = CommittedOffsets(where, position, topic)
        self._transactions = Transactions(where, _PERIOD_S, topic=f"{topic}Transactions")
        self._delayed: DelayedLoad | None = None
        self._pops: PopLoad | None = None
        if not jumps:
            self._delayed = DelayedLoad(
                where, _DELAYED_A_SECOND, with_timers=True, topic=f"{topic}Delayed"
            )
            self._pops = PopLoad(
                where,
                _PERIOD_S,
                BROKER_NAME,
                may_be_lost=_never_lost,
                keeps_acks=False,
                topic=f"{topic}Pops",
                invisible_ms=_INVISIBLE_MS,
            )

    @staticmethod
    def topics(topic: str) -> list[str]:
        """The names of all topics, the producers' among them."""
        return [topic, *(f"{topic}{name}" for name in ("Transactions", "Delayed", "Pops"))]

    def start(self) -> None:
        """Begin."""
        self._transactions.start()
        if self._delayed is not None:
            self._delayed.start()
        if self._pops is not None:
            self._pops.start()

    def disturb(self) -> None:
        """The master may be lost now."""
        self._transactions.disturb()

    def stop_sending(self) -> None:
        """No fault comes any more; what is under way is finished from now on."""
        self.disturb()
        self._transactions.decide_only()
        if self._pops is not None:
            self._pops.drain()
            self._pops.keep_acks()
        if self._delayed is not None:
            self._delayed.stop_sending()

    def finish(self) -> tuple[list[str], list[str]]:
        """Wait for what has to come, and for what must not come again, and end. Violations, and a
        line about each load."""
        until_s = time.monotonic() + _COMES_S
        transactions, pops, delayed = self._transactions, self._pops, self._delayed
        violations: list[str] = []
        told: list[str] = []
        _wait(lambda: not transactions.missing(only_ok=True), until_s, "transactions")
        if delayed is not None:
            _wait(lambda: delayed.has_all(only_ok=True), until_s, "delayed messages")
            violations += checks.shortened(delayed.stop(only_ok=True))
            told.append(delayed.text())
        if pops is not None:
            _wait(lambda: not pops.missing(only_ok=True), until_s, "popped messages")
            _wait(lambda: pops.quiet_s() > _AGAIN_S, until_s, "quiet pops")
            pops.stop()
            violations += checks.shortened(pops.judge(only_ok=True))
            told.append(pops.text())
        self.offsets.stop()
        transactions.stop()
        violations += checks.shortened(transactions.judge(only_ok=True))
        return violations, [*told, transactions.text()]


def _wait(condition: Callable[[], bool], until_s: float, what: str) -> None:
    """What does not come is said by the load's own judgement."""
    with contextlib.suppress(ChaosError):
        wait_for(condition, max(until_s - time.monotonic(), 1.0), what)
