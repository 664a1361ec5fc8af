"""A slave's log and metadata equal its master's, whoever is master and whoever is slave.

One group runs at a time: a JVM broker without anything to do takes a fifth of a core. Only the
kills of mixed pairs, which mostly wait for Java slaves, are played side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.interop import harness
from tests.interop.clients import Client, Cluster, wait_registered
from tests.interop.driver import Driver, Entry, Producer
from tests.interop.java_peers import CLIENT_5
from tests.interop.processes import wait_until
from tests.interop.replication import (
    EVERY_KIND,
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
    make_many,
    pairs,
    tables,
    wait_caught_up,
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
_LONG = 100_000
# Our master has all three kinds of slaves at once, and with a SYNC_MASTER each has to have it.
_GROUPS = pairs([("ours", "ours", "java-4.9", harness.JAVA_5), *PAIRS[3:]])

Case = tuple[str, tuple[str, ...]]
_ROLES = ("ASYNC_MASTER", "SYNC_MASTER")
_CASES = [(role, kinds) for role in _ROLES for kinds in _GROUPS]


def _case_id(case: Case) -> str:
    role, kinds = case
    return f"{role.removesuffix('_MASTER').lower()}-{kinds_id(kinds)}"


class Running:
    """A group that runs, a client of its master, and topics with 8, 4 and 2 queues."""

    def __init__(
        self,
        directory: Path,
        namesrv: harness.NameServer,
        drivers: Callable[[str], Driver],
        case: Case,
    ) -> None:
        role, kinds = case
        name = f"{directory.name}-{kinds_id(kinds)}"
        made = Group(directory, namesrv.address, kinds, role=role, name=name, conf=_CONF)
        self.group = made
        try:
            made.start()
            wait_registered(drivers("4.9.8"), namesrv.address, made.master)
            # 5.3.3 where it is a 5.3.3 broker.
            version = CLIENT_5 if made.master.kind in harness.KINDS_5 else "4.9.8"
            self.client = Client(drivers(version), Cluster(namesrv, made.master))
            self.topics = [self.client.topic(queues) for queues in (8, 4, 2)]
        except BaseException:
            made.end()
            raise

    def end(self) -> None:
        self.client.end()
        self.group.end()


@pytest.fixture(scope="module")
def run(
    tmp_path_factory: pytest.TempPathFactory,
    namesrv: harness.NameServer,
    drivers: Callable[[str], Driver],
) -> Callable[[Case], Running]:
    """Start the group of a case."""
    return lambda case: Running(tmp_path_factory.mktemp("pair"), namesrv, drivers, case)


def _asked(case: Case) -> Any:
    """A master's role changes only whom its clients wait for: one is in every run."""
    role, _kinds = case
    is_long = role == "ASYNC_MASTER"
    return pytest.param(case, id=_case_id(case), marks=pytest.mark.long if is_long else ())


@pytest.fixture(scope="module", params=map(_asked, _CASES))
def running(request: pytest.FixtureRequest, run: Callable[[Case], Running]) -> Iterator[Running]:
    made = run(request.param)
    yield made
    made.end()


@pytest.fixture
def group(running: Running) -> Group:
    """For the report of a failure."""
    return running.group


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
        producer.begin_send(topic, kind, int(count * share), first=first, profile="load")
        for topic, kind, share in kinds
    ]
    return [entry for one in begun for entry in producer.sent(one, timeout_s=200)]


def assert_replicated(group: Group, sent: int) -> None:
    """All logs end where the master's does, and are the same; `sent` messages are in them."""
    end = wait_caught_up(group)
    assert end > sent * 100
    for slave in group.slaves:
        assert_same_log(group.master, slave, end)


def test_logs_are_equal_after_load(running: Running, group: Group) -> None:
    client, topics = running.client, running.topics
    if group.role == "SYNC_MASTER":
        wait_status(client.producer(), topics[0], SEND_OK)
    sent = send_to_all(client, topics, _QUICK, 0)
    assert {entry.note for entry in sent} == {SEND_OK}
    reading = client.push(topics[0])
    reading.wait_for(int(_QUICK * 0.6))
    reading.stop()
    assert_replicated(group, _QUICK)


def test_metadata_is_equal(running: Running, group: Group) -> None:
    """Java masters also deliver delayed messages: their delay offsets move. One of 5.5 has its many
    topics and groups asked for page by page."""
    topic = running.topics[0]
    if group.master.kind in harness.KINDS_5:
        make_many(group.master)
    if group.master.kind != "ours":
        producer = running.client.producer()
        message = {"topic": topic, "body": "late", "tags": "TagA", "keys": "late"}
        producer.driver.call("send.one", producer=producer.name, delay_level=1, **message)
        wait_until(lambda: tables(group.master).delays != {}, "a delay offset")
    expected = tables(group.master)
    assert topic in expected.topics
    assert any(key.startswith(f"{topic}@") for key, _ in expected.offsets)
    for slave in group.slaves:
        if slave.kind not in harness.KINDS_5:
            wait_same_tables(group.master, slave, 25)


@pytest.mark.long
def test_many_messages(running: Running, group: Group) -> None:
    """A 5.3.3 slave asks for the metadata for the first time a minute after its start."""
    sent = send_to_all(running.client, running.topics, _LONG, _QUICK, _MOSTLY_ASYNC)
    assert {entry.note for entry in sent} == {SEND_OK}
    assert_replicated(group, _LONG)
    for slave in group.slaves:
        wait_same_tables(group.master, slave, 80)


def test_stores_end_whole(group: Group) -> None:
    """The last one of a group: it stops our members."""
    assert_stores_whole(group)


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
    load.wait_for_acknowledged(200)
    group.master.kill()
    answered = acknowledged(load.stop())
    assert len(answered) >= 200
    assert_holds(group.slave, topic, answered)
    group.master.start()


def kill_in_turn(running: Running, count: int) -> None:
    """The slave and the master in turn, `count` kills in all, the logs compared after each."""
    group, topic = running.group, running.topics[0]
    producer = running.client.producer(poll_ms=1000, timeout_ms=3000)
    for number in range(count):
        wait_status(producer, topic, SEND_OK)
        (kill_master if number % 2 else kill_slave)(group, producer, topic)
        end = wait_caught_up(group)
        assert_same_log(group.master, group.slave, end)


def kill_and_end(running: Running, count: int) -> None:
    """`kill_in_turn` with a group of its own."""
    try:
        kill_in_turn(running, count)
        assert_stores_whole(running.group)
    finally:
        running.end()


def killed(kinds: Iterable[tuple[str, ...]]) -> list[Case]:
    return [("SYNC_MASTER", pair) for pair in pairs(kinds)]


_OURS_KILLED = [case for case in killed(PAIRS) if set(case[1]) == {"ours"}]


_LONG_RUN = (pytest.mark.long, pytest.mark.timeout(1800))


@pytest.mark.parametrize(
    "count", [pytest.param(2, marks=pytest.mark.slow), pytest.param(40, marks=_LONG_RUN)]
)
def test_many_kills(
    run: Callable[[Case], Running], count: int, proved: Callable[[str], None]
) -> None:
    at_once(lambda case: kill_and_end(run(case), count), _OURS_KILLED)
    proved(f"{count} kills of a pair of ours in turn: nothing acknowledged lost, equal logs")


@pytest.mark.parametrize(
    ("count", "kinds"),
    [
        pytest.param(1, EVERY_KIND, marks=pytest.mark.slow),
        pytest.param(8, PAIRS, marks=_LONG_RUN),
    ],
)
def test_kills_of_every_mixed_pair(
    run: Callable[[Case], Running], count: int, kinds: tuple[tuple[str, ...], ...]
) -> None:
    """The slave, then in a long run the master, and so on; two pairs at a time: a Java slave needs
    up to 11 s until it reports again."""
    mixed = [case for case in killed(kinds) if case not in _OURS_KILLED]
    at_once(lambda case: kill_and_end(run(case), count), mixed, most=2)
