"""MemberOrders: process `ha` tells `remoting` which role it takes, through the control page.

Owned by the member's thread. An order is a slot that stays, so that either process may die and be
started again at any moment: a new `remoting` finds the order there, a new `ha` gives another one.
Before an order of another role than LEAD is carried out nobody but `remoting` may write the log;
`ha` may do so only after an order that this very process has given. The wait has no limit: a hung
`remoting` is killed by the supervisor, and its successor carries the order out.

Tested by tests/broker/failover/test_member_host.py.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from broker.failover.member_service import MemberStoppedError
from ha.control_slots import MASTER_EPOCH, MEMBER_ORDER, ORDER_TAKEN, MemberRole, order_after
from ipc.clock import Clock

log = logging.getLogger(__name__)

_POLL_S: Final = 0.001
_SAY_EACH_MS: Final = 1_000


class MemberOrders:
    """See the module."""

    def __init__(
        self,
        counters: memoryview[int],
        ring: Callable[[], None],
        clock: Clock,
        stopping: threading.Event,
    ) -> None:
        """ring: wakes everybody who follows the order. stopping: of this process."""
        self._counters = counters
        self._ring = ring
        self._clock = clock
        self._stopping = stopping
        self._given: int | None = None
        """The last order of this process; None: what stands in the slot is a predecessor's."""
        self.role = MemberRole.LEAD
        """What `remoting` may take itself to be: anything, before the first order from here."""

    def next_order(self, role: MemberRole) -> int:
        """The order that `give` would write."""
        return order_after(self._counters[MEMBER_ORDER], role)

    def give(self, role: MemberRole, master_epoch: int) -> None:
        """Order a role; `wait_taken` says when it is carried out."""
        order = self.next_order(role)
        self._counters[MASTER_EPOCH] = master_epoch
        self._counters[MEMBER_ORDER] = order
        self._given = order
        self.role = role
        log.info("member of the group: order %s, %s in epoch %s", order, role.name, master_epoch)
        self._ring()

    @property
    def is_taken(self) -> bool:
        """Whether the last order of this process is carried out."""
        return self._given is not None and self._counters[ORDER_TAKEN] == self._given

    def wait_taken(self) -> None:
        """Wait until it is. Raises MemberStoppedError: the process is stopping."""
        begun_ms = said_ms = self._clock.monotonic_ms()
        while not self.is_taken:
            if self._stopping.wait(_POLL_S):
                raise MemberStoppedError
            now_ms = self._clock.monotonic_ms()
            if now_ms - said_ms >= _SAY_EACH_MS:
                said_ms = now_ms
                log.warning(
                    "member of the group: order %s (%s) is not carried out by process remoting "
                    "after %s ms",
                    self._given,
                    self.role.name,
                    now_ms - begun_ms,
                )
