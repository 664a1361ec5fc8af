"""FollowOrders: which master AutoSwitchClient's thread shall follow, and what was decided on it.

Guarded by: its condition. The member's host gives orders and decisions, the client's thread takes
them; each order is an object of its own. It knows no sockets and no log.

Tested by tests/ha/test_autoswitch_ha_service.py.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ha.autoswitch_frame import SlaveHandshakeFrame
from store.errors import StoreError

log = logging.getLogger(__name__)

_SAY_MS: Final = 1_000


@dataclass(frozen=True, slots=True, eq=False)
class MasterToFollow:
    """One order to follow."""

    handshake: SlaveHandshakeFrame
    """What this broker says first."""
    master_epoch: int
    """The controller's word; a Java master does not say in which epoch it leads."""


class FollowOrders:
    """See the module."""

    def __init__(self) -> None:
        self._changed: Final = threading.Condition()
        self._order: MasterToFollow | None = None
        self._last_epoch = 0
        self._current: MasterToFollow | None = None
        """What the thread is at; None: it touches nothing."""
        self._log_lock: Final = threading.Lock()
        """Held while a thread that no stop interrupts changes the log."""
        self.address: str | None = None
        """The master's HA port."""
        self.is_undecided = False
        """The master's answer was told, and what shall become of it is not known."""
        self.transfers = False
        """The decision on the answer of the open link is to take frames."""

    # -- of the host ---------------------------------------------------------------------------

    def give(self, order: MasterToFollow, address: str | None) -> None:
        """Follow that master. address None: not known yet, unless an order in the same epoch, whose
        master it is, was withdrawn."""
        with self._changed:
            if address is not None or order.master_epoch != self._last_epoch:
                self.address = address
            self._order, self._last_epoch = order, order.master_epoch
            self.is_undecided = self.transfers = False

    def move(self, address: str | None) -> bool:
        """The master's HA port is there now; whether that is news. None is none."""
        with self._changed:
            if address is None or address == self.address:
                return False
            self.address = address
            return True

    def decide(self, *, transfers: bool) -> None:
        """On the answer that was told last; the next `ask` ends what was decided. To hang up counts
        at any time."""
        with self._changed:
            self.transfers, self.is_undecided = transfers, False

    def withdraw(self) -> None:
        """Follow nobody."""
        with self._changed:
            self._order = None
            self.is_undecided = self.transfers = False

    def wait_until_idle(self, is_alive: Callable[[], bool]) -> None:
        """After `withdraw`: until nobody touches the log. is_alive: of the client's thread."""
        with self._changed:
            while self._current is not None and is_alive():
                if not self._changed.wait(_SAY_MS / 1000):
                    log.warning("replication is still being stopped")
        with self._log_lock:
            """No `run` is under way, and none begins for an order that was withdrawn."""

    # -- of the client's thread ----------------------------------------------------------------

    @property
    def is_new(self) -> bool:
        """The order is not the one that the thread is at."""
        return self._order is not self._current

    @property
    def has_order(self) -> bool:
        """There is a master to follow."""
        return self._order is not None

    @property
    def may_connect(self) -> bool:
        """The master's address is known, and no decision is due."""
        return self.address is not None and not self.is_undecided

    def take(self, begin: Callable[[MasterToFollow | None], None]) -> MasterToFollow | None:
        """The order; `begin` is called for each new one, after it counts as taken, and for none,
        before it does."""
        with self._changed:
            order = self._order
            if order is self._current:
                return order
            if order is not None:
                self._current = order
        begin(order)
        if order is None:
            self.let_go()
        return order

    def let_go(self) -> None:
        """The thread touches nothing any more."""
        with self._changed:
            self._current = None
            self._changed.notify_all()

    def ask(self, order: MasterToFollow) -> bool:
        """A decision is due on what is told next. False: the order was withdrawn."""
        with self._changed:
            if self._order is not order:
                return False
            self.is_undecided, self.transfers = True, False
            return True

    def run(self, order: MasterToFollow, change: Callable[[int], None], phy_offset: int) -> None:
        """Call `change`, which is about the log, unless the order was withdrawn: StoreError. Any
        thread; `wait_until_idle` waits for it."""
        with self._log_lock:
            if self._order is not order:
                raise StoreError("replication is being stopped")
            change(phy_offset)
