"""RoleNow: whether this store follows a master now, and up to where its log may be read.

Both are for life without controller mode (FixedRole). In controller mode (ControlledRole,
docs/failover.md) they stand on the control page and change while the store is open, so that they
are asked at each use. Any thread of process `store`. It knows no controller and no epochs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ipc.control_page import ControlPage
from store.control_slots import CONFIRM_OFFSET, DISPATCHED_OFFSET, MAX_PHY_OFFSET

FindBounds = Callable[[int, int, int], tuple[int, int]]
"""(the check point's confirm offset, where the log begins, where it ends): ha.epochs'
recovered_bounds, whose first number is the confirm offset of a start."""


class RoleNow(Protocol):
    """See the module."""

    @property
    def may_lead(self) -> bool:
        """Whether it ever is a master: what only a master needs has to be prepared."""
        ...

    @property
    def is_controlled(self) -> bool:
        """Whether the role changes while the store is open (controller mode)."""
        ...

    def is_slave(self) -> bool:
        """Whether the log comes from a master, or may do so at any moment."""
        ...

    def readable_end(self) -> int:
        """Where the part of the log ends that may be dispatched, and so be read (bytes)."""
        ...

    def begin(self, stored_confirm: int, low: int, dispatched: int) -> int:
        """At a fresh start, when the log's end is published: up to where it may be dispatched.

        stored_confirm: of the check point. low: where the log begins. dispatched: the end of the
        newest record that has a unit, from which readers may have had it.
        """
        ...

    def confirm_offset(self) -> int | None:
        """What the check point is to say; None: nothing, what is there stays."""
        ...


class FixedRole:
    """The role that the settings name: master or slave as long as the store is open."""

    is_controlled = False

    def __init__(self, page: ControlPage, *, is_slave: bool) -> None:
        self._counters = page.counters
        self._is_slave = is_slave

    @property
    def may_lead(self) -> bool:
        """See RoleNow."""
        return not self._is_slave

    def is_slave(self) -> bool:
        """See RoleNow."""
        return self._is_slave

    def readable_end(self) -> int:
        """All that is published."""
        return self._counters[MAX_PHY_OFFSET]

    def begin(self, stored_confirm: int, low: int, dispatched: int) -> int:
        """All of the log."""
        return self._counters[MAX_PHY_OFFSET]

    def confirm_offset(self) -> int | None:
        """Nothing: what another life in controller mode has left stays."""
        return None


class ControlledRole:
    """The role that process `ha` has ordered, within the confirm offset that it publishes."""

    is_controlled = True
    may_lead = True

    def __init__(
        self,
        page: ControlPage,
        leads: Callable[[], bool],
        find_bounds: FindBounds,
    ) -> None:
        """leads: whether the order is to be the master."""
        self._counters = page.counters
        self._leads = leads
        self._find_bounds = find_bounds

    def is_slave(self) -> bool:
        """Until there is an order to lead, too."""
        return not self._leads()

    def readable_end(self) -> int:
        """Not beyond the confirm offset, which may lie within a record."""
        counters = self._counters
        return min(counters[MAX_PHY_OFFSET], counters[CONFIRM_OFFSET])

    def begin(self, stored_confirm: int, low: int, dispatched: int) -> int:
        """The confirm offset of this start, which is published. What is dispatched was confirmed
        once, or was read in a life without controller mode: it does not fall below that."""
        counters = self._counters
        stored = max(stored_confirm, dispatched)
        found, _ = self._find_bounds(stored, low, counters[MAX_PHY_OFFSET])
        counters[CONFIRM_OFFSET] = found
        return found

    def confirm_offset(self) -> int | None:
        """Of a log without a bound its end. A new master may say less than was dispatched under
        the one before it; that was read."""
        return max(self.readable_end(), self._counters[DISPATCHED_OFFSET])
