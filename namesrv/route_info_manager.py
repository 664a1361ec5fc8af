"""RouteInfoManager: the tables of the name server (Java: RouteInfoManager of 4.9.8).

No I/O: no socket, no file, no clock; the time is an argument, and connections are only stored and
returned. Methods may be called from any thread: one lock guards all tables, and results are copies.
The master (id 0) of a broker name determines which topics it serves. From 5.3.3: rejection of an
older stateVersion, heartbeatTimeoutMillis, zone, static topics, and slaves that act as master:
while a broker name has no master, its smallest id, if it is a broker of 5.x, determines the topics,
for reading only where acting is enabled; routes show it as id 0 where `supports_acting` says so.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from namesrv.namesrv_config import MAX_TOPICS
from namesrv.registration_limits import check_room, check_size
from namesrv.registrations import (
    BrokerLiveInfo,
    BrokerRegistration,
    MinBrokerIdChange,
    RegisterBrokerResult,
)
from namesrv.topic_queue_mapping_table import TopicQueueMappingTable
from namesrv.topic_queue_table import TopicQueueTable
from remoting.body.data_version import DataVersion
from remoting.body.route import BrokerData, ClusterInfo, QueueData, TopicRouteData
from remoting.body.topic_config import TopicConfig
from remoting.request_processor import ConnectionLike

log = logging.getLogger(__name__)

MASTER_ID: Final = 0
PERM_READ: Final = 4
PERM_WRITE: Final = 2
MEMBER_TOPIC_PREFIX: Final = "rmq_sys_SYNC_BROKER_MEMBER_"
"""In the routes of these topics 5.x brokers look for the members of their group: as they are."""
_FLAG_UNIT: Final = 1
_FLAG_UNIT_SUB: Final = 2


@dataclass(slots=True)
class _BrokerName:
    """The addresses of one broker name."""

    cluster: str
    addrs: dict[int, str]
    enable_acting_master: bool = False
    zone_name: str | None = None


class RouteInfoManager:
    """Topics, broker names, clusters and live addresses."""

    def __init__(
        self,
        max_topics: int = MAX_TOPICS,
        *,
        on_min_broker_id_change: Callable[[MinBrokerIdChange], None] | None = None,
    ) -> None:
        """max_topics: registerMaxTopics. on_min_broker_id_change: called outside the lock, on the
        thread that changed the tables."""
        self._on_min_broker_id_change = on_min_broker_id_change
        self._changes: list[MinBrokerIdChange] = []
        """Changes not yet delivered."""
        self._lock = threading.Lock()
        self._topic_queue_table: Final = TopicQueueTable(max_topics)
        self._topic_queue_mapping_table: Final = TopicQueueMappingTable()
        self._broker_addr_table: dict[str, _BrokerName] = {}
        self._cluster_addr_table: dict[str, set[str]] = {}
        self._broker_live_table: dict[str, BrokerLiveInfo] = {}
        self._filter_server_table: dict[str, tuple[str, ...]] = {}
        self._revision = 0

    @property
    def revision(self) -> int:
        """Incremented by everything that may change a route: a route that was read after the
        revision is valid until the revision changes."""
        return self._revision

    # -- registration --------------------------------------------------------------------------

    def register_broker(
        self, registration: BrokerRegistration, connection: ConnectionLike, now_ms: int
    ) -> RegisterBrokerResult:
        """Process a registration; returns the master's addresses to a slave. Raises RequestError
        for one beyond the limits (registration_limits.py)."""
        check_size(registration)
        with self._lock:
            names = {name: broker.addrs for name, broker in self._broker_addr_table.items()}
            check_room(registration, connection.connection_id, self._broker_live_table, names)
            result = self._register(registration, connection, now_ms)
        self._notify_changes()
        return result

    def _notify_changes(self) -> None:
        """Any thread, without the lock."""
        while self._changes:
            with self._lock:
                changes, self._changes = self._changes, []
            for change in changes:
                if self._on_min_broker_id_change is not None:
                    self._on_min_broker_id_change(change)

    def _register(
        self, registration: BrokerRegistration, connection: ConnectionLike, now_ms: int
    ) -> RegisterBrokerResult:
        name, address = registration.broker_name, registration.broker_addr
        topics = self._topics_of(registration)
        self._topic_queue_table.check(name, topics)
        self._revision += 1
        self._cluster_addr_table.setdefault(registration.cluster_name, set()).add(name)
        broker = self._broker_addr_table.get(name)
        if broker is None:
            broker = self._broker_addr_table[name] = _BrokerName(registration.cluster_name, {})
        broker.enable_acting_master = bool(registration.enable_acting_master)
        broker.zone_name = registration.zone_name
        least_before = min(broker.addrs, default=MASTER_ID)
        _remove_other_ids(broker.addrs, address, registration.broker_id)
        if self._is_outdated(broker, registration):
            self._broker_live_table.pop(address, None)
            return RegisterBrokerResult()
        old_address = broker.addrs.get(registration.broker_id)
        broker.addrs[registration.broker_id] = address
        if old_address != address:
            log.info("%s (was %s)", registration, old_address)
        self._topic_queue_table.update(name, topics)
        if topics:
            self._topic_queue_mapping_table.update(
                name,
                registration.topic_queue_mappings,
                lambda topic: name in (self._topic_queue_table.find(topic) or ()),
            )
        self._refresh(registration, connection, now_ms)
        if registration.broker_id < least_before:
            self._changes.append(
                MinBrokerIdChange(
                    name, dict(broker.addrs), ha_broker_addr=registration.ha_server_addr
                )
            )
        return self._result(broker, registration.broker_id)

    def _topics_of(self, registration: BrokerRegistration) -> Mapping[str, TopicConfig]:
        """What this registration says of topics: everything, if it comes from the master or, while
        there is none, from the smallest id of 5.x, and is news; nothing else."""
        name, topics = registration.broker_name, registration.topic_configs
        known = self._broker_addr_table.get(name)
        addrs = {} if known is None else known.addrs
        is_master = registration.broker_id == MASTER_ID
        others = (i for i, addr in addrs.items() if addr != registration.broker_addr)
        if not is_master and (
            registration.enable_acting_master is None
            or registration.broker_id > min(others, default=registration.broker_id)
        ):
            return {}
        if registration.broker_id in addrs and not self._is_changed(
            registration.broker_addr, registration.data_version
        ):
            if is_master:
                return {}
            lacks = self._topic_queue_table.lacks
            topics = {topic: config for topic, config in topics.items() if lacks(topic, name)}
        if is_master or not registration.enable_acting_master:
            return topics
        return {
            topic: replace(config, perm=config.perm & ~PERM_WRITE)
            for topic, config in topics.items()
        }

    def _is_outdated(self, broker: _BrokerName, registration: BrokerRegistration) -> bool:
        """Whether another address has this id with a newer state version (5.3.3)."""
        old_address = broker.addrs.get(registration.broker_id)
        if old_address is None or old_address == registration.broker_addr:
            return False
        live = self._broker_live_table.get(old_address)
        if live is None:
            return False
        held = live.data_version.state_version or 0
        if held <= (registration.data_version.state_version or 0):
            return False
        log.warning(
            "broker %s[%s]: %s ignored, %s registered with the newer state version %s",
            registration.broker_name,
            registration.broker_id,
            registration.broker_addr,
            old_address,
            held,
        )
        return True

    def _refresh(
        self, registration: BrokerRegistration, connection: ConnectionLike, now_ms: int
    ) -> None:
        address = registration.broker_addr
        self._broker_live_table[address] = BrokerLiveInfo(
            address,
            now_ms,
            registration.timeout_ms,
            registration.data_version,
            connection,
            registration.ha_server_addr,
        )
        if registration.filter_servers:
            self._filter_server_table[address] = registration.filter_servers
        else:
            self._filter_server_table.pop(address, None)

    def _result(self, broker: _BrokerName, broker_id: int) -> RegisterBrokerResult:
        master_addr = broker.addrs.get(MASTER_ID)
        if broker_id == MASTER_ID or master_addr is None:
            return RegisterBrokerResult()
        live = self._broker_live_table.get(master_addr)
        if live is None:
            return RegisterBrokerResult()
        return RegisterBrokerResult(live.ha_server_addr, master_addr)

    def _is_changed(self, broker_addr: str, data_version: DataVersion) -> bool:
        live = self._broker_live_table.get(broker_addr)
        return live is None or live.data_version != data_version

    def query_data_version(
        self, broker_addr: str, data_version: DataVersion, now_ms: int
    ) -> tuple[bool, DataVersion | None]:
        """QUERY_DATA_VERSION (322): (changed, version known here); if unchanged, a heartbeat."""
        with self._lock:
            live = self._broker_live_table.get(broker_addr)
            if live is None:
                return True, None
            changed = live.data_version != data_version
            if not changed:
                live.last_update_ms = now_ms
            return changed, live.data_version

    def find_live(self, broker_addr: str) -> BrokerLiveInfo | None:
        """The registered broker at this address; its owner is this object: read it only."""
        with self._lock:
            return self._broker_live_table.get(broker_addr)

    def update_broker_info_update_timestamp(self, broker_addr: str, now_ms: int) -> bool:
        """BROKER_HEARTBEAT (904). Returns False for an unknown address."""
        with self._lock:
            live = self._broker_live_table.get(broker_addr)
            if live is None:
                return False
            live.last_update_ms = now_ms
            return True

    # -- unregistration ----------------------------------------------------------------------------

    def unregister_broker(self, broker_name: str, broker_addr: str) -> None:
        """UNREGISTER_BROKER (104): remove the address from its broker name (by address, as in
        5.3.3: a successor that already has the id remains)."""
        with self._lock:
            self._drop([broker_addr], f"unregistered by {broker_name}")
        self._notify_changes()

    def on_channel_destroy(self, connection_id: int, reason: str) -> list[str]:
        """A connection was closed: drop and return the addresses registered over it."""
        with self._lock:
            gone = [
                address
                for address, live in self._broker_live_table.items()
                if live.connection.connection_id == connection_id
            ]
            if gone:
                self._drop(gone, f"connection closed: {reason}")
        self._notify_changes()
        return gone

    def scan_not_active_broker(self, now_ms: int) -> list[BrokerLiveInfo]:
        """Drop and return the brokers that timed out; the caller closes their connections."""
        with self._lock:
            expired = [
                live
                for live in self._broker_live_table.values()
                if live.last_update_ms + live.timeout_ms < now_ms
            ]
            if expired:
                silent = ", ".join(f"{live.timeout_ms} ms" for live in expired)
                self._drop([live.broker_addr for live in expired], f"silent for {silent}")
        self._notify_changes()
        return expired

    def _drop(self, addresses: Collection[str], reason: str) -> None:
        """Together: each walk over a table is made once, however many they are."""
        self._revision += 1
        for address in addresses:
            known = self._broker_live_table.pop(address, None) is not None
            log.info("broker %s: %s, %s", address, "dropped" if known else "unknown", reason)
            self._filter_server_table.pop(address, None)
        gone = frozenset(addresses)
        for name, broker in self._broker_addr_table.items():
            left = {i: held for i, held in broker.addrs.items() if held not in gone}
            if len(left) < len(broker.addrs):
                before, broker.addrs = broker.addrs, left
                if left and broker.enable_acting_master:
                    self._note_departed(name, before, left)
        self._drop_names({n for n, broker in self._broker_addr_table.items() if not broker.addrs})

    def _note_departed(self, name: str, before: Mapping[int, str], left: Mapping[int, str]) -> None:
        """Brokers of an acting group have gone, others are left: without a master its topics can
        only be read."""
        if MASTER_ID not in left:
            self._topic_queue_table.change_perm(name, lambda perm: perm & ~PERM_WRITE)
        if min(before) not in left:
            self._changes.append(MinBrokerIdChange(name, left, before[min(before)]))

    def _drop_names(self, broker_names: set[str]) -> None:
        if not broker_names:
            return
        log.info("broker names %s: dropped, no address is left", ", ".join(sorted(broker_names)))
        for name in broker_names:
            del self._broker_addr_table[name]
        for cluster, names in list(self._cluster_addr_table.items()):
            names -= broker_names
            if not names:
                del self._cluster_addr_table[cluster]
        self._topic_queue_table.remove_broker_names(broker_names)
        self._topic_queue_mapping_table.remove_broker_names(broker_names)

    # -- topics --------------------------------------------------------------------------------

    def delete_topic(self, topic: str, cluster_name: str | None = None) -> None:
        """DELETE_TOPIC_IN_NAMESRV (216): delete the topic, in one cluster or everywhere."""
        with self._lock:
            self._revision += 1
            if cluster_name is None:
                self._topic_queue_table.delete(topic)
                self._topic_queue_mapping_table.delete(topic)
            else:
                names = self._cluster_addr_table.get(cluster_name, set())
                self._topic_queue_table.remove(topic, names)
                self._topic_queue_mapping_table.remove(topic, names)

    def register_topic(self, topic: str, queue_datas: Iterable[QueueData]) -> bool:
        """REGISTER_TOPIC_IN_NAMESRV (217, 5.x). False, and no change: an unknown broker name."""
        wanted = {data.broker_name: data for data in queue_datas}
        with self._lock:
            if not wanted or not wanted.keys() <= self._broker_addr_table.keys():
                return False
            self._revision += 1
            self._topic_queue_table.add(topic, wanted)
            return True

    def wipe_write_perm_of_broker(self, broker_name: str) -> int:
        """WIPE_WRITE_PERM_OF_BROKER (205). Returns the number of topics of the broker name."""
        return self._operate_write_perm(broker_name, lambda perm: perm & ~PERM_WRITE)

    def add_write_perm_of_broker(self, broker_name: str) -> int:
        """ADD_WRITE_PERM_OF_BROKER (327). Returns the number of topics of the broker name."""
        return self._operate_write_perm(broker_name, lambda _perm: PERM_READ | PERM_WRITE)

    def _operate_write_perm(self, broker_name: str, change: Callable[[int], int]) -> int:
        with self._lock:
            self._revision += 1
            return self._topic_queue_table.change_perm(broker_name, change)

    # -- queries -----------------------------------------------------------------------------

    def pickup_topic_route_data(
        self, topic: str, *, supports_acting: bool = False
    ) -> TopicRouteData | None:
        """GET_ROUTEINFO_BY_TOPIC (105); None if no broker serves the topic. supports_acting: the
        smallest id of an acting group without a master is shown as id 0."""
        with self._lock:
            by_name = self._topic_queue_table.find(topic)
            if not by_name:
                return None
            acting = supports_acting and not topic.startswith(MEMBER_TOPIC_PREFIX)
            broker_datas = [
                self._broker_data(name, acting=acting and not data.perm & PERM_WRITE)
                for name, data in by_name.items()
                if name in self._broker_addr_table
            ]
            if not broker_datas:
                return None
            return TopicRouteData(
                queue_datas=list(by_name.values()),
                broker_datas=broker_datas,
                filter_server_table=self._filter_servers_of(broker_datas),
                topic_queue_mapping_by_broker=self._topic_queue_mapping_table.find(topic),
            )

    def _broker_data(self, broker_name: str, *, acting: bool = False) -> BrokerData:
        broker = self._broker_addr_table[broker_name]
        addrs = dict(sorted(broker.addrs.items()))
        if acting and broker.enable_acting_master and MASTER_ID not in addrs:
            acting_master = addrs.pop(min(addrs))
            addrs = {MASTER_ID: acting_master, **addrs}
        return BrokerData(
            cluster=broker.cluster,
            broker_name=broker_name,
            broker_addrs=addrs,
            enable_acting_master=broker.enable_acting_master,
            zone_name=broker.zone_name,
        )

    def _filter_servers_of(self, broker_datas: list[BrokerData]) -> dict[str, list[str]]:
        table = self._filter_server_table
        if not table:
            return {}
        addresses = [addr for data in broker_datas for addr in data.broker_addrs.values()]
        return {address: list(table[address]) for address in addresses if address in table}

    def get_all_cluster_info(self) -> ClusterInfo:
        """GET_BROKER_CLUSTER_INFO (106)."""
        with self._lock:
            return ClusterInfo(
                broker_addr_table={
                    name: self._broker_data(name) for name in self._broker_addr_table
                },
                cluster_addr_table={
                    cluster: sorted(names) for cluster, names in self._cluster_addr_table.items()
                },
            )

    def get_broker_member_group(self, broker_name: str) -> dict[int, str]:
        """GET_BROKER_MEMBER_GROUP (901): id to address; empty for an unknown name."""
        with self._lock:
            broker = self._broker_addr_table.get(broker_name)
            return {} if broker is None else dict(sorted(broker.addrs.items()))

    def get_all_topic_list(self) -> list[str]:
        """GET_ALL_TOPIC_LIST_FROM_NAMESERVER (206)."""
        with self._lock:
            return self._topic_queue_table.topics()

    def get_topics_by_cluster(self, cluster_name: str) -> list[str]:
        """GET_TOPICS_BY_CLUSTER (224); empty for an unknown cluster."""
        with self._lock:
            names = self._cluster_addr_table.get(cluster_name, set())
            return self._topic_queue_table.topics_of(names)

    def get_system_topic_list(self) -> tuple[list[str], str | None]:
        """GET_SYSTEM_TOPIC_LIST_FROM_NS (304): cluster and broker names, and any address."""
        with self._lock:
            topics = dict.fromkeys(
                word
                for cluster, names in self._cluster_addr_table.items()
                for word in (cluster, *sorted(names))
            )
            addresses = (
                broker.addrs[min(broker.addrs)] for broker in self._broker_addr_table.values()
            )
            return list(topics), next(addresses, None)

    def get_unit_topics(self) -> list[str]:
        """GET_UNIT_TOPIC_LIST (311)."""
        return self._topics_by_sys_flag(lambda flag: bool(flag & _FLAG_UNIT))

    def get_has_unit_sub_topic_list(self) -> list[str]:
        """GET_HAS_UNIT_SUB_TOPIC_LIST (312)."""
        return self._topics_by_sys_flag(lambda flag: bool(flag & _FLAG_UNIT_SUB))

    def get_has_unit_sub_ununit_topic_list(self) -> list[str]:
        """GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST (313)."""
        both = _FLAG_UNIT | _FLAG_UNIT_SUB
        return self._topics_by_sys_flag(lambda flag: flag & both == _FLAG_UNIT_SUB)

    def _topics_by_sys_flag(self, wanted: Callable[[int], bool]) -> list[str]:
        with self._lock:
            return self._topic_queue_table.topics_by_sys_flag(wanted)

    def sizes(self) -> dict[str, int]:
        """Number of entries of each table, for the log."""
        with self._lock:
            return {
                "topicQueueTable": len(self._topic_queue_table),
                "brokerAddrTable": len(self._broker_addr_table),
                "clusterAddrTable": len(self._cluster_addr_table),
                "brokerLiveTable": len(self._broker_live_table),
                "filterServerTable": len(self._filter_server_table),
            }


def _remove_other_ids(addrs: dict[int, str], address: str, kept_id: int) -> None:
    """Remove `address` from `addrs` under every id but `kept_id`."""
    for broker_id in [i for i, held in addrs.items() if held == address and i != kept_id]:
        del addrs[broker_id]
