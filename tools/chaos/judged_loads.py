"""JudgedLoads: transactions, delayed and popped messages beside the producers of a run, each at a
small rate and judged by its own client's count.

What a run with and a run without a controller have in common; which of the loads there are, and
what may be lost of them, is each run's own. The thread that leads the run calls.

Tested by tests/tools/chaos/test_side_loads.py.
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
from tools.chaos.scratch_process import ChaosError, wait_for

SETTINGS: Final = {
    "transactionCheckInterval": 1_000,
    "transactionTimeOut": 1_000,
    "transactionCheckMax": 1_000_000,
    "flushConsumerOffsetInterval": 1_000,
    "reviveInterval": 500,
}
"""Of the brokers: what is due comes within the run."""
PERIOD_S: Final = 0.1
"""Of transactions, and of messages that are popped."""
_COMES_S: Final = 60.0
"""For all of them together."""


class JudgedLoads:
    """See the module. Used once."""

    def __init__(
        self, transactions: Transactions, delayed: DelayedLoad | None, pops: PopLoad | None
    ) -> None:
        """None: this run cannot judge them."""
        self.transactions = transactions
        self.delayed = delayed
        self.pops = pops

    def start(self) -> None:
        """Begin."""
        self.transactions.start()
        if self.delayed is not None:
            self.delayed.start()
        if self.pops is not None:
            self.pops.start()

    def stop_sending(self) -> None:
        """What is under way is finished from now on."""
        self.transactions.decide_only()
        if self.pops is not None:
            self.pops.drain()
        if self.delayed is not None:
            self.delayed.stop_sending()

    def finish(
        self,
        *,
        only_ok: bool,
        quiet_s: float = 0.0,
        acks_kept: Callable[[], bool] = lambda: True,
    ) -> tuple[list[str], list[str]]:
        """Wait for what has to come, and end. Violations, and a line about each load. only_ok: only
        what was answered SEND_OK has to come. quiet_s: so long nothing may be popped before the
        pops are judged: what must not come again would have come. acks_kept: asked then, of
        PopLoad.judge."""
        until_s = time.monotonic() + _COMES_S
        transactions, delayed, pops = self.transactions, self.delayed, self.pops
        violations: list[str] = []
        told: list[str] = []
        _wait(lambda: not transactions.missing(only_ok=only_ok), until_s, "transactions")
        if delayed is not None:
            _wait(lambda: delayed.has_all(only_ok=only_ok), until_s, "delayed messages")
            violations += checks.shortened(delayed.stop(only_ok=only_ok))
            told.append(delayed.text())
        if pops is not None:
            _wait(lambda: not pops.missing(only_ok=only_ok), until_s, "popped messages")
            if quiet_s:
                _wait(lambda: pops.quiet_s() > quiet_s, until_s, "quiet pops")
            pops.stop()
            violations += checks.shortened(pops.judge(only_ok=only_ok, acks_kept=acks_kept()))
            told.append(pops.text())
        transactions.stop()
        violations += checks.shortened(transactions.judge(only_ok=only_ok))
        return violations, [*told, transactions.text()]


def _wait(condition: Callable[[], bool], until_s: float, what: str) -> None:
    """What does not come is said by the load's own judgement."""
    with contextlib.suppress(ChaosError):
        wait_for(condition, max(until_s - time.monotonic(), 1.0), what)
