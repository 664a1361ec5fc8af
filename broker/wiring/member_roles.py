"""MemberRoles: what changes in process `remoting` when its broker leads, follows, or is fenced.

In controller mode only; the loop calls `take` between two turns (MemberOrders). Ports, client
connections, held pulls and the tables stay. What puts messages is stopped before the log is closed,
and begins at each promotion from the files and tables, as at the start of a master. What another
thread has to do follows on the scheduled executor.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from broker.settings.current_role import CurrentRole
from broker.wiring.broker_tables import BrokerTables
from broker.wiring.message_services import MessageServices
from broker.wiring.outside import Outside
from broker.wiring.pop_services import PopServices
from broker.wiring.store_side import StoreSide
from ha.control_slots import MemberRole
from ipc.clock import Clock
from ipc.scheduled_executor import ScheduledExecutor
from remoting.selector_loop import SelectorLoop

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RoleParts:
    """The parts of the broker that a role concerns."""

    loop: SelectorLoop
    executor: ScheduledExecutor
    store: StoreSide
    tables: BrokerTables
    messages: MessageServices
    pop: PopServices
    outside: Outside
    use_role: Callable[[], None]
    """The loop's processors follow the settings, as the role makes them."""


class MemberRoles:
    """See the module. Owned by: the loop thread."""

    def __init__(self, role: CurrentRole, clock: Clock, parts: RoleParts) -> None:
        self._role = role
        self._clock = clock
        self._parts = parts

    def take(self, member: MemberRole, master_epoch: int) -> None:
        """TakeRole. Raises StoreError, where a start as master would."""
        parts, led = self._parts, not self._role.is_slave
        # First of all: nothing is put from here on, unless this broker leads.
        self._role.take(member, master_epoch)
        if led and member is MemberRole.LEAD:
            parts.tables.begin_epoch(master_epoch)
            parts.outside.role_changed()
            return
        parts.use_role()
        if led:
            self._cease()
        parts.outside.role_changed()
        if member is MemberRole.LEAD:
            self._lead(master_epoch)
        elif member is MemberRole.FOLLOW:
            self._follow()

    def _lead(self, master_epoch: int) -> None:
        """As the start of a master, in its order."""
        parts = self._parts
        parts.tables.restore_lacking(parts.store.stored_queues())
        # Behind the confirm offset there may be the first records of topics whose configuration the
        # last master has told nobody; they are dispatched from now on.
        parts.tables.restore_lacking(parts.store.open_log())
        parts.messages.log_opened()
        parts.tables.limit_to(parts.store.log.next_offset)
        parts.tables.begin_epoch(master_epoch)
        parts.pop.open()
        parts.messages.start()
        parts.pop.start(parts.loop)

    def _follow(self) -> None:
        """As the start of a slave: what this broker handed out and delivered before it followed
        concerns a log that others have continued."""
        self._parts.pop.open()
        self._parts.messages.follow()

    def _cease(self) -> None:
        """No more the leader. The order matters: what waits to be put is refused before what is put
        is given up, and both before the log is let go."""
        parts = self._parts
        parts.messages.cease()
        parts.pop.cease()
        count = parts.messages.waiters.give_up(self._clock.monotonic_ns())
        if count:
            log.warning(
                "%s sends were answered without their replicas (FLUSH_SLAVE_TIMEOUT): this broker "
                "leads no more",
                count,
            )
        parts.store.close_log()
        parts.executor.submit("persist-tables", lambda: _persist(parts.tables))


def _persist(tables: BrokerTables) -> None:
    tables.persist()
