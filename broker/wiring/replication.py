"""Replication: the part of replication that speaks the remoting protocol, put together.

Runs in process `remoting`, beside BrokerController, which gives it what it shares. On a slave: who
the master is (from registrations, or told by 906), whether the logs belong together, the tables
(SlaveSynchronize), the announcement of our link. On a master: who the group's brokers are, the
offsets that consumers reached on slaves meanwhile, whether a slave holds what it claims. On both:
requests of process `ha` are answered here, and its HA status is asked for. No policy of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from broker.admin.admin_ha_processor import AdminHAProcessor, HaIdentity, MasterNews
from broker.out.broker_outer_api import BrokerIdentity, BrokerOuterAPI
from broker.out.control_slots import EMBEDS_NAME_SERVER
from broker.slave.cut_log import CutLog
from broker.slave.ends_at_start import EndsAtStart
from broker.slave.group_members import GroupMembers, MemberAddress
from broker.slave.ha_request_service import HaRequestService
from broker.slave.master_flushed_offset import MasterFlushedOffset
from broker.slave.master_inspector import MasterInspector
from broker.slave.message_request_mode_synchronize import MessageRequestModeSynchronize
from broker.slave.offset_synchronize import OffsetSynchronize
from broker.slave.promotion import TICK_MS, ReplicaJournal
from broker.slave.remembered_replicas import RememberedReplicas
from broker.slave.replica_announcer import ReplicaAnnouncer
from broker.slave.replica_verification import ReplicaVerification
from broker.slave.returning_master import ReturningMaster
from broker.slave.slave_synchronize import MasterChecks, SlaveSynchronize
from broker.slave.timer_synchronize import TimerSynchronize
from broker.slave.timer_take_back import TimerTakeBack
from broker.slave.topic_group_synchronize import TopicGroupSynchronize
from broker.slave.trusted_master import TrustedMaster
from broker.topic.system_topics import TIMER_TOPIC
from broker.wiring.broker_tables import BrokerTables
from broker.wiring.damage_repair import DamageRepair
from broker.wiring.process_resources import ProcessResources
from broker.wiring.store_side import StoreSide
from ha.control_slots import ISOLATED
from ha.inspection import Inspection, Verdict
from ha.replica_memory import FILE_NAME as REPLICAS_NAME
from ha.replica_memory import read_replica_ips
from ipc.command_channel import Arguments, CommandClient, CommandError
from ipc.scheduled_executor import ScheduledExecutor
from ipc.service_thread import FailureHandler
from remoting.headers.ha import ExchangeHAInfoResponseHeader
from store.commit_log_reader import CommitLogReader
from store.control_slots import MAX_PHY_OFFSET, MIN_PHY_OFFSET
from store.errors import StoreError

log = logging.getLogger(__name__)

_PASS_TIMEOUT_MS: Final = 3_000


class Replication:
    """See the module. Owned by: the main thread of process `remoting`."""

    def __init__(
        self,
        resources: ProcessResources,
        identity: BrokerIdentity,
        api: BrokerOuterAPI,
        store: StoreSide,
        tables: BrokerTables,
        *,
        min_broker_id_changed: Callable[[str], None],
        master_is_silent: Callable[[], None],
        on_failure: FailureHandler,
    ) -> None:
        """min_broker_id_changed: ActingMaster.notified.
        master_is_silent: BrokerRegistration's. on_failure: of the thread that answers process
        ha."""
        options, page, clock = resources.options, resources.page, resources.clock
        self._options = options
        self._page = page
        self._clock = clock
        self._identity = identity
        self._client = client = api.client
        self._api = self.table_source = api
        self._store = store
        self._tables = tables
        self._master_is_silent = master_is_silent
        self._is_slave = options.store.is_slave
        self.ha: Final = CommandClient(resources.channels["remoting->ha"], "ha", clock)
        self._ha_address: str | None = None
        self._reported_ha_address: str | None = None
        self._initial_max_offset = 0
        self._trust = TrustedMaster(options.ha)
        self._unproved: Inspection | None = None
        """The last comparison with a broker that is not known to be our master."""
        self._ignored_master: str | None = None
        """A registered master that was ignored, as logged last."""
        self._members = GroupMembers(self._identity, self._api)
        self._replicas_path = replicas_path = options.store.root / REPLICAS_NAME
        self._journal = ReplicaJournal(
            self._options.store.root,
            self._identity.broker_name,
            self._identity.broker_id,
            self._page,
            self._client,
            self._clock,
        )
        self._cut_log = CutLog(options.store.root)
        self._inspector = self._build_inspector()
        self.synchronize: Final = self._build_synchronize()
        if self._journal.divergence is not None:
            self.synchronize.logs_compared(
                None,
                f"{self._journal.divergence}, when our log was last compared with the master's",
            )
        self._announcer = ReplicaAnnouncer(
            self._client, self._identity.broker_name, self._identity.broker_id
        )
        self._verifier = ReplicaVerification(
            self._members.fetch_member_ips,
            self._client,
            self._new_reader(),
            self._store.access,
            self._clock,
        )
        self.damage_repair: Final = DamageRepair(
            resources,
            client,
            self._members.fetch_member_ips,
            self._is_proved,
            None if self._is_slave else RememberedReplicas(replicas_path, self._is_proved),
            store.commands,
            store.claim_queue_offsets,
            on_failure=on_failure,
        )
        self._at_start: Final = EndsAtStart(
            store.table, lambda *queue: store.log.next_offset(*queue), clock.now_ms
        )
        self.returning: Final = self._build_returning()
        handlers = {
            "inspect_master": self._inspector.handle,
            "group_members": self._group_members,
            "ha_link": self._ha_link,
            "verify_replica": self._verifier.handle,
        }
        self._requests = HaRequestService(
            resources.channels["remoting<-ha"], handlers, self._clock, on_failure=on_failure
        )
        self._flushed = MasterFlushedOffset(
            page.counters, taken_at_startup=options.store.sync_master_flush_offset_when_startup
        )
        self.processor: Final = AdminHAProcessor(
            self.ha_identity,
            ha=self.ha,
            slave_sync=self.synchronize.status,
            promotion=self._journal.outlook,
            update_master=self._on_master_from_peer,
            min_broker_id_changed=min_broker_id_changed,
            flushed=self._flushed,
        )

    def _is_proved(self, member: MemberAddress) -> bool:
        """Whether what this member holds counts as a copy of the group's log: it is our master, or
        a replica that was let in at our HA port."""
        if self._is_slave:
            return member.address == self.master_address or self._trust.is_peer(member.ip)
        return self.is_slave_of_ours(member.ip)

    def _new_reader(self) -> CommitLogReader:
        store = self._options.store
        return CommitLogReader(store.log_directories, store.mapped_file_size_commit_log, self._page)

    def _build_inspector(self) -> MasterInspector:
        return MasterInspector(
            self._client,
            self._new_reader(),
            self._store.access,
            self._clock,
            own_addresses=(self._identity.broker_addr, self._identity.ha_server_addr),
            has_name_servers=self._has_name_servers,
            on_result=self._inspected,
            on_silence=self._master_is_silent,
        )

    def _has_name_servers(self) -> bool:
        """Whether somebody may still say who the master is. The name server that a slave without
        namesrvAddr embeds knows nobody but the slave."""
        return bool(self._api.name_servers) and not self._page.counters[EMBEDS_NAME_SERVER]

    def _build_returning(self) -> ReturningMaster:
        escapes = self._options.broker.enable_remote_escape
        at_start = self._at_start
        take_back = TimerTakeBack(
            self._api,
            self._page.counters,
            lambda: self._store.table.offsets(TIMER_TOPIC, 0)[1],
            at_start,
            self._clock.now_ms,
        )
        return ReturningMaster(
            self._members.fetch_member_ips,
            self._api,
            self._tables.offsets,
            at_start.end,
            is_slave=self.is_slave_of_ours,
            delay_offsets=self._tables.schedule_offsets if escapes else None,
            timers=take_back if escapes and self._options.store.timer_wheel_enable else None,
        )

    def _build_synchronize(self) -> SlaveSynchronize:
        api, tables = self._api, self._tables
        known = TopicGroupSynchronize(
            api,
            tables.topics,
            tables.mappings,
            tables.groups,
            self._store.store_commands.delete_topic_queues,
            self._page.counters,
        )
        synchronize = SlaveSynchronize(
            self._identity.broker_addr,
            known,
            OffsetSynchronize(
                api,
                tables.offsets,
                tables.schedule_offsets,
                known,
                self._cut_log,
                lambda: self._page.counters[MAX_PHY_OFFSET],
            ),
            self._cut_log,
            MasterChecks(self._trust.find_objection, self._compare_logs, self._master_is_silent),
            self._page,
            self._clock,
        )
        synchronize.also_copied.append(self._journal.tables_copied)
        synchronize.also_copied.append(
            MessageRequestModeSynchronize(api, tables.request_modes).sync
        )
        if self._options.store.timer_wheel_enable:
            synchronize.also_copied.append(TimerSynchronize(api, self._page.counters).sync)
        return synchronize

    # -- life ----------------------------------------------------------------------------------

    def start(self, executor: ScheduledExecutor) -> None:
        """The tables are loaded, the store is ready."""
        self._cut_log.look()
        self._initial_max_offset = self._page.counters[MAX_PHY_OFFSET]
        self._requests.start()
        self.damage_repair.service.start()
        if not self._is_slave:
            self._at_start.note()
            self.returning.schedule_on(executor)
            return
        self.synchronize.schedule_on(executor, self._options.broker)
        executor.schedule("follow-master", self._tick, first_delay_ms=TICK_MS, period_ms=TICK_MS)

    def before_first_registration(self) -> None:
        """What must be in order when clients and slaves come: a master's offsets."""
        if not self._is_slave:
            self.returning.ask_slaves()
            self.returning.adopt_progress()

    def shutdown(self) -> None:
        """Stop answering process ha; a slave records what it holds."""
        self.damage_repair.service.request_stop()
        self._requests.shutdown(1_000)
        if self._is_slave:
            self._journal.close()

    # -- who the master is (slave) -------------------------------------------------------------

    def on_master(self, master_addr: str | None, ha_addr: str | None) -> None:
        """Remoting and HA address of the master, as registrations or 906 say: a MasterListener.

        No HA address leaves the one that is known, as in RocketMQ.
        """
        if not self._is_slave or self._ignores(master_addr, ha_addr):
            return
        self._ha_address = ha_addr or self._ha_address
        self._inspector.set_master(master_addr, self._ha_address)
        self.synchronize.set_master_address(master_addr)
        self._announcer.master_changed(master_addr)
        self._pass_address_to_ha()

    def _ignores(self, master_addr: str | None, ha_addr: str | None) -> bool:
        """A master that could not be followed anyway does not take the place of one that is."""
        if (
            ha_addr is None
            or self._ha_address in (None, ha_addr)
            or self._options.ha.ha_master_address
            or self._trust.may_become(ha_addr)
        ):
            return False
        if ha_addr != self._ignored_master:
            log.warning(
                "ignoring master %s, HA %s: it has not proved that it is ours, and "
                "haTrustedAddresses does not name it; keeping %s",
                master_addr,
                ha_addr,
                self._ha_address,
            )
            self._ignored_master = ha_addr
        return True

    def _on_master_from_peer(self, news: MasterNews) -> None:
        """906: only a trusted peer may name our master, and an address fixed by the operator is
        kept. Whether that master is one to take anything from is decided as for every other."""
        ip, ha_addr = news.peer.rpartition(":")[0], news.ha_address
        if self._options.ha.ha_master_address:
            log.warning("ignoring master %s reported by %s: haMasterAddress is set", ha_addr, ip)
        elif not self._trust.is_peer(ip):
            log.warning(
                "ignoring master %s reported by %s: not a trusted address, see haTrustedAddresses",
                ha_addr,
                ip,
            )
        else:
            self._flushed.offer(news.flush_offset)
            self.on_master(news.address, ha_addr)

    def use_master(self, member: MemberAddress, answer: ExchangeHAInfoResponseHeader) -> None:
        """A slave that is isolated asked who is registered as its master: to be followed as one
        that a registration names. Its thread."""
        if self._trust.is_peer(member.ip):
            self._flushed.offer(answer.master_flush_offset)
        self.on_master(member.address, answer.master_ha_address)

    def is_slave_of_ours(self, ip: str) -> bool:
        """Whether a replica was linked from this IP, lately or before this start: it was let in."""
        return self._trust.is_peer(ip) or ip in read_replica_ips(self._replicas_path)

    def find_offsets_objection(self) -> str | None:
        """Why no other broker may copy the offsets of this one; None: it may. Those of a former
        master whose log was not compared yet may be ahead of what is common. Any thread."""
        if not self._is_slave:
            if not self._page.counters[ISOLATED]:
                return None
            return "it is isolated, and does not know yet what its slaves did in its place"
        if self._cut_log.objection is not None:
            return self._cut_log.objection
        if not self._journal.was_compared:
            return "its log was never compared with a master's"
        divergence = self._journal.divergence
        return (
            None if divergence is None else f"its log is {divergence}, compared with its master's"
        )

    @property
    def master_address(self) -> str | None:
        """The master's remoting "ip:port", if it is known to be ours."""
        address = self._inspector.master_address
        return None if address is None or self._trust.find_objection(address) else address

    def _inspected(self, found: Inspection) -> None:
        """A slave's log was compared. If the logs do not belong together, no tables are copied
        until a comparison finds that they do. What a stranger says of its log is no finding about
        ours; it becomes one when the HA link shows that it was our master."""
        if found.master_address is not None and self._trust.find_objection(found.master_address):
            self._unproved = found
            return
        self._unproved = None
        self._journal.on_inspection(found)
        if found.verdict in (Verdict.AHEAD, Verdict.DIVERGED):
            self.synchronize.logs_compared(found.master_address, f"{found.verdict}: {found.text}")
        elif found.verdict is Verdict.WAIT:
            return
        elif found.master_max >= 0:
            self.synchronize.logs_compared(found.master_address, None)
        else:
            self.synchronize.logs_not_comparable(found.master_address)

    def _compare_logs(self) -> None:
        """For the tables: process ha compares before it connects only, and its link may have
        been there before this process was, or before the master's remoting address was known."""
        counters = self._page.counters
        try:
            self._inspector.inspect(
                counters[MAX_PHY_OFFSET],
                counters[MIN_PHY_OFFSET],
                self._options.ha.ha_master_address,
            )
        except (StoreError, OSError) as error:
            log.warning("could not compare our log with the master's: %s", error)

    def _pass_address_to_ha(self) -> None:
        """Close an open link to another address; a waiting client checks immediately."""
        fixed = self._options.ha.ha_master_address
        if fixed or self._ha_address in (None, self._reported_ha_address):
            return
        try:
            self.ha.call("master_address", _PASS_TIMEOUT_MS, ha_address=self._ha_address)
            self._reported_ha_address = self._ha_address
        except CommandError as error:
            log.warning(
                "could not pass HA address %s to process ha (will retry): %s",
                self._ha_address,
                error,
            )

    def _tick(self) -> None:
        self._pass_address_to_ha()
        self._announcer.tick()
        self._journal.tick(self.master_address)

    # -- requests of process ha ---------------------------------------------------------------

    def _group_members(self, _arguments: Arguments) -> Arguments:
        members = self._members.fetch_member_ips()
        if members is None:
            return {"members": None}
        return {"members": {str(member.broker_id): member.ip for member in members}}

    def _ha_link(self, arguments: Arguments) -> Arguments:
        local = arguments["local"]
        self._trust.master_said(arguments["named_broker"])
        if (unproved := self._unproved) is not None:
            self._inspected(unproved)
        if local is None:
            self._announcer.link_closed()
            self.synchronize.link_lost()
        else:
            self._announcer.link_opened(local)
            self.synchronize.link_opened()
        return {}

    # -- for requests 906 and 907 --------------------------------------------------------------

    def ha_identity(self) -> HaIdentity:
        """What 906 says of this broker."""
        identity = self._identity
        return HaIdentity(
            broker_name=identity.broker_name,
            broker_id=identity.broker_id,
            broker_address=identity.broker_addr,
            ha_address=identity.ha_server_addr,
            initial_max_offset=self._initial_max_offset,
        )
