"""ha.ha_observer: what the metrics tell of replication, on a real log."""

from __future__ import annotations

from pathlib import Path

import pytest

from ha.ha_client_info import HAClientInfo
from ha.ha_observer import NAMING_MS, HaFacts, HaObserver, ReplicaFacts
from ha.refusals import RefusalReason
from ha.replication_lag import LagAge
from ha.slave_progress import SlaveProgress
from store.commit_log_reader import CommitLogReader
from store.control_slots import MIN_PHY_OFFSET, STORE_TIMESTAMP
from store.errors import StoreError
from tests.ha.client_info import client_info
from tests.ha.replica_world import ReplicaWorld
from tests.support.plain_log import FILE_SIZE, PlainLog


class World(ReplicaWorld):
    """A log with a record each second; the last was stored now."""

    def __init__(self, tmp_path: Path, client: HAClientInfo | None = None) -> None:
        super().__init__(fallbehind_max=1_000_000)
        self.log = PlainLog(tmp_path / "commitlog")
        self.reader = CommitLogReader(self.log.directory, FILE_SIZE, self.page)
        self.handshakes: dict[RefusalReason, int] = {}
        self.asked_for_members = 0
        self.looked_up = 0
        view_of_file = self.reader.view_of_file

        def counting(phy_offset: int) -> memoryview | None:
            self.looked_up += 1
            return view_of_file(phy_offset)

        self.reader.view_of_file = counting  # type: ignore[method-assign]
        for number in range(20):
            self.append(self.clock.now_ms() - 1000 * (19 - number))
        self.observer = HaObserver(
            self.page,
            self.clock,
            self.registry,
            self.marks,
            self.reader,
            lambda: self.handshakes,
            self._request_members,
            None if client is None else lambda: client,
        )

    def _request_members(self) -> None:
        self.asked_for_members += 1

    def append(self, stored_ms: int | None = None) -> None:
        stored_ms = self.clock.now_ms() if stored_ms is None else stored_ms
        self.log.append(b"x" * 200, store_timestamp=stored_ms)
        self.log_ends_at(self.log.end)
        self.page.counters[STORE_TIMESTAMP] = stored_ms

    def named(self, broker_id: int, ack: int) -> SlaveProgress:
        self.registry.announce(f"10.0.0.{broker_id}:1", "b", broker_id)
        return self.connect(f"10.0.0.{broker_id}:1", ack)

    def after(self, ms: int) -> HaFacts:
        """Looks on the way, the last one then."""
        for _ in range(ms // 200):
            self.clock.advance(200)
            facts = self.observer.observe()
        return facts

    def observe(self) -> HaFacts:
        return self.observer.observe()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def ids(facts: HaFacts) -> list[str]:
    return [each.replica.id for each in facts.replicas]


def test_a_master_that_never_had_a_replica(world: World) -> None:
    facts = world.observe()
    assert facts.replicas == ()
    assert (facts.observed_ms, facts.max_offset) == (world.clock.monotonic_ms(), world.log.end)
    assert (facts.unreplicated_bytes, facts.oldest_unreplicated_ms) == (world.log.end, 19_000)
    assert facts.client is None
    assert world.asked_for_members == 0
    low = FILE_SIZE
    world.page.counters[MIN_PHY_OFFSET] = low
    facts = world.observe()
    first = next(number for number, (at, _) in enumerate(world.log.records) if at >= low)
    assert facts.unreplicated_bytes == world.log.end - low
    assert facts.oldest_unreplicated_ms == 1000 * (19 - first)


def test_an_empty_log_lacks_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.log_ends_at(0)
    facts = world.observe()
    assert (facts.unreplicated_bytes, facts.oldest_unreplicated_ms) == (0, 0)


def test_how_far_each_one_is_behind(world: World) -> None:
    ack = world.log.records[15][0]
    world.named(1, ack)
    world.named(2, world.log.end)
    one, two = world.observe().replicas
    assert (one.replica.id, one.lag_bytes, one.lag) == (
        "b:1",
        world.log.end - ack,
        LagAge(4000, True),
    )
    assert (two.replica.id, two.lag_bytes, two.lag) == ("b:2", 0, LagAge(0, True))


def test_what_no_replica_has(world: World) -> None:
    first, second = world.log.records[10][0], world.log.records[15][0]
    world.named(1, first)
    best = world.named(2, second)
    facts = world.observe()
    assert facts.unreplicated_bytes == world.log.end - second
    assert facts.oldest_unreplicated_ms == 4000
    world.service.remove(best, RefusalReason.NETWORK, "reset")
    world.clock.advance(1000)
    world.append()
    facts = world.observe()
    assert facts.unreplicated_bytes == world.log.end - second, "it still has on disk what it had"
    assert facts.oldest_unreplicated_ms == 5000


def test_what_was_deleted_is_not_at_risk(world: World) -> None:
    """A replica that has been away for longer than messages are kept."""
    world.service.remove(world.named(1, world.log.records[3][0]), None, "gone")
    low = FILE_SIZE
    world.page.counters[MIN_PHY_OFFSET] = low
    facts = world.observe()
    assert facts.unreplicated_bytes == world.log.end - low
    assert facts.unreplicated_exact
    assert not _only(facts).lag.exact


def test_a_connection_that_counts_for_nobody_has_nothing(world: World) -> None:
    world.registry.set_members("b", {1: "10.0.0.1"})
    world.named(1, world.log.records[10][0])
    world.connect("10.0.0.1:2", world.log.end)
    assert world.observe().unreplicated_bytes == world.log.end - world.log.records[10][0]


def test_a_slave_has_a_master_that_has_all(tmp_path: Path) -> None:
    world = World(tmp_path, client_info())
    facts = world.observe()
    assert (facts.unreplicated_bytes, facts.oldest_unreplicated_ms) == (0, 0)
    assert facts.client == client_info()


def test_refusals(world: World) -> None:
    world.handshakes = {RefusalReason.TLS: 2}
    assert world.observe().rejected_handshakes == {RefusalReason.TLS: 2}


class TestLookingUp:
    def test_the_record_that_is_waited_for_is_looked_up_once(self, world: World) -> None:
        waiting = world.named(1, world.log.records[3][0])
        world.service.remove(waiting, None, "gone")
        first = world.observe()
        count = world.looked_up
        assert count
        later = world.after(1000)
        assert world.looked_up == count
        assert later.replicas[0].lag == LagAge(first.replicas[0].lag.ms + 1000, True)
        assert later.oldest_unreplicated_ms == first.oldest_unreplicated_ms + 1000

    def test_it_is_looked_up_again_when_it_is_acknowledged(self, world: World) -> None:
        slave = world.named(1, world.log.records[3][0])
        assert _only(world.observe()).lag == LagAge(16_000, True)
        world.ack(slave, world.log.records[18][0])
        assert _only(world.observe()).lag == LagAge(1000, True)
        world.ack(slave, world.log.end)
        assert _only(world.observe()).lag == LagAge(0, True)
        world.append()
        world.clock.advance(700)
        assert _only(world.observe()).lag == LagAge(700, True)

    def test_a_deleted_record_is_not_exact_any_more(self, world: World) -> None:
        world.named(1, world.log.records[3][0])
        assert _only(world.observe()).lag.exact
        world.page.counters[MIN_PHY_OFFSET] = FILE_SIZE
        lag = _only(world.observe()).lag
        assert not lag.exact
        assert lag.ms < 16_000

    def test_a_deleted_file_is_let_go_of_without_a_reason_to_read(self, world: World) -> None:
        slave = world.named(1, world.log.records[3][0])
        world.observe()
        world.ack(slave, world.log.end)
        path = world.log.path(0)
        assert str(path) in Path("/proc/self/maps").read_text()
        path.unlink()
        world.page.counters[MIN_PHY_OFFSET] = FILE_SIZE
        world.observe()
        assert str(path) not in Path("/proc/self/maps").read_text()

    def test_a_log_that_cannot_be_read(
        self, world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        world.named(1, world.log.records[3][0])

        def fail(_offset: int) -> None:
            raise StoreError("too many open files")

        monkeypatch.setattr(world.reader, "view_of_file", fail)
        world.clock.advance(500)
        for _ in range(5):
            facts = world.observe()
        assert _only(facts).lag == LagAge(500, False), "at least the newest record's age"
        assert facts.oldest_unreplicated_ms == 500
        assert not facts.unreplicated_exact
        assert caplog.text.count("too many open files") == 1


class TestNaming:
    def test_an_ip_gets_some_time_to_get_a_name(self, world: World) -> None:
        slave = world.connect("10.0.0.9:1", world.log.end)
        assert ids(world.after(NAMING_MS - 200)) == []
        assert world.asked_for_members > 1
        assert world.observe().unreplicated_bytes == 0, "it counts nevertheless"
        asked = world.asked_for_members
        [found] = world.after(200).replicas
        assert found.replica.id == "10.0.0.9"
        assert sum(found.replica.totals.state_ms.values()) == NAMING_MS, "all of its time"
        assert world.asked_for_members == asked
        world.service.remove(slave, None, "gone")
        assert ids(world.after(NAMING_MS)) == ["10.0.0.9"]

    def test_a_name_is_told_at_once(self, world: World) -> None:
        world.connect("10.0.0.9:1", 0)
        world.after(400)
        world.registry.announce("10.0.0.9:1", "b", 1)
        assert ids(world.observe()) == ["b:1"]

    def test_an_ip_that_left_before_is_not_missed(self, world: World) -> None:
        world.service.remove(world.connect("10.0.0.9:1", 0), None, "gone")
        asked = world.asked_for_members
        assert ids(world.after(2 * NAMING_MS)) == []
        assert world.asked_for_members == asked, "nobody is there to be named"


def _only(facts: HaFacts) -> ReplicaFacts:
    [found] = facts.replicas
    return found
