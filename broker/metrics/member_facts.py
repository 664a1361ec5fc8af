"""MemberFacts: what a member of a group with a controller shows of the group, and its dump tells.

Any thread of the supervisor for the metrics, the dump's thread for its line. Reads the control
page, whose slots process `ha` writes, and the file of the roles that were taken
(ha/taken_role.py), again when slot 178 says that there is a new one. Nothing here
decides anything.

Tested by tests/broker/metrics/test_member_facts.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Final

import msgspec

from broker.metrics import metrics_table as table
from broker.settings.startup_options import StartupOptions
from ha.control_slots import (
    MASTER_BROKER_ID,
    MASTER_EPOCH,
    MASTER_SEEN_MS,
    MEMBER_ID,
    MEMBER_ORDER,
    PUTS_REFUSED,
    PUTS_UNTIL_MS,
    ROLE_RECORDS,
    ROLE_SINCE_MS,
    SYNC_STATE_SET_SIZE,
    TWO_MASTERS_SEEN,
    WITHOUT_MASTER_MS,
    leads,
    role_of,
)
from ha.taken_role import FILE_NAME, TakenRole, read_roles
from ipc.clock import Clock
from remoting.metrics.metric import Metric, Rows
from store.control_slots import CONFIRM_OFFSET, MAX_PHY_OFFSET, NO_BOUND

log = logging.getLogger(__name__)

Json = dict[str, Any]
_SEEN_MS: Final = 1_000
"""A master seen so lately is there: it is looked for five times a second."""
_FIRST_LINE_ROLES: Final = 20
"""So many roles of earlier lives the first line of a life repeats: those of a killed one may be in
no line."""


class MemberFacts:
    """See the module. `taken_roles` is called by the dump's thread only."""

    def __init__(self, options: StartupOptions, counters: memoryview[int], clock: Clock) -> None:
        self._path: Final = Path(options.store.root, FILE_NAME)
        self._minimum: Final = options.controller_mode.min_in_sync_replicas
        self._counters = counters
        self._clock = clock
        self._roles: tuple[int, list[TakenRole]] = (-1, [])
        """Slot 178 as it was when they were read."""

    # -- the moment ------------------------------------------------------------------------------

    @property
    def leads(self) -> bool:
        """Whether this broker is the group's master now."""
        return leads(self._counters)

    @property
    def broker_id(self) -> int:
        """The id that the controller gave; 0: none yet."""
        return self._counters[MEMBER_ID]

    def confirm_offset(self) -> int:
        """Consumers read up to here, bytes."""
        return min(self._counters[CONFIRM_OFFSET], self._counters[MAX_PHY_OFFSET])

    def lease_ms(self) -> int | None:
        """How long a leader still takes messages without hearing from its controller; None where
        there is no such end (selfFenceEnable=false, or it does not lead)."""
        until_ms = self._counters[PUTS_UNTIL_MS]
        if not self.leads or until_ms == NO_BOUND:
            return None
        return max(until_ms - self._clock.monotonic_ms(), 0)

    def takes_messages(self) -> bool:
        """Whether it leads, in a set that is large enough, and its lease is not out."""
        return self.leads and not self._counters[PUTS_REFUSED] and self.lease_ms() != 0

    def without_master_ms(self) -> int:
        """How long it has neither led nor been linked with its master; 0: it has one."""
        seen_ms = self._counters[MASTER_SEEN_MS]
        passed_ms = self._clock.monotonic_ms() - seen_ms
        if not seen_ms:
            return self._counters[WITHOUT_MASTER_MS]
        return passed_ms if passed_ms > _SEEN_MS else 0

    def roles(self) -> list[TakenRole]:
        """Those that are kept, the oldest first."""
        number, known = self._roles
        now = self._counters[ROLE_RECORDS]
        if now == number:
            return known
        try:
            known = read_roles(self._path)
        except (OSError, msgspec.DecodeError) as error:
            log.error("%s: %s", self._path, error)
        self._roles = now, known
        return known

    def status(self, sync_state_set: Collection[int]) -> Json:
        """`groupInfo` of request 907 (remoting/body/ha_runtime_info.py)."""
        counters, roles = self._counters, self.roles()
        return {
            "role": role_of(counters[MEMBER_ORDER]).name.lower(),
            "takesMessages": self.takes_messages(),
            "brokerId": 0 if self.leads else self.broker_id,
            "memberId": self.broker_id,
            "epoch": counters[MASTER_EPOCH],
            "masterId": counters[MASTER_BROKER_ID] or None,
            "syncStateSet": sorted(sync_state_set),
            "minInSyncReplicas": self._minimum,
            "confirmOffset": self.confirm_offset(),
            "leaseMillis": self.lease_ms(),
            "withoutMasterMillis": self.without_master_ms(),
            "withoutMasterTotalMillis": counters[WITHOUT_MASTER_MS],
            "twoMastersSeen": counters[TWO_MASTERS_SEEN],
            "lastRole": _told(roles[-1]) if roles else None,
        }

    # -- the dump --------------------------------------------------------------------------------

    def line(self) -> Json:
        """`member` of a line (docs/metrics_dump.md)."""
        counters = self._counters
        return {
            "role": role_of(counters[MEMBER_ORDER]).name,
            "leads": self.leads,
            "broker_id": 0 if self.leads else self.broker_id,
            "epoch": counters[MASTER_EPOCH],
            "master": counters[MASTER_BROKER_ID] or None,
            "since": counters[ROLE_SINCE_MS],
            "set_size": counters[SYNC_STATE_SET_SIZE],
            "min_in_sync": self._minimum,
            "takes_messages": self.takes_messages(),
            "confirm_offset": self.confirm_offset(),
            "lease_ms": self.lease_ms(),
            "without_master_ms": counters[WITHOUT_MASTER_MS],
            "two_masters_seen": counters[TWO_MASTERS_SEEN],
        }

    def roles_after(self, number: int | None) -> list[TakenRole]:
        """Those behind number; None: nothing was told in this life of the broker."""
        roles = self.roles()
        if number is None:
            return roles[-_FIRST_LINE_ROLES:]
        return [role for role in roles if role.number > number]

    # -- the metrics -----------------------------------------------------------------------------

    def sources(self) -> dict[Metric, Callable[[], Rows]]:
        """The rows of each metric."""
        counters = self._counters
        return {
            table.HA_LEADS: lambda: _one(self.leads),
            table.HA_TAKES_MESSAGES: lambda: _one(self.takes_messages()),
            table.HA_BROKER_ID: self._broker_id,
            table.HA_EPOCH: lambda: _one(counters[MASTER_EPOCH]),
            table.HA_SET_SIZE: lambda: self._of_leader(counters[SYNC_STATE_SET_SIZE]),
            table.HA_SET_MINIMUM: lambda: self._of_leader(self._minimum),
            table.HA_CONFIRM_OFFSET: lambda: _one(self.confirm_offset()),
            table.HA_LEASE: self._lease,
            table.HA_MASTER_ABSENT: lambda: _one(self.without_master_ms() / 1000),
            table.HA_WITHOUT_MASTER_TOTAL: lambda: _one(counters[WITHOUT_MASTER_MS] / 1000),
            table.HA_TWO_MASTERS: lambda: _one(counters[TWO_MASTERS_SEEN]),
            table.HA_ROLES_TAKEN: lambda: _one(counters[ROLE_RECORDS]),
            table.HA_LAST_ELECTION: self._last_election,
        }

    def _broker_id(self) -> Rows:
        if not self.broker_id:
            return []
        return _one(0 if self.leads else self.broker_id)

    def _of_leader(self, value: int) -> Rows:
        return _one(value) if self.leads else []

    def _lease(self) -> Rows:
        lease_ms = self.lease_ms()
        return [] if lease_ms is None else _one(lease_ms / 1000)

    def _last_election(self) -> Rows:
        roles = self.roles()
        return [((roles[-1].cause,), [roles[-1].ts / 1000])] if roles else []


def _told(role: TakenRole) -> Json:
    return {
        "role": role.role.lower(),
        "cause": role.cause,
        "epoch": role.epoch,
        "oldEpoch": role.old_epoch,
        "oldMasterId": role.old_master,
        "timestamp": role.ts,
        "withoutMasterMillis": role.without_master_ms,
        "confirmOffset": role.confirm_offset,
        "logEnd": role.log_end,
    }


def _one(value: float) -> Rows:
    return [((), [float(value)])]


def find_member_facts(
    options: StartupOptions, counters: memoryview[int], clock: Clock
) -> MemberFacts | None:
    """None without enableControllerMode."""
    is_member = options.controller_mode.enable_controller_mode
    return MemberFacts(options, counters, clock) if is_member else None
