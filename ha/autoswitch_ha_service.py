"""AutoSwitchHAService: replication in a group with a controller: serving slaves, or following.

Constructs, starts and stops the services of process `ha` in controller mode, where the role changes
at run time; HAService does so without a controller. The host of the group's member says what to do
(`lead`, `follow`, `stop`), and hears what happens through MemberEvents. Who is let in, and whom a
slave follows, is as without a controller (AcceptSocketService, MasterConnector): an address that
was named or a proof, never a controller's or name server's word alone. Corresponds to
AutoSwitchHAService of RocketMQ.

Tested by tests/ha/test_autoswitch_ha_service.py.
"""

from __future__ import annotations

import dataclasses
import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ha.accept_socket_service import AcceptSocketService
from ha.autoswitch_client import AutoSwitchClient
from ha.autoswitch_connection import Leadership
from ha.autoswitch_connections import AutoSwitchConnections, FirstHandshake
from ha.autoswitch_frame import SlaveHandshakeFrame
from ha.epochs import EpochList
from ha.exposure_marks import ExposureMarks
from ha.follow_orders import MasterToFollow
from ha.ha_config import HaAckLevel
from ha.ha_environment import HaEnvironment, LinkIdentity
from ha.ha_service import Bells
from ha.handshake import OwnIdentity
from ha.last_bytes import wait_for_last_bytes
from ha.log_watch import LogWatch
from ha.master_hello import MasterHello
from ha.member_events import MemberEvents
from ha.refusal_log import RefusalLog
from ha.refusals import RefusalCounters
from ha.replica_registry import ReplicaRegistry
from ha.role_status import RoleObserver, RoleStatus
from ha.set_transfer_service import SetTransferService
from ha.source_files import LogSource
from ha.transport import make_tls_context
from ha.trusted_peers import TrustedPeers, log_proof
from ha.wait_notify_object import WaitNotifyObject
from ipc.service_thread import ServiceThread
from store.control_slots import APPEND_END, MAX_PHY_OFFSET, MIN_PHY_OFFSET
from store.log_directories import LogDirectories
from store.log_end import sync_range
from store.replica_log import ReplicaLog

if TYPE_CHECKING:
    from ha.queue_ends import QueueOffsets
    from ha.record_validator import RecordValidators

log = logging.getLogger(__name__)

_HOUR_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True)
class MemberLinks:
    """What this broker says of itself on HA connections, and what it needs for its own log."""

    own: OwnIdentity
    """Its broker id counts for nothing: `follow` says under which one it follows. With
    reports_flushed only what is on disk is reported, as with haAckLevel=flushed."""
    begin_log: Callable[[int], None]
    """OtherProcesses' one."""
    queue_offsets: QueueOffsets
    """(topic, queueId) to min and max offset in the consume queues, (0, 0) for none."""
    async_learner: bool = False
    sync_from_last_file: bool = False


class AutoSwitchHAService:
    """See the module. Owned by: the thread of the member's host, which gives one order after the
    other; the properties, `status` and `update_master_address` are for any thread.

    No order but `stop` waits for anything. Before the role changes, `stop`; `lead` and `follow`
    follow it. MemberEvents.master_hello has to be answered by `transfer` or `hang_up`, unless
    `stop` comes: no other master is asked before."""

    def __init__(
        self,
        environment: HaEnvironment,
        listening: socket.socket,
        source: LogSource,
        bells: Bells,
        links: MemberLinks,
        events: MemberEvents,
    ) -> None:
        """bells.ring_remoting: the number of replicas changed. Raises HaTlsError, ValueError:
        settings that cannot be used."""
        if links.own.reports_flushed:
            flushed = dataclasses.replace(environment.config, ha_ack_level=HaAckLevel.flushed)
            environment = dataclasses.replace(environment, config=flushed)
        config, clock = environment.config, environment.clock
        self._environment = environment
        self._source = source
        self._page = source.page
        self._counters = source.page.counters
        self._bells = bells
        self._links = links
        self._events = events
        self._config = config
        self._trusted = TrustedPeers.of(config)
        refusals, marks = RefusalCounters(source.page), ExposureMarks()
        self._refusal_log = RefusalLog(refusals, clock)
        self._wait_notify = WaitNotifyObject(bells.own)
        self.registry: Final = ReplicaRegistry(clock, config.ha_replica_remember_hours * _HOUR_MS)
        self._transfer = SetTransferService(
            self._page,
            config,
            clock,
            self.registry,
            marks,
            bells.ring_remoting,
            on_failure=environment.on_failure,
        )
        self._connections = AutoSwitchConnections(
            environment,
            source,
            self._transfer,
            self._wait_notify,
            self._refusal_log,
            events,
            links.own.broker_name,
            lambda remote, broker_id: self.registry.announce(
                remote, links.own.broker_name, broker_id
            ),
        )
        self._accept = AcceptSocketService(
            environment,
            listening,
            self._identity(server_side=True),
            self._refusal_log,
            self._connections.admit,
            FirstHandshake,
            lambda: (self._counters[MIN_PHY_OFFSET], self._counters[MAX_PHY_OFFSET]),
        )
        self._client = self._build_client()
        self._watch = LogWatch(environment, self._page, self._wait_notify, events.log_grew)
        self._services: tuple[ServiceThread, ...] = (
            *(self._transfer, self._accept, self._client, self._watch),
        )
        self._status = RoleStatus(
            source,
            clock,
            self.registry,
            refusals,
            self._refusal_log,
            marks,
            self._client.snapshot,
            links.own.broker_name,
        )

    def _identity(self, *, server_side: bool) -> LinkIdentity:
        tls = make_tls_context(self._config, server_side=server_side)
        return LinkIdentity(self._links.own, self._trusted, tls)

    def _build_client(self) -> AutoSwitchClient:
        return AutoSwitchClient(
            self._environment,
            self._replica_log(),
            self._identity(server_side=False),
            self._refusal_log,
            self._wait_notify,
            self._links.begin_log,
            self._new_validators,
            self._events,
        )

    def _replica_log(self) -> ReplicaLog:
        source = self._source
        return ReplicaLog(source.place, source.file_size, self._page, self._bells.ring_readers)

    def _new_validators(self) -> RecordValidators:
        # Needs numpy, which who leads does without.
        from ha.new_validators import new_validators

        return new_validators(
            self._source, self._links.queue_offsets, self._config, self._environment.clock
        )

    # -- life ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the services; the store is ready. Nobody is served or followed yet."""
        log_proof(self._config)
        for service in self._services:
            service.start()

    def shutdown(self) -> bool:
        """Accept no more connections, let the slaves of a leader receive the last bytes, stop
        everything. The log's writer has already stopped. False if something did not stop."""
        stopped = [self._accept.shutdown(), self._client.shutdown()]
        wait_for_last_bytes(
            self.registry,
            self._counters[MAX_PHY_OFFSET],
            self._environment.clock,
            self._transfer.wait_for_running,
        )
        stopped.append(self._connections.stop())
        return all([*stopped, self._watch.shutdown(), self._transfer.shutdown()])

    # -- orders --------------------------------------------------------------------------------

    def lead(
        self,
        epochs: EpochList,
        master_epoch: int,
        confirm: Callable[[], int],
        *,
        tells_growth: bool = True,
    ) -> None:
        """Serve slaves from now on. epochs: with this time's own one. confirm: up to where
        consumers may read, asked for each frame, on the connections' threads. tells_growth: False:
        MemberEvents.log_grew is not called, and appends cost no wake-up of this process."""
        self.registry.forget_left()  # What a former time as leader counted is over.
        self._status.is_leading = True
        self._connections.lead(Leadership(epochs, master_epoch, confirm))
        self._watch.watch(is_wanted=tells_growth)

    def follow(self, broker_id: int, master_epoch: int, master_ha_address: str | None) -> None:
        """Connect to the master as soon as its HA address is known, under this id. master_epoch:
        the controller's word, which MemberEvents.master_hello repeats for a Java master: its
        handshake does not say it. master_ha_address None: what was said of it in this epoch."""
        self._status.is_leading = False
        links = self._links
        own = SlaveHandshakeFrame(broker_id, links.sync_from_last_file, links.async_learner)
        self._client.follow(MasterToFollow(own, master_epoch), master_ha_address)
        self._watch.watch(is_wanted=True)

    def update_master_address(self, address: str | None) -> None:
        """The master's HA port is there now; an open link to another one is closed."""
        self._client.update_master_address(address)

    def transfer(self) -> None:
        """The log is the beginning of the log of the master whose answer was told last, and its
        list of epochs was written down: report the log's end, take frames."""
        self._client.decide(transfers=True)

    def hang_up(self) -> None:
        """Close the link to the master; it is tried again after a pause."""
        self._client.decide(transfers=False)

    def stop(self) -> None:
        """Close all connections, both sides; no thread of the service touches the log when this
        returns, and none serves or follows before the next order."""
        self._status.is_leading, self._status.sync_state_set = False, frozenset()
        self._watch.watch(is_wanted=False)
        self._client.stop_following()
        self._connections.stop()

    def cut_half_record(self) -> None:
        """Zero what was never published, [max_phy_offset, append_end), durably. After `stop`, and
        only while nobody else writes the log. Raises StoreError; FlushFailedError is one."""
        start, end = self._counters[MAX_PHY_OFFSET], self._counters[APPEND_END]
        replica_log = self._replica_log()
        replica_log.open()
        replica_log.close()
        directories = LogDirectories.of(self._source.place)
        sync_range(directories, self._source.file_size, start, end)

    # -- what it shows -------------------------------------------------------------------------

    def note_sync_state_set(self, broker_ids: frozenset[int]) -> None:
        """On a leader, who is in the SyncStateSet: `status` shows it. Any thread."""
        self._status.sync_state_set = broker_ids

    def status(self) -> dict[str, Any]:
        """What request 907 shows."""
        return self._status.status()

    @property
    def link(self) -> str | None:
        """Our end ("ip:port") of the link to the master, while frames are taken. Any thread."""
        return self._client.snapshot().local_address if self._client.is_transferring else None

    @property
    def master_hello(self) -> MasterHello | None:
        """What a master of ours says of itself in our handshake. Any thread."""
        return self._client.snapshot().master_hello

    @property
    def named_broker(self) -> str | None:
        """The remoting port "ip:port" that it names there. Any thread."""
        hello = self.master_hello
        return None if hello is None else hello.broker_address

    def new_observer(self) -> RoleObserver:
        """What the metrics ask, for one thread; one observer for a service, since it takes the
        marks."""
        return self._status.new_observer()
