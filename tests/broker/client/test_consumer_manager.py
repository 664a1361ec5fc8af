"""broker.client.consumer_manager: members, subscriptions, who is told with code 40, expiry."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from broker.client.client_channel_info import ClientChannelInfo
from broker.client.consumer_manager import (
    CHANNEL_EXPIRED_MS,
    ConsumerManager,
    DefaultConsumerIdsChangeListener,
)
from remoting.body.heartbeat import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)
from remoting.request_processor import ConnectionLike
from tests.broker.broker_fakes import (
    FakeClock,
    FakeConnection,
    FakeGroupFilters,
    assert_same_head,
    golden,
)


class Recorder(DefaultConsumerIdsChangeListener):
    """Sends 40 and remembers the events."""

    def __init__(self) -> None:
        super().__init__(FakeGroupFilters())
        self.events: list[tuple[str, str]] = []

    def on_change(self, group: str, connections: Sequence[ConnectionLike]) -> None:
        self.events.append(("change", group))
        super().on_change(group, connections)

    def on_register(self, group: str, subscriptions: Sequence[SubscriptionData]) -> None:
        self.events.append(("register", group))

    def on_unregister(self, group: str) -> None:
        self.events.append(("unregister", group))


def data_of(
    group: str, *topics: str, version: int = 1, model: MessageModel = MessageModel.CLUSTERING
) -> ConsumerData:
    return ConsumerData(
        group_name=group,
        consume_type=ConsumeType.CONSUME_PASSIVELY,
        message_model=model,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        subscription_data_set=[
            SubscriptionData(topic=topic, sub_string="*", sub_version=version) for topic in topics
        ],
    )


class World:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.listener = Recorder()
        self.manager = ConsumerManager(self.clock, self.listener)

    def beat(
        self, connection: FakeConnection, client_id: str, data: ConsumerData, notify: bool = True
    ) -> bool:
        info = ClientChannelInfo(
            connection, client_id, language=0, version=409, last_update_ms=self.clock.now_ms()
        )
        return self.manager.register_consumer(data, info, notify=notify)


def told(*connections: FakeConnection) -> list[int]:
    """How many 40s each got since the last call."""
    counts = [len(connection.sent) for connection in connections]
    for connection in connections:
        connection.sent.clear()
    return counts


def test_a_new_member_is_told_to_all() -> None:
    world, one, two = World(), FakeConnection(), FakeConnection()
    assert world.beat(one, "c1", data_of("g", "t"))
    assert told(one, two) == [1, 0]
    assert world.beat(two, "c2", data_of("g", "t"))
    assert told(one, two) == [1, 1]
    assert not world.beat(two, "c2", data_of("g", "t"))
    assert told(one, two) == [0, 0]
    assert world.manager.client_ids("g") == ["c1", "c2"]


def test_the_frame_of_40_is_javas() -> None:
    java, _ = golden(40)
    world, connection = World(), FakeConnection()
    world.beat(connection, "c1", data_of("G_retry_group", "t"))
    ours = connection.sent[0]
    ours.opaque = java.opaque
    assert_same_head(ours, java)
    assert ours.is_oneway


@pytest.mark.parametrize(
    ("second", "changed"),
    [
        (data_of("g", "t", "u"), True),
        (data_of("g", "u"), True),
        (data_of("g"), True),
        (data_of("g", "t"), False),
        (data_of("g", "t", version=2), False),
        (data_of("g", "t", model=MessageModel.BROADCASTING), False),
    ],
    ids=["added", "swapped", "dropped", "same", "newer version only", "other model"],
)
def test_what_counts_as_a_change(second: ConsumerData, changed: bool) -> None:
    world, connection = World(), FakeConnection()
    world.beat(connection, "c1", data_of("g", "t"))
    told(connection)
    assert world.beat(connection, "c1", second) is changed
    assert told(connection) == [1 if changed else 0]
    assert world.manager.is_broadcasting("g") is (second.message_model is MessageModel.BROADCASTING)


def test_subscriptions_merge_by_version() -> None:
    world, connection = World(), FakeConnection()
    world.beat(connection, "c1", data_of("g", "t", version=5))
    world.beat(connection, "c1", data_of("g", "t", version=4))
    found = world.manager.find_subscription("g", "t")
    assert found is not None
    assert found.sub_version == 5
    world.beat(connection, "c1", data_of("g", "t", version=6))
    found = world.manager.find_subscription("g", "t")
    assert found is not None
    assert found.sub_version == 6


@pytest.mark.parametrize("notify", [True, False])
def test_the_groups_own_switch(notify: bool) -> None:
    world, one, two = World(), FakeConnection(), FakeConnection()
    world.beat(one, "c1", data_of("g", "t"), notify)
    world.beat(two, "c2", data_of("g", "t"), notify)
    assert told(one, two) == ([2, 1] if notify else [0, 0])
    world.manager.unregister_consumer("g", two, notify=notify)
    assert told(one, two) == ([1, 0] if notify else [0, 0])
    world.beat(two, "c2", data_of("g", "t"), notify)
    told(one, two)
    world.manager.on_connection_close(two)
    assert told(one) == [1], "a closed connection is always told"


def test_the_brokers_own_switch() -> None:
    world, connection = World(), FakeConnection()
    world.listener.notify_consumer_ids_changed_enable = False
    world.beat(connection, "c1", data_of("g", "t"))
    assert told(connection) == [0]


def test_close_leaves_every_group() -> None:
    world, gone, kept = World(), FakeConnection(), FakeConnection()
    world.beat(gone, "c1", data_of("g", "t"))
    world.beat(gone, "c1", data_of("h", "t"))
    world.beat(kept, "c2", data_of("g", "t"))
    told(gone, kept)
    world.listener.events.clear()
    world.manager.on_connection_close(gone)
    assert told(gone, kept) == [0, 1]
    assert world.listener.events == [("change", "g"), ("unregister", "h")]
    assert world.manager.client_ids("g") == ["c2"]
    assert not world.manager.has_group("h")


def test_the_same_client_on_two_connections_is_listed_twice() -> None:
    world, one, two = World(), FakeConnection(), FakeConnection()
    world.beat(one, "c1", data_of("g", "t"))
    world.beat(two, "c1", data_of("g", "t"))
    assert world.manager.client_ids("g") == ["c1", "c1"]
    member = world.manager.find_member("g", "c1")
    assert member is not None
    assert member.connection is one


def test_another_client_id_on_the_same_connection() -> None:
    world, connection = World(), FakeConnection()
    world.beat(connection, "c1", data_of("g", "t"))
    assert not world.beat(connection, "c2", data_of("g", "t"))
    assert world.manager.client_ids("g") == ["c2"]


def test_a_heartbeat_of_a_closed_connection_leaves_nothing() -> None:
    world, connection = World(), FakeConnection()
    connection.is_open = False
    world.beat(connection, "c1", data_of("g", "t"))
    assert not world.manager.has_group("g")


def test_expiry_is_silent() -> None:
    world, silent, alive = World(), FakeConnection(), FakeConnection()
    world.beat(silent, "c1", data_of("g", "t"))
    world.beat(silent, "c1", data_of("h", "t"))
    world.clock.advance(CHANNEL_EXPIRED_MS)
    world.beat(alive, "c2", data_of("g", "t"))
    assert world.manager.scan_not_active_channel() == []
    world.clock.advance(1)
    told(silent, alive)
    world.listener.events.clear()
    assert world.manager.scan_not_active_channel() == [silent]
    assert not silent.is_open
    assert told(silent, alive) == [0, 0], "the others rebalance by themselves"
    assert world.listener.events == [("unregister", "h")]
    assert world.manager.client_ids("g") == ["c2"]


def test_lookups() -> None:
    world, connection = World(), FakeConnection()
    world.beat(connection, "c1", data_of("g", "t", "u"))
    manager = world.manager
    assert manager.subscription_count("g") == 2
    assert manager.subscription_count("x") == 0
    assert manager.groups_of_topic("t") == ["g"]
    assert manager.groups_of_topic("x") == []
    assert manager.connections_of("g") == [connection]
    assert manager.connections_of("x") == []
    assert manager.find_subscription("x", "t") is None
    assert manager.find_member("x", "c1") is None
    assert manager.client_ids("x") == []
    assert not manager.is_broadcasting("x")
    manager.unregister_consumer("x", connection, notify=True)
    manager.unregister_consumer("g", FakeConnection(), notify=True)
    assert told(connection) == [1]


def test_the_listener_keeps_the_filters_up_to_date() -> None:
    filters = FakeGroupFilters()
    manager = ConsumerManager(FakeClock(), DefaultConsumerIdsChangeListener(filters))
    connections = [FakeConnection(), FakeConnection()]
    for connection in connections:
        info = ClientChannelInfo(connection, "c", language=0, version=409, last_update_ms=0)
        manager.register_consumer(data_of("g", "t", "u"), info, notify=True)
    manager.on_connection_close(connections[0])
    assert filters.events == [("g", "t", "u")] * 2
    manager.unregister_consumer("g", connections[1], notify=False)
    assert filters.events[2:] == [("g",)]
