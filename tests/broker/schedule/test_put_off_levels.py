"""A due delayed message whose queue would be a new one while the queue table is full: it waits,
alone, in a level that is long enough; and comes once, when there is room."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from broker.append.room_waits import LONGEST_ROOM_WAIT_MS, room_wait_ms
from broker.schedule.put_off_levels import put_off_levels, put_off_properties
from ipc import queue_table
from store.control_slots import PUT_OFF, PutOffBy
from store.delay_levels import parse_delay_levels
from store.message_properties import PROPERTIES_LIMIT
from store.message_store_config import MessageStoreConfig
from store.queue_room import QueueRoom
from tests.broker.hot_path_world import properties_of, record, send_request
from tests.broker.schedule.test_schedule_message_service import SCHEDULE, Delays, Loop
from tests.broker.send.test_consumer_send_msg_back_processor import SendBacks

MINUTE_MS = 60_000
LEVELS = parse_delay_levels(MessageStoreConfig().message_delay_level)


@pytest.mark.parametrize(
    ("level", "delay"),
    [(1, "1m"), (4, "1m"), (5, "2m"), (6, "4m"), (9, "10m"), (13, "20m"), (14, "20m"), (18, "20m")],
)
def test_the_level_it_waits_in(level: int, delay: str) -> None:
    best = put_off_levels(level, LEVELS)
    assert parse_delay_levels(delay)[1] == LEVELS[best[0]]
    assert sorted(best) == sorted(LEVELS)


def test_without_a_long_level_it_waits_in_the_longest() -> None:
    assert put_off_levels(1, parse_delay_levels("1s 30s 5s")) == [2, 3, 1]


def test_how_long_a_timer_waits() -> None:
    minutes = [room_wait_ms(times) // MINUTE_MS for times in (0, 1, 2, 3, 4, 5, 6, 999_999_999)]
    assert minutes == [1, 1, 2, 4, 8, 16, 16, 16]
    assert room_wait_ms(5) == LONGEST_ROOM_WAIT_MS


def test_only_the_level_of_its_properties_changes() -> None:
    old = "KEYS\x01k\x02UNIQ_KEY\x01\udcff\x02DELAY\x011\x02REAL_TOPIC\x01New\x02REAL_QID\x013"
    new = put_off_properties(old.encode("utf-8", "surrogateescape"), ("New", 3), 14)
    expected = (
        "KEYS\x01k\x02UNIQ_KEY\x01\udcff\x02DELAY\x0114\x02REAL_TOPIC\x01New\x02REAL_QID\x013"
    )
    assert new == expected.encode("utf-8", "surrogateescape")


@pytest.mark.interpreted
class TestFullTable:
    """MAX_QUEUES of compiled modules cannot be changed."""

    @pytest.fixture
    def delays(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Delays:
        """T/0 and the levels of 1 s and 1 min have their queues; there is no room for another when
        `New` is due, which was taken before that."""
        delays = Delays(tmp_path)
        delays.world.topic("New")
        assert delays.client.call(send_request()).code == 0
        assert delays.send(5).code == 0
        assert delays.send(1, b"lonely", topic="New").code == 0
        delays.world.dispatch()
        monkeypatch.setattr(queue_table, "MAX_QUEUES", 3)
        return delays

    def put_off(self, delays: Delays) -> int:
        return delays.world.counters[PUT_OFF + PutOffBy.DELAY_DELIVERY]

    def run(self, delays: Delays, ms: int) -> None:
        """With a look each half second."""
        for _ in range(0, ms, 500):
            delays.step(500)
            while delays.step() == 0:
                pass
        delays.flush()

    def bodies(self, delays: Delays) -> list[bytes]:
        return [message.body for message in delays.delivered()][1:]

    def test_others_of_its_level_come_in_time(self, delays: Delays) -> None:
        assert delays.send(1, b"other").code == 0
        self.run(delays, 1_500)
        assert self.bodies(delays) == [b"other"]
        assert self.put_off(delays) == 1
        last = [m for m in delays.world.records() if m.topic == SCHEDULE][-1]
        assert (last.queue_id, last.body) == (4, b"lonely")
        assert delays.offsets[1] == 2, "nothing of its level waits"

    def test_it_comes_once_when_there_is_room(
        self, delays: Delays, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.run(delays, 5 * MINUTE_MS)
        assert self.put_off(delays) == 5, "the levels that are longer have no queue"
        delays.restart().start(delays.loop)
        self.run(delays, 30_000)
        monkeypatch.setattr(queue_table, "MAX_QUEUES", 8)
        self.run(delays, 2 * MINUTE_MS)
        assert sorted(self.bodies(delays)) == [b"lonely", b"x"]
        delays.restart().start(delays.loop)
        self.run(delays, 3 * MINUTE_MS)
        assert sorted(self.bodies(delays)) == [b"lonely", b"x"]
        [message] = [m for m in delays.delivered() if m.body == b"lonely"]
        found = properties_of(message.properties)
        assert (message.topic, message.queue_id, found["DELAY"]) == ("New", 0, "5")
        assert found["KEYS"] == "k"

    def test_a_level_that_nobody_used_is_made_for_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Only the level of 1 s was used: there it would be stored anew each second."""
        delays = Delays(tmp_path / "one")
        delays.world.log._room = QueueRoom(delays.world.table, reserved=2)
        delays.world.topic("New")
        assert delays.client.call(send_request()).code == 0
        assert delays.send(1, b"lonely", topic="New").code == 0
        delays.world.dispatch()
        monkeypatch.setattr(queue_table, "MAX_QUEUES", 4)
        self.run(delays, 5 * MINUTE_MS)
        levels = [m.queue_id + 1 for m in delays.world.records() if m.topic == SCHEDULE]
        assert levels == [1, 5, 6, 6], "of 1 s, of a minute, of two: there is a row for no third"
        assert self.put_off(delays) == 3

    def test_properties_at_their_limit(
        self, delays: Delays, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A level of two digits does not fit: it waits where it was."""
        longer = record(b"two", b"DELAY\x0114\x02REAL_TOPIC\x01T\x02REAL_QID\x010")
        monkeypatch.setattr(queue_table, "MAX_QUEUES", 8)
        delays.world.log.append(delays.world.log.topic(SCHEDULE), (replace(longer, queue_id=13),))
        monkeypatch.setattr(queue_table, "MAX_QUEUES", 3)
        text = "DELAY\x019\x02REAL_TOPIC\x01New\x02REAL_QID\x010\x02K\x01"
        full = text + "k" * (PROPERTIES_LIMIT - len(text))
        service = delays.world.schedule
        level = next(each for each in service._levels if each.level == 9)
        assert service._waiting_place(level, full.encode(), ("New", 0)) == (
            4,
            put_off_properties(full.encode(), ("New", 0), 5),
        )


@pytest.mark.interpreted
def test_what_a_consumer_sends_back_holds_up_no_level(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its retry topic has no queue and gets none: that needs no malice."""
    backs = SendBacks(tmp_path)
    world = backs.world
    answer = backs.call(delayLevel=1)
    assert answer is not None
    assert answer.code == 0
    world.turn()
    world.dispatch()
    monkeypatch.setattr(queue_table, "MAX_QUEUES", 1)
    world.clock_steps.start(world.schedule.waiting)
    world.schedule.start(Loop())
    world.clock.advance(1_500)
    world.turn()
    world.schedule.deliver_due()
    world.turn()
    assert world.counters[PUT_OFF + PutOffBy.DELAY_DELIVERY] == 1
    assert [message.topic for message in world.records()] == [SCHEDULE, SCHEDULE]
