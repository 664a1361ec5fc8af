"""The poller and Java's golden answers: what is seen, kept, forgotten, and how often it asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from console import poller as poller_module
from console.cluster_watch import monotonic_ms, wall_ms
from console.figures import IN_TPS, figures
from console.health import findings
from console.kept_answers import Answer
from console.lanes import Lanes
from console.poller import FORGET_MS, IDLE_MS, NAMES_MS, RUNTIME_MS, TOPICS_MS, Poller
from console.questions import CLUSTER, HA_STATUS, RUNTIME, TOPICS
from console.snapshot import ClusterSnapshot, HaTold
from remoting.body.ha_runtime_info import HARuntimeInfo
from remoting.body.route import BrokerData, ClusterInfo
from remoting.request_code import RequestCode
from tests.support.deadline import wait_until
from tests.tools.fake_cluster import FakeCluster, running_cluster
from tools.admin_client import AdminClient, NameServers


@contextmanager
def polling(cluster: FakeCluster) -> Iterator[Poller]:
    servers = NameServers((cluster.address,))
    with AdminClient(servers, wall_ms) as client:
        lanes = Lanes(lambda _account: client, monotonic_ms, workers=4)
        poller = Poller(lanes, servers.addresses, now_ms=monotonic_ms, wall_ms=wall_ms)
        lanes.start()
        poller.start()
        try:
            yield poller
        finally:
            lanes.stop()
            poller.stop()


def test_java_answers_are_seen() -> None:
    with running_cluster() as cluster, polling(cluster) as poller:
        wait_until(lambda: any(broker.runtime.value for broker in poller.snapshot.brokers))
        wait_until(lambda: poller.snapshot.topics.value)
        snapshot = poller.snapshot
    (broker,) = [broker for broker in snapshot.brokers if broker.runtime.value]
    assert (broker.is_master, broker.registered) == (True, True)
    assert (broker.version or "").startswith("V4_9")
    assert snapshot.broker(broker.place.address) is broker
    assert "GTopic" in (snapshot.topics.value or ())


def test_an_answer_that_cannot_be_read_is_an_error_beside_what_was_known() -> None:
    with running_cluster() as cluster, polling(cluster) as poller:
        wait_until(lambda: poller.snapshot.topics.value)
        known = poller.snapshot.topics.value
        cluster.always(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, body=b"[[[")
        poller._asked[cluster.address].last.pop("topics")
        wait_until(lambda: poller.snapshot.topics.error)
        assert poller.snapshot.topics.value == known


class Scripted:
    """Lanes whose answers the test gives."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.answers: dict[Any, Answer[Any]] = {}

    def poll(self, address: str, question: Any) -> Any:
        self.asked.append((address, question.key))
        answer = self.answers.get((address, question.key), Answer(error="silent"))

        class Done:
            @staticmethod
            def add_done_callback(call: Callable[[Any], None]) -> None:
                call(Done)

            @staticmethod
            def result() -> Answer[Any]:
                return answer

        return Done


class World:
    """A poller on a clock of the test."""

    def __init__(self, names: tuple[str, ...] = ("ns:9876",)) -> None:
        self.ms = 1_000_000
        self.wall_ms = 1_800_000_000_000
        self.lanes = Scripted()
        self.poller = Poller(
            self.lanes,  # type: ignore[arg-type]
            names,
            now_ms=lambda: self.ms,
            wall_ms=lambda: self.wall_ms,
        )

    def cluster(self, name_server: str, **groups: dict[int, str]) -> None:
        info = ClusterInfo(
            broker_addr_table={
                name: BrokerData(cluster="c", broker_name=name, broker_addrs=addresses)
                for name, addresses in groups.items()
            },
            cluster_addr_table={"c": list(groups)},
        )
        self.lanes.answers[name_server, CLUSTER.key] = Answer(info, self.ms)

    def step(self, by_ms: int = 0) -> None:
        self.ms += by_ms
        self.wall_ms += by_ms
        self.poller.step(0.001)
        self.poller.step(0.001)


def test_brokers_of_all_name_servers_are_one_list() -> None:
    world = World(("a:1", "b:1"))
    world.cluster("a:1", g1={0: "m1:1"})
    world.cluster("b:1", g2={0: "m2:1", 1: "s2:1"})
    world.step()
    titles = [broker.title for broker in world.poller.snapshot.brokers]
    assert titles == ["g1:0", "g2:0", "g2:1"]
    world.lanes.answers["a:1", CLUSTER.key] = Answer(error="dead")
    world.step(NAMES_MS)
    assert [broker.registered for broker in world.poller.snapshot.brokers] == [True] * 3
    assert world.poller.snapshot.names["a:1"].error == "dead"


def test_a_broker_that_left_is_shown_as_gone_for_an_hour_and_not_asked() -> None:
    world = World()
    world.cluster("ns:9876", g={0: "m:1", 1: "s:1"})
    world.step()
    world.cluster("ns:9876", g={0: "m:1"})
    world.step(NAMES_MS)
    assert [(b.title, b.registered) for b in world.poller.snapshot.brokers] == [
        ("g:0", True),
        ("g:1", False),
    ]
    world.lanes.asked.clear()
    world.step(IDLE_MS)
    assert "s:1" not in {address for address, _ in world.lanes.asked}
    world.step(FORGET_MS)
    assert [broker.title for broker in world.poller.snapshot.brokers] == ["g:0"]
    world.cluster("ns:9876", g={0: "m:1", 2: "s:1"})
    world.step(NAMES_MS)
    assert [broker.title for broker in world.poller.snapshot.brokers] == ["g:0", "g:2"]


def test_a_role_change_is_one_broker_in_another_place() -> None:
    world = World()
    world.cluster("ns:9876", g={0: "a:1", 1: "b:1"})
    world.lanes.answers["a:1", RUNTIME.key] = Answer({"putTps": "7"}, 1)
    world.step()
    world.cluster("ns:9876", g={0: "b:1", 1: "a:1"})
    world.step(NAMES_MS)
    first, second = world.poller.snapshot.brokers
    assert (first.place.address, second.place.address) == ("b:1", "a:1")
    assert second.runtime.value == {"putTps": "7"}


@pytest.mark.parametrize(("watchers", "asked"), [(0, 2), (1, 9)])
def test_how_often_the_status_is_asked(watchers: int, asked: int) -> None:
    world = World()
    world.cluster("ns:9876", g={0: "m:1"})
    world.poller.watch(watchers)
    for _ in range(50):
        world.step(200)
    assert world.lanes.asked.count(("m:1", HA_STATUS.key)) == asked
    assert world.lanes.asked.count(("ns:9876", TOPICS.key)) == 2


def test_a_clock_that_is_set_back_makes_no_dead_broker_well() -> None:
    world, hour_ms = World(), 3_600_000
    world.cluster("ns:9876", g={0: "m:1", 1: "s:1"})
    world.lanes.answers["m:1", RUNTIME.key] = Answer({}, 1)
    world.lanes.answers["m:1", HA_STATUS.key] = Answer(HaTold(HARuntimeInfo(), {}), 1)
    world.step()
    world.step(NAMES_MS)
    (living, silent) = world.poller.snapshot.brokers
    assert (living.newest_error, silent.newest_error) == (None, "silent")
    world.wall_ms -= hour_ms
    world.cluster("ns:9876", g={0: "m:1"})
    world.lanes.answers["m:1", RUNTIME.key] = Answer(error="dead")
    world.lanes.answers["m:1", HA_STATUS.key] = Answer(error="dead")
    world.step(RUNTIME_MS)
    (dead, gone) = world.poller.snapshot.brokers
    assert dead.newest_error == "dead"
    sentences = [f.sentence for f in findings(world.poller.snapshot, world.ms)]
    assert sentences[0] == "g:0 does not answer: dead"
    assert not gone.registered
    world.step(FORGET_MS + NAMES_MS)
    assert [broker.title for broker in world.poller.snapshot.brokers] == ["g:0"]


def test_ever_new_brokers_are_bounded_and_push_out_none_that_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(poller_module, "MAX_BROKERS", 5)
    monkeypatch.setattr(poller_module, "MAX_GONE", 3)
    world = World(("good:1", "bad:1"))
    world.cluster("good:1", z={0: "m:1", 1: "s:1"})
    world.step()
    for look in range(10):
        world.cluster("bad:1", **{f"a{look}-{n}": {0: f"bad{look}-{n}:1"} for n in range(50)})
        world.step(NAMES_MS)
        found = [broker for broker in world.poller.snapshot.brokers if broker.registered]
        assert len(found) == 5
        assert {"m:1", "s:1"} < {broker.place.address for broker in found}
        assert world.poller.snapshot.brokers_left_out == 47
        assert len(world.poller.snapshot.brokers) <= 5 + 3
        assert len(world.poller._asked) <= 2 + 5 + 3
    (finding,) = [f for f in findings(world.poller.snapshot, world.ms) if "list 47" in f.sentence]
    assert finding.severity == "warning"
    world.cluster("bad:1")
    world.step(NAMES_MS)
    assert world.poller.snapshot.brokers_left_out == 0


def test_a_refusal_is_an_answer_and_a_silent_address_is_none() -> None:
    """The console may have no account: brokers refuse what it polls."""
    world = World()
    world.cluster("ns:9876", g={0: "m:1", 1: "s:1"})
    refusal: Answer[Any] = Answer(error="no right", is_refusal=True)
    world.lanes.answers["m:1", RUNTIME.key] = refusal
    world.step()
    world.step(NAMES_MS)
    assert [broker.has_answered for broker in world.poller.snapshot.brokers] == [True, False]
    first = world.poller.snapshot.brokers[0].since_ms
    del world.lanes.answers["m:1", RUNTIME.key]
    world.step(RUNTIME_MS)
    (master, _) = world.poller.snapshot.brokers
    assert (master.has_answered, master.runtime.error) == (True, "silent")
    assert master.since_ms == first > 0


def test_what_is_no_address_is_not_asked() -> None:
    world = World()
    world.cluster("ns:9876", g={0: "m:1", 1: "a b:1", 2: "nowhere", 3: "x" * 301 + ":1", 4: ""})
    world.step()
    world.step(NAMES_MS)
    assert {address for address, _ in world.lanes.asked} == {"ns:9876", "m:1"}
    assert world.poller.snapshot.brokers_left_out == 4


def test_topics_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poller_module, "MAX_TOPICS", 2)
    world = World()
    world.lanes.answers["ns:9876", TOPICS.key] = Answer(("a", "b", "c"), 1)
    world.step()
    assert world.poller.snapshot.topics.value == ("a", "b")
    said = [f.sentence for f in findings(world.poller.snapshot, world.ms)]
    assert any("1 topic more than the first" in sentence for sentence in said)
    world.lanes.answers["ns:9876", TOPICS.key] = Answer(error="dead")
    world.step(TOPICS_MS)
    assert world.poller.snapshot.topics_left_out == 1


def test_what_was_told_before_the_clock_was_set_back_is_not_told_again() -> None:
    world, kept = World(), []
    since = {"ms": 0}

    def changed(snapshot: ClusterSnapshot) -> None:
        kept.append(figures(snapshot, since["ms"]))
        since["ms"] = snapshot.taken_at_ms

    world.poller._changed = changed
    world.cluster("ns:9876", g={0: "m:1"})
    world.lanes.answers["m:1", RUNTIME.key] = Answer({"putTps": "7"}, 1)
    for _ in range(3):
        world.poller.step(0.001)
        world.ms += 1
    for _ in range(2):
        world.wall_ms -= 60_000
        world.step(RUNTIME_MS)
    assert [("m:1", IN_TPS) in found for found in kept].count(True) == 3


def test_what_is_published_has_a_new_number() -> None:
    world = World()
    seen: list[int] = []
    world.poller._changed = lambda snapshot: seen.append(snapshot.number)
    world.cluster("ns:9876", g={0: "m:1"})
    world.step()
    world.step(NAMES_MS)
    assert seen == sorted(set(seen))
    assert len(seen) >= 2
