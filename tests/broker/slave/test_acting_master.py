"""broker.slave.acting_master: the smallest id of the group, by what name servers say."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from broker.out.broker_outer_api import BrokerIdentity
from broker.settings.broker_config import BrokerConfig
from broker.slave.acting_master import ActingMaster
from remoting.body.data_version import DataVersion
from remoting.body.route import BrokerData, ClusterInfo
from tests.broker.broker_fakes import CONFIG

IDENTITY = BrokerIdentity(
    cluster_name="C",
    broker_name="b",
    broker_id=1,
    broker_addr="h1:1",
    ha_server_addr="h1:2",
    not_active_timeout_ms=10_000,
)


class NameServers:
    """What each says of the group's members; counts what it is asked."""

    def __init__(self) -> None:
        self.groups: list[dict[int, str]] = []
        self.cluster = "C"
        self.differs = False
        self.asked: list[int] = []

    def is_different(
        self, identity: BrokerIdentity, data_version: DataVersion, timeout_ms: int
    ) -> bool:
        self.asked.append(322)
        return self.differs

    def send_heartbeat(self, identity: BrokerIdentity, timeout_ms: int) -> None:
        self.asked.append(904)

    def get_broker_cluster_info(self, timeout_ms: int) -> list[ClusterInfo]:
        self.asked.append(106)
        return [
            ClusterInfo(
                broker_addr_table={
                    "b": BrokerData(cluster=self.cluster, broker_name="b", broker_addrs=dict(group))
                },
                cluster_addr_table={self.cluster: ["b"]},
            )
            for group in self.groups
        ]

    def get_broker_member_groups(
        self, identity: BrokerIdentity, timeout_ms: int
    ) -> list[Mapping[int, str]]:
        self.asked.append(901)
        return list(self.groups)


class Executor:
    """Remembers what is to run."""

    def __init__(self) -> None:
        self.tasks: dict[str, Callable[[], None]] = {}
        self.submitted = 0

    def schedule(self, name: str, function: Callable[[], None], **_when: Any) -> None:
        self.tasks[name] = function

    def submit(self, name: str, function: Callable[[], None]) -> None:
        self.submitted += 1
        self.tasks[name] = function


class World:
    def __init__(self, broker_id: int = 1, *, old: bool = False, enabled: bool = True) -> None:
        self.name_servers = NameServers()
        self.registrations = 0
        self.is_linked = False
        config: BrokerConfig = dataclasses.replace(
            CONFIG, compatible_with_old_name_srv=old, enable_slave_acting_master=enabled
        )
        self.acting = ActingMaster(
            config,
            dataclasses.replace(IDENTITY, broker_id=broker_id, broker_addr=f"h{broker_id}:1"),
            self.name_servers,
            DataVersion,
            self.register,
            lambda: self.is_linked,
        )
        self.executor: Any = Executor()

    def register(self) -> None:
        self.registrations += 1

    def look(self, *groups: dict[int, str]) -> bool:
        self.name_servers.groups = list(groups)
        self.acting.look()
        return self.acting.is_acting


@pytest.mark.parametrize("old", [False, True])
def test_the_smallest_slave_acts_while_there_is_no_master(old: bool) -> None:
    world = World(old=old)
    assert not world.look({0: "h0:1", 1: "h1:1", 2: "h2:1"})
    assert world.registrations == 0
    assert world.look({1: "h1:1", 2: "h2:1"})
    assert world.look({1: "h1:1", 2: "h2:1"})
    assert world.registrations == 1
    assert not world.look({0: "h0:1", 1: "h1:1"})
    assert world.registrations == 2
    assert set(world.name_servers.asked) == {106 if old else 901}


def test_a_larger_id_does_not_act() -> None:
    world = World(2)
    assert not world.look({1: "h1:1", 2: "h2:1"})
    assert world.acting.min_broker_id == 1
    assert world.look({2: "h2:1", 3: "h3:1"})


def test_a_master_that_any_name_server_knows_is_there() -> None:
    world = World()
    assert not world.look({1: "h1:1"}, {0: "h0:1", 1: "h1:1"})
    assert world.look({1: "h1:1"}, {1: "h1:1"})


def test_without_answers_nothing_changes(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    assert world.look({1: "h1:1"})
    assert world.look()
    assert world.look({}, {})
    assert world.look({})
    assert [record.message for record in caplog.records].count(
        "the name servers know no broker b"
    ) == 1


def test_an_id_below_that_of_a_master_is_nobodys() -> None:
    world = World()
    assert world.look({-1: "stranger:1", 1: "h1:1"})
    assert not world.look({-1: "stranger:1", 0: "h0:1", 1: "h1:1"})
    assert world.acting.min_broker_id == 0


def test_two_brokers_with_one_id_do_not_both_act() -> None:
    world = World()
    assert not world.look({1: "stranger:1"})
    assert world.look({1: "h1:1"})
    assert not world.look({1: "stranger:1"})


def test_a_slave_whose_master_replicates_to_it_delivers_nothing() -> None:
    world = World()
    world.is_linked = True
    assert world.look({1: "h1:1"})
    assert not world.acting.may_deliver
    world.is_linked = False
    assert world.acting.may_deliver
    assert not world.look({0: "h0:1", 1: "h1:1"})
    assert not world.acting.may_deliver


@pytest.mark.parametrize("answers", [[], [{}]])
def test_a_slave_that_may_be_the_one_that_is_cut_off_delivers_nothing(
    answers: list[dict[int, str]],
) -> None:
    world = World()
    world.look({1: "h1:1"})
    world.look(*answers)
    assert world.acting.is_acting
    assert not world.acting.may_deliver
    world.look({1: "h1:1"})
    assert world.acting.may_deliver


def test_many_notifications_are_one_question(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    world = World()
    world.acting.schedule_on(world.executor)
    for _ in range(1_000):
        world.acting.notified("n:1")
    assert (world.executor.submitted, len(caplog.records)) == (1, 1)
    world.executor.tasks["sync-broker-member-group-now"]()
    world.acting.notified("n:1")
    assert world.executor.submitted == 2


def test_a_name_server_to_which_the_heartbeat_is_news_is_registered_with_once() -> None:
    for broker_id in (0, 1):
        world = World(broker_id, old=True)
        seen = []
        for differs in (False, True, True, False, True):
            world.name_servers.differs = differs
            world.acting.send_heartbeat()
            seen.append(world.registrations)
        assert seen == [0, 1, 1, 1, 2]


def test_a_group_of_another_cluster_is_not_ours() -> None:
    world = World(old=True)
    world.name_servers.cluster = "other"
    assert not world.look({1: "h1:1"})


@pytest.mark.parametrize(("old", "code"), [(True, 322), (False, 904)])
def test_heartbeats(old: bool, code: int) -> None:
    for broker_id in (0, 1):
        world = World(broker_id, old=old)
        world.acting.schedule_on(world.executor)
        world.executor.tasks["name-server-heartbeat"]()
        assert world.name_servers.asked == [code]


def test_only_a_slave_asks_and_only_where_it_is_enabled() -> None:
    names = "sync-broker-member-group", "sync-broker-member-group-now"
    for broker_id, enabled, expected in ((1, True, 2), (0, True, 0), (1, False, 0)):
        world = World(broker_id, enabled=enabled)
        world.acting.schedule_on(world.executor)
        world.acting.notified("n:1")
        assert sum(name in world.executor.tasks for name in names) == expected
        assert not world.acting.is_acting
