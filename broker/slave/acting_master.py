"""ActingMaster: which broker of the group has the smallest id, and whether that is this slave.

With enableSlaveActingMaster. While a group has no master, name servers that support it show its
slave with the smallest id as id 0: clients read from it, and lock queues and ask for offsets there.
Every broker of such a group tells the name servers every second that it lives, since they drop it
after brokerNotActiveTimeoutMillis. A slave asks them every second for the members of its group, and
at once when a name server says that the smallest id has changed (905): what that request claims is
not taken from it, as anybody may send it. A change is followed by a registration, whose answer
names the master, or says that there is none.

Runs in process `remoting` on the scheduled executor. What an acting slave answers is decided by no
state of this object: a slave answers reads, locks and offsets anyway. Follows BrokerController
(updateMinBroker, syncBrokerMemberGroup, sendHeartbeat) of 5.3.3.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from broker.out.broker_outer_api import BrokerIdentity
from broker.settings.broker_config import BrokerConfig
from ipc.scheduled_executor import ScheduledExecutor
from remoting.body.data_version import DataVersion
from remoting.body.route import ClusterInfo

log = logging.getLogger(__name__)

MASTER_ID: Final = 0
FIRST_DELAY_MS: Final = 1_000


class NameServers(Protocol):
    """The part of BrokerOuterAPI used here."""

    def need_register(
        self, identity: BrokerIdentity, data_version: DataVersion, timeout_ms: int
    ) -> bool:
        """322."""

    def send_heartbeat(self, identity: BrokerIdentity, timeout_ms: int) -> None:
        """904."""

    def get_broker_cluster_info(self, timeout_ms: int) -> list[ClusterInfo]:
        """106; empty if no name server responded."""

    def get_broker_member_groups(
        self, identity: BrokerIdentity, timeout_ms: int
    ) -> list[Mapping[int, str]]:
        """901; empty if no name server responded."""


class ActingMaster:
    """See the module. `_min_broker_id` is guarded by `_lock`, and read by any thread."""

    def __init__(
        self,
        config: BrokerConfig,
        identity: BrokerIdentity,
        api: NameServers,
        data_version: Callable[[], DataVersion],
        register: Callable[[], None],
    ) -> None:
        """data_version: of the topics. register: registers with the name servers, and follows what
        they say of the master."""
        self._config = config
        self._identity = identity
        self._api = api
        self._data_version = data_version
        self._register = register
        self._executor: ScheduledExecutor | None = None
        self._lock = threading.Lock()
        self._min_broker_id = MASTER_ID
        self._is_unknown = False
        """No name server knows any member, as logged last."""

    @property
    def min_broker_id(self) -> int:
        """The smallest id of the group's live brokers, as last heard; at first the master's."""
        return self._min_broker_id

    @property
    def is_acting(self) -> bool:
        """Whether this is a slave that stands in for the master."""
        own = self._identity.broker_id
        return own != MASTER_ID and self._min_broker_id == own

    def schedule_on(self, executor: ScheduledExecutor) -> None:
        """Begin, if it is enabled."""
        config = self._config
        if not config.enable_slave_acting_master:
            return
        executor.schedule(
            "name-server-heartbeat",
            self.send_heartbeat,
            first_delay_ms=FIRST_DELAY_MS,
            period_ms=config.broker_heartbeat_interval,
        )
        if self._identity.broker_id == MASTER_ID:
            return
        self._executor = executor
        executor.schedule(
            "sync-broker-member-group",
            self.look,
            first_delay_ms=FIRST_DELAY_MS,
            period_ms=config.sync_broker_member_group_period,
        )

    def notified(self, remote: str) -> None:
        """905 came from `remote` ("ip:port"): look soon. Any thread; does not block."""
        if self._executor is not None:
            log.info("smallest broker id of the group: told of a change by %s", remote)
            self._executor.submit("sync-broker-member-group-now", self.look)

    def send_heartbeat(self) -> None:
        """Tell the name servers that this broker lives."""
        timeout_ms = self._config.send_heartbeat_timeout_millis
        if self._config.compatible_with_old_name_srv:
            self._api.need_register(self._identity, self._data_version(), timeout_ms)
        else:
            self._api.send_heartbeat(self._identity, timeout_ms)

    def look(self) -> None:
        """Ask the name servers for the members; a change of the smallest id is followed."""
        groups = self._ask()
        if not groups:
            return
        members = {
            broker_id: address
            for group in reversed(groups)
            for broker_id, address in sorted(group.items())
        }
        if not members:
            if not self._is_unknown:
                log.warning("the name servers know no broker %s", self._identity.broker_name)
            self._is_unknown = True
            return
        self._is_unknown = False
        self._update(min(members), members[min(members)])

    def _ask(self) -> list[Mapping[int, str]]:
        timeout_ms = self._config.send_heartbeat_timeout_millis
        if not self._config.compatible_with_old_name_srv:
            return self._api.get_broker_member_groups(self._identity, timeout_ms)
        own = self._identity
        return [
            {}
            if group is None or group.cluster not in (None, own.cluster_name)
            else group.broker_addrs
            for info in self._api.get_broker_cluster_info(timeout_ms)
            for group in (info.broker_addr_table.get(own.broker_name),)
        ]

    def _update(self, broker_id: int, address: str) -> None:
        with self._lock:
            before = self._min_broker_id
            if broker_id == before:
                return
            self._min_broker_id = broker_id
        own = self._identity
        log.warning(
            "broker %s[%s]: the group's smallest broker id is %s now (%s), was %s%s",
            own.broker_name,
            own.broker_id,
            broker_id,
            address,
            before,
            ": this slave acts as master" if self.is_acting else "",
        )
        self._register()
