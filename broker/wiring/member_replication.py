"""MemberReplication: Replication of a broker in a group with a controller.

In the place of Replication, in controller mode. Who the master is says process `ha`, which asks the
controllers; that the logs belong together shows the HA link. So there is no comparison of the logs
over the remoting port here, no announcement of the link, and nothing of what makes a promotion by
hand safe: the promotion journal (replica.json), the remembered replicas and the proof of repair say
what a start as master may do, while here the controllers elect, from the in-sync set. Nor does a
returning master ask its slaves for offsets: it returns as a slave.

On the loop: `role_changed`. Everything else on the scheduled executor and on threads that answer
process `ha`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from broker.admin.admin_ha_processor import AdminHAProcessor, HaIdentity, MasterNews
from broker.out.broker_outer_api import BrokerIdentity, BrokerOuterAPI
from broker.out.member_registration import MemberRegistration
from broker.slave.cut_log import CutLog
from broker.slave.group_members import GroupMembers, MemberAddress
from broker.slave.ha_request_service import HaRequestService
from broker.slave.master_flushed_offset import MasterFlushedOffset
from broker.slave.member_synchronize import CopiedTables, MemberSynchronize
from broker.slave.message_request_mode_synchronize import MessageRequestModeSynchronize
from broker.slave.offset_synchronize import OffsetSynchronize
from broker.slave.promotion import PromotionOutlook
from broker.slave.timer_synchronize import TimerSynchronize
from broker.slave.topic_group_synchronize import TopicGroupSynchronize
from broker.slave.trusted_master import TrustedMaster
from broker.wiring.broker_tables import BrokerTables
from broker.wiring.damage_repair import DamageRepair
from broker.wiring.process_resources import ProcessResources
from broker.wiring.store_side import StoreSide
from ha.control_slots import MASTER_LINKED, MEMBER_ORDER, MemberRole
from ipc.command_channel import Arguments, CommandClient, CommandError
from ipc.scheduled_executor import ScheduledExecutor
from store.control_slots import MAX_PHY_OFFSET

log = logging.getLogger(__name__)

_ASK_TIMEOUT_MS: Final = 3_000
_TICK_MS: Final = 1_000
_PATIENCE_TICKS: Final = 2
"""That process `ha` has, to ask for a registration in a new role."""


class MemberReplication:
    """See the module. Owned by: the main thread of process `remoting`."""

    def __init__(
        self,
        resources: ProcessResources,
        identity: BrokerIdentity,
        api: BrokerOuterAPI,
        store: StoreSide,
        tables: BrokerTables,
        *,
        on_loop: Callable[[Callable[[], None]], None],
        registration: Callable[[], MemberRegistration],
        master_is_silent: Callable[[], None],
    ) -> None:
        """on_loop: runs a function on the loop, later. registration: this broker's, made later.
        master_is_silent: BrokerRegistration's."""
        options, page, clock = resources.options, resources.page, resources.clock
        self._options = options
        self._role = resources.role
        self._counters = page.counters
        self._identity = identity
        self._on_loop = on_loop
        self._registration = registration
        self._executor: ScheduledExecutor | None = None
        self._initial_max_offset = 0
        self._asked_order = -1
        """The order that process `ha` was asked about."""
        self._known_order = -1
        """The order that it has answered for."""
        self._master_address: str | None = None
        self._reported_ha_address: str | None = None
        self._was_linked = False
        self._was_ordered = False
        self._ticks = _PATIENCE_TICKS
        """Since the last order; at the start: a predecessor may have had the role."""
        self._was_refused = False
        """What this process has registered by itself was not taken."""
        self.ha: Final = CommandClient(resources.channels["remoting->ha"], "ha", clock)
        """Also for the requests of controllers and operators (1007, 1008)."""
        self._trust = TrustedMaster(options.ha)
        self._members = GroupMembers(identity, api)
        self._cut_log = CutLog(options.store.root)
        self.table_source: Final = CopiedTables(api)
        self.synchronize: Final = self._build_synchronize(
            resources, store, tables, master_is_silent
        )
        self.damage_repair: Final = DamageRepair(
            resources,
            api.client,
            self._members.fetch_member_ips,
            self._is_proved,
            None,
            store.commands,
            store.claim_queue_offsets,
            on_failure=resources.on_failure,
        )
        self._requests = HaRequestService(
            resources.channels["remoting<-ha"],
            {"register_member": self._register_member},
            clock,
            on_failure=resources.on_failure,
        )
        self.processor: Final = AdminHAProcessor(
            self._ha_identity,
            ha=self.ha,
            slave_sync=self.synchronize.status,
            promotion=_no_promotion_by_hand,
            update_master=_ignore_peer,
            min_broker_id_changed=lambda _peer: None,
            flushed=MasterFlushedOffset(
                self._counters,
                taken_at_startup=options.store.sync_master_flush_offset_when_startup,
            ),
        )

    def _build_synchronize(
        self,
        resources: ProcessResources,
        store: StoreSide,
        tables: BrokerTables,
        on_silence: Callable[[], None],
    ) -> MemberSynchronize:
        source = self.table_source
        known = TopicGroupSynchronize(
            source,
            tables.topics,
            tables.mappings,
            tables.groups,
            source.without_lock(store.store_commands.delete_topic_queues),
            self._counters,
        )
        synchronize = MemberSynchronize(
            self._identity.broker_addr,
            source,
            known,
            OffsetSynchronize(
                source,
                tables.offsets,
                tables.schedule_offsets,
                known,
                self._cut_log,
                lambda: resources.page.counters[MAX_PHY_OFFSET],
            ),
            self._cut_log,
            on_silence,
            resources.page,
            resources.clock,
        )
        modes = MessageRequestModeSynchronize(source, tables.request_modes)
        synchronize.also_copied.append(modes.sync)
        if self._options.store.timer_wheel_enable:
            synchronize.also_copied.append(TimerSynchronize(source, self._counters).sync)
        return synchronize

    # -- life ----------------------------------------------------------------------------------

    def start(self, executor: ScheduledExecutor) -> None:
        """The tables are loaded, the store is ready."""
        self._cut_log.look()
        self._initial_max_offset = self._counters[MAX_PHY_OFFSET]
        self._executor = executor
        self._requests.start()
        self.damage_repair.service.start()
        self.synchronize.schedule_on(executor, self._options.broker)
        executor.schedule("follow-role", self._tick, first_delay_ms=0, period_ms=_TICK_MS)

    def before_first_registration(self) -> None:
        """Nothing: a member registers once it has a role."""

    def shutdown(self) -> None:
        """Stop answering process ha."""
        self.damage_repair.service.request_stop()
        self._requests.shutdown(1_000)

    # -- roles ---------------------------------------------------------------------------------

    def role_changed(self) -> None:
        """Another role, or another epoch: whoever was followed is followed no more. Loop thread;
        waits only for what is being put into the tables just now."""
        self.synchronize.end()
        self._master_address = None
        if self._was_ordered:
            self._ticks = 0
        self._was_ordered, self._was_refused = True, False
        if self._executor is not None:
            self._executor.submit("ask-role", self._ask_role)

    def _tick(self) -> None:
        """What was missed: process `ha` did not answer, or the link has opened since."""
        self._ask_role()
        self._register_unless_asked()
        linked = bool(self._counters[MASTER_LINKED])
        opened, self._was_linked = linked and not self._was_linked, linked
        if opened and self._master_address is not None:
            self.synchronize.link_opened()

    def _register_unless_asked(self) -> None:
        """Process `ha` asks for a registration when there is a new epoch. It does not know that
        this process was started anew, so that the name servers have dropped the broker with its
        predecessor's connections, or that it was fenced for a moment within an epoch."""
        role, registration = self._role, self._registration()
        if role.member is MemberRole.FENCED:
            return
        self._ticks += 1
        if self._ticks <= _PATIENCE_TICKS or not (registration.is_held or self._was_refused):
            return
        if role.member is MemberRole.FOLLOW and self._master_address is None:
            return  # Process `ha` has not said the id yet.
        epoch, address = role.master_epoch, self._master_address
        found = registration.register_member(role.broker_id, epoch, address)
        self._was_refused = not found.taken

    def _ask_role(self) -> None:
        """Which master a follower follows, and under which id; once for each order."""
        order = self._counters[MEMBER_ORDER]
        if order == self._known_order or self._role.member is not MemberRole.FOLLOW:
            return
        try:
            answer = self.ha.call("member_role", _ASK_TIMEOUT_MS)
        except CommandError as error:
            log.warning("cannot ask process ha for the role, will retry: %s", error)
            return
        self._on_loop(lambda: self._take_answer(order, answer))

    def _take_answer(self, order: int, answer: Arguments) -> None:
        """Loop thread."""
        is_current = order == answer["order"] == self._counters[MEMBER_ORDER]
        if not is_current or self._role.member is not MemberRole.FOLLOW:
            return
        self._role.follows_as(answer["broker_id"])
        address = answer["master_address"]
        if address is not None:
            self._known_order = order
            self._master_address = address
            self.synchronize.follow(address)

    def on_master(self, master_addr: str | None, ha_addr: str | None) -> None:
        """A MasterListener: what a registration says of the master. Only the HA address of the one
        that the controllers name is of use; a name server may still name its predecessor."""
        if ha_addr is None or master_addr is None or master_addr != self._master_address:
            return
        if ha_addr != self._reported_ha_address and self._executor is not None:
            # Not here: process `ha` may wait for the registration that has brought this.
            self._executor.submit("pass-ha-address", lambda: self._pass_address(ha_addr))

    def _pass_address(self, ha_addr: str) -> None:
        try:
            self.ha.call("master_address", _ASK_TIMEOUT_MS, ha_address=ha_addr)
            self._reported_ha_address = ha_addr
        except CommandError as error:
            log.warning("could not pass HA address %s to process ha: %s", ha_addr, error)

    def find_offsets_objection(self) -> str | None:
        """Why no other broker may copy the offsets of this one; None: it may. Any thread."""
        return self._cut_log.objection if self._role.is_slave else None

    def _is_proved(self, member: MemberAddress) -> bool:
        """Whether what this member holds counts as a copy of the group's log: it is the master, and
        the link with it stands, or an operator vouches for it."""
        if self._role.is_slave and member.address == self._master_address:
            return bool(self._counters[MASTER_LINKED])
        return self._trust.is_peer(member.ip)

    # -- requests of process ha, and for 906 and 907 -------------------------------------------

    def _register_member(self, arguments: Arguments) -> dict[str, Any]:
        """It waits for the name servers, and must not ask process `ha`, which waits for it."""
        master_address = self._master_address or arguments.get("master_address")
        found = self._registration().register_member(
            arguments["broker_id"], arguments["state_version"], master_address
        )
        return {"taken": found.taken, "ha_address": found.ha_address}

    def _ha_identity(self) -> HaIdentity:
        identity = self._identity
        return HaIdentity(
            broker_name=identity.broker_name,
            broker_id=self._role.broker_id,
            broker_address=identity.broker_addr,
            ha_address=identity.ha_server_addr,
            initial_max_offset=self._initial_max_offset,
        )


def _no_promotion_by_hand() -> PromotionOutlook:
    return PromotionOutlook("enableControllerMode: the controllers elect the master", "")


def _ignore_peer(news: MasterNews) -> None:
    log.warning("ignoring master %s reported by %s: enableControllerMode", news.address, news.peer)
