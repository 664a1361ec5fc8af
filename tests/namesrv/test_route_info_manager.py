"""RouteInfoManager against the facts of the original, case by case, and against a naive model."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from namesrv.registration_limits import MAX_BROKERS, MAX_BROKERS_OF_A_CONNECTION
from namesrv.registrations import (
    BROKER_CHANNEL_EXPIRED_MS,
    BrokerRegistration,
    RegisterBrokerResult,
)
from namesrv.route_bodies import RouteBodies
from namesrv.route_info_manager import RouteInfoManager
from namesrv.topic_queue_table import TopicQueueTable
from remoting.body.data_version import DataVersion
from remoting.body.route import QueueData
from remoting.body.topic_config import TopicConfig
from remoting.body.topic_queue_mapping import TopicQueueMappingInfo
from remoting.errors import RequestError

CONN_A: Any = SimpleNamespace(connection_id=1)
CONN_B: Any = SimpleNamespace(connection_id=2)


def topics(*names: str, perm: int = 6, queues: int = 4, flag: int = 0) -> dict[str, TopicConfig]:
    return {
        name: TopicConfig(
            topic_name=name,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=perm,
            topic_sys_flag=flag,
        )
        for name in names
    }


def registration(name: str = "broker-a", broker_id: int = 0, **changes: Any) -> BrokerRegistration:
    values: dict[str, Any] = {
        "cluster_name": "C",
        "broker_name": name,
        "broker_id": broker_id,
        "broker_addr": f"{name}-{broker_id}:10911",
        "ha_server_addr": f"{name}-{broker_id}:10912",
        "data_version": DataVersion(counter=1, timestamp=1000),
        "topic_configs": topics("T"),
    }
    return BrokerRegistration(**{**values, **changes})


def registered(*registrations: BrokerRegistration, connection: Any = CONN_A) -> RouteInfoManager:
    manager = RouteInfoManager()
    for item in registrations:
        manager.register_broker(item, connection, 0)
    return manager


def addrs(manager: RouteInfoManager, name: str = "broker-a") -> dict[int, str]:
    return manager.get_broker_member_group(name)


def perms(manager: RouteInfoManager, topic: str) -> dict[str, int]:
    route = manager.pickup_topic_route_data(topic)
    return {} if route is None else {data.broker_name: data.perm for data in route.queue_datas}


# -- registration ------------------------------------------------------------------------------


def test_a_route_has_the_queues_and_addresses_of_every_broker_name() -> None:
    manager = registered(
        registration("broker-a"),
        registration("broker-a", 1, topic_configs={}),
        registration("broker-b", topic_configs=topics("T", "U", queues=8)),
    )
    route = manager.pickup_topic_route_data("T")
    assert route is not None
    assert {d.broker_name: d.read_queue_nums for d in route.queue_datas} == {
        "broker-a": 4,
        "broker-b": 8,
    }
    assert {d.broker_name: dict(d.broker_addrs) for d in route.broker_datas} == {
        "broker-a": {0: "broker-a-0:10911", 1: "broker-a-1:10911"},
        "broker-b": {0: "broker-b-0:10911"},
    }
    assert route.filter_server_table == {}
    assert manager.pickup_topic_route_data("unknown") is None
    assert sorted(manager.get_all_topic_list()) == ["T", "U"]


def test_only_the_master_decides_on_topics() -> None:
    manager = registered(registration(broker_id=1, topic_configs=topics("S")))
    assert manager.get_all_topic_list() == []
    assert addrs(manager) == {1: "broker-a-1:10911"}


@pytest.mark.parametrize(
    ("version", "perm"),
    [
        (DataVersion(counter=1, timestamp=1000), 6),
        (DataVersion(counter=2, timestamp=1000), 4),
        (DataVersion(counter=1, timestamp=1001), 4),
        (DataVersion(counter=1, timestamp=1000, state_version=1), 4),
    ],
)
def test_topics_are_taken_when_the_data_version_differs(version: DataVersion, perm: int) -> None:
    manager = registered(registration())
    again = registration(data_version=version, topic_configs=topics("T", perm=4))
    manager.register_broker(again, CONN_A, 1)
    assert perms(manager, "T") == {"broker-a": perm}


def test_topics_stay_when_a_registration_lacks_them() -> None:
    manager = registered(registration(topic_configs=topics("T", "U")))
    later = DataVersion(counter=2, timestamp=1)
    manager.register_broker(registration(data_version=later, topic_configs=topics("U")), CONN_A, 1)
    assert sorted(manager.get_all_topic_list()) == ["T", "U"]


def test_a_first_registration_with_one_topic_is_accepted() -> None:
    assert registered(registration(topic_configs=topics("T"))).get_all_topic_list() == ["T"]


def test_a_slave_is_told_of_its_master_and_nobody_else_is() -> None:
    manager = RouteInfoManager()
    nothing = RegisterBrokerResult()
    assert manager.register_broker(registration(broker_id=1), CONN_B, 0) == nothing
    assert manager.register_broker(registration(), CONN_A, 0) == nothing
    assert manager.register_broker(registration(broker_id=1), CONN_B, 0) == RegisterBrokerResult(
        "broker-a-0:10912", "broker-a-0:10911"
    )
    assert manager.register_broker(registration("broker-b", 1), CONN_B, 0) == nothing


def test_a_slave_that_becomes_master_leaves_its_old_id() -> None:
    manager = registered(registration(), registration(broker_id=1))
    promoted = registration(broker_id=0, broker_addr="broker-a-1:10911")
    manager.register_broker(promoted, CONN_B, 0)
    assert addrs(manager) == {0: "broker-a-1:10911"}


def test_the_same_id_at_a_new_address_replaces_the_old() -> None:
    manager = registered(registration())
    manager.register_broker(registration(broker_addr="new:1"), CONN_B, 0)
    assert addrs(manager) == {0: "new:1"}
    assert manager.on_channel_destroy(CONN_A.connection_id, "x") == ["broker-a-0:10911"]
    assert addrs(manager) == {0: "new:1"}
    assert manager.get_all_topic_list() == ["T"]


def test_an_older_state_version_at_another_address_is_refused() -> None:
    newer = DataVersion(counter=1, timestamp=1, state_version=5)
    older = DataVersion(counter=9, timestamp=9, state_version=4)
    manager = registered(registration(data_version=newer))
    manager.register_broker(registration(broker_addr="old:1", data_version=older), CONN_B, 0)
    assert addrs(manager) == {0: "broker-a-0:10911"}
    assert manager.query_data_version("old:1", older, 0) == (True, None)


def test_the_cluster_of_a_known_broker_name_does_not_change() -> None:
    manager = registered(registration(), registration(cluster_name="D"))
    info = manager.get_all_cluster_info()
    assert info.broker_addr_table["broker-a"].cluster == "C"
    assert {c: list(names) for c, names in info.cluster_addr_table.items()} == {
        "C": ["broker-a"],
        "D": ["broker-a"],
    }
    manager.unregister_broker("broker-a", "broker-a-0:10911")
    assert manager.sizes() == dict.fromkeys(manager.sizes(), 0)


def test_filter_servers_appear_in_routes_and_go_with_an_empty_list() -> None:
    manager = registered(registration(filter_servers=("f:1", "f:2")))
    route = manager.pickup_topic_route_data("T")
    assert route is not None
    assert route.filter_server_table == {"broker-a-0:10911": ["f:1", "f:2"]}
    manager.register_broker(registration(), CONN_A, 0)
    route = manager.pickup_topic_route_data("T")
    assert route is not None
    assert route.filter_server_table == {}


def test_zone_and_acting_master_are_shown() -> None:
    manager = registered(registration(enable_acting_master=True, zone_name="z1"))
    route = manager.pickup_topic_route_data("T")
    assert route is not None
    (data,) = route.broker_datas
    assert (data.enable_acting_master, data.zone_name) == (True, "z1")


# -- slaves that act as master -----------------------------------------------------------------


def group(*broker_ids: int, acting: bool | None = True, **changes: Any) -> RouteInfoManager:
    return registered(
        *(registration(broker_id=i, enable_acting_master=acting, **changes) for i in broker_ids)
    )


def shown(manager: RouteInfoManager, topic: str = "T", *, supports: bool = True) -> dict[int, str]:
    route = manager.pickup_topic_route_data(topic, supports_acting=supports)
    assert route is not None
    return dict(route.broker_datas[0].broker_addrs)


def test_without_a_master_the_smallest_slave_is_shown_in_its_place() -> None:
    manager = group(0, 2, 3)
    assert shown(manager)[0] == "broker-a-0:10911"
    unregister(manager)
    assert perms(manager, "T") == {"broker-a": 4}
    assert shown(manager) == {0: "broker-a-2:10911", 3: "broker-a-3:10911"}
    assert shown(manager, supports=False) == {2: "broker-a-2:10911", 3: "broker-a-3:10911"}
    manager.register_broker(registration(enable_acting_master=True), CONN_A, 1)
    assert perms(manager, "T") == {"broker-a": 6}
    assert shown(manager)[0] == "broker-a-0:10911"


def test_a_group_without_acting_stays_as_it_is() -> None:
    manager = group(0, 2, acting=None)
    unregister(manager)
    assert perms(manager, "T") == {"broker-a": 6}
    assert shown(manager) == {2: "broker-a-2:10911"}


def test_routes_that_show_the_members_show_them_as_they_are() -> None:
    topic = "rmq_sys_SYNC_BROKER_MEMBER_broker-a"
    manager = group(2, topic_configs=topics(topic, perm=1))
    assert shown(manager, topic) == {2: "broker-a-2:10911"}


@pytest.mark.parametrize(("acting", "perm"), [(True, 4), (False, 6)])
def test_a_smallest_slave_of_5x_decides_on_topics(acting: bool, perm: int) -> None:
    manager = group(1, acting=acting)
    assert perms(manager, "T") == {"broker-a": perm}
    later = registration(broker_id=2, enable_acting_master=acting, topic_configs=topics("U"))
    manager.register_broker(later, CONN_A, 1)
    assert manager.get_all_topic_list() == ["T"]
    again = registration(
        broker_id=1, enable_acting_master=acting, topic_configs=topics("T", "U", perm=2)
    )
    manager.register_broker(again, CONN_A, 2)  # The version is the same: only what is not there.
    assert perms(manager, "T") == {"broker-a": perm}
    assert perms(manager, "U") == {"broker-a": 2 & ~(2 if acting else 0)}


def test_nobody_is_smaller_than_a_master() -> None:
    """Such a slave would decide on the topics of a live master."""
    manager = group(0, 1)
    stranger = registration(
        broker_id=-1, broker_addr="s:1", enable_acting_master=True, topic_configs=topics("T", "U")
    )
    with pytest.raises(RequestError, match="brokerId -1"):
        manager.register_broker(stranger, CONN_A, 1)
    assert perms(manager, "T") == {"broker-a": 6}
    assert manager.get_all_topic_list() == ["T"]


def changes_of(*broker_ids: int, acting: bool | None = True) -> tuple[RouteInfoManager, list[Any]]:
    told: list[Any] = []
    manager = RouteInfoManager(
        on_min_broker_id_change=lambda c: told.append(
            (c.min_broker_id, c.offline_broker_addr, c.ha_broker_addr, sorted(c.to_notify))
        )
    )
    for broker_id in broker_ids:
        item = registration(broker_id=broker_id, enable_acting_master=acting)
        manager.register_broker(item, CONN_A, 0)
    return manager, told


def test_who_is_told_that_the_smallest_id_has_changed() -> None:
    a = {i: f"broker-a-{i}:10911" for i in range(4)}
    manager, told = changes_of(0, 2, 3)
    assert told == []
    manager.unregister_broker("broker-a", a[3])
    assert told == []
    manager.register_broker(registration(broker_id=3, enable_acting_master=True), CONN_A, 0)
    manager.unregister_broker("broker-a", a[0])
    assert told.pop() == (2, a[0], None, [a[2], a[3]])
    manager.register_broker(registration(broker_id=1, enable_acting_master=True), CONN_A, 0)
    assert told.pop() == (1, None, "broker-a-1:10912", [a[2], a[3]])
    for broker_id in (1, 2):
        manager.unregister_broker("broker-a", a[broker_id])
    assert told == [(2, a[1], None, [a[2], a[3]]), (3, a[2], None, [a[3]])]
    manager.unregister_broker("broker-a", a[3])
    assert len(told) == 2


@pytest.mark.parametrize("acting", [False, None])
def test_of_a_group_without_acting_only_newcomers_are_told(acting: bool | None) -> None:
    manager, told = changes_of(0, 2, acting=acting)
    manager.unregister_broker("broker-a", "broker-a-0:10911")
    assert told == []
    manager.register_broker(registration(enable_acting_master=acting), CONN_A, 0)
    assert told == [(0, None, "broker-a-0:10912", ["broker-a-2:10911"])]


# -- data versions and signs of life -----------------------------------------------------------


def test_query_data_version_refreshes_only_when_unchanged() -> None:
    manager = registered(registration())
    held = DataVersion(counter=1, timestamp=1000)
    other = DataVersion(counter=2, timestamp=1000)
    address = "broker-a-0:10911"
    assert manager.query_data_version("nobody:1", held, 5) == (True, None)
    assert manager.query_data_version(address, other, 50_000) == (True, held)
    assert len(manager.scan_not_active_broker(BROKER_CHANNEL_EXPIRED_MS + 1)) == 1
    manager.register_broker(registration(), CONN_A, 0)
    assert manager.query_data_version(address, held, 50_000) == (False, held)
    assert manager.scan_not_active_broker(BROKER_CHANNEL_EXPIRED_MS + 1) == []


@pytest.mark.parametrize(("now_ms", "expired"), [(120_000, 0), (120_001, 1)])
def test_a_silent_broker_expires_after_120_s(now_ms: int, expired: int) -> None:
    manager = registered(registration())
    gone = manager.scan_not_active_broker(now_ms)
    assert [live.connection for live in gone] == [CONN_A] * expired
    assert (manager.pickup_topic_route_data("T") is None) == bool(expired)


def test_a_heartbeat_keeps_a_broker_and_its_own_timeout_counts() -> None:
    manager = registered(registration(timeout_ms=1_000))
    assert manager.update_broker_info_update_timestamp("broker-a-0:10911", 900)
    assert not manager.update_broker_info_update_timestamp("nobody:1", 900)
    assert manager.scan_not_active_broker(1_900) == []
    assert len(manager.scan_not_active_broker(1_901)) == 1


# -- leaving -----------------------------------------------------------------------------------


def unregister(manager: RouteInfoManager) -> None:
    manager.unregister_broker("broker-a", "broker-a-0:10911")


def close_connection(manager: RouteInfoManager) -> None:
    assert manager.on_channel_destroy(CONN_A.connection_id, "x") == ["broker-a-0:10911"]


def expire(manager: RouteInfoManager) -> None:
    assert len(manager.scan_not_active_broker(120_001)) == 1


WAYS_TO_GO = [unregister, close_connection, expire]


@pytest.mark.parametrize("leave", WAYS_TO_GO)
def test_the_last_address_takes_name_topics_and_cluster_along(
    leave: Callable[[RouteInfoManager], None],
) -> None:
    manager = registered(registration(filter_servers=("f:1",)))
    leave(manager)
    assert manager.sizes() == dict.fromkeys(manager.sizes(), 0)


@pytest.mark.parametrize("leave", WAYS_TO_GO)
def test_a_slave_that_stays_keeps_the_topics_readable(
    leave: Callable[[RouteInfoManager], None],
) -> None:
    manager = registered(registration())
    manager.register_broker(registration(broker_id=1), CONN_B, 100_000)
    leave(manager)
    route = manager.pickup_topic_route_data("T")
    assert route is not None
    assert addrs(manager) == {1: "broker-a-1:10911"}


@pytest.mark.parametrize("leave", WAYS_TO_GO)
def test_other_broker_names_keep_a_shared_topic(
    leave: Callable[[RouteInfoManager], None],
) -> None:
    manager = registered(registration(topic_configs=topics("T", "only-a")))
    manager.register_broker(registration("broker-b"), CONN_B, 100_000)
    leave(manager)
    assert perms(manager, "T") == {"broker-b": 6}
    assert manager.get_all_topic_list() == ["T"]


def test_unregister_by_an_old_address_does_not_touch_the_successor() -> None:
    manager = registered(registration(), registration(broker_addr="new:1"))
    unregister(manager)
    assert addrs(manager) == {0: "new:1"}


def test_a_closed_connection_takes_all_its_brokers_and_only_those() -> None:
    manager = registered(registration("broker-a"), registration("broker-b"))
    manager.register_broker(registration("broker-c"), CONN_B, 0)
    assert len(manager.on_channel_destroy(CONN_A.connection_id, "x")) == 2
    assert manager.on_channel_destroy(CONN_A.connection_id, "x") == []
    assert list(manager.get_all_cluster_info().broker_addr_table) == ["broker-c"]


def test_a_broker_that_reconnected_outlives_its_old_connection() -> None:
    manager = registered(registration())
    manager.register_broker(registration(), CONN_B, 0)
    assert manager.on_channel_destroy(CONN_A.connection_id, "x") == []
    assert addrs(manager) == {0: "broker-a-0:10911"}


# -- topics ------------------------------------------------------------------------------------


def test_wipe_and_add_write_perm_until_the_next_change_of_the_broker() -> None:
    manager = registered(registration(topic_configs=topics("T", "U", perm=7)))
    manager.register_broker(registration("broker-b"), CONN_B, 0)
    assert manager.wipe_write_perm_of_broker("broker-a") == 2
    assert perms(manager, "T") == {"broker-a": 5, "broker-b": 6}
    assert manager.add_write_perm_of_broker("broker-a") == 2
    assert perms(manager, "U") == {"broker-a": 6}
    assert manager.wipe_write_perm_of_broker("nobody") == 0
    later = DataVersion(counter=2, timestamp=1)
    again = registration(topic_configs=topics("T", "U", perm=7), data_version=later)
    manager.register_broker(again, CONN_A, 0)
    assert perms(manager, "U") == {"broker-a": 7}


@pytest.mark.parametrize(
    ("cluster", "left"),
    [(None, set()), ("C", {"broker-d"}), ("D", {"broker-a"}), ("X", {"broker-a", "broker-d"})],
)
def test_delete_topic_in_one_cluster_or_everywhere(cluster: str | None, left: set[str]) -> None:
    manager = registered(registration(), registration("broker-d", cluster_name="D"))
    manager.delete_topic("T", cluster)
    assert set(perms(manager, "T")) == left


def test_register_topic_needs_known_broker_names() -> None:
    manager = registered(registration())
    known = QueueData(broker_name="broker-a", perm=6)
    stranger = QueueData(broker_name="broker-x", perm=6)
    assert not manager.register_topic("N", [known, stranger])
    assert not manager.register_topic("N", [])
    assert manager.pickup_topic_route_data("N") is None
    assert manager.register_topic("N", [known])
    assert perms(manager, "N") == {"broker-a": 6}


def change_nothing(_manager: RouteInfoManager) -> None:
    return None


@pytest.mark.parametrize(
    ("change", "moves"),
    [
        (change_nothing, False),
        (lambda m: m.query_data_version("broker-a-0:10911", DataVersion(), 9), False),
        (lambda m: m.update_broker_info_update_timestamp("broker-a-0:10911", 9), False),
        (lambda m: m.register_broker(registration("broker-b"), CONN_B, 0), True),
        (lambda m: m.delete_topic("T"), True),
        (lambda m: m.register_topic("N", [QueueData(broker_name="broker-a")]), True),
        (lambda m: m.wipe_write_perm_of_broker("broker-a"), True),
        (lambda m: m.add_write_perm_of_broker("broker-a"), True),
        (unregister, True),
        (close_connection, True),
        (expire, True),
    ],
)
def test_the_revision_moves_when_a_route_may_change(
    change: Callable[[RouteInfoManager], object], moves: bool
) -> None:
    manager = registered(registration())
    before = manager.revision
    change(manager)
    assert (manager.revision != before) == moves


def test_a_kept_body_follows_the_order_conf_and_the_form() -> None:
    bodies = RouteBodies(registered(registration()))
    assert bodies.find("X", None, True) is None
    plain = bodies.find("T", None, True)
    assert plain is not None
    assert bodies.find("T", None, True) is plain
    assert b"orderTopicConf" in (bodies.find("T", "a:1", True) or b"")
    assert bodies.find("T", None, True) == plain
    assert bodies.find("T", None, False) != plain


def test_topic_lists() -> None:
    manager = registered(
        registration(topic_configs=topics("plain") | topics("unit", flag=1)),
        registration(
            "broker-d",
            cluster_name="D",
            topic_configs=topics("sub", flag=2) | topics("both", flag=3),
        ),
    )
    assert sorted(manager.get_topics_by_cluster("D")) == ["both", "sub"]
    assert manager.get_topics_by_cluster("X") == []
    assert sorted(manager.get_unit_topics()) == ["both", "unit"]
    assert sorted(manager.get_has_unit_sub_topic_list()) == ["both", "sub"]
    assert manager.get_has_unit_sub_ununit_topic_list() == ["sub"]
    names, address = manager.get_system_topic_list()
    assert sorted(names) == ["C", "D", "broker-a", "broker-d"]
    assert address in ("broker-a-0:10911", "broker-d-0:10911")
    assert RouteInfoManager().get_system_topic_list() == ([], None)


# -- against a naive model ---------------------------------------------------------------------

NAMES = ("n0", "n1", "n2")
TOPICS = ("t0", "t1", "t2")


@dataclass
class NaiveBroker:
    """One address of the model: all it ever said."""

    name: str
    broker_id: int
    connection_id: int
    last_ms: int
    version: int


@dataclass
class NaiveModel:
    """Lists and loops only; recomputes what follows from what was said."""

    living: dict[str, NaiveBroker] = field(default_factory=dict)
    holders: dict[tuple[str, int], str] = field(default_factory=dict)
    served: dict[str, set[str]] = field(default_factory=dict)

    def register(self, address: str, broker: NaiveBroker, wanted: Iterable[str]) -> None:
        key = (broker.name, broker.broker_id)
        for other in [k for k, a in self.holders.items() if a == address and k[0] == key[0]]:
            if other != key:
                del self.holders[other]
        first = key not in self.holders
        old = self.living.get(address)
        self.holders[key] = address
        if broker.broker_id == 0 and (first or old is None or old.version != broker.version):
            self.served.setdefault(broker.name, set()).update(wanted)
        self.living[address] = broker

    def drop(self, address: str) -> None:
        self.living.pop(address, None)
        self.holders = {k: a for k, a in self.holders.items() if a != address}
        names = {name for name, _ in self.holders}
        self.served = {n: t for n, t in self.served.items() if n in names}

    def drop_where(self, condition: Callable[[NaiveBroker], bool]) -> None:
        for address in [a for a, broker in self.living.items() if condition(broker)]:
            self.drop(address)

    def routes(self) -> dict[str, dict[str, dict[int, str]]]:
        return {
            topic: {
                name: {i: a for (n, i), a in self.holders.items() if n == name}
                for name, served in self.served.items()
                if topic in served
            }
            for topic in TOPICS
        }


steps = st.one_of(
    st.tuples(
        st.just("register"),
        st.sampled_from(NAMES),
        st.integers(0, 2),
        st.integers(0, 5),
        st.integers(1, 4),
        st.integers(0, 2),
        st.sets(st.sampled_from(TOPICS)),
    ),
    st.tuples(st.just("unregister"), st.integers(0, 5)),
    st.tuples(st.just("close"), st.integers(1, 4)),
    st.tuples(st.just("wait"), st.integers(1, 80_000)),
    st.tuples(st.just("wipe"), st.sampled_from(NAMES)),
)


def apply_step(
    step: tuple[Any, ...], manager: RouteInfoManager, model: NaiveModel, now: int
) -> int:
    kind, *values = step
    if kind == "register":
        name, broker_id, slot, connection_id, version, wanted = values
        address = f"10.0.0.{slot}:10911"
        manager.register_broker(
            registration(
                name,
                broker_id,
                broker_addr=address,
                topic_configs=topics(*wanted),
                data_version=DataVersion(counter=version, timestamp=0),
            ),
            SimpleNamespace(connection_id=connection_id),  # type: ignore[arg-type]
            now,
        )
        broker = NaiveBroker(name, broker_id, connection_id, now, version)
        model.register(address, broker, wanted)
    elif kind == "unregister":
        address = f"10.0.0.{values[0]}:10911"
        manager.unregister_broker("any", address)
        model.drop(address)
    elif kind == "close":
        manager.on_channel_destroy(values[0], "x")
        model.drop_where(lambda broker: broker.connection_id == values[0])
    elif kind == "wipe":
        manager.wipe_write_perm_of_broker(values[0])
    else:
        now += values[0]
        manager.scan_not_active_broker(now)
        model.drop_where(lambda broker: broker.last_ms + 120_000 < now)
    return now


def routes_of(manager: RouteInfoManager) -> dict[str, dict[str, dict[int, str]]]:
    found: dict[str, dict[str, dict[int, str]]] = {}
    for topic in TOPICS:
        route = manager.pickup_topic_route_data(topic)
        datas = [] if route is None else route.broker_datas
        found[topic] = {data.broker_name: dict(data.broker_addrs) for data in datas}
        assert route is None or len(route.queue_datas) == len(datas)
    return found


@given(st.lists(steps, max_size=40))
def test_any_sequence_gives_what_a_naive_model_gives(sequence: list[tuple[Any, ...]]) -> None:
    manager, model, now = RouteInfoManager(), NaiveModel(), 0
    kept = RouteBodies(manager)
    for step in sequence:
        now = apply_step(step, manager, model, now)
        for topic in TOPICS:
            assert kept.find(topic, None, True) == RouteBodies(manager).find(topic, None, True)
        assert routes_of(manager) == model.routes()
        sizes = manager.sizes()
        assert sizes["brokerLiveTable"] == len(model.living)
        assert sizes["brokerAddrTable"] == len({name for name, _ in model.holders})


def test_of_many_topics_the_log_names_the_first_hundred(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="namesrv.topic_queue_table")
    names = [f"T{number:03}" for number in range(103)]
    manager = registered(registration(topic_configs=topics(*names)))
    lines = [record.message for record in caplog.records]
    assert sum(line.startswith("topic T") for line in lines) == 100
    assert lines[-1] == "broker broker-a: 3 more topics changed, the last is T102"
    caplog.clear()
    manager.unregister_broker("broker-a", "broker-a-0:10911")
    lines = [record.message for record in caplog.records]
    assert lines.count("topic T099: removed, no broker serves it any longer") == 1
    assert lines[-1] == "broker name broker-a: 3 more topics removed, the last is T102"
    assert manager.get_all_topic_list() == []


# -- limits ------------------------------------------------------------------------------------


def connection(number: int) -> Any:
    return SimpleNamespace(connection_id=number)


def test_one_connection_registers_so_many_brokers() -> None:
    """As names, or as addresses of one name. RocketMQ has no limit."""
    manager = RouteInfoManager()
    for number in range(MAX_BROKERS_OF_A_CONNECTION):
        manager.register_broker(registration(f"b{number}"), CONN_A, 0)
    before = manager.sizes()
    for refused in (
        registration("new"),
        registration("b1", 1),
        registration("new", broker_addr="b1-0:10911"),
    ):
        with pytest.raises(RequestError, match="a new broker, over the limit of 100 of one conn"):
            manager.register_broker(refused, CONN_A, 0)
    assert manager.sizes() == before
    manager.register_broker(registration("b1"), CONN_A, 0)
    manager.register_broker(registration("new"), CONN_B, 0)


def test_so_many_brokers_are_registered_together() -> None:
    manager = RouteInfoManager()
    for number in range(MAX_BROKERS):
        manager.register_broker(registration(f"b{number}"), connection(number), 0)
    with pytest.raises(RequestError, match="a new broker, over the limit of 2000"):
        manager.register_broker(registration("new"), CONN_B, 0)
    manager.register_broker(registration("b7"), connection(9_999), 0)
    manager.on_channel_destroy(8, "closed")
    manager.register_broker(registration("new"), connection(8), 0)


@pytest.mark.parametrize(
    "changes",
    [
        {"cluster_name": "x" * 256},
        {"name": "x" * 256},
        {"broker_addr": "x" * 256},
        {"ha_server_addr": "x" * 256},
        {"zone_name": "x" * 256},
        {"filter_servers": ("x" * 256,)},
        {"filter_servers": ("x",) * 101},
        {"topic_configs": topics("x" * 256)},
        {"topic_configs": {"T": TopicConfig(topic_name="x" * 256)}},
    ],
)
def test_nothing_long_is_kept(changes: dict[str, Any]) -> None:
    manager = RouteInfoManager()
    with pytest.raises(RequestError, match="over the limit"):
        manager.register_broker(registration(**changes), CONN_A, 0)
    assert set(manager.sizes().values()) == {0}


def test_topics_are_bounded_over_all_brokers() -> None:
    manager = RouteInfoManager(max_topics=5)
    manager.register_broker(registration("a", topic_configs=topics("T", "U")), CONN_A, 0)
    manager.register_broker(registration("b", topic_configs=topics("T", "U")), CONN_B, 0)
    before = manager.sizes()
    refusal = (
        "2 new topics of broker c beside 4 of all brokers, over the limit of 5: raise "
        "registerMaxTopics of this name server"
    )
    with pytest.raises(RequestError) as caught:
        manager.register_broker(registration("c", topic_configs=topics("T", "V")), CONN_B, 0)
    assert caught.value.remark == refusal
    assert manager.sizes() == before
    newer = DataVersion(counter=2, timestamp=1000)
    manager.register_broker(
        registration("a", topic_configs=topics("T", "U", "V"), data_version=newer), CONN_A, 0
    )
    with pytest.raises(RequestError, match="1 new topics of broker b beside 5"):
        manager.register_topic("V", [QueueData(broker_name="b")])
    assert set(perms(manager, "V")) == {"a"}
    manager.delete_topic("V")
    manager.unregister_broker("b", "b-0:10911")
    manager.register_broker(registration("c", topic_configs=topics("T", "U", "V")), CONN_B, 0)
    assert set(perms(manager, "V")) == {"c"}


def test_all_brokers_of_a_connection_are_dropped_in_one_walk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One walk over all topics for each took minutes, on the loop."""
    manager = RouteInfoManager()
    for number in range(50):
        manager.register_broker(registration(f"b{number}", cluster_name=f"C{number}"), CONN_A, 0)
    manager.register_broker(registration("stays"), CONN_B, 0)
    walks: list[int] = []
    remove = TopicQueueTable.remove_broker_names

    def counted(table: TopicQueueTable, names: Any) -> None:
        walks.append(len(names))
        remove(table, names)

    monkeypatch.setattr(TopicQueueTable, "remove_broker_names", counted)
    assert len(manager.on_channel_destroy(1, "closed")) == 50
    assert walks == [50]
    assert set(perms(manager, "T")) == {"stays"}
    assert manager.get_all_cluster_info().cluster_addr_table == {"C": ["stays"]}


# -- static topics -----------------------------------------------------------------------------


def mapped(name: str, version: int = 1, *names: str, led: int = 0) -> BrokerRegistration:
    """A registration of `name` with static topics."""
    infos = {
        topic: TopicQueueMappingInfo(
            topic=topic, total_queues=2, bname=name, epoch=5, curr_id_map={led: 0}
        )
        for topic in names
    }
    return registration(
        name,
        data_version=DataVersion(counter=version, timestamp=1),
        topic_configs=topics("T", "S"),
        topic_queue_mappings=infos,
    )


def leaders(manager: RouteInfoManager, topic: str) -> dict[str, list[int]] | None:
    route = manager.pickup_topic_route_data(topic)
    assert route is not None
    mappings = route.topic_queue_mapping_by_broker
    return mappings and {name: list(info.curr_id_map) for name, info in mappings.items()}


def test_the_route_of_a_static_topic_has_the_mapping_of_every_broker_name() -> None:
    manager = registered(
        mapped("broker-a", 1, "S"), mapped("broker-b", 1, "S", led=1), connection=CONN_A
    )
    assert leaders(manager, "S") == {"broker-a": [0], "broker-b": [1]}
    assert leaders(manager, "T") is None
    manager.register_broker(mapped("broker-a", 1, "S", led=9), CONN_A, 0)
    assert leaders(manager, "S") == {"broker-a": [0], "broker-b": [1]}, "the version is the same"
    manager.register_broker(mapped("broker-a", 2, "S", led=9), CONN_A, 0)
    assert leaders(manager, "S") == {"broker-a": [9], "broker-b": [1]}
    manager.unregister_broker("broker-b", "broker-b-0:10911")
    assert leaders(manager, "S") == {"broker-a": [9]}


def test_a_mapping_goes_with_its_topic() -> None:
    manager = registered(mapped("broker-a", 1, "S", "T"))
    manager.delete_topic("S")
    manager.delete_topic("T", "C")
    manager.register_broker(mapped("broker-a", 2), CONN_A, 0)
    assert leaders(manager, "S") is leaders(manager, "T") is None, "ordinary topics now"


def test_a_mapping_of_a_topic_or_broker_that_is_not_registered_is_ignored() -> None:
    stranger = mapped("broker-a", 1, "unknown", "S")
    other = replace(stranger.topic_queue_mappings["S"], bname="broker-b")
    mappings = {**stranger.topic_queue_mappings, "S": other}
    manager = registered(replace(stranger, topic_queue_mappings=mappings))
    assert leaders(manager, "S") is None
    too_long = {"S": replace(other, scope="s" * 256)}
    with pytest.raises(RequestError, match="a name of 256 characters"):
        registered(replace(stranger, topic_queue_mappings=too_long))
    too_many = {"S": replace(other, curr_id_map=dict.fromkeys(range(100_001), 0))}
    with pytest.raises(RequestError, match="100001 logic queues, over the limit of 100000"):
        registered(replace(stranger, topic_queue_mappings=too_many))


@pytest.mark.parametrize("member", ["cluster_name", "broker_name", "broker_addr", "ha_server_addr"])
@pytest.mark.parametrize("text", ["a\nb", "\x00", "b\x1b[2J", "c\x7f", "d\u2028"])
def test_a_name_with_control_characters_is_refused(member: str, text: str) -> None:
    """It would end a line of the log and of mqadmin's tables."""
    with pytest.raises(RequestError, match="with a control character") as refused:
        registered(replace(registration(), **{member: text}))
    assert refused.value.remark.isprintable()
    registered(registration("bröker-ä 1"))
