"""Who subscribes what: limits, exclusive groups, clients that leave."""

from __future__ import annotations

import pytest

from broker.lite.lite_subscription_registry import MOST_CLIENT_ID
from remoting.errors import RequestError
from remoting.response_code import ResponseCode
from tests.broker.lite.lite_world import PARENT, LiteWorld, lite_group, lmq


def test_subscriptions_and_clients_are_counted_together() -> None:
    world = LiteWorld(most=5)
    client = world.client("a")
    world.subscribe(client, "s1", "s2", "s1")
    other = world.client("b")
    world.subscribe(other, "s1")
    assert (world.registry.subscription_count, world.registry.client_count) == (3, 2)
    for more in (lambda: world.subscribe(other, "s2"), lambda: world.client("c")):
        with pytest.raises(RequestError, match="lite subscription quota exceeded 5") as error:
            more()
        assert error.value.code == ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED
    assert (world.registry.subscription_count, world.registry.client_count) == (3, 2)
    world.registry.remove(client, lmq("s1"))
    world.subscribe(other, "s2")


def test_ten_million_subscriptions_of_one_client_take_what_a_hundred_take() -> None:
    world = LiteWorld(most=100)
    client = world.client("a")
    refused = 0
    for number in range(10_000):
        try:
            world.subscribe(client, f"s{number}")
        except RequestError:
            refused += 1
    assert refused == 10_000 - 99
    assert len(client.lmqs) == len(client.group._subscribers) == 99
    world.registry.drop(client)
    assert (world.registry.is_empty, world.registry.subscription_count) == (True, 0)
    assert world.registry.groups_of(PARENT) == []


def test_a_client_is_of_one_group_and_one_parent() -> None:
    world = LiteWorld()
    world.client("a")
    with pytest.raises(RequestError, match="use another client id"):
        world.client("a", lite_group("G", topic="Q"))
    with pytest.raises(RequestError, match="limit 255"):
        world.client("x" * (MOST_CLIENT_ID + 1))
    assert world.registry.find("a", "H") is None
    assert world.registry.find("a", "G") is not None


def test_whoever_forges_an_id_in_another_group_is_another_client() -> None:
    world = LiteWorld()
    client = world.client("a")
    world.subscribe(client, "s1")
    thief = world.client("a", lite_group("H"))
    world.subscribe(thief, "s1")
    world.arrive("s1")
    assert (world.take_all(thief), world.take_all(client)) == (["s1"], ["s1"])
    world.arrive("s1")
    world.registry.drop(thief)
    world.dispatcher.step()
    assert world.registry.find("a", "H") is None
    assert world.registry.find("a", "G") is client
    assert (list(client.lmqs), world.take_all(client)) == ([lmq("s1")], ["s1"])


def test_what_is_under_way_when_a_broker_ceases_to_lead_counts_nothing() -> None:
    world = LiteWorld()
    group = lite_group(is_exclusive=True)
    client = world.client("a", group)
    world.subscribe(client, "s1", "s2", "s3")
    world.subscribe(world.client("b", group), "s3")
    leaving = world.registry.dropping(client)
    next(leaving)
    world.registry.clear()
    for _ in leaving:
        pass
    world.registry.knows(client, lmq("s3"))
    assert not world.registry.remove(client, lmq("s2"))
    assert world.registry.subscription_count == 0
    for number in range(99):
        world.subscribe(world.client("c"), f"s{number}")
    with pytest.raises(RequestError, match="quota"):
        world.subscribe(world.client("c"), "s99")


def test_in_an_exclusive_group_the_newer_client_has_the_lite_topic() -> None:
    world = LiteWorld()
    group = lite_group(is_exclusive=True)
    first, second = world.client("a", group), world.client("b", group)
    world.subscribe(first, "s1", "s2")
    world.arrive("s1")
    world.subscribe(second, "s1")
    assert world.evicted == [("a", lmq("s1"))]
    assert (list(first.lmqs), list(second.lmqs)) == ([lmq("s2")], [lmq("s1")])
    assert world.take_all(second) == ["s1"]
    assert world.take_all(first) == []
    assert world.registry.is_lost(first, lmq("s1"))
    world.registry.remove(second, lmq("s1"))
    assert not world.registry.is_lost(first, lmq("s1"))
    world.subscribe(first, "s1")
    world.subscribe(second, "s1")
    world.subscribe(first, "s1")
    assert list(first.lmqs) == [lmq("s2"), lmq("s1")]


def test_clients_that_are_not_seen_are_found() -> None:
    world = LiteWorld()
    world.client("a")
    world.now_ms += 100
    world.client("b")
    assert [client.client_id for client in world.registry.expired(world.now_ms)] == ["a"]


def test_a_lite_topic_that_ended_is_subscribed_by_nobody() -> None:
    world = LiteWorld()
    clients = [world.client(name) for name in "ab"]
    for client in clients:
        world.subscribe(client, "s1", "s2")
    world.registry.remove_lmq(PARENT, lmq("s1"))
    assert [list(client.lmqs) for client in clients] == [[lmq("s2")]] * 2
    assert not clients[0].group.has(lmq("s1"))


def test_a_group_whose_attributes_change_is_another_one_for_its_clients() -> None:
    world = LiteWorld()
    client = world.client("a")
    world.subscribe(client, "s1")
    world.client("a", lite_group(is_exclusive=True))
    assert client.group.config.is_exclusive
    assert list(client.lmqs) == [lmq("s1")]
    world.client("a", lite_group(is_wildcard=True))
    assert list(client.lmqs) == []
    assert client.group.has(lmq("any"))


def test_what_was_taken_from_a_client_takes_its_room_until_it_knows() -> None:
    world = LiteWorld(most=6)
    group = lite_group(is_exclusive=True)
    loser, taker = world.client("a", group), world.client("b", group)
    for name in ("s1", "s2"):
        for client in (loser, taker):
            world.subscribe(client, name)
        world.registry.remove(taker, lmq(name))
    world.subscribe(loser, "s3", "s4")
    with pytest.raises(RequestError, match="quota exceeded 6"):
        world.subscribe(loser, "s5")
    world.registry.knows(loser, lmq("s1"))
    world.registry.knows(loser, lmq("s1"))
    world.subscribe(loser, "s5")
    with pytest.raises(RequestError):
        world.subscribe(taker, "s6")
    world.subscribe(loser, "s2")
    world.registry.drop(loser)
    world.subscribe(taker, "s1", "s2", "s3")
    world.subscribe(world.client("c", group), "s1")
    with pytest.raises(RequestError):
        world.subscribe(taker, "s4")
    world.registry.clear()
    for number in range(6):
        world.client(str(number), group)
