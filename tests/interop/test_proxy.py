"""Clients of 5.x that speak gRPC: Java's proxy before our broker and name server.

What a client counts and says is the truth here; the broker is only asked what it stored. With
INTEROP_BROKER=java-5.5 INTEROP_NAMESRV=java-5.5 the same is carried out against Java's.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.driver import DriverError
from tests.interop.grpc_drivers import (
    LANGUAGES,
    GrpcDriver,
    Received,
    missing_tools,
    python_packages,
)
from tests.interop.java_peers import LINE_5
from tests.interop.processes import wait_until
from tests.interop.proxy_world import ProxyWorld

_LACKING = [why for language in LANGUAGES if (why := missing_tools(language))]
pytestmark = [
    pytest.mark.interop,
    pytest.mark.timeout(240),
    pytest.mark.skipif(bool(_LACKING), reason=f"tests of the proxy: {'; '.join(_LACKING)}"),
]


@pytest.fixture(scope="module")
def world(
    tmp_path_factory: pytest.TempPathFactory, broker_kind: str, namesrv_kind: str
) -> Iterator[ProxyWorld]:
    made = ProxyWorld(tmp_path_factory.mktemp("proxy"), broker_kind, namesrv_kind)
    try:
        yield made.start()
    finally:
        print(made.log_tails())
        made.end()


def test_the_topic_of_its_heartbeats(world: ProxyWorld) -> None:
    """A proxy creates it at its start; the group that consumes it is made by its heartbeat."""
    with world.broker.client() as client:
        topic = client.call(351, {"topic": "DefaultHeartBeatSyncerTopic"})
        assert b'"writeQueueNums":1' in topic.body
        group = "CID_DefaultHeartBeatSyncerTopic"
        assert b'"BROADCASTING"' in client.call(203, {"consumerGroup": group}).body


def test_normal_and_ordered_messages_are_stored(world: ProxyWorld) -> None:
    def send(driver: GrpcDriver) -> None:
        normal, fifo = world.topic("NORMAL"), world.topic("FIFO")
        for topic, kind in ((normal, {"tag": "a"}), (fifo, {"tag": "a", "group": "one"})):
            producer = driver.producer(topic)
            receipts = [
                driver.call("send", name=producer, topic=topic, body=str(number), **kind)
                for number in range(6)
            ]
            wait_until(lambda: len(world.stored(topic)) >= 6, "all are dispatched", poll_s=0.1)  # noqa: B023
            stored = world.stored(topic)
            ids = {one.property_map()["UNIQ_KEY"]: bytes(one.body).decode() for one in stored}
            assert ids == {each["message_id"]: str(n) for n, each in enumerate(receipts)}
            assert not any(each["recall_handle"] for each in receipts)
            if topic == fifo:
                assert [bytes(one.body).decode() for one in stored] == list("012345"), "one queue"
                assert {one.property_map()["__SHARDINGKEY"] for one in stored} == {"one"}

    world.each(send)


def test_transactions(world: ProxyWorld) -> None:
    """Ends that come oneway, and one left open: the broker asks (39) the producer that the proxy
    registered by an oneway heartbeat."""

    def run(driver: GrpcDriver) -> None:
        topic = world.topic("TRANSACTION", queues=1)
        producer = driver.producer(topic, resolution="COMMIT")
        for end in ("COMMIT", "ROLLBACK", "OPEN"):
            driver.call("transaction", name=producer, topic=topic, body=end, end=end)
        wait_until(lambda: driver.call("checked") != [], "the producer is asked", 40, 0.2)
        wait_until(lambda: len(world.stored(topic, 1)) == 2, "both are committed", poll_s=0.2)
        assert {bytes(one.body).decode() for one in world.stored(topic, 1)} == {"COMMIT", "OPEN"}
        assert set(driver.call("checked")) == {"OPEN"}

    world.each(run)


def test_a_simple_consumer(world: ProxyWorld) -> None:
    """Tags, a message that is given back soon (200053) and comes again, acks."""

    def run(driver: GrpcDriver) -> None:
        topic, group = world.topic("NORMAL"), world.group()
        consumer = driver.simple(topic, group, tag="a")
        wait_until(lambda: consumes(driver, consumer), "settings came", poll_s=0.2)
        producer = driver.producer(topic)
        for body, tag in (("1", "a"), ("2", "b"), ("3", "a")):
            driver.call("send", name=producer, topic=topic, body=body, tag=tag)
        first = receive(driver, consumer, 2)
        assert {(one.body, one.tag, one.attempt) for one in first} == {("1", "a", 1), ("3", "a", 1)}
        back, done = first
        driver.call("ack", name=consumer, key=done.key)
        driver.call("change", name=consumer, key=back.key, ms=1000)
        (again,) = receive(driver, consumer, 1)
        assert (again.message_id, again.attempt) == (back.message_id, 2)
        driver.call("ack", name=consumer, key=again.key)
        assert driver.receive(consumer) == []

    world.each(run)


def consumes(driver: GrpcDriver, consumer: str) -> bool:
    """Whether a SimpleConsumer gets an answer: a proxy refuses one whose settings have not come."""
    try:
        return driver.receive(consumer) == []
    except DriverError:
        return False


def receive(driver: GrpcDriver, consumer: str, count: int) -> list[Received]:
    """That many messages, each of which may need a ReceiveMessage of its own."""
    found: list[Received] = []

    def is_complete() -> bool:
        found.extend(driver.receive(consumer))
        return len(found) >= count

    wait_until(is_complete, f"{count} messages")
    return found


def test_a_push_consumer_fails_once(world: ProxyWorld) -> None:
    """Each message comes again after the first pause of its group's own retry policy."""
    policy = {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [2000]}}

    def run(driver: GrpcDriver) -> None:
        topic, group = world.topic("NORMAL"), world.group(groupRetryPolicy=policy)
        consumer = driver.push(topic, group, failures=1)
        producer = driver.producer(topic)
        for body in "1234":
            driver.call("send", name=producer, topic=topic, body=body)
        got = driver.pushed(consumer, 8)
        assert sorted((one.body, one.attempt) for one in got) == [
            (body, attempt) for body in "1234" for attempt in (1, 2)
        ]
        at_ms = {(one.body, one.attempt): one.at_ms for one in got}
        pauses = [at_ms[body, 2] - at_ms[body, 1] for body in "1234"]
        # The Node client 1.0.8 does not implement such policies: it asks for 0 ms.
        assert driver.language == "node" or min(pauses) >= 1900, pauses

    world.each(run)


def test_what_fails_always_is_a_dead_letter(world: ProxyWorld) -> None:
    """retryMaxTimes 1: after two attempts a proxy sends it back with delay level -1 (36)."""

    def run(driver: GrpcDriver) -> None:
        topic = world.topic("NORMAL")
        group = world.group(retryMaxTimes=1)
        consumer = driver.push(topic, group, failures=99)
        producer = driver.producer(topic)
        driver.call("send", name=producer, topic=topic, body="never")
        dead = f"%DLQ%{group}"
        wait_until(lambda: len(world.dead(dead)) == 1, f"a message in {dead}", poll_s=0.3)
        assert bytes(world.dead(dead)[0].body) == b"never"
        assert [one.attempt for one in driver.pushed(consumer, 2)] == [1, 2]

    world.each(run)


def test_an_ordered_group(world: ProxyWorld) -> None:
    """consumeMessageOrderly: the messages of one group of them come one after the other."""

    def run(driver: GrpcDriver) -> None:
        topic = world.topic("FIFO")
        group = world.group(consumeMessageOrderly=True)
        consumer = driver.push(topic, group)
        producer = driver.producer(topic)
        for number in range(12):
            kind = {"group": f"g{number % 2}"}
            driver.call("send", name=producer, topic=topic, body=str(number), **kind)
        got = driver.pushed(consumer, 12)
        for key in ("g0", "g1"):
            bodies = [int(one.body) for one in got if one.group == key]
            assert bodies == sorted(bodies)
        assert {one.attempt for one in got} == {1}
        assert len(got) == 12

    world.each(run)


def test_an_ordered_group_gets_batch_after_batch(world: ProxyWorld) -> None:
    """The proxy pops any queue (-1) and waits for up to 20 s: the last ack of a batch wakes it."""

    def run(driver: GrpcDriver) -> None:
        topic = world.topic("FIFO")
        group = world.group(consumeMessageOrderly=True)
        producer = driver.producer(topic)
        for number in range(100):
            driver.call("send", name=producer, topic=topic, body=str(number), group="one")
        since = time.monotonic()
        consumer = driver.push(topic, group)
        got = driver.pushed(consumer, 100)
        took_s = time.monotonic() - since
        assert [int(one.body) for one in got] == list(range(100))
        assert took_s < 18, f"{took_s:.1f} s for at least three batches"

    world.each(run)


def test_delay_and_recall(world: ProxyWorld) -> None:
    """A message comes at its time; one that is recalled (370) never."""

    def run(driver: GrpcDriver) -> None:
        topic, group = world.topic("DELAY"), world.group()
        consumer = driver.push(topic, group)
        producer = driver.producer(topic)
        begun_ms = time.time() * 1000
        send = {"name": producer, "topic": topic, "delay_ms": 3000}
        kept = driver.call("send", body="kept", **send)
        gone = driver.call("send", body="gone", **send)
        recalled = driver.call("recall", name=producer, topic=topic, handle=gone["recall_handle"])
        assert gone["message_id"] in recalled
        (got,) = driver.pushed(consumer, 1)
        assert (got.message_id, got.body, got.attempt) == (kept["message_id"], "kept", 1)
        # The Python client's moment is a whole second.
        assert got.at_ms - begun_ms >= 1900
        later = driver.call("send", body="later", name=producer, topic=topic, delay_ms=2000)
        assert later["recall_handle"]
        assert [one.body for one in driver.pushed(consumer, 2)] == ["kept", "later"]

    world.each(run)


@pytest.mark.skipif(LINE_5 == "5.3", reason="messages have priorities since 5.4")
def test_priorities(world: ProxyWorld) -> None:
    """The highest first, and a retried one after all others: what Java's broker gives the same
    client (tests/golden/priority-5.5.0)."""
    driver = world.drivers["java"]
    topic, group = world.topic("PRIORITY", queues=4), world.group()
    consumer = driver.simple(topic, group)
    wait_until(lambda: consumes(driver, consumer), "settings came", poll_s=0.2)
    producer = driver.producer(topic)

    def send(number: int, priority: int | None, **others: object) -> None:
        kind = {"priority": priority} if priority is not None else {}
        body = f"p{priority}-{number}"
        driver.call("send", name=producer, topic=topic, body=body, **kind, **others)

    for number, priority in enumerate((0, 3, 1, 2, 7, 0, 3)):
        send(number, priority)
    for words, others in (
        ("not match", {"priority": None}),
        ("greater than or equal to 0", {"priority": -1}),
        ("same time", {"priority": 1, "group": "g"}),
        ("same time", {"priority": 1, "delay_ms": 1000}),
    ):
        with pytest.raises(DriverError, match=words):
            send(9, **others)
    wait_until(lambda: len(world.stored(topic, 4)) == 7, "all are dispatched", poll_s=0.1)

    def some() -> list[Received]:
        found = driver.call("receive", name=consumer, max=3, invisible_ms=30_000)
        return [Received(**entry) for entry in found]

    got = [some() for _ in range(3)]
    assert [[one.body for one in each] for each in got] == [
        ["p3-1", "p7-4", "p3-6"],
        ["p2-3", "p1-2", "p0-0"],
        ["p0-5"],
    ]
    (back, *done), last = got[1], got[2]
    driver.call("change", name=consumer, key=back.key, ms=1000)
    for one in (*got[0], *done, *last):
        driver.call("ack", name=consumer, key=one.key)
    send(7, 1)
    wait_until(lambda: len(world.stored(f"%RETRY%{group}_{topic}", 1)) == 1, "it is there again")
    again = some()
    assert [(one.body, one.attempt) for one in again] == [("p1-7", 1), ("p2-3", 2)]
    (record,) = world.stored(f"%RETRY%{group}_{topic}", 1)
    assert record.property_map()["_SYS_MSG_PRIORITY_"] == "2"


@pytest.mark.skipif(LINE_5 == "5.3", reason="there are lite topics since 5.5")
def test_lite_topics(world: ProxyWorld) -> None:
    """Java's broker gives the retried message after a minute, as a first attempt. A client of a
    wildcard group is known to the broker once it repeats what it has, 30 s after its start."""
    driver = world.drivers["java"]
    topic = world.topic("LITE")
    group = world.group(attributes={"+lite.bind.topic": topic})
    alone = world.group(attributes={"+lite.bind.topic": topic, "+lite.sub.model": "Exclusive"})
    every = world.group(attributes={"+lite.bind.topic": topic, "+lite.sub.wildcard": "true"})
    driver.call("lite", name="lite-every", topic=topic, group=every)
    producer = driver.producer(topic)

    def send(lite: str, body: str) -> None:
        driver.call("send", name=producer, topic=topic, body=body, lite=lite)

    def subscribe(name: str, lite: str, **others: object) -> None:
        driver.call("subscribe_lite", name=name, lite=lite, **others)

    def got(name: str) -> list[tuple[str, str, int]]:
        entries = driver.call("pushed", name=name)
        return sorted((one["lite"], one["body"], one["attempt"]) for one in entries)

    driver.call("lite", name="lite-1", topic=topic, group=group)
    subscribe("lite-1", "s1")
    subscribe("lite-1", "s2", first=True)
    with pytest.raises(DriverError, match="alphanumeric"):
        subscribe("lite-1", "a$b")
    with pytest.raises(DriverError, match="alphanumeric"):
        send("x y", "x")
    with pytest.raises(DriverError, match="not match"):
        driver.call("send", name=producer, topic=topic, body="of no lite topic")
    send("s1", "fail")
    send("s2", "b")
    send("s3", "c")
    wait_until(lambda: ("s1", "fail", 2) in got("lite-1"), "it came again", 30.0, poll_s=0.2)
    subscribe("lite-1", "s3", first=True)
    send("s1", "d")
    wanted = [("s1", "d", 1), ("s1", "fail", 1), ("s1", "fail", 2), ("s2", "b", 1), ("s3", "c", 1)]
    wait_until(lambda: got("lite-1") == wanted, "all came", 30.0, poll_s=0.2)
    first, second = (
        next(one["at_ms"] for one in driver.call("pushed", name="lite-1") if one["attempt"] == n)
        for n in (1, 2)
    )
    assert second - first < 30_000

    for name in ("lite-2", "lite-3"):
        driver.call("lite", name=name, topic=topic, group=alone)
        subscribe(name, "s1", first=True)
    wait_until(lambda: driver.call("lite_topics", name="lite-2") == [], "it was told", 30.0)
    assert driver.call("lite_topics", name="lite-3") == ["s1"]

    def bodies(name: str) -> set[tuple[str, str]]:
        return {(lite, body) for lite, body, _attempt in got(name)}

    # What was handed out with the message that failed may come again with it.
    is_known = bodies("lite-1").issubset
    wait_until(lambda: is_known(bodies("lite-every")), "every lite topic came", 60.0, poll_s=0.2)
    wait_until(lambda: ("s1", "fail", 2) in got("lite-every"), "it came again", 30.0, poll_s=0.2)
    send("s4", "e")
    wait_until(lambda: ("s4", "e", 1) in got("lite-every"), "a new one came", 30.0, poll_s=0.2)
    assert got("lite-1") == wanted

    for name in ("lite-1", "lite-2", "lite-3", "lite-every"):
        driver.call("stop", name=name)
    with world.broker.client() as client:
        found = client.call(200074, {})
        assert json.loads(found.body)["liteSubscriptionCount"] == 0


def test_the_examples_in_python(world: ProxyWorld, tmp_path: Path) -> None:
    """examples/python, as its README says: the consumer first, each message printed once."""
    topic, texts = world.topic("NORMAL"), ["a first message", "and a second"]
    output = tmp_path / "consumer.txt"

    def start(program: str, *arguments: str, stdout: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-P", program, world.proxy.endpoints, topic, *arguments],
            cwd=Path(__file__).parents[2] / "examples" / "python",
            env={**os.environ, "PYTHONPATH": str(python_packages()), "HOME": str(tmp_path)},
            stdout=stdout,
        )

    with output.open("wb") as file:
        consumer = start("consumer.py", str(len(texts)), stdout=file.fileno())
    try:
        wait_until(lambda: "waiting" in output.read_text(), "the consumer's start")
        sent, _ = start("producer.py", *texts, stdout=subprocess.PIPE).communicate(timeout=60)
        assert len(sent.splitlines()) == len(texts)
        assert consumer.wait(60) == 0
    finally:
        consumer.kill()
    assert sorted(output.read_text().splitlines()[1:]) == sorted(texts)
