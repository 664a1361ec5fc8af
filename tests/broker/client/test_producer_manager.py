"""broker.client.producer_manager: registration, leaving, expiry, who is found."""

from __future__ import annotations

from typing import Any

from broker.client.client_channel_info import ClientChannelInfo
from broker.client.producer_manager import CHANNEL_EXPIRED_MS, ProducerManager
from remoting.request_processor import ConnectionLike
from tests.broker.broker_fakes import FakeClock, FakeConnection


def info_of(connection: FakeConnection, client_id: str, clock: FakeClock) -> ClientChannelInfo:
    return ClientChannelInfo(
        connection, client_id, language=0, version=409, last_update_ms=clock.now_ms()
    )


class World:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.manager = ProducerManager(self.clock)

    def beat(
        self, connection: FakeConnection, client_id: str, *groups: str, account: str = ""
    ) -> None:
        for group in groups:
            info = info_of(connection, client_id, self.clock)
            info.account = account
            self.manager.register_producer(group, info)

    def members(self, group: str) -> list[str] | None:
        infos = self.manager.find_group(group)
        return None if infos is None else [info.client_id for info in infos]


def test_register_and_find() -> None:
    world, connection = World(), FakeConnection()
    world.beat(connection, "c1", "g", "CLIENT_INNER_PRODUCER")
    world.beat(connection, "c1", "g")
    assert world.members("g") == ["c1"]
    assert set(world.manager.all_groups()) == {"g", "CLIENT_INNER_PRODUCER"}
    assert world.manager.find_connection("c1") is connection
    assert world.manager.find_connection("c2") is None
    assert world.members("unknown") is None


def test_a_client_stays_findable_while_any_group_is_left() -> None:
    world, connection = World(), FakeConnection()
    world.beat(connection, "c1", "g", "CLIENT_INNER_PRODUCER")
    world.manager.unregister_producer("g", connection)
    assert world.members("g") is None
    assert world.manager.find_connection("c1") is connection
    world.manager.unregister_producer("CLIENT_INNER_PRODUCER", connection)
    assert world.manager.find_connection("c1") is None
    world.manager.unregister_producer("CLIENT_INNER_PRODUCER", connection)


def test_close_removes_every_group() -> None:
    world, gone, kept = World(), FakeConnection(), FakeConnection()
    world.beat(gone, "c1", "g", "h")
    world.beat(kept, "c2", "g")
    world.manager.on_connection_close(gone)
    assert world.members("g") == ["c2"]
    assert world.members("h") is None
    assert world.manager.find_connection("c1") is None


def test_a_late_close_does_not_hide_the_new_connection() -> None:
    world, old, new = World(), FakeConnection(), FakeConnection()
    world.beat(old, "c1", "g")
    world.beat(new, "c1", "g")
    assert world.members("g") == ["c1", "c1"], "keyed by connection"
    world.manager.on_connection_close(old)
    assert world.manager.find_connection("c1") is new


def test_a_heartbeat_of_a_closed_connection_leaves_nothing() -> None:
    world, connection = World(), FakeConnection()
    connection.is_open = False
    world.beat(connection, "c1", "g")
    assert world.members("g") is None
    assert world.manager.find_connection("c1") is None


def test_expiry() -> None:
    world, silent, alive = World(), FakeConnection(), FakeConnection()
    world.beat(silent, "c1", "g", "h")
    world.clock.advance(CHANNEL_EXPIRED_MS)
    world.beat(alive, "c2", "g")
    assert world.manager.scan_not_active_channel() == [], "exactly the limit is not over it"
    world.clock.advance(1)
    assert world.manager.scan_not_active_channel() == [silent]
    assert silent.close_reason == "producer sent no heartbeat"
    assert world.members("g") == ["c2"]
    assert alive.is_open


def test_a_reply_goes_to_no_other_account() -> None:
    """Any account took the replies to another one's clients by naming their ids; and when the id
    belonged to whoever brought it first, he took them, too, and kept the other one's client, with
    its consumers, from this broker. Two hosts may have the same id: 172.17.0.2@1."""
    world, alice, other = World(), FakeConnection(), FakeConnection()
    world.beat(alice, "c1", "g", account="alice")
    world.beat(other, "c1", "g", "other", account="mallory")
    assert (world.members("g"), world.members("other")) == (["c1", "c1"], ["c1"])
    assert world.manager.find_connection("c1") is None
    assert world.manager.renew("g", other)
    assert world.manager.renew("g", alice)
    assert world.manager.find_connection("c1") is None
    world.manager.unregister_producer("g", other)
    assert world.manager.find_connection("c1") is None
    # Another id on the same connection: the first one is free.
    world.beat(other, "c2", "other", account="mallory")
    assert world.manager.find_connection("c1") is alice
    assert world.manager.find_connection("c2") is other
    assert world.members("other") == ["c2"]


def test_a_client_that_connects_again_has_its_id() -> None:
    """Of the same account, also while the old connection lives; of another one once that is gone;
    and whose account has changed on its connection."""
    world, old, new, third = World(), FakeConnection(), FakeConnection(), FakeConnection()
    world.beat(old, "c1", "g", account="alice")
    world.beat(new, "c1", "g", account="alice")
    assert world.manager.find_connection("c1") is new
    assert world.manager.renew("g", old)
    assert world.manager.find_connection("c1") is old, "the one that was heard last"
    world.beat(new, "c1", "g", account="alice2")
    assert world.manager.find_connection("c1") is None
    world.manager.on_connection_close(old)
    assert world.manager.find_connection("c1") is new
    new.is_open = False
    world.beat(third, "c1", "g", account="bob")
    assert world.manager.find_connection("c1") is third
    world.manager.on_connection_close(new)
    assert world.manager.find_connection("c1") is third
    world.manager.on_connection_close(third)
    assert world.manager.find_connection("c1") is None


def test_ids_of_one_connection_are_forgotten() -> None:
    """Each heartbeat with another id stayed in memory for good."""
    world, connection = World(), FakeConnection()
    for number in range(100):
        world.beat(connection, f"c{number}", "g", f"g{number % 3}")
    assert len(world.manager._claims) <= 4
    assert world.manager.find_connection("c99") is connection
    assert world.manager.find_connection("c1") is None
    world.manager.on_connection_close(connection)
    assert world.manager._claims == {}


def test_closing_a_connection_looks_at_its_own_groups_alone() -> None:
    """It once took the square of all groups, on the loop."""
    world, first, other = World(), FakeConnection(), FakeConnection()
    world.beat(first, "c1", *(f"first{number}" for number in range(2_000)))
    world.beat(other, "c2", *(f"other{number}" for number in range(2_000)))
    assert len(world.manager.groups_of(other)) == 2_000
    seen = CountedTable(world.manager._groups)
    world.manager._groups = seen
    world.manager.on_connection_close(other)
    assert seen.walks == 0
    assert not world.manager.groups_of(other)
    assert world.manager.find_connection("c2") is None
    assert world.members("first7") == ["c1"]


class CountedTable(dict[str, dict[ConnectionLike, ClientChannelInfo]]):
    """Counts how often somebody walks over all groups."""

    walks = 0

    def values(self) -> Any:
        self.walks += 1
        return super().values()

    def items(self) -> Any:
        self.walks += 1
        return super().items()
