"""AppendQueue: who waits for the next file, who is refused, and that nobody overtakes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from broker.append.append_queue import REJECTED, AppendQueue, AppendQueueParts
from broker.latency.broker_fast_failure import BrokerFastFailure
from broker.settings.broker_config import BrokerConfig
from ipc.control_page import BEAT, ProcessIndex
from remoting.request_dispatcher import OVERLOAD
from remoting.response_code import ResponseCode
from store.commit_log import TopicLog
from store.control_slots import RUNNING_FLAGS, STORE_STATE, StoreState
from store.errors import StoreError
from store.message_store_config import MessageStoreConfig
from store.record import Record
from tests.broker.hot_path_world import HotPathWorld, properties_of, record, send_request


@dataclass
class Fake:
    """An Append that remembers what it heard."""

    topic: TopicLog
    records: Sequence[Record]
    heard: list[object] = field(default_factory=list)

    def placed(self, places: list[tuple[int, int]]) -> None:
        self.heard.append(places)

    def refused(self, code: ResponseCode, remark: str) -> None:
        self.heard.append((code, remark))


@pytest.fixture
def world(tmp_path: Path) -> HotPathWorld:
    return HotPathWorld(tmp_path, file_size=4096, files=1)


def fake(
    world: HotPathWorld, body: bytes = b"x", topic: str = "T", *, fails_fast: bool = False
) -> Fake:
    made = Fake(world.log.topic(topic), [record(body)])
    world.append_queue.append(made, fails_fast=fails_fast)
    return made


def store_works(world: HotPathWorld, time_ms: int) -> None:
    """So much time passes while `store` beats, turn after turn."""
    world.counters[STORE_STATE] = StoreState.READY
    for _ in range(time_ms // 50):
        world.clock.advance(50)
        world.counters[BEAT + ProcessIndex.STORE] += 1
        world.append_queue.look()
        world.append_queue.retry()


def cleaned(why: str, waited_ms: int, left: int) -> tuple[ResponseCode, str]:
    return (
        ResponseCode.SYSTEM_BUSY,
        f"[{why}_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: "
        f"{waited_ms}ms, size of queue: {left}",
    )


def test_an_append_gets_its_place_at_once(world: HotPathWorld) -> None:
    first, second = fake(world), fake(world)
    size = world.log.position // 2
    assert (first.heard, second.heard) == ([[(0, 0)]], [[(size, 1)]])
    world.log.commit()
    assert [m.body for m in world.records()] == [b"x", b"x"]


def test_nobody_overtakes_those_that_wait_for_the_file(world: HotPathWorld) -> None:
    fake(world, bytes(3000))
    large = fake(world, bytes(3000))
    small = fake(world)
    assert (large.heard, small.heard, len(world.append_queue.held)) == ([], [], 2)
    assert world.append_queue.look(), "again soon, whatever happens"
    world.append_queue.retry()
    assert (large.heard, small.heard) == ([], [])
    world.allocate(1)
    world.append_queue.retry()
    assert large.heard == [[(4096, 1)]]
    assert small.heard == [[(4096 + 3000 + 91 + 1, 2)]]
    assert not world.append_queue.held
    assert not world.append_queue.look()


def test_whoever_waited_too_long_is_refused(world: HotPathWorld) -> None:
    fake(world, bytes(3000))
    first = fake(world, bytes(3000))
    world.clock.advance(3_000)
    second = fake(world, bytes(3000))
    world.clock.advance(2_001)
    world.append_queue.retry()
    remark = "the next commit log file could not be created in time; see store.log"
    assert first.heard == [(ResponseCode.SYSTEM_ERROR, remark)]
    assert second.heard == []
    world.allocate(1)
    world.append_queue.retry()
    assert second.heard == [[(4096, 1)]]


def test_a_store_that_takes_nothing(world: HotPathWorld) -> None:
    world.counters[RUNNING_FLAGS] = 16
    refused = fake(world)
    assert refused.heard == [(ResponseCode.SERVICE_NOT_AVAILABLE, "the disk is full")]
    assert world.log.position == 0


def test_what_can_never_be_stored(world: HotPathWorld) -> None:
    refused = fake(world, bytes(5000))
    words = "record of 5092 bytes does not fit a file of 4096"
    assert refused.heard == [(ResponseCode.MESSAGE_ILLEGAL, words)]
    assert fake(world).heard == [[(0, 0)]]


@pytest.mark.interpreted
def test_a_store_error_is_told_and_logged(
    world: HotPathWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise StoreError("cannot map it")

    monkeypatch.setattr(world.log, "append", fail)
    assert fake(world).heard == [(ResponseCode.SYSTEM_ERROR, "cannot map it")]
    assert caplog.messages == ["topic T: append failed: cannot map it"]


def test_a_topic_that_is_deleted_takes_nothing_that_waits(world: HotPathWorld) -> None:
    fake(world, bytes(3000))
    other = fake(world, bytes(3000), "Other")
    gone = fake(world)
    world.append_queue.block_topic("T", ResponseCode.TOPIC_NOT_EXIST, "is being deleted")
    assert gone.heard == [(ResponseCode.TOPIC_NOT_EXIST, "is being deleted")]
    late = fake(world)
    assert late.heard == gone.heard, "nor what comes later"
    world.allocate(1)
    world.append_queue.retry()
    assert other.heard == [[(4096, 0)]]
    world.append_queue.unblock_topic("T")
    assert len(fake(world).heard[0]) == 1


def test_a_light_queue_that_is_deleted_takes_nothing(tmp_path: Path) -> None:
    """Records of other topics name it."""
    world = HotPathWorld(tmp_path, light_queues=9)
    world.topic()
    client = world.client()

    def send(names: str) -> int:
        text = f"INNER_MULTI_DISPATCH\x01{names}"
        return client.call(send_request(properties=text)).code

    assert [send("%LMQ%a"), send("%LMQ%b,%LMQ%a")] == [0, 0]
    world.send_processor.block_topic("%LMQ%a")
    assert [send("%LMQ%b,%LMQ%a"), send("%LMQ%b")] == [17, 0]
    world.send_processor.unblock_topic("%LMQ%a", deleted=True)
    assert send("%LMQ%b,%LMQ%a") == 0
    offsets = properties_of(world.records()[-1].properties)["INNER_MULTI_QUEUE_OFFSET"]
    assert offsets == "2,0"


def test_a_line_of_its_own_reason(world: HotPathWorld) -> None:
    world.counters[RUNNING_FLAGS] = 1
    fast_failure = BrokerFastFailure(BrokerConfig(), MessageStoreConfig(), world.page, world.clock)
    line = AppendQueue(
        AppendQueueParts(
            commit_log=world.log,
            clock=world.clock,
            fast_failure=fast_failure,
            why_not_writable=lambda: "because",
            capacity=1,
        )
    )
    made = Fake(world.log.topic("T"), [record(b"x")])
    line.append(made)
    assert made.heard == [(ResponseCode.SERVICE_NOT_AVAILABLE, "because")]


# -- refusing early ------------------------------------------------------------------------------


@pytest.fixture
def slow_disk(world: HotPathWorld, caplog: pytest.LogCaptureFixture) -> HotPathWorld:
    """Process `store` works, the first file is full, the next one is not there."""
    caplog.set_level("INFO", "broker.append.append_queue")
    store_works(world, 6_000)
    fake(world, bytes(3000))
    return world


LATE = bytes(3000)
"""The body of a record that needs the next file."""


def test_a_slow_disk_refuses_sends_early_and_lets_the_others_wait(
    slow_disk: HotPathWorld, caplog: pytest.LogCaptureFixture
) -> None:
    world = slow_disk
    first = fake(world, LATE, fails_fast=True)
    patient = fake(world, LATE)
    second = fake(world, LATE, fails_fast=True)
    store_works(world, 100)
    third = fake(world, LATE, fails_fast=True)
    assert (world.append_queue.head_wait_ms(), world.append_queue.blocked_ms()) == (100, 100)
    store_works(world, 100)
    assert first.heard == [cleaned("TIMEOUT", 200, 3)]
    assert second.heard == [cleaned("TIMEOUT", 200, 2)]
    assert (patient.heard, third.heard) == ([], [])
    store_works(world, 100)
    assert third.heard == [cleaned("TIMEOUT", 200, 1)]
    assert patient.heard == []
    world.allocate(1)
    world.append_queue.retry()
    assert patient.heard == [[(4096, 1)]]
    assert (world.append_queue.head_wait_ms(), world.append_queue.blocked_ms()) == (0, 0)
    assert caplog.messages == [
        "the next commit log file is late, rejecting sends: " + cleaned("TIMEOUT", 200, 3)[1],
        "accepting appends again; 3 were rejected early",
    ]


def test_a_log_that_stands_still_takes_no_sends(slow_disk: HotPathWorld) -> None:
    world = slow_disk
    patient = fake(world, LATE)
    store_works(world, 900)
    waiting = [fake(world, LATE, fails_fast=True) for _ in range(2)]
    store_works(world, 100)
    assert [w.heard for w in waiting] == [[], []]
    store_works(world, 50)
    assert [w.heard for w in waiting] == [[cleaned("PCBUSY", 150, 2)], [cleaned("PCBUSY", 150, 1)]]
    rejected = fake(world, LATE, fails_fast=True)
    assert rejected.heard == [(ResponseCode.SYSTEM_BUSY, REJECTED)]
    assert patient.heard == []
    world.allocate(1)
    world.append_queue.retry()
    assert patient.heard == [[(4096, 1)]]
    assert fake(world, fails_fast=True).heard == [[(4096 + 3000 + 91 + 1, 2)]]


def test_it_is_asked_anew_when_nobody_waits(
    slow_disk: HotPathWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """Everybody was refused, then the file came, then the next send."""
    world = slow_disk
    fake(world, LATE, fails_fast=True)
    store_works(world, 1_100)
    assert not world.append_queue.held
    assert fake(world, LATE, fails_fast=True).heard == [(ResponseCode.SYSTEM_BUSY, REJECTED)]
    assert world.append_queue.blocked_ms() == 1_100
    world.allocate(1)
    assert world.append_queue.blocked_ms() == 0
    store_works(world, 50)
    assert caplog.messages[1:] == ["accepting appends again; 2 were rejected early"]
    assert fake(world, LATE, fails_fast=True).heard == [[(4096, 1)]]


def test_nothing_is_refused_early_while_the_store_is_away(slow_disk: HotPathWorld) -> None:
    world = slow_disk
    send = fake(world, LATE, fails_fast=True)
    for _ in range(100):
        world.clock.advance(50)
        world.append_queue.retry()
    assert send.heard == []
    world.clock.advance(1)
    world.append_queue.retry()
    remark = "the next commit log file could not be created in time; see store.log"
    assert send.heard == [(ResponseCode.SYSTEM_ERROR, remark)]


def test_too_many_that_wait(slow_disk: HotPathWorld) -> None:
    world = slow_disk
    waiting = [fake(world, LATE, fails_fast=True) for _ in range(100)]
    over = fake(world, fails_fast=True)
    assert over.heard == [(ResponseCode.SYSTEM_BUSY, OVERLOAD)]
    patient = fake(world, LATE)
    assert len(world.append_queue.held) == 101
    assert {len(w.heard) for w in [*waiting, patient]} == {0}
