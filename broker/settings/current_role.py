"""CurrentRole: whether this broker writes its log now, and what it is called meanwhile.

One object of process `remoting`, asked wherever something depends on the role. Without controller
mode it says what the settings say, for the life of the process. In controller mode the role is an
order of process `ha` (slots 169 and 170 of the control page); the loop takes it between two turns
(broker/wiring/member_orders.py) and is the only one that changes anything here. Any thread reads.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ha.control_slots import MemberRole
from store.message_store_config import BrokerRole

if TYPE_CHECKING:
    from broker.settings.startup_options import StartupOptions

MASTER_ID: Final = 0
_NO_ID: Final = -1


class CurrentRole:
    """See the module. Owned by: the loop thread."""

    __slots__ = ("_own_id", "broker_id", "changes", "is_slave", "master_epoch", "member")

    def __init__(self, options: StartupOptions) -> None:
        """In controller mode a broker begins without a role: it is fenced."""
        self.changes: Final = options.controller_mode.enable_controller_mode
        """Controller mode: the role may change while this process lives."""
        self.is_slave = self.changes or options.store.is_slave
        """This broker does not write its log: somebody else does, or nobody."""
        self._own_id = _NO_ID
        self.broker_id = _NO_ID if self.changes else options.broker.broker_id
        """By which name servers know it in this role; 0: the master."""
        self.member = MemberRole.FENCED
        """Of controller mode only."""
        self.master_epoch = 0
        """The epoch of the role; 0 without controller mode."""

    def is_slave_now(self) -> bool:
        """`is_slave`, for those that want a function."""
        return self.is_slave

    def take(self, member: MemberRole, master_epoch: int) -> None:
        """The role is this one from now on. Loop thread; controller mode only."""
        self.member = member
        self.master_epoch = master_epoch
        self.is_slave = member is not MemberRole.LEAD
        self.broker_id = self._own_id if self.is_slave else MASTER_ID

    def follows_as(self, broker_id: int) -> None:
        """The id that the controllers have given to this broker, for when it does not lead. Loop
        thread."""
        self._own_id = broker_id
        if self.is_slave:
            self.broker_id = broker_id

    def is_registered_as(self, broker_id: int) -> bool:
        """Whether the role of now is the one that is registered under this id. Any thread."""
        if self.member is MemberRole.FENCED:
            return False
        return (broker_id == MASTER_ID) is (self.member is MemberRole.LEAD)

    def applied(self, options: StartupOptions) -> StartupOptions:
        """The settings, with the role and the id of now in the place of the configured ones; those
        of a broker whose role does not change are returned as they are."""
        if not self.changes:
            return options
        role = BrokerRole.SLAVE if self.is_slave else BrokerRole.SYNC_MASTER
        return replace(
            options,
            store=replace(options.store, broker_role=role),
            broker=replace(options.broker, broker_id=self.broker_id),
        )
