"""broker.slave.delayed_escape_service: what an acting slave delivers, and its progress."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.out.escape_bridge import EscapedMessage, EscapeError
from broker.schedule.schedule_offset_manager import ScheduleOffsetManager
from broker.slave.delayed_escape_service import RETRY_MS, DelayedEscapeService
from store.errors import QueueDamagedError
from store.message_codec import encode_record
from tests.broker.broker_fakes import FakeClock
from tests.support.memory_commit_log import message

LEVEL_MS = {1: 1_000, 3: 10_000}


class World:
    """The schedule topic's queues of one slave; `delivered` is what other brokers took."""

    def __init__(self, root: Path) -> None:
        self.clock = FakeClock()
        self.is_acting = True
        self.error: Exception | None = None
        self.queues: dict[int, list[tuple[int, int, int] | None]] = {0: [], 2: []}
        self.records: list[bytes | None] = []
        self.lows = {0: 0, 2: 0}
        self.delivered: list[tuple[str, bytes]] = []
        self.progress = ScheduleOffsetManager(root / "delayOffset.json")
        self.service = DelayedEscapeService(
            lambda: self.is_acting, LEVEL_MS, self, self.progress, self, self.clock
        )

    def add(self, level: int, body: bytes, in_ms: int, topic: str | None = "T") -> None:
        home = "" if topic is None else f"REAL_TOPIC\x01{topic}\x02REAL_QID\x010\x02"
        record = encode_record(
            message("SCHEDULE_TOPIC_XXXX", level - 1, body=body, properties=home.encode())
        )
        self.queues[level - 1].append((len(self.records), len(record), self.clock.now + in_ms))
        self.records.append(record)

    def offsets(self, topic: str, queue_id: int) -> tuple[int, int]:
        assert topic == "SCHEDULE_TOPIC_XXXX"
        return self.lows[queue_id], len(self.queues[queue_id])

    def unit_at(self, topic: str, queue_id: int, queue_offset: int) -> tuple[int, int, int] | None:
        if isinstance(self.error, QueueDamagedError):
            raise self.error
        return self.queues[queue_id][queue_offset]

    def record_at(self, phy_offset: int) -> bytes | None:
        return self.records[phy_offset]

    def put(self, message: EscapedMessage) -> None:
        if self.error is not None:
            raise self.error
        self.delivered.append((message.topic, message.body))

    def turn(self) -> None:
        self.service.wakeup()
        self.service.step()

    def offset(self, level: int) -> int | None:
        return self.progress.find_offset(level)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_what_is_due_is_delivered_in_order(world: World) -> None:
    world.add(1, b"due", 0)
    world.add(1, b"late", -5)
    world.add(1, b"soon", 500)
    world.add(3, b"of an hour", 3_600_000)  # Further ahead than the level allows.
    world.turn()
    assert world.delivered == [("T", b"due"), ("T", b"late"), ("T", b"of an hour")]
    assert (world.offset(1), world.offset(3)) == (2, 1)
    world.clock.now += 500
    world.turn()
    assert world.delivered[3:] == [("T", b"soon")]


def test_only_while_it_acts(world: World) -> None:
    world.add(1, b"due", 0)
    world.is_acting = False
    world.turn()
    assert (world.delivered, world.offset(1)) == ([], None)


def test_it_goes_on_where_the_master_was(world: World) -> None:
    for number in range(5):
        world.add(1, b"%d" % number, 0)
    world.progress.update_offset(1, 2)
    world.lows[0] = 3  # What lay before has expired.
    world.turn()
    assert world.delivered == [("T", b"3"), ("T", b"4")]
    assert world.offset(1) == 5


@pytest.mark.parametrize("error", [EscapeError("no other"), QueueDamagedError("rebuilt")])
def test_a_message_waits_for_a_broker_that_takes_it(
    world: World, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    world.add(1, b"due", 0)
    world.error = error
    world.turn()
    world.clock.monotonic += RETRY_MS
    world.turn()
    assert world.offset(1) is None
    assert len(caplog.records) == 1
    world.error = None
    world.turn()
    assert world.delivered == []
    world.clock.monotonic += RETRY_MS
    world.turn()
    assert (world.delivered, world.offset(1)) == ([("T", b"due")], 1)


def test_what_can_never_be_delivered_is_left_out(world: World) -> None:
    world.add(1, b"homeless", 0, topic=None)
    world.add(1, b"due", 0)
    world.turn()
    assert (world.delivered, world.offset(1)) == ([("T", b"due")], 2)


@pytest.mark.parametrize("lost", ["unit", "record"])
def test_what_is_damaged_here_is_left_to_the_master(world: World, lost: str) -> None:
    for body in (b"whole", b"damaged", b"behind it"):
        world.add(1, body, 0)
    world.add(3, b"other level", 0)
    if lost == "unit":
        world.queues[0][1] = None
    else:
        world.records[1] = None
    world.turn()
    assert world.delivered == [("T", b"whole"), ("T", b"other level")]
    assert (world.offset(1), world.offset(3)) == (1, 1)
