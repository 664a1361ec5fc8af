"""AppendLine: who waits for the next file, who is refused, and that nobody overtakes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from broker.append_line import AppendLine
from remoting.response_code import ResponseCode
from store.commit_log import Record, TopicLog
from store.control_page import RUNNING_FLAGS
from store.errors import StoreError
from tests.broker.hot_path_world import HotPathWorld


def record(body: bytes) -> Record:
    return Record(
        queue_id=0,
        flag=0,
        sys_flag=0,
        born_timestamp=1,
        born_host=bytes(8),
        reconsume_times=0,
        prepared_transaction_offset=0,
        body=body,
        properties=b"",
    )


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


def fake(world: HotPathWorld, body: bytes = b"x", topic: str = "T") -> Fake:
    made = Fake(world.log.topic(topic), [record(body)])
    world.line.append(made)
    return made


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
    assert (large.heard, small.heard, len(world.line.held)) == ([], [], 2)
    world.line.retry()
    assert (large.heard, small.heard) == ([], [])
    world.allocate(1)
    world.line.retry()
    assert large.heard == [[(4096, 1)]]
    assert small.heard == [[(4096 + 3000 + 91 + 1, 2)]]
    assert not world.line.held


def test_whoever_waited_too_long_is_refused(world: HotPathWorld) -> None:
    fake(world, bytes(3000))
    first = fake(world, bytes(3000))
    world.log.now_ms += 3_000
    second = fake(world, bytes(3000))
    world.log.now_ms += 2_001
    world.line.retry()
    remark = "the next commit log file could not be created in time; see store.log"
    assert first.heard == [(ResponseCode.SYSTEM_ERROR, remark)]
    assert second.heard == []
    world.allocate(1)
    world.line.retry()
    assert second.heard == [[(4096, 1)]]


def test_a_store_that_takes_nothing(world: HotPathWorld) -> None:
    world.counters[RUNNING_FLAGS] = 16
    refused = fake(world)
    assert refused.heard == [(ResponseCode.SERVICE_NOT_AVAILABLE, "the disk is full")]
    assert world.log.position == 0


def test_what_can_never_be_stored(world: HotPathWorld) -> None:
    refused = fake(world, bytes(5000))
    words = "batch of 5092 bytes does not fit a file of 4096"
    assert refused.heard == [(ResponseCode.MESSAGE_ILLEGAL, words)]
    assert fake(world).heard == [[(0, 0)]]


def test_a_store_error_is_told_and_logged(
    world: HotPathWorld, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise StoreError("cannot map it")

    monkeypatch.setattr(world.log, "put_batch", fail)
    assert fake(world).heard == [(ResponseCode.SYSTEM_ERROR, "cannot map it")]
    assert caplog.messages == ["topic T: nothing could be stored: cannot map it"]


def test_a_topic_that_is_deleted_takes_nothing_that_waits(world: HotPathWorld) -> None:
    fake(world, bytes(3000))
    other = fake(world, bytes(3000), "Other")
    gone = fake(world)
    world.line.refuse_topic("T", ResponseCode.TOPIC_NOT_EXIST, "is being deleted")
    assert gone.heard == [(ResponseCode.TOPIC_NOT_EXIST, "is being deleted")]
    world.allocate(1)
    world.line.retry()
    assert other.heard == [[(4096, 0)]]


def test_a_line_of_its_own_reason(world: HotPathWorld) -> None:
    world.counters[RUNNING_FLAGS] = 1
    line = AppendLine(world.log, lambda: "because")
    made = Fake(world.log.topic("T"), [record(b"x")])
    line.append(made)
    assert made.heard == [(ResponseCode.SERVICE_NOT_AVAILABLE, "because")]
