"""ha.replica_registry: stable ids, what counts as a copy, and replicas that left."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ha.refusals import RefusalReason
from ha.replica_clock import ReplicaClock
from ha.replica_memory import KnownReplica
from ha.replica_registry import (
    ANNOUNCEMENT_MS,
    MAX_REMEMBERED,
    REMEMBER_MS,
    Replica,
    ReplicaRegistry,
)
from ha.replica_totals import ReplicaTotals, TotalsNow
from ha.slave_progress import ReplicaState, SlaveProgress
from tests.support.manual_clock import ManualClock


class World:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.registry = ReplicaRegistry(self.clock)

    def progress(self, remote: str, ack: int = 0) -> SlaveProgress:
        return SlaveProgress(remote, ack, ack, now_ms=0, wall_ms=self.clock.now_ms())

    def connect(self, remote: str, ack: int = 0) -> SlaveProgress:
        progress = self.progress(remote, ack)
        self.registry.connected(progress)
        return progress

    def ids(self) -> dict[str, str]:
        """Address of each live replica by its id."""
        return {r.id: r.remote for r in self.registry.replicas() if r.progress is not None}

    def counted(self) -> set[str]:
        return {progress.remote for progress in self.registry.counted}

    def replica(self, replica: str) -> Replica:
        return next(r for r in self.registry.replicas() if r.id == replica)

    def totals(self) -> dict[str, TotalsNow]:
        """After a look, by id."""
        found = self.registry.observe(self.clock.monotonic_ms())
        assert {r.id for r in found} == set(self.registry._totals), "no totals of nobody"
        return {r.id: r.totals for r in found}

    def restore(self, replica: str, *, left_ms: int | None, ack: int = 700) -> None:
        known = KnownReplica(
            id=replica,
            remote="10.0.0.1:4711",
            ack_offset=ack,
            position=ack,
            connected_since_ms=5,
            left_ms=left_ms,
        )
        totals = ReplicaTotals(ReplicaClock(self.clock.monotonic_ms()))
        self.registry.restore(known, totals, ack_limit=known.position, is_named=":" in replica)


@pytest.fixture
def world() -> World:
    return World()


class TestIds:
    def test_by_ip_while_nobody_is_known(self, world: World) -> None:
        for port in (1, 2, 3):
            world.connect(f"10.0.0.1:{port}")
        world.connect("10.0.0.2:1")
        assert world.ids() == {
            "10.0.0.1": "10.0.0.1:1",
            "10.0.0.1#2": "10.0.0.1:2",
            "10.0.0.1#3": "10.0.0.1:3",
            "10.0.0.2": "10.0.0.2:1",
        }
        assert len(world.counted()) == 4

    def test_a_number_is_kept_while_its_connection_lives(self, world: World) -> None:
        first = world.connect("10.0.0.1:1")
        world.connect("10.0.0.1:2")
        world.registry.disconnected(first, "gone")
        assert world.ids() == {"10.0.0.1#2": "10.0.0.1:2"}
        world.connect("10.0.0.1:3")
        assert world.ids() == {"10.0.0.1#2": "10.0.0.1:2", "10.0.0.1": "10.0.0.1:3"}

    def test_the_only_registered_slave_of_an_ip(self, world: World) -> None:
        world.connect("10.0.0.1:1")
        world.registry.set_members("b", {0: "10.0.0.1", 3: "10.0.0.1", 4: "10.0.0.2"})
        assert world.ids() == {"b:3": "10.0.0.1:1"}

    def test_an_empty_answer_of_the_name_server_changes_nothing(self, world: World) -> None:
        world.registry.set_members("b", {3: "10.0.0.1"})
        world.registry.set_members("b", {})
        world.connect("10.0.0.1:1")
        assert world.ids() == {"b:3": "10.0.0.1:1"}

    def test_announced_before_and_after_the_connection(self, world: World) -> None:
        assert not world.registry.announce("10.0.0.1:1", "b", 1)
        world.connect("10.0.0.1:1")
        world.connect("10.0.0.1:2")
        assert world.registry.announce("10.0.0.1:2", "b", 2)
        assert world.ids() == {"b:1": "10.0.0.1:1", "b:2": "10.0.0.1:2"}

    def test_what_is_announced_beats_the_ip(self, world: World) -> None:
        world.registry.set_members("b", {3: "10.0.0.1"})
        world.connect("10.0.0.1:1")
        world.registry.announce("10.0.0.1:1", "b", 7)
        assert world.ids() == {"b:7": "10.0.0.1:1"}

    def test_an_announcement_waits_for_a_minute_only(self, world: World) -> None:
        world.registry.announce("10.0.0.1:1", "b", 1)
        world.clock.advance(ANNOUNCEMENT_MS + 1)
        world.connect("10.0.0.1:1")
        assert world.ids() == {"10.0.0.1": "10.0.0.1:1"}

    def test_announcements_without_links_are_bounded(self, world: World) -> None:
        for port in range(MAX_REMEMBERED + 1):
            world.registry.announce(f"10.0.0.1:{port}", "b", port + 1)
        world.connect("10.0.0.1:0")
        world.connect(f"10.0.0.1:{MAX_REMEMBERED}")
        assert set(world.ids()) == {"10.0.0.1", f"b:{MAX_REMEMBERED + 1}"}

    @pytest.mark.parametrize(("name", "broker_id"), [("b", 0), ("b", -1), ("", 1)])
    def test_no_slave_is_called_so(self, world: World, name: str, broker_id: int) -> None:
        with pytest.raises(ValueError, match="not a slave"):
            world.registry.announce("10.0.0.1:1", name, broker_id)

    @pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
    def test_ids_are_the_same_in_any_order_of_reconnects(
        self, world: World, order: tuple[int, ...]
    ) -> None:
        world.registry.set_members("b", {1: "10.0.0.1", 2: "10.0.0.2", 3: "10.0.0.2"})
        for round_number, slaves in enumerate([(0, 1, 2), order]):
            live = []
            for slave in slaves:
                remote = f"10.0.0.{1 if slave == 0 else 2}:{round_number}{slave}"
                if slave:
                    world.registry.announce(remote, "b", slave + 1)
                live.append(world.connect(remote))
            assert world.ids() == {
                "b:1": f"10.0.0.1:{round_number}0",
                "b:2": f"10.0.0.2:{round_number}1",
                "b:3": f"10.0.0.2:{round_number}2",
            }
            for progress in live:
                world.registry.disconnected(progress, "gone")
        assert [r.id for r in world.registry.replicas()] == ["b:1", "b:2", "b:3"]


class TestWhatCounts:
    def test_the_newest_connection_of_an_id(self, world: World) -> None:
        world.registry.set_members("b", {1: "10.0.0.1"})
        world.connect("10.0.0.1:1")
        newest = world.connect("10.0.0.1:2")
        assert world.counted() == {"10.0.0.1:2"}
        assert world.ids() == {"b:1": "10.0.0.1:2"}
        world.registry.disconnected(newest, "gone")
        assert world.counted() == {"10.0.0.1:1"}, "the old one is still open"

    def test_no_more_nameless_ones_than_registered_slaves(self, world: World) -> None:
        for port in (1, 2, 3):
            world.connect(f"10.0.0.1:{port}")
        world.registry.set_members("b", {1: "10.0.0.1", 2: "10.0.0.1"})
        assert world.counted() == {"10.0.0.1:2", "10.0.0.1:3"}
        assert len(world.registry.live()) == 3, "all of them are shown"
        assert [r.counted for r in world.registry.replicas()] == [False, True, True]
        world.registry.announce("10.0.0.1:1", "b", 1)
        assert world.counted() == {"10.0.0.1:1", "10.0.0.1:3"}

    def test_a_stranger_beside_an_announced_slave(self, world: World) -> None:
        world.registry.set_members("b", {1: "10.0.0.1"})
        world.connect("10.0.0.1:1", 500)
        world.registry.announce("10.0.0.1:1", "b", 1)
        stranger = world.connect("10.0.0.1:2", 0)
        assert world.counted() == {"10.0.0.1:1"}, "the slave's acks go on counting"
        assert world.ids() == {"b:1": "10.0.0.1:1", "10.0.0.1": "10.0.0.1:2"}
        world.registry.announce("10.0.0.1:2", "b", 1)  # it was the slave, come back
        assert world.counted() == {"10.0.0.1:2"}
        world.registry.disconnected(stranger, "gone")
        assert world.counted() == {"10.0.0.1:1"}

    def test_who_comes_back_before_its_old_link_broke_is_one_copy(self, world: World) -> None:
        """Nobody knows the members: only the announcement shows that it is the same slave."""
        world.connect("10.0.0.1:1", 1000)
        world.registry.announce("10.0.0.1:1", "b", 1)
        world.connect("10.0.0.1:2", 1000)
        other = world.connect("10.0.0.2:1", 900)
        assert world.counted() == {"10.0.0.1:1", "10.0.0.2:1"}
        world.registry.announce("10.0.0.1:2", "b", 1)
        assert world.counted() == {"10.0.0.1:2", "10.0.0.2:1"}
        world.registry.disconnected(other, "gone")
        world.connect("10.0.0.1:3")
        world.registry.announce("10.0.0.1:3", "b", 2)
        assert world.counted() == {"10.0.0.1:2", "10.0.0.1:3"}, "two slaves that say who they are"

    def test_an_unregistered_ip_is_one_replica(self, world: World) -> None:
        world.registry.set_members("b", {1: "10.0.0.1"})
        world.connect("10.0.0.5:1")
        world.connect("10.0.0.5:2")
        assert world.counted() == {"10.0.0.5:2"}

    @given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), max_size=20))
    def test_never_more_than_there_are_slaves(self, events: list[tuple[int, int]]) -> None:
        world = World()
        world.registry.set_members("b", {1: "10.0.0.1", 2: "10.0.0.1", 3: "10.0.0.2"})
        live: list[SlaveProgress] = []
        for number, (what, slave) in enumerate(events):
            remote = f"10.0.0.{1 + slave // 2}:{number}"
            if what == 0:
                live.append(world.connect(remote))
            elif what == 1 and slave < 3:
                world.registry.announce(remote, "b", slave + 1)
                live.append(world.connect(remote))
            elif live:
                world.registry.disconnected(live.pop(slave % len(live)), "gone")
            counted = world.registry.counted
            assert len(set(counted)) == len(counted) <= 3
            assert set(counted) <= set(live)
            assert bool(counted) == bool(live)


class TestReplicasThatLeft:
    def test_it_stays_with_its_last_words(self, world: World) -> None:
        connected_ms = world.clock.now_ms()
        progress = world.connect("10.0.0.1:1", 700)
        world.clock.advance(5000)
        assert world.registry.disconnected(progress, "silent: nothing came") == "10.0.0.1"
        assert world.registry.disconnected(progress, "again") is None
        replica = world.replica("10.0.0.1")
        assert replica.state is ReplicaState.disconnected
        assert (replica.ack_offset, replica.lag_bytes(1000)) == (700, 300)
        assert replica.connected_since_ms == connected_ms
        assert replica.disconnected_since_ms == world.clock.now_ms()
        assert replica.last_error == "silent: nothing came"
        assert (replica.progress, replica.counted, world.counted()) == (None, False, set())

    def test_it_takes_up_its_entry_when_it_returns(self, world: World) -> None:
        world.registry.disconnected(world.connect("10.0.0.1:1", 700), "network: reset")
        gone_ms = world.clock.now_ms()
        world.clock.advance(9000)
        world.connect("10.0.0.1:2", 800)
        [replica] = world.registry.replicas()
        assert (replica.state, replica.remote) == (ReplicaState.catching_up, "10.0.0.1:2")
        assert (replica.disconnected_since_ms, replica.ack_offset) == (None, 800)
        assert (replica.last_error, replica.last_error_ms) == ("network: reset", gone_ms)

    def test_an_old_entry_goes_over_to_the_better_id(self, world: World) -> None:
        world.registry.disconnected(world.connect("10.0.0.1:1"), "network: reset")
        world.connect("10.0.0.1:2")
        world.registry.announce("10.0.0.1:2", "b", 1)
        [replica] = world.registry.replicas()
        assert (replica.id, replica.last_error) == ("b:1", "network: reset")

    def test_live_ones_first_then_by_id(self, world: World) -> None:
        for number in (3, 1, 2):
            progress = world.connect(f"10.0.0.{number}:1")
            if number != 3:
                world.registry.disconnected(progress, "gone")
        assert [r.id for r in world.registry.replicas()] == ["10.0.0.3", "10.0.0.1", "10.0.0.2"]

    def test_the_newest_are_kept(self, world: World) -> None:
        stays = world.connect("10.1.0.1:1")
        world.registry.disconnected(world.connect("10.1.0.1:2"), "gone")
        for number in range(MAX_REMEMBERED + 5):
            world.registry.disconnected(world.connect(f"10.0.0.{number}:1"), "gone")
        replicas = world.registry.replicas()
        assert len(replicas) == MAX_REMEMBERED + 1
        assert replicas[0].progress is stays
        kept = {replica.id for replica in replicas}
        assert "10.0.0.4" not in kept
        assert {"10.0.0.5", f"10.0.0.{MAX_REMEMBERED + 4}"} <= kept


def test_changed_states_are_handed_out_once(world: World) -> None:
    progress = world.connect("10.0.0.1:1", 100)
    assert world.registry.take_changed_states() == []
    progress.judge(100, 10)
    expected = [("10.0.0.1", progress, ReplicaState.in_sync)]
    assert world.registry.take_changed_states() == expected
    assert world.registry.take_changed_states() == []


class TestForgetting:
    def test_who_left_a_day_ago(self, world: World) -> None:
        world.registry.disconnected(world.connect("10.0.0.1:1"), "gone")
        world.clock.advance(REMEMBER_MS - 1)
        assert world.totals().keys() == {"10.0.0.1"}
        world.clock.advance(1)
        assert world.totals() == {}
        assert world.registry.replicas() == []

    def test_who_is_connected_is_not_forgotten_however_long_ago_it_left_once(
        self, world: World
    ) -> None:
        world.registry.disconnected(world.connect("10.0.0.1:1"), "gone")
        again = world.connect("10.0.0.1:2")
        world.clock.advance(2 * REMEMBER_MS)
        assert world.totals().keys() == {"10.0.0.1"}
        world.registry.disconnected(again, "gone again")
        assert world.totals().keys() == {"10.0.0.1"}

    def test_a_wall_clock_that_jumps_forgets_nobody(self, world: World) -> None:
        world.registry.disconnected(world.connect("10.0.0.1:1"), "gone")
        world.clock.jump_to(world.clock.now_ms() + 10 * REMEMBER_MS)
        assert world.totals().keys() == {"10.0.0.1"}


class TestRestored:
    def test_it_is_missed(self, world: World) -> None:
        left_ms = world.clock.now_ms() - 5000
        world.restore("b:1", left_ms=left_ms)
        replica = world.replica("b:1")
        assert replica.state is ReplicaState.disconnected
        assert (replica.is_named, replica.progress) == (True, None)
        assert (replica.ack_offset, replica.lag_bytes(1000)) == (700, 300)
        assert replica.disconnected_since_ms == left_ms
        assert (replica.last_error, replica.last_error_ms) == (None, None)
        assert world.registry.live() == ()
        assert world.registry.counted == ()

    def test_it_is_forgotten_a_day_after_it_left_in_the_life_before(self, world: World) -> None:
        world.restore("b:1", left_ms=world.clock.now_ms() - REMEMBER_MS + 10)
        world.restore("b:2", left_ms=world.clock.now_ms() - REMEMBER_MS)
        assert world.totals().keys() == {"b:1"}
        world.clock.advance(10)
        assert world.totals() == {}

    def test_a_time_in_the_future_is_now(self, world: World) -> None:
        world.restore("b:1", left_ms=world.clock.now_ms() + 10 * REMEMBER_MS)
        assert world.replica("b:1").disconnected_since_ms == world.clock.now_ms()
        world.clock.advance(REMEMBER_MS)
        assert world.totals() == {}

    def test_it_comes_back(self, world: World) -> None:
        world.restore("b:1", left_ms=None)
        world.registry.announce("10.0.0.1:9", "b", 1)
        world.connect("10.0.0.1:9", 800)
        replica = world.replica("b:1")
        assert (replica.state, replica.ack_offset) == (ReplicaState.catching_up, 800)
        assert (replica.disconnected_since_ms, replica.last_error_ms) == (None, None)
        assert world.totals().keys() == {"b:1"}


class TestTotals:
    def test_bytes_over_all_connections(self, world: World) -> None:
        first = world.connect("10.0.0.1:1")
        first.transferred = 100
        assert world.totals()["10.0.0.1"].transferred == 100
        first.transferred = 150
        world.registry.disconnected(first, "gone")
        second = world.connect("10.0.0.1:2")
        second.transferred = 7
        for _ in range(2):
            assert world.totals()["10.0.0.1"].transferred == 157

    def test_reconnects_and_reports_that_are_not_true(self, world: World) -> None:
        for _ in range(3):
            progress = world.connect("10.0.0.1:1")
            world.registry.disconnected(progress, "decreasing", RefusalReason.DECREASING)
        world.registry.disconnected(world.connect("10.0.0.1:1"), "reset")
        totals = world.totals()["10.0.0.1"]
        assert totals.reconnects == 3
        assert totals.rejected_acks == {RefusalReason.DECREASING: 3}

    def test_time_in_each_state(self, world: World) -> None:
        progress = world.connect("10.0.0.1:1", 100)
        for _ in range(3):
            world.clock.advance(200)
            world.totals()
            progress.judge(100, 10)
        world.registry.disconnected(progress, "gone")
        for _ in range(4):
            world.clock.advance(200)
            world.totals()
        assert world.totals()["10.0.0.1"].state_ms == {
            ReplicaState.catching_up: 400,
            ReplicaState.in_sync: 400,
            ReplicaState.disconnected: 600,
        }, "up to one look late"

    def test_a_name_takes_along_what_its_ip_counted(self, world: World) -> None:
        progress = world.connect("10.0.0.1:1")
        progress.transferred = 60
        world.clock.advance(200)
        assert world.totals()["10.0.0.1"].transferred == 60
        progress.transferred = 90
        world.registry.announce("10.0.0.1:1", "b", 1)
        [(name, totals)] = world.totals().items()
        assert (name, totals.transferred, totals.reconnects) == ("b:1", 90, 0)
        assert sum(totals.state_ms.values()) == 200

    def test_a_known_name_is_added_to(self, world: World) -> None:
        world.registry.announce("10.0.0.1:1", "b", 1)
        first = world.connect("10.0.0.1:1")
        first.transferred = 1000
        world.clock.advance(200)
        world.totals()
        world.registry.disconnected(first, "gone")
        second = world.connect("10.0.0.1:2")
        second.transferred = 20
        for _ in range(2):
            world.clock.advance(200)
            assert world.totals().keys() == {"10.0.0.1", "b:1"}
        world.registry.announce("10.0.0.1:2", "b", 1)
        [(name, totals)] = world.totals().items()
        assert (name, totals.transferred, totals.reconnects) == ("b:1", 1020, 1)
        assert sum(totals.state_ms.values()) == 600, "the time is not counted twice"

    def test_a_guess_that_was_wrong_leaves_the_name_to_its_owner(self, world: World) -> None:
        world.registry.set_members("b", {1: "10.0.0.1"})
        stranger = world.connect("10.0.0.1:1")
        stranger.transferred = 50
        assert world.totals()["b:1"].transferred == 50
        world.registry.announce("10.0.0.1:2", "b", 1)
        owner = world.connect("10.0.0.1:2")
        stranger.transferred, owner.transferred = 60, 5
        totals = world.totals()
        assert {name: each.transferred for name, each in totals.items()} == {
            "b:1": 55,
            "10.0.0.1": 10,
        }

    def test_what_is_remembered_of_a_name_does_not_go_over_to_a_stranger(
        self, world: World
    ) -> None:
        world.registry.set_members("b", {1: "10.0.0.1"})
        world.registry.disconnected(world.connect("10.0.0.1:1"), "network: reset")
        world.connect("10.0.0.1:2")
        world.registry.set_members("b", {1: "10.0.0.1", 2: "10.0.0.1"})
        errors = {r.id: r.last_error for r in world.registry.replicas()}
        assert errors == {"10.0.0.1": None, "b:1": "network: reset"}

    @given(
        st.lists(
            st.tuples(
                st.sampled_from(["connect", "announced", "announce", "leave", "members", "send"]),
                st.integers(0, 3),
            ),
            max_size=40,
        )
    )
    def test_no_number_of_a_listed_replica_falls(self, events: list[tuple[str, int]]) -> None:
        """And their time is the time since they are listed."""
        world, live, before = World(), list[SlaveProgress](), dict[str, TotalsNow]()
        listed_ms: dict[str, int] = {}
        for number, (what, which) in enumerate(events):
            remote = f"10.0.0.{1 + which // 2}:{number}"
            if what in ("connect", "announced"):
                if what == "announced":
                    world.registry.announce(remote, "b", which + 1)
                live.append(world.connect(remote))
            elif what == "members":
                hosts = {n + 1: f"10.0.0.{1 + n // 2}" for n in range(which)}
                world.registry.set_members("b", hosts)
            elif live and what == "announce":
                world.registry.announce(live[which % len(live)].remote, "b", which + 1)
            elif live and what == "send":
                live[which % len(live)].transferred += 10
            elif live:
                left = live.pop(which % len(live))
                world.registry.disconnected(left, "x", RefusalReason.DECREASING)
            world.clock.advance(100)
            after = world.totals()
            now_ms = world.clock.monotonic_ms()
            for name, totals in after.items():
                since_ms = listed_ms.setdefault(name, now_ms - sum(totals.state_ms.values()))
                assert sum(totals.state_ms.values()) == now_ms - since_ms
                if name in before:
                    _check_not_fallen(before[name], totals)
            listed_ms = {name: listed_ms[name] for name in after}
            before = after


def _check_not_fallen(before: TotalsNow, after: TotalsNow) -> None:
    assert after.transferred >= before.transferred
    assert after.reconnects >= before.reconnects
    assert all(after.rejected_acks[key] >= n for key, n in before.rejected_acks.items())
    assert all(after.state_ms[key] >= n for key, n in before.state_ms.items())
