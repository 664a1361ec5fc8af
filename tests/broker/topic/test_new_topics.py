"""broker.topic.new_topics: who waits until the name servers know a new topic, and for how long."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection

import pytest

from broker.topic.new_topics import NewTopics
from broker.topic.topic_config_manager import TopicChange
from remoting.body.topic_config import TopicConfig
from remoting.errors import RequestError
from tests.support.deadline import wait_until


class World:
    """Rounds run when told; what is handed to the loop runs at once."""

    def __init__(self, capacity: int = 10) -> None:
        self.submitted: list[Callable[[], None]] = []
        self.asked: list[set[str]] = []
        self.during: Callable[[], None] = lambda: None
        self.went_on: list[str] = []
        self.new = NewTopics(
            self.register,
            lambda function: function(),
            capacity=capacity,
            start=self.submitted.append,
        )

    def register(self, topics: Collection[str]) -> None:
        self.asked.append(set(topics))
        self.during()

    def create(self, *topics: str) -> None:
        for topic in topics:
            self.new.on_topic_change(TopicChange.NEW, TopicConfig(topic_name=topic))

    def hold(self, name: str, *topics: str) -> bool:
        return self.new.hold(topics, lambda: self.went_on.append(name))

    def round(self) -> None:
        self.submitted.pop(0)()


def test_known_topics_hold_nobody() -> None:
    world = World()
    assert not world.new.busy
    assert not world.hold("known", "a")
    world.new.on_topic_change(TopicChange.ONE, TopicConfig(topic_name="a"))
    world.new.on_topic_change(TopicChange.NONE, None)
    assert not world.hold("known", "a")
    world.new.wait(("a",))
    assert world.submitted == []


def test_everybody_who_needs_a_topic_shares_its_registration() -> None:
    world = World()
    world.create("a")
    assert [world.hold(name, "a") for name in ("first", "second")] == [True, True]
    assert not world.hold("other", "b")
    world.round()
    assert (world.asked, world.went_on) == ([{"a"}], ["first", "second"])
    assert not world.hold("later", "a")
    assert (world.submitted, world.new.busy) == ([], False)


def test_topics_that_come_during_a_round_share_the_next_one() -> None:
    world = World()
    world.create("a")
    world.hold("for a", "a")
    went_on: list[list[str]] = []

    def during_the_first() -> None:
        world.during = during_the_second
        world.create("b", "c")
        world.hold("for a and b", "a", "b")

    def during_the_second() -> None:
        went_on.append(world.went_on.copy())
        world.hold("for c", "c")
        world.during = lambda: None
        world.create("b")
        world.hold("for b again", "b")

    world.during = during_the_first
    for _ in range(3):
        assert world.new.busy
        world.round()
    assert world.asked == [{"a"}, {"b", "c"}, {"b"}]
    assert went_on == [["for a"]]
    assert world.went_on == ["for a", "for c", "for a and b", "for b again"]
    assert (world.submitted, world.new.busy) == ([], False)


def test_what_comes_before_the_loop_goes_on_waits_too() -> None:
    """Else it would overtake what came earlier."""
    world = World()
    on_loop: list[Callable[[], None]] = []
    world.new._on_loop = on_loop.append
    world.create("a")
    assert world.hold("first", "a")
    world.round()
    assert world.hold("second", "a")
    world.create("b")
    assert (world.went_on, world.submitted) == ([], [])
    on_loop.pop()()
    assert world.went_on == ["first", "second"]
    world.round()
    assert world.asked == [{"a"}, {"b"}]


def test_a_registration_that_fails_is_over_too(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.create("a")
    world.hold("first", "a")

    def fail() -> None:
        raise RuntimeError("boom")

    world.during = fail
    world.round()
    assert world.went_on == ["first"]
    assert not world.new.busy
    assert "topics ['a']: registration failed" in caplog.text
    assert "boom" in caplog.text


def test_a_round_has_a_thread_of_its_own() -> None:
    threads: list[str] = []
    new = NewTopics(
        lambda _topics: threads.append(threading.current_thread().name),
        lambda function: function(),
        capacity=1,
    )
    new.on_topic_change(TopicChange.NEW, TopicConfig(topic_name="a"))
    new.wait("a")
    wait_until(lambda: not new.busy)
    assert threads == ["NewTopics"]


def test_so_many_may_wait() -> None:
    world = World(capacity=2)
    world.create("a")
    assert world.hold("first", "a")
    assert world.hold("second", "a")
    with pytest.raises(RequestError) as caught:
        world.hold("third", "a")
    assert (int(caught.value.code), caught.value.remark) == (
        2,
        "[OVERLOAD]system busy, start flow control for a while",
    )
    assert not world.hold("of another topic", "b")
    world.round()
    world.create("b")
    assert world.hold("fourth", "b")


def test_a_pool_thread_waits() -> None:
    world = World()
    world.create("a")
    done: list[str] = []

    def wait() -> None:
        world.new.wait(("a",))
        done.append("done")

    thread = threading.Thread(target=wait)
    thread.start()
    wait_until(lambda: world.new._held)
    assert done == []
    world.round()
    thread.join(10)
    assert done == ["done"]
