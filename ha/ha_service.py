"""HAService: composes the services of the room: accepting, sending, following, counting.

Constructs, starts and stops the services of process `ha`; its composition root passes in the
channels to other processes as plain callables. A slave has the master's side, too, as in
RocketMQ: another slave may follow it. Its only policy is the order of starts and stops, and the
wait of an orderly stop. Corresponds to HAService of RocketMQ.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ha.accept_socket_service import AcceptSocketService
from ha.exposure_marks import ExposureMarks
from ha.group_members_service import GroupMembersService
from ha.group_transfer_service import GroupTransferService
from ha.ha_client import HAClient, MasterChecks
from ha.ha_connection import HAConnections
from ha.ha_environment import HaEnvironment, LinkIdentity
from ha.ha_observer import HaObserver
from ha.ha_status import HaStatus
from ha.handshake import OwnIdentity, SlaveHello
from ha.last_bytes import wait_for_last_bytes
from ha.link_lender import LinkLender
from ha.master_hello import MasterHello
from ha.other_processes import OtherProcesses
from ha.refusal_log import RefusalLog
from ha.refusals import RefusalCounters
from ha.replica_registry import ReplicaRegistry
from ha.replica_verifier import ReplicaVerifier
from ha.replication_lag import ReplicationLag
from ha.reports import Reports
from ha.source_files import LogSource
from ha.transport import make_tls_context
from ha.trusted_peers import TrustedPeers, log_proof
from ha.uncompared_end import UncomparedEnd, uncompared_path
from ha.wait_notify_object import WaitNotifyObject
from ipc.bell import Bell
from ipc.service_thread import ServiceThread
from store.commit_log_reader import CommitLogReader
from store.control_slots import MAX_PHY_OFFSET, MIN_PHY_OFFSET
from store.log_directories import LogDirectories
from store.replica_log import ReplicaLog

if TYPE_CHECKING:
    from ha.queue_ends import QueueOffsets

log = logging.getLogger(__name__)

_HOUR_MS: Final = 3_600_000
_ASKING_MS: Final = 100
"""How long it waits for a service that waits for another process itself."""


@dataclass(frozen=True, slots=True)
class Bells:
    """Who is woken by whom; ringing is quick."""

    own: Bell
    """Process `ha` sleeps on it: the log has grown."""
    ring_remoting: Callable[[], None]
    """Acknowledgements have arrived."""
    ring_readers: Callable[[], None]
    """A slave's log has grown: wakes everybody who follows max_phy_offset."""


@dataclass(frozen=True, slots=True)
class SlaveSide:
    """What a slave has beside the master's side."""

    link_changed: Callable[[], None]
    """`link`, `named_broker` or `master_hello` may have changed; quick, never raises."""
    queue_offsets: QueueOffsets
    """(topic, queueId) to min and max offset in the consume queues, (0, 0) for none."""


class HAService:
    """See the module. Owned by: the main thread of process `ha`."""

    def __init__(
        self,
        environment: HaEnvironment,
        listening: socket.socket,
        source: LogSource,
        bells: Bells,
        own: OwnIdentity,
        others: OtherProcesses,
        slave: SlaveSide | None,
        *,
        loans: socket.socket | None = None,
    ) -> None:
        """slave: None on a master. loans: the channel of LinkLender; None: nothing is lent.

        Raises HaTlsError, ValueError: settings that cannot be used."""
        config, clock = environment.config, environment.clock
        self._environment = environment
        self._listening = listening
        self._source = source
        self._page = source.page
        self._bells = bells
        self._own = own
        self._others = others
        self._config = config
        self._clock = clock
        self._counters = source.page.counters
        self._trusted = TrustedPeers.of(config)
        self._refusals = RefusalCounters(source.page)
        self.registry: Final = ReplicaRegistry(clock, config.ha_replica_remember_hours * _HOUR_MS)
        self._marks: Final = ExposureMarks()
        self._build_master_side(loans)
        self._client = None if slave is None else self._build_client(slave)
        self._services: list[ServiceThread] = [
            *(self._transfer, self._members, self._verifier, self._accept)
        ]
        if self._client is not None:
            self._services.append(self._client)
        self._status = HaStatus(
            source.page,
            clock,
            self.registry,
            ReplicationLag(self._reader(), clock),
            self._refusals.snapshot,
            None if self._client is None else self._client.snapshot,
        )

    def _build_master_side(self, loans: socket.socket | None) -> None:
        config, clock = self._config, self._clock
        self._transfer = GroupTransferService(
            self._page,
            config,
            clock,
            self.registry,
            self._marks,
            self._bells.ring_remoting,
            on_failure=self._environment.on_failure,
        )
        self._lender: LinkLender | None = None
        if loans is not None:
            self._lender = LinkLender(
                loans, self._page, clock, self.registry, config.in_sync_replicas, self._transfer
            )
            self._transfer.refresh = self._lender.refresh
        self._wait_notify = WaitNotifyObject(self._bells.own)
        self._refusal_log = RefusalLog(self._refusals, clock)
        self._verifier = ReplicaVerifier(
            self._others.verify_replica, clock, on_failure=self._environment.on_failure
        )
        self._connections = HAConnections(
            self._environment,
            self._source,
            self._transfer,
            self._wait_notify,
            self._refusal_log,
            self._verifier,
            name_link=self._name_link,
            lender=self._lender,
        )
        self._members = GroupMembersService(
            self._others.fetch_members,
            lambda members: self.registry.set_members(self._own.broker_name, members),
            clock,
            on_failure=self._environment.on_failure,
        )
        self._accept = AcceptSocketService(
            self._environment,
            self._listening,
            self._identity(server_side=True),
            self._refusal_log,
            self._connections.admit,
            Reports,
            lambda: (self._counters[MIN_PHY_OFFSET], self._counters[MAX_PHY_OFFSET]),
        )

    def _identity(self, *, server_side: bool) -> LinkIdentity:
        tls = make_tls_context(self._config, server_side=server_side)
        return LinkIdentity(self._own, self._trusted, tls)

    def _build_client(self, slave: SlaveSide) -> HAClient:
        # Needs numpy, which a master does without.
        from ha.new_validators import new_validators

        source = self._source
        replica_log = ReplicaLog(
            source.place, source.file_size, source.page, self._bells.ring_readers
        )
        return HAClient(
            self._environment,
            replica_log,
            self._identity(server_side=False),
            self._refusal_log,
            self._wait_notify,
            self._others,
            MasterChecks(
                new_validators(source, slave.queue_offsets, self._config, self._clock),
                UncomparedEnd(uncompared_path(LogDirectories.of(source.place).first)),
            ),
            slave.link_changed,
        )

    def _reader(self) -> CommitLogReader:
        return CommitLogReader(self._source.place, self._source.file_size, self._page)

    def _name_link(self, remote: str, slave: SlaveHello) -> None:
        """A slave that said who it is counts as that one from its first byte on."""
        if slave.broker_name == self._own.broker_name and slave.broker_id > 0:
            self.registry.announce(remote, slave.broker_name, slave.broker_id)

    def new_observer(self) -> HaObserver:
        """What the metrics ask, for one thread; one observer for a service, since it takes the
        marks."""
        observer = HaObserver(
            self._page,
            self._clock,
            self.registry,
            self._marks,
            self._reader(),
            self._refusal_log.rejected_handshakes,
            self._members.request,
            None if self._client is None else self._client.snapshot,
        )
        if self._lender is not None:
            observer.refresh = self._lender.refresh
        return observer

    # -- life ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the services; the store is ready."""
        log_proof(self._config)
        for service in self._services:
            service.start()

    def shutdown(self) -> bool:
        """Accept no more connections, let connected slaves receive the last bytes, stop everything.
        The log's writer has already stopped. False if something did not stop, except for services
        that wait for another process."""
        asking = (self._members, self._verifier)
        for service in asking:
            service.request_stop()
        stopped = [self._accept.shutdown()]
        if self._client is not None:
            stopped.append(self._client.shutdown())
        wait_for_last_bytes(
            self.registry,
            self._counters[MAX_PHY_OFFSET],
            self._clock,
            self._transfer.wait_for_running,
        )
        stopped += [self._connections.close_all(), self._transfer.shutdown()]
        for service in asking:
            service.shutdown(_ASKING_MS)
        return all(stopped)

    # -- commands ------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """What request 907 shows."""
        return self._status.status()

    @property
    def link(self) -> str | None:
        """Our end ("ip:port") of the open link to the master. Any thread."""
        return None if self._client is None else self._client.snapshot().local_address

    @property
    def named_broker(self) -> str | None:
        """HAClient.named_broker; None on a master. Any thread."""
        return None if self._client is None else self._client.named_broker

    @property
    def master_hello(self) -> MasterHello | None:
        """What the master of the open link says of itself; None without a link. Any thread."""
        return None if self._client is None else self._client.snapshot().master_hello

    def update_master_address(self, address: str | None) -> None:
        """The master's HA port is there now; an open link to another one is closed."""
        if self._client is not None and address is not None:
            self._client.update_master_address(address)
