"""MemberOrders: the loop of process `remoting` takes the role that process `ha` orders.

In controller mode only. The hooks of the loop's sleep, around StoreFollower's: at the beginning of
each turn the order of the control page (slot 169) is looked at, before any request of the turn.
What is ordered is carried out at once, and slot 173 says so afterwards; from then on the log may
have another writer. The page outlives this process: a successor begins without a role and carries
out what stands there. Knows no part of the broker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from ha.control_slots import MASTER_EPOCH, MEMBER_ORDER, ORDER_TAKEN, MemberRole, role_of
from remoting.selector_loop import SleepHooks

log = logging.getLogger(__name__)

TakeRole = Callable[[MemberRole, int], None]
"""Carries out a role of an epoch."""


class MemberOrders:
    """SleepHooks. Owned by: the loop thread."""

    def __init__(
        self,
        counters: memoryview[int],
        hooks: SleepHooks,
        take: TakeRole,
        ring: Callable[[], None],
    ) -> None:
        """counters: of the control page. hooks: those of a broker without orders. ring: wakes
        process `ha`, which waits for slot 173."""
        self._counters: Final = counters
        self._hooks: Final = hooks
        self._take: Final = take
        self._ring: Final = ring
        self._taken = -1
        """The order that this process has carried out; -1: none yet."""
        self._stops = False

    def stop(self) -> None:
        """The process ends in order: lead no more from now on, if it does not lead already."""
        self._stops = True

    def before_sleep(self) -> float | None:
        """SleepHooks: 0 if an order came since this turn began, too."""
        limit_s = self._hooks.before_sleep()
        is_new = self._counters[MEMBER_ORDER] != self._taken and not self._stops
        return 0.0 if is_new else limit_s

    def after_sleep(self) -> None:
        """SleepHooks: carry out an order, before anything else of the turn."""
        self._hooks.after_sleep()
        order = self._counters[MEMBER_ORDER]
        if order != self._taken and not (self._stops and role_of(order) is MemberRole.LEAD):
            self._carry_out(order)

    def waits_for_peer(self) -> bool:
        """SleepHooks."""
        return self._hooks.waits_for_peer()

    def peer_has_answered(self) -> bool:
        """SleepHooks."""
        return self._hooks.peer_has_answered()

    def _carry_out(self, order: int) -> None:
        role, epoch = role_of(order), self._counters[MASTER_EPOCH]
        log.info("role %s of epoch %s, order %s", role.name, epoch, order)
        self._take(role, epoch)
        self._taken = order
        self._counters[ORDER_TAKEN] = order
        self._ring()
