"""ha.replica_registry: stable ids, what counts as a copy, and replicas that left."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ha.replica_registry import ANNOUNCEMENT_MS, MAX_REMEMBERED, Replica, ReplicaRegistry
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
        with pytest.raises(ValueError, match="no slave"):
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
