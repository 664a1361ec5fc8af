"""Which client hears of a message in a lite topic, and that none is forgotten."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.lite.lite_event_dispatcher import CHOICE, LATE_MS, SLICE, tell_free
from tests.broker.lite.lite_world import LiteWorld, lite_group, lmq


def test_one_client_of_each_group_hears_of_a_message() -> None:
    world = LiteWorld()
    first, second = world.client("a"), world.client("b")
    other = world.client("c", lite_group("H"))
    for client in (first, second, other):
        world.subscribe(client, "s1")
    world.arrive("s1", "s2")
    assert [len(client.events) for client in (first, second, other)] in ([1, 0, 1], [0, 1, 1])


def test_it_is_told_once_until_somebody_has_looked() -> None:
    world = LiteWorld()
    client = world.client("a")
    world.subscribe(client, "s1")
    world.arrive("s1", "s1", "s1")
    assert world.woken == ["a"]
    assert world.take_all(client) == ["s1"]
    world.arrive("s1")
    assert world.take_all(client) == ["s1"]


def test_who_waits_is_preferred_then_whoever_was_not_asked_last() -> None:
    world = LiteWorld()
    clients = [world.client(name) for name in "abc"]
    for client in clients:
        world.subscribe(client, "s1")
    world.waiting.add("c")
    world.arrive("s1")
    assert world.take_all(clients[2]) == ["s1"]
    world.waiting.clear()
    for name in "ab":
        world.arrive("s1")
        assert [len(client.events) for client in clients] == [name == "a", name == "b", False]
        world.take_all(clients["ab".index(name)])


def test_a_client_with_many_events_comes_after_others_but_loses_none() -> None:
    world = LiteWorld()
    lites = [f"s{number}" for number in range(10)]
    first, second = world.client("a"), world.client("b")
    world.subscribe(first, *lites)
    world.arrive(*lites)
    assert len(first.events) == 10
    world.take_all(first)
    world.subscribe(second, *lites)
    world.arrive(*lites)
    assert min(len(first.events), len(second.events)) >= 3
    assert sorted(world.take_all(first) + world.take_all(second)) == sorted(lites)


def test_a_subscription_hears_of_what_was_there_before() -> None:
    world = LiteWorld()
    world.arrive("s1")
    client = world.client("a")
    world.subscribe(client, "s1", "s2")
    assert world.take_all(client) == ["s1"]


def test_events_of_who_leaves_go_to_others() -> None:
    world = LiteWorld()
    first, second = world.client("a"), world.client("b")
    world.subscribe(first, "s1", "s2")
    world.subscribe(second, "s1", "s2")
    world.waiting.add("a")
    world.arrive("s1", "s2")
    assert len(first.events) == 2
    world.registry.remove(first, lmq("s1"))
    assert list(second.events) == [lmq("s1")]
    world.registry.drop(first)
    assert sorted(world.take_all(second)) == ["s1", "s2"]
    assert world.dispatcher.busy_count == 0


def test_events_that_are_not_fetched_go_to_others_and_stay_where_there_are_none() -> None:
    world = LiteWorld()
    first, second = world.client("a"), world.client("b")
    world.subscribe(first, "s1", "s2")
    world.waiting.add("a")
    world.arrive("s1", "s2")
    world.subscribe(second, "s2")
    world.now_ms += LATE_MS
    world.dispatcher.look()
    assert len(first.events) == 2
    world.now_ms += 1
    second.polled_ms = world.now_ms
    world.dispatcher.look()
    assert not world.dispatcher.step()
    assert (first.is_away, second.is_away) == (True, False)
    assert (list(first.events), list(second.events)) == ([lmq("s1")], [lmq("s2")])
    third = world.client("c")
    world.subscribe(third, "s1")
    assert list(third.events) == [lmq("s1")]


def test_clients_of_a_wildcard_group_get_every_lite_topic() -> None:
    world = LiteWorld()
    group = lite_group("W", is_wildcard=True)
    world.arrive("s1", "s2")
    first, second = world.client("a", group), world.client("b", group)
    world.dispatcher.dispatch_client(first)
    while world.dispatcher.step():
        pass
    world.arrive("s3")
    assert sorted(world.take_all(first) + world.take_all(second)) == ["s1", "s2", "s3"]
    assert first.group.held == {}


def test_everything_is_looked_at_in_slices() -> None:
    world = LiteWorld(most=10_000)
    client = world.client("a")
    lites = [f"s{number}" for number in range(3 * SLICE)]
    world.subscribe(client, *lites)
    world.messages = dict.fromkeys(map(lmq, lites), 1)
    world.dispatcher.dispatch_all()
    world.dispatcher.dispatch_all()
    steps = 1
    while world.dispatcher.step():
        steps += 1
        assert len(client.events) <= steps * SLICE
    assert (len(client.events), steps) == (3 * SLICE, 4)


def test_the_events_of_one_client_go_to_others_in_slices() -> None:
    world = LiteWorld()
    group = lite_group(is_wildcard=True)
    first = world.client("a", group)
    lites = [f"s{number}" for number in range(3 * SLICE)]
    world.arrive(*lites)
    second = world.client("b", group)
    world.now_ms += LATE_MS + 1
    second.polled_ms = world.now_ms
    world.dispatcher.look()
    first.is_away = False  # It polls, and is late again before all are moved.
    world.dispatcher.look()
    assert not first.is_away
    for moved in (0, SLICE, 2 * SLICE, 3 * SLICE):
        assert (len(first.events), len(second.events)) == (3 * SLICE - moved, moved)
        world.dispatcher.step()
    assert not world.dispatcher.step()
    world.registry.drop(second)
    for moved in (0, SLICE, 2 * SLICE, 3 * SLICE):
        assert (len(first.events), len(second.events)) == (moved, 3 * SLICE - moved)
        world.dispatcher.step()
    assert len(world.take_all(first)) == 3 * SLICE
    assert (first.group.held, world.dispatcher.busy_count) == ({}, 0)


def test_a_client_that_goes_and_comes_while_its_events_are_moved() -> None:
    world = LiteWorld()
    group = lite_group(is_wildcard=True)
    first = world.client("a", group)
    world.arrive("s1", "s2")
    world.client("b", group)
    world.messages.pop(lmq("s2"))
    world.registry.drop(first)
    world.arrive("s1")
    assert world.dispatcher.busy_count == 1
    again = world.client("a", group)
    world.arrive("s3", "s4")
    assert world.dispatcher.busy_count == 2
    while world.dispatcher.step():
        pass
    assert not first.events
    assert world.dispatcher.busy_count == 2
    assert sorted(again.group.held) == [lmq("s1"), lmq("s3"), lmq("s4")]


def test_what_becomes_free_together_is_told_in_slices() -> None:
    world = LiteWorld(most=10_000)
    client = world.client("a")
    lites = [f"s{number}" for number in range(SLICE + 1)]
    world.subscribe(client, *lites)
    world.messages = dict.fromkeys(map(lmq, lites), 1)
    free = iter([(lmq(lite), "G") for lite in lites])
    assert tell_free(world.dispatcher, lambda: next(free, None))
    assert len(client.events) == SLICE
    assert not tell_free(world.dispatcher, lambda: next(free, None))
    assert len(client.events) == SLICE + 1


def test_an_event_looks_at_few_of_many_subscribers() -> None:
    world = LiteWorld(most=10_000)
    asked: Counter[str] = Counter()
    parts = world.dispatcher._parts

    def is_waiting(client: object) -> bool:
        asked["waiting"] += 1
        return False

    world.dispatcher._parts = parts._replace(is_waiting=is_waiting)
    for number in range(1_000):
        world.subscribe(world.client(f"c{number}"), "s1")
    world.arrive("s1")
    assert asked["waiting"] <= CHOICE


_LITES = [f"s{number}" for number in range(4)]
_steps = st.lists(
    st.one_of(
        st.tuples(st.just("arrive"), st.sampled_from(_LITES)),
        st.tuples(
            st.sampled_from(["add", "remove"]), st.sampled_from("abc"), st.sampled_from(_LITES)
        ),
        st.tuples(st.sampled_from(["take", "drop", "wait", "dispatch"]), st.sampled_from("abc")),
        st.tuples(st.just("time"), st.sampled_from([1, LATE_MS, 3 * LATE_MS])),
        st.tuples(st.just("look")),
    ),
    max_size=40,
)


@settings(max_examples=150, deadline=None)
@given(steps=_steps, wildcard=st.booleans(), exclusive=st.booleans())
def test_whatever_happens_no_message_is_forgotten(
    steps: list[tuple[str, ...]], wildcard: bool, exclusive: bool
) -> None:
    """Whoever subscribes a light queue that has something has its event, or another does."""
    world = LiteWorld()
    group = lite_group("G", is_wildcard=wildcard, is_exclusive=exclusive)
    for step in steps:
        _take(world, group, *step)
        while world.dispatcher.step():
            pass
        for clients in world.registry.groups_of("P"):
            holders = {
                name: client for client in clients.clients.values() for name in client.events
            }
            assert holders == clients.held
            assert sum(len(client.events) for client in clients.clients.values()) == len(holders)
            for name in world.messages:
                if clients.has(name) and world.dispatcher._parts.wants("G", name):
                    assert name in clients.held


def _take(world: LiteWorld, group: object, what: str, *of: object) -> None:
    group = group if what == "add" or what == "take" else None
    if what == "arrive":
        world.arrive(str(of[0]))
    elif what == "time":
        world.now_ms += int(str(of[0]))
    elif what == "look":
        world.dispatcher.look()
    elif group is not None:
        client = world.client(str(of[0]), group)  # type: ignore[arg-type]
        if what == "take":
            if client.group.config.is_wildcard:
                world.dispatcher.dispatch_client(client)
            world.take_all(client)
        elif client.group.config.is_wildcard:
            world.dispatcher.dispatch_client(client)
        else:
            world.subscribe(client, str(of[1]))
    else:
        found = world.registry.find(str(of[0]), "G")
        if found is None:
            return
        if what == "remove":
            world.registry.remove(found, lmq(str(of[1])))
        elif what == "drop":
            world.registry.drop(found)
        elif what == "dispatch":
            world.dispatcher.dispatch_client(found)
        else:
            world.waiting ^= {found.client_id}


def test_a_flood_of_clients_lists_the_lite_topics_once() -> None:
    world = LiteWorld()
    group = lite_group(is_wildcard=True)
    world.arrive(*(f"s{number}" for number in range(10)))
    clients = [world.client(name, group) for name in "abc"]
    for client in clients:
        world.dispatcher.dispatch_client(client)
    assert world.listed == 1
    while world.dispatcher.step():
        pass
    assert sum(len(client.events) for client in clients) == 10
