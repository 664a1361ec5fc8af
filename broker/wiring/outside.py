"""Outside: what talks to name servers and to the other brokers of the group, put together.

Built once on the main thread of process `remoting`; its calls run on the scheduled executor and on
threads of requests, never on the loop.

Tested by tests/broker/wiring/test_routes.py.
"""

from __future__ import annotations

import datetime
import functools
import logging
from collections.abc import Callable
from typing import Final

from broker.acl.acl_synchronize import AclSynchronize
from broker.acl.plain_permission_manager import PlainPermissionManager
from broker.client.query_assignment_processor import (
    AssignmentParts,
    QueryAssignmentProcessor,
)
from broker.out.broker_outer_api import BrokerIdentity, BrokerOuterAPI
from broker.out.broker_registration import BrokerRegistration
from broker.out.broker_rpc import BrokerRpc
from broker.out.control_slots import NAME_SERVERS_MISSING
from broker.out.member_registration import MemberRegistration
from broker.out.name_server_lookup import LookUp, NameServerLookup, parse_name_servers
from broker.out.outgoing_client import outgoing_client
from broker.out.top_addressing import (
    NamedServers,
    address_server_url,
    fetch_name_servers,
)
from broker.out.topic_queue_mapping_clean_service import TopicQueueMappingCleanService
from broker.out.topic_route_info_manager import TopicRouteInfoManager
from broker.settings.broker_config import BrokerConfig
from broker.settings.startup_options import StartupOptions
from broker.slave.acting_master import ActingMaster
from broker.slave.pre_online import ComeOnline
from broker.wiring.broker_tables import BrokerTables
from broker.wiring.escapes import escape_services
from broker.wiring.member_replication import MemberReplication
from broker.wiring.pre_online import pre_online_service
from broker.wiring.process_resources import ProcessResources
from broker.wiring.replication import Replication
from broker.wiring.store_side import StoreSide
from ha.control_slots import ISOLATED, MASTER_LINKED
from ipc.command_channel import CommandClient
from ipc.control_page import ControlPage
from ipc.scheduled_executor import ScheduledExecutor
from remoting.signature import RequestSigner

log = logging.getLogger(__name__)


class Outside:
    """See the module. Owned by: BrokerController."""

    def __init__(
        self,
        resources: ProcessResources,
        store: StoreSide,
        tables: BrokerTables,
        executor: ScheduledExecutor,
        acl: PlainPermissionManager | None,
        signer: RequestSigner | None,
        on_loop: Callable[[Callable[[], None]], None],
    ) -> None:
        """signer: of our requests to other brokers. on_loop: runs a function on the loop, later."""
        options = resources.options
        self._role: Final = resources.role
        self._broker: Final = options.broker
        self._tables: Final = tables
        self._executor: Final = executor
        self._client: Final = outgoing_client(options, signer)
        self.identity: Final = broker_identity(options)
        named = parse_name_servers(options.broker.namesrv_addr)
        look_up = _look_up(options.broker, named)
        api = BrokerOuterAPI(self._client, [] if look_up else named)
        broker = options.broker
        period_ms = (
            broker.update_name_server_addr_period if named else broker.fetch_namesrv_addr_interval
        )
        self._lookup: Final = (
            NameServerLookup(look_up, api, resources.clock.monotonic_ms, period_ms=period_ms)
            if look_up
            else None
        )
        self.brokers: Final = BrokerRpc(
            self._client, api, resources.clock, timeout_ms=options.broker.forward_timeout
        )
        self._cleaner: Final = TopicQueueMappingCleanService(
            tables.mappings,
            self.brokers,
            api.get_topic_route,
            options.store.delete_hours,
            lambda: datetime.datetime.fromtimestamp(resources.clock.now_ms() / 1000).hour,
            is_slave=self._role.is_slave_now,
        )
        self.assignments: Final = QueryAssignmentProcessor(
            options.broker,
            AssignmentParts(
                modes=tables.request_modes,
                subscribe_info=TopicRouteInfoManager(api, resources.clock).subscribe_info,
                consumers=tables.consumers,
                find_topic=tables.topics.find,
                find_group=tables.groups.find_or_create,
                is_slave=self._role.is_slave_now,
            ),
        )
        self.acting: Final = ActingMaster(
            options.broker,
            self.identity,
            api,
            lambda: tables.topics.data_version,
            lambda: self.registration.register_all(check_order=True, force=True),
            lambda: bool(resources.page.counters[MASTER_LINKED]),
        )
        self._member: MemberRegistration | None = None
        """In controller mode: `registration`."""
        self.replication: Final = self._make_replication(resources, api, store, on_loop)
        if acl is not None:
            copy = AclSynchronize(self.replication.table_source, acl).sync
            self.replication.synchronize.also_copied.append(copy)
        self._escapes: Final = escape_services(
            resources, store, tables, self.identity, api, lambda: self.acting.may_deliver
        )
        self.registration: Final = self._make_registration(resources.page, api)
        self._counters: Final = resources.page.counters
        self._on_online: Callable[[], None] = lambda: None
        self._pre_online: Final = (
            pre_online_service(resources, self.identity, api, self.replication, self._come_online)
            if isinstance(self.replication, Replication)
            else None
        )
        self._counters[ISOLATED] = int(self._pre_online is not None)

    def open(self) -> None:
        """Begin to connect; before anything asks."""
        self._client.start()

    @property
    def is_isolated(self) -> bool:
        """Whether this broker is not registered, and takes nothing, before its group is linked.
        Any thread."""
        return bool(self._counters[ISOLATED])

    def start(self, on_ready: Callable[[], None], on_online: Callable[[], None]) -> None:
        """Replicate and register. on_ready(): the name servers have answered or failed.
        on_online(): of a broker that is isolated, just before it registers; it is ready now, and
        not told so again. Any thread calls them."""
        self._on_online = on_online
        self._tables.topics.add_listener(self.registration.on_topic_change)
        self.replication.start(self._executor)
        if self._lookup is not None:
            self._lookup.start(self._executor, self._register_anew)
        if self._pre_online is None:
            self._register(on_ready)
            return
        if self._lookup is not None:
            self._executor.submit("look-up-name-servers-first", self._look_up)
        self._pre_online.start()
        on_ready()

    def _come_online(self, found: ComeOnline) -> None:
        """Its group is linked, or was waited for long enough. Thread of PreOnlineService."""
        identity = self.identity
        is_own = found.min_id == identity.broker_id
        self.acting.begin_with(found.min_id, identity.broker_addr if is_own else found.min_address)
        log.info("online: the smallest broker id of the group is %s", found.min_id)
        self._on_online()
        self._counters[ISOLATED] = 0
        self._register(lambda: None)

    def _register(self, on_ready: Callable[[], None]) -> None:
        if not self._role.changes:  # There a slave acts as master if there is none.
            self.acting.schedule_on(self._executor)
        for escape in self._escapes:
            escape.start()
        if self._role.changes or not self._role.is_slave:
            self._cleaner.schedule_on(self._executor)
        self.registration.start(on_ready, before_first=self._before_first_registration)

    def _make_replication(
        self,
        resources: ProcessResources,
        api: BrokerOuterAPI,
        store: StoreSide,
        on_loop: Callable[[Callable[[], None]], None],
    ) -> Replication | MemberReplication:
        def master_is_silent() -> None:
            self.registration.master_is_silent()

        if self._role.changes:
            return MemberReplication(
                resources,
                self.identity,
                api,
                store,
                self._tables,
                on_loop=on_loop,
                registration=self._member_registration,
                master_is_silent=master_is_silent,
            )
        return Replication(
            resources,
            self.identity,
            api,
            store,
            self._tables,
            min_broker_id_changed=self.acting.notified,
            master_is_silent=master_is_silent,
            on_failure=resources.on_failure,
        )

    def _make_registration(self, page: ControlPage, api: BrokerOuterAPI) -> BrokerRegistration:
        parts = (self._broker, self.identity, api, self._tables.topics, self._executor)
        on_master, mapping_infos = self.replication.on_master, self._tables.mappings.infos

        def note_missing(count: int) -> None:
            _note_missing(page, count)

        if not self._role.changes:
            return BrokerRegistration(
                *parts, on_master=on_master, mapping_infos=mapping_infos, note_missing=note_missing
            )
        self._member = MemberRegistration(
            *parts,
            is_role=self._role.is_registered_as,
            on_master=on_master,
            mapping_infos=mapping_infos,
            note_missing=note_missing,
        )
        return self._member

    @property
    def member_commands(self) -> CommandClient | None:
        """In controller mode: to the member, in process `ha`."""
        replication = self.replication
        return replication.ha if isinstance(replication, MemberReplication) else None

    def role_changed(self) -> None:
        """In controller mode: the broker has another role now, or none. Loop thread."""
        assert isinstance(self.replication, MemberReplication)
        if self._member is not None:
            self._member.hold()
        self.replication.role_changed()

    def _member_registration(self) -> MemberRegistration:
        assert self._member is not None
        return self._member

    def _look_up(self) -> None:
        if self._lookup is not None:
            self._lookup.look_if_due()

    def _before_first_registration(self) -> None:
        self._look_up()
        self.replication.before_first_registration()

    def _register_anew(self) -> None:
        self.registration.register_all(check_order=True, force=True)

    def after_handover(self, then: Callable[[], None]) -> None:
        """With enableRemoteEscape, on a master that has registered: call `then` once its slaves
        have heard of that, and its table of delay offsets says what they have delivered."""
        broker, replication = self._broker, self.replication
        if broker.broker_id or not broker.enable_remote_escape:
            return
        if isinstance(replication, MemberReplication):
            return  # No slave delivers in its master's place.

        def take_over() -> None:
            try:
                replication.returning.adopt_progress()
            finally:
                then()

        self._executor.schedule(
            "take-over-delay-offsets",
            take_over,
            first_delay_ms=2 * broker.sync_broker_member_group_period,
            period_ms=None,
        )

    def stop(self) -> None:
        """End what works by itself, before the tables are saved."""
        if self._pre_online is not None:
            self._pre_online.shutdown()
        self.replication.shutdown()
        for escape in self._escapes:
            escape.shutdown()

    def close(self) -> None:
        """After everything that asks."""
        self._client.shutdown()


def _look_up(broker: BrokerConfig, named: list[str]) -> LookUp | None:
    """How the name servers are found; None: they are those that are named."""
    if named:
        if not broker.fetch_name_srv_addr_by_dns_lookup:
            return None
        return NamedServers(named).look_up
    if not broker.fetch_namesrv_addr_by_address_server:
        return None
    url = address_server_url(broker.rmq_address_server_domain, broker.rmq_address_server_sub_group)
    return functools.partial(fetch_name_servers, url)


def broker_identity(options: StartupOptions) -> BrokerIdentity:
    """What name servers and other brokers know us by."""
    broker = options.broker
    return BrokerIdentity(
        cluster_name=broker.broker_cluster_name,
        broker_name=broker.broker_name,
        broker_id=broker.broker_id,
        broker_addr=f"{broker.broker_ip1}:{options.server.listen_port}",
        ha_server_addr=f"{broker.broker_ip2}:{options.ha.ha_listen_port}",
        not_active_timeout_ms=(
            broker.broker_not_active_timeout_millis if broker.enable_slave_acting_master else None
        ),
    )


def _note_missing(page: ControlPage, count: int) -> None:
    """For the supervisor, which tells the operator."""
    page.counters[NAME_SERVERS_MISSING] = count
