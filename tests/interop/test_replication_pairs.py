"""A slave's log and metadata equal its master's, whoever is master and whoever is slave.

All groups are started at once and live until the module ends: their boots and the minute until a
5.3.3 slave asks for its master's metadata overlap with the other tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from tests.interop import harness
from tests.interop.clients import Client, Cluster
from tests.interop.driver import Driver, Entry, Producer
from tests.interop.processes import wait_until
from tests.interop.replication import (
    PAIRS,
    SEND_OK,
    Group,
    Load,
    acknowledged,
    assert_holds,
    assert_same_log,
    assert_stores_whole,
    at_once,
    kinds_id,
    pairs,
    start_all,
    tables,
    wait_caught_up,
    wait_group_registered,
    wait_same_tables,
    wait_status,
)

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

# A killed master is asked again soon, and a 5.3.3 one does not wait for long for a dead slave.
_CONF = {
    "mappedFileSizeCommitLog": str(16 << 20),
    "haReconnectInterval": "500",
    "slaveTimeout": "1000",
}
_QUICK = 5_000
_SLOW = 100_000
_ASYNC_GROUPS = pairs([("ours", "ours", "java-4.9", "java-5.3"), *PAIRS[3:]])
_SYNC_GROUPS = pairs()

Case = tuple[str, tuple[str, ...]]


def _case(role: str, kinds: tuple[str, ...]) -> Any:
    """All pairs are quick with an ASYNC_MASTER, only ours with a SYNC_MASTER."""
    is_quick = role == "ASYNC_MASTER" or set(kinds) == {"ours"}
    name = f"{'async' if role == 'ASYNC_MASTER' else 'sync'}-{kinds_id(kinds)}"
    return pytest.param((role, kinds), id=name, marks=[] if is_quick else pytest.mark.slow)


def is_ours(param: Any) -> bool:
    """Whether all members of the case are ours."""
    return set(param.values[0][1]) == {"ours"}


_ASYNC = [_case("ASYNC_MASTER", kinds) for kinds in _ASYNC_GROUPS]
_SYNC = [_case("SYNC_MASTER", kinds) for kinds in _SYNC_GROUPS]


class Fleet:
    """The groups of all cases that this run has, started together."""

    def __init__(
        self,
        cases: Sequence[Case],
        directory: Callable[[str], object],
        namesrv: harness.NameServer,
        drivers: Callable[[str], Driver],
    ) -> None:
        self._namesrv = namesrv
        self._drivers = drivers
        self._groups: dict[Case, Group] = {}
        self._clients: dict[Case, Client] = {}
        self._topics: dict[Case, list[str]] = {}
        for number, (role, kinds) in enumerate(cases):
            name = f"group-{number}"
            self._groups[role, kinds] = Group(
                directory(name), namesrv.address, kinds, role=role, name=name, conf=_CONF
            )

    def start(self) -> Fleet:
        start_all(group.master for group in self._groups.values())
        start_all(slave for group in self._groups.values() for slave in group.slaves)
        for group in self._groups.values():
            wait_group_registered(self._drivers("4.9.8"), self._namesrv.address, group)
        return self

    def group(self, case: Case) -> Group:
        return self._groups[case]

    def client(self, case: Case) -> Client:
        """A client of the master; 5.3.3 where it is a 5.3.3 broker."""
        if case not in self._clients:
            group = self._groups[case]
            version = "5.3.3" if group.master.kind == "java-5.3" else "4.9.8"
            cluster = Cluster(self._namesrv, group.master)
            self._clients[case] = Client(self._drivers(version), cluster)
        return self._clients[case]

    def topics(self, case: Case) -> list[str]:
        """Three topics with 8, 4 and 2 queues."""
        if case not in self._topics:
            client = self.client(case)
            self._topics[case] = [client.topic(queues) for queues in (8, 4, 2)]
        return self._topics[case]

    def end(self) -> None:
        for client in self._clients.values():
            client.end()
        for group in self._groups.values():
            group.end()


@pytest.fixture(scope="module")
def fleet(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    namesrv: harness.NameServer,
    drivers: Callable[[str], Driver],
) -> Iterator[Fleet]:
    params = [
        item.callspec.params
        for item in request.session.items
        if item.path == request.path and isinstance(item, pytest.Function)
    ]
    wanted = [case for p in params for case in p.get("cases", [p.get("case")])]
    cases = [case for case in dict.fromkeys(wanted) if isinstance(case, tuple)]
    made = Fleet(cases, tmp_path_factory.mktemp, namesrv, drivers)
    try:
        yield made.start()
    finally:
        made.end()


@pytest.fixture
def group(fleet: Fleet, case: Case) -> Group:
    return fleet.group(case)


@pytest.fixture
def client(fleet: Fleet, case: Case) -> Client:
    return fleet.client(case)


_MIXED = (0.6, 0.3, 0.1)
_MOSTLY_ASYNC = (0.05, 0.9, 0.05)
"""For many messages: the client waits for each answer of the other two kinds."""


def send_to_all(
    client: Client,
    topics: Sequence[str],
    count: int,
    first: int,
    shares: Sequence[float] = _MIXED,
) -> list[Entry]:
    """Three kinds of sending at once; every send has to be answered."""
    producer = client.producer()
    kinds = zip(topics, ("ordered", "async", "selector"), shares, strict=True)
    begun = [
        producer.begin_send(topic, kind, int(count * share), first=first, profile="volume")
        for topic, kind, share in kinds
    ]
    return [entry for one in begun for entry in producer.sent(one, timeout_s=200)]


def assert_replicated(group: Group, sent: int) -> None:
    """All logs end where the master's does, and are the same; `sent` messages are in them."""
    end = wait_caught_up(group)
    assert end > sent * 100
    for slave in group.slaves:
        assert_same_log(group.master, slave, end)


@pytest.mark.parametrize("case", [*_ASYNC, *_SYNC])
def test_logs_are_equal_after_load(fleet: Fleet, group: Group, client: Client, case: Case) -> None:
    topics = fleet.topics(case)
    if group.role == "SYNC_MASTER":
        wait_status(client.producer(), topics[0], SEND_OK)
    sent = send_to_all(client, topics, _QUICK, 0)
    assert {entry.note for entry in sent} == {SEND_OK}
    reading = client.push(topics[0])
    reading.wait_for(int(_QUICK * 0.6))
    reading.stop()
    assert_replicated(group, _QUICK)


@pytest.mark.parametrize("case", [*_ASYNC, *_SYNC])
def test_metadata_is_equal(fleet: Fleet, group: Group, case: Case) -> None:
    """Java masters also deliver delayed messages: their delay offsets move."""
    topic = fleet.topics(case)[0]
    if group.master.kind != "ours":
        producer = fleet.client(case).producer()
        message = {"topic": topic, "body": "late", "tags": "TagA", "keys": "late"}
        producer.driver.call("send.one", producer=producer.name, delay_level=1, **message)
        wait_until(lambda: tables(group.master).delays != {}, "a delay offset")
    expected = tables(group.master)
    assert topic in expected.topics
    assert any(key.startswith(f"{topic}@") for key, _ in expected.offsets)
    for slave in group.slaves:
        if slave.kind != "java-5.3":
            wait_same_tables(group.master, slave, 25)


@pytest.mark.slow
@pytest.mark.parametrize("case", [*_ASYNC, *_SYNC])
def test_hundred_thousand_messages(fleet: Fleet, group: Group, client: Client, case: Case) -> None:
    sent = send_to_all(client, fleet.topics(case), _SLOW, _QUICK, _MOSTLY_ASYNC)
    assert {entry.note for entry in sent} == {SEND_OK}
    assert_replicated(group, _SLOW)


@pytest.mark.slow
@pytest.mark.parametrize("case", [c for c in [*_ASYNC, *_SYNC] if "java-5.3" in c.values[0][1][1:]])
def test_metadata_of_a_5_3_slave(group: Group) -> None:
    """It asks for the first time a minute after its start."""
    for slave in group.slaves:
        if slave.kind == "java-5.3":
            wait_same_tables(group.master, slave, 80)


# -- kill -9 ---------------------------------------------------------------------------------------


def kill_slave(group: Group, producer: Producer, topic: str) -> None:
    """Sends go on without it; it takes up where it was."""
    load = Load(producer, topic)
    load.wait_for_more(200)
    group.slave.kill()
    load.wait_for_more(10)
    group.slave.start()
    load.wait_for_more(10)
    load.stop()


def kill_master(group: Group, producer: Producer, topic: str) -> None:
    """What it acknowledged is at the slave in the moment in which it dies."""
    load = Load(producer, topic)
    load.wait_for_more(200)
    group.master.kill()
    answered = acknowledged(load.stop())
    assert len(answered) >= 200
    assert_holds(group.slave, topic, answered)
    group.master.start()


def kill_in_turn(fleet: Fleet, case: Case, count: int) -> None:
    """The slave and the master in turn, `count` kills in all, the logs compared after each."""
    group, client = fleet.group(case), fleet.client(case)
    topic, producer = fleet.topics(case)[0], client.producer(poll_ms=1000, timeout_ms=3000)
    for number in range(count):
        wait_status(producer, topic, SEND_OK)
        (kill_master if number % 2 else kill_slave)(group, producer, topic)
        end = wait_caught_up(group)
        assert_same_log(group.master, group.slave, end)


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in _SYNC if is_ours(case)])
def test_twenty_kills(fleet: Fleet, case: Case) -> None:
    kill_in_turn(fleet, case, 20)


@pytest.mark.slow
@pytest.mark.parametrize(
    "cases", [pytest.param([c.values[0] for c in _SYNC if not is_ours(c)], id="mixed")]
)
def test_three_kills_of_every_mixed_pair(fleet: Fleet, cases: list[Case]) -> None:
    """All pairs at the same time: a Java slave needs up to 11 s until it reports again."""
    at_once(lambda case: kill_in_turn(fleet, case, 3), cases)


@pytest.mark.parametrize("case", [*_ASYNC, *_SYNC])
def test_stores_end_whole(group: Group, case: Case) -> None:
    assert_stores_whole(group)
