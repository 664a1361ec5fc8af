"""ActingMaster: which broker of the group has the smallest id, and whether that is this slave.

With enableSlaveActingMaster. While a group has no master, name servers that support it show its
slave with the smallest id as id 0: clients read from it, and lock queues and ask for offsets there.
Every broker of such a group tells the name servers every second that it lives, since they drop it
after brokerNotActiveTimeoutMillis. A slave asks them every second for the members of its group, and
at once when a name server says that the smallest id has changed (905): what that request claims is
not taken from it, as anybody may send it. A change is followed by a registration, whose answer
names the master, or says that there is none.

Runs in process `remoting` on the scheduled executor. What an acting slave answers is decided by no
state of this object: a slave answers reads, locks and offsets anyway. What it does by itself, in
its master's place, needs more than `is_acting`: see `may_deliver`. Follows BrokerController
(updateMinBroker, syncBrokerMemberGroup, sendHeartbeat) of 5.3.3.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from broker.out.broker_outer_api import BrokerIdentity
from broker.settings.broker_config import BrokerConfig
from ipc.scheduled_executor import ScheduledExecutor
from remoting.body.data_version import DataVersion

if TYPE_CHECKING:
    from broker.out.broker_outer_api import BrokerOuterAPI

log = logging.getLogger(__name__)

MASTER_ID: Final = 0
FIRST_DELAY_MS: Final = 1_000


class ActingMaster:
    """See the module. Guarded by: `_lock`, held during a question, so that an older answer never
    replaces a newer one; `_least`, `_is_confirmed` and `_is_asked_for` are read by any thread."""

    def __init__(
        self,
        config: BrokerConfig,
        identity: BrokerIdentity,
        api: BrokerOuterAPI,
        data_version: Callable[[], DataVersion],
        register: Callable[[], None],
        is_linked: Callable[[], bool],
    ) -> None:
        """data_version: of the topics. register: registers with the name servers, and follows what
        they say of the master. is_linked: whether this slave replicates from its master now."""
        self._config = config
        self._identity = identity
        self._api = api
        self._data_version = data_version
        self._register = register
        self._is_linked = is_linked
        self._executor: ScheduledExecutor | None = None
        self._lock = threading.Lock()
        self._least: tuple[int, str] = (MASTER_ID, "")
        """Smallest id and its address."""
        self._is_confirmed = False
        """The last question was answered with members."""
        self._is_asked_for = False
        """905 came, and its question has not begun."""
        self._was_different = False
        """A name server had another data version at the last heartbeat."""
        self._is_unknown = False
        """No name server knows any member, as logged last."""

    @property
    def min_broker_id(self) -> int:
        """The smallest id of the group's live brokers, as last heard; at first the master's."""
        return self._least[0]

    @property
    def is_acting(self) -> bool:
        """Whether this is a slave that stands in for the master. Not if another broker was
        registered with its id."""
        own = self._identity
        return own.broker_id != MASTER_ID and self._least == (own.broker_id, own.broker_addr)

    @property
    def may_deliver(self) -> bool:
        """Whether it may also do what a master does by itself. Not while its master replicates to
        it: that one lives, cut off from the name servers or not registered yet, and delivers. Not
        while no name server answers: then this slave may be the one that is cut off."""
        return self.is_acting and self._is_confirmed and not self._is_linked()

    def begin_with(self, broker_id: int, address: str) -> None:
        """The smallest id, as the broker found it when it was isolated. Before `schedule_on`."""
        self._least = (broker_id, address)

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
        if self._executor is not None and not self._is_asked_for:
            self._is_asked_for = True
            log.info("smallest broker id of the group: %s reported a change", remote)
            self._executor.submit("sync-broker-member-group-now", self.look)

    def send_heartbeat(self) -> None:
        """Tell the name servers that this broker lives. A name server to which 322 is news (topics
        were copied, it was started anew) does not count it as a sign of life, so a registration
        follows, once."""
        timeout_ms = self._config.send_heartbeat_timeout_millis
        if not self._config.compatible_with_old_name_srv:
            self._api.send_heartbeat(self._identity, timeout_ms)
            return
        before = self._was_different
        self._was_different = self._api.is_different(
            self._identity, self._data_version(), timeout_ms
        )
        if self._was_different and not before:
            self._register()

    def look(self) -> None:
        """Ask the name servers for the members; a change of the smallest id is followed."""
        with self._lock:
            self._is_asked_for = False
            groups = self._ask()
            members = {
                broker_id: address
                for group in reversed(groups)
                for broker_id, address in sorted(group.items())
                if broker_id >= MASTER_ID
            }
            self._is_confirmed = bool(members)
            if members:
                self._update(min(members), members[min(members)])
            elif groups and not self._is_unknown:
                log.warning("the name servers know no broker %s", self._identity.broker_name)
            self._is_unknown = bool(groups) and not members

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
        before, self._least = self._least, (broker_id, address)
        if broker_id == before[0]:
            return
        own = self._identity
        log.warning(
            "broker %s[%s]: the group's smallest broker id is %s now (%s), was %s%s",
            own.broker_name,
            own.broker_id,
            broker_id,
            address,
            before[0],
            ": this slave acts as master" if self.is_acting else "",
        )
        self._register()
