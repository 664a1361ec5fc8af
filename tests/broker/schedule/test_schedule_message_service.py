"""ScheduleMessageService: due messages are delivered once, in time, and progress never lies."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.schedule.schedule_message_service import ScheduleMessageService
from ha.control_slots import REPLICA_COUNT, REPLICATED_OFFSET
from remoting.remoting_command import RemotingCommand
from store.control_slots import FLUSHED_OFFSET, MAX_PHY_OFFSET, RUNNING_FLAGS
from store.message import Message
from tests.broker.hot_path_world import (
    Client,
    HotPathWorld,
    properties_of,
    record,
    send_request,
)
from tests.remoting.golden_frames import GOLDEN

SCHEDULE = "SCHEDULE_TOPIC_XXXX"


AT_WATCH_MS = 500
"""What stands for the loop's watch here."""


class Loop:
    """TimerLoop: what waits, and how long."""

    def __init__(self) -> None:
        self.later: list[tuple[float, Callable[[], None]]] = []
        self.soon: list[Callable[[], None]] = []

    def call_later(self, delay_ms: float, function: Callable[[], None]) -> None:
        self.later.append((delay_ms, function))

    @property
    def watches(self) -> Loop:
        """As LoopWatches."""
        return self

    def call_once(self, function: Callable[[], None]) -> None:
        self.later.append((AT_WATCH_MS, function))

    def call_soon_threadsafe(self, function: Callable[[], None]) -> None:
        self.soon.append(function)


class Delays:
    """A broker with delayed messages; `step` is a look and the end of its turn."""

    def __init__(self, root: Path, **kinds: Any) -> None:
        self.world = HotPathWorld(root, file_size=1 << 20, **kinds)
        self.world.topic()
        self.client: Client = self.world.client()
        self.loop = Loop()
        self.world.clock_steps.start(self.world.schedule.waiting)
        self.world.schedule.start(self.loop)

    @property
    def offsets(self) -> dict[int, int]:
        return self.world.schedule_offsets.offsets()

    def send(self, level: int, body: bytes = b"x", **fields: Any) -> RemotingCommand:
        text = f"KEYS\x01k\x02DELAY\x01{level}"
        return self.client.call(send_request(body, properties=text, **fields))

    def step(self, forward_ms: int = 0) -> int:
        self.world.clock.advance(forward_ms)
        self.world.turn()
        self.world.dispatch()
        wait_ms = self.world.schedule.deliver_due()
        self.world.turn()
        self.world.dispatch()
        return wait_ms

    def flush(self) -> None:
        self.world.counters[FLUSHED_OFFSET] = self.world.counters[MAX_PHY_OFFSET]
        self.world.schedule.deliver_due()

    def delivered(self) -> list[Message]:
        return [m for m in self.world.records() if m.topic != SCHEDULE]

    def restart(self) -> ScheduleMessageService:
        """The service of the next start, with the table that is stored."""
        table = self.offsets
        self.world._build_services(Path(self.world.directory.parent))
        self.world.schedule_offsets.replace_all(table)
        return self.world.schedule


@pytest.fixture
def delays(tmp_path: Path) -> Delays:
    return Delays(tmp_path)


def test_a_message_is_delivered_when_its_time_has_come(delays: Delays) -> None:
    answer = delays.send(1, b"one", queue_id=3, flag=7, reconsume_times=2)
    assert (answer.code, answer.ext_fields["queueId"]) == (0, "3")
    assert answer.ext_fields["queueOffset"] == "0"
    [stored] = delays.world.records()
    assert (stored.topic, stored.queue_id) == (SCHEDULE, 0)
    assert delays.step() == 100
    assert delays.step(899) == 100
    assert delays.step(100) == 1, "the last step is as short as it must be"
    assert delays.delivered() == []
    assert delays.step(1) == 500, "nothing waits, and nothing new is due within a second"
    [message] = delays.delivered()
    assert (message.topic, message.queue_id, message.queue_offset) == ("T", 3, 0)
    assert (message.flag, message.reconsume_times, message.body) == (7, 2, b"one")
    assert message.born_timestamp == stored.born_timestamp
    assert (message.born_host, message.store_host) == (stored.born_host, stored.store_host)
    assert message.properties == stored.properties
    delays.step(10_000)
    assert len(delays.delivered()) == 1
    size = delays.world.counters[MAX_PHY_OFFSET] - message.phy_offset
    assert delays.world.stats.scheduled_gets == [(0, size)]
    assert delays.world.stats.puts["T"] == (1, size)


def test_a_message_that_is_not_in_its_queue_yet_is_looked_for_soon(delays: Delays) -> None:
    """Nothing tells the loop when process `store` has put it there."""
    delays.send(1)
    assert delays.world.schedule.deliver_due() == 100


@pytest.mark.parametrize("by_ms", [-3_600_000, 3_600_000, 86_400_000])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_clock_that_is_set_for_a_moment(delays: Delays, by_ms: int, *, is_first: bool) -> None:
    """It is right again before due messages are looked for (mqchaos, seed 29031: what was stored
    meanwhile came early)."""
    clock, turn = delays.world.clock, delays.world.turn
    if not is_first:
        delays.send(2, b"before")
        assert delays.step() == 100
    clock.now += by_ms
    turn()
    delays.send(2, b"meanwhile")
    clock.now -= by_ms
    turn()
    delays.send(2, b"after")
    delays.step()
    delays.step(4_999)
    assert delays.delivered() == []
    delays.step(1)
    bodies = [b"meanwhile", b"after"] if is_first else [b"before", b"meanwhile", b"after"]
    assert [message.body for message in delays.delivered()] == bodies


def test_a_delayed_send_is_counted_where_it_is_stored(delays: Delays) -> None:
    delays.send(3)
    size = delays.world.counters[MAX_PHY_OFFSET]
    assert delays.world.stats.puts == {SCHEDULE: (1, size)}
    assert delays.world.stats.queue_puts == [(SCHEDULE, 2, size)]
    assert delays.world.stats.types == {"delay"}


def test_levels_do_not_wait_for_one_another(delays: Delays) -> None:
    for level, body in ((18, b"18"), (2, b"2"), (1, b"1"), (99, b"99")):
        delays.send(level, body)
    delays.step(1_000)
    assert [m.body for m in delays.delivered()] == [b"1"]
    delays.step(4_000)
    assert [m.body for m in delays.delivered()] == [b"1", b"2"]
    delays.step(7_200_000)
    assert [m.body for m in delays.delivered()] == [b"1", b"2", b"18", b"99"]


def test_looking_makes_no_queue(delays: Delays) -> None:
    """Of the levels only the one has a queue that a message came to; else a row and a directory
    would be taken for each by whoever only reads."""
    world = delays.world

    def queues() -> list[int]:
        rows = [queue_id for topic, queue_id, _row in world.table if topic == SCHEDULE]
        stored = world.log.topic(SCHEDULE).next_offsets
        directories = (world.directory.parent / "consumequeue" / SCHEDULE).glob("*")
        assert rows == sorted(stored) == sorted(int(path.name) for path in directories)
        return rows

    for _ in range(3):
        delays.step(10_000)
        assert not any(world.schedule.waiting().values())
    delays.restart().start(Loop())
    delays.step()
    assert queues() == []
    delays.send(3)
    for _ in range(3):
        delays.step(10_000)
        world.schedule.waiting()
    assert len(delays.delivered()) == 1
    assert queues() == [2]


def test_a_turn_delivers_so_many_and_goes_round(delays: Delays) -> None:
    for number in range(100):
        delays.send(1, b"a%d" % number)
        delays.send(2, b"b%d" % number)
    delays.step()
    assert delays.step(5_000) == 0
    first = [m.body[:1] for m in delays.delivered()]
    assert len(first) == 64
    assert delays.step() == 0
    bodies = [m.body for m in delays.delivered()]
    assert {body[:1] for body in bodies} == {b"a", b"b"}, "no level starves"
    while delays.step() == 0:
        pass
    bodies = [m.body for m in delays.delivered()]
    for kind in (b"a", b"b"):
        assert [b for b in bodies if b[:1] == kind] == [kind + b"%d" % i for i in range(100)]


def test_a_turn_ends_after_two_milliseconds(
    delays: Delays, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        delays.send(1)
    delays.step()
    times = iter((0, 1_000_000, 2_000_001))
    monkeypatch.setattr(delays.world.clock, "monotonic_ns", lambda: next(times, 9))
    delays.world.clock.advance(1_000)
    delays.world.turn()
    times = iter((0, 1_000_000, 2_000_001))
    assert delays.world.schedule.deliver_due() == 0
    delays.world.turn()
    assert len(delays.delivered()) == 2


def test_a_time_beyond_the_level_is_due_now(delays: Delays) -> None:
    """The clock was set back by an hour after the send."""
    delays.send(1)
    delays.step(-3_600_000)
    assert len(delays.delivered()) == 1


@pytest.mark.parametrize("hours", [1, -1, 24])
def test_a_clock_that_is_set_changes_no_delay(delays: Delays, hours: int) -> None:
    delays.send(2, b"before")
    delays.step(2_000)
    delays.world.clock.now += hours * 3_600_000
    delays.step()
    delays.send(2, b"after")
    delays.step(2_900)
    assert delays.delivered() == []
    delays.step(100)
    assert [m.body for m in delays.delivered()] == [b"before"]
    delays.step(1_900)
    assert len(delays.delivered()) == 1
    delays.step(100)
    assert [m.body for m in delays.delivered()] == [b"before", b"after"]


def test_progress_waits_for_the_disk(delays: Delays) -> None:
    delays.send(1)
    delays.step()
    delays.step(1_000)
    assert len(delays.delivered()) == 1
    assert delays.offsets == {}
    delays.world.counters[FLUSHED_OFFSET] = delays.world.counters[MAX_PHY_OFFSET] - 1
    delays.world.schedule.deliver_due()
    assert delays.offsets == {}
    delays.flush()
    assert delays.offsets[1] == 1
    assert set(delays.offsets.values()) == {0, 1}


def test_after_a_crash_what_was_not_on_disk_is_delivered_again(delays: Delays) -> None:
    for _ in range(3):
        delays.send(1)
    delays.step()
    delays.step(1_000)
    delays.flush()
    delays.send(1)
    delays.step(1_000)
    delays.step()
    assert len(delays.delivered()) == 4
    delays.restart().start(Loop())
    delays.step()
    assert len(delays.delivered()) == 4 + 1


def test_after_an_orderly_stop_nothing_is_delivered_again(delays: Delays) -> None:
    for _ in range(3):
        delays.send(1)
    delays.step()
    delays.step(1_000)
    delays.world.schedule.stop()
    delays.world.log.commit()
    delays.world.schedule.finish()
    assert delays.offsets[1] == 3
    delays.restart().start(Loop())
    delays.step()
    assert len(delays.delivered()) == 3


def test_a_stopped_service_looks_no_more(delays: Delays) -> None:
    [(first_ms, look)] = delays.loop.later
    assert first_ms == 1_000
    delays.send(1)
    delays.step()
    look()
    assert [ms for ms, _ in delays.loop.later[1:]] == [100]
    delays.world.clock.advance(1_000)
    delays.world.turn()
    delays.world.schedule.stop()
    look()
    assert (len(delays.loop.later), delays.loop.soon, delays.delivered()) == (2, [], [])


def test_a_full_turn_goes_on_in_the_next(delays: Delays) -> None:
    for _ in range(65):
        delays.send(1)
    delays.step()
    delays.world.clock.advance(1_000)
    delays.world.turn()
    look = delays.loop.later[0][1]
    look()
    assert (len(delays.loop.later), len(delays.loop.soon)) == (1, 1)
    delays.loop.soon[0]()
    delays.world.turn()
    assert len(delays.delivered()) == 65


@pytest.mark.parametrize(("stored", "first"), [(-1, 0), (1, 1), (3, 3), (4, 3), (999, 3)])
def test_offsets_outside_of_the_queue_are_corrected(
    delays: Delays, caplog: pytest.LogCaptureFixture, stored: int, first: int
) -> None:
    for _ in range(3):
        delays.send(1)
    delays.step()
    service = delays.restart()
    delays.world.schedule_offsets.update_offset(1, stored)
    service.start(Loop())
    assert delays.offsets[1] == first
    words = [f"delay level 1: offset {stored} is outside its queue [0, 3], corrected to {first}"]
    assert caplog.messages == (words if stored != first else [])
    delays.step(1_000)
    assert len(delays.delivered()) == 3 - first


def test_the_end_is_the_logs_while_the_queue_is_still_built(delays: Delays) -> None:
    delays.send(1)
    delays.world.turn()
    service = delays.restart()
    delays.world.schedule_offsets.update_offset(1, 1)
    service.start(Loop())
    assert delays.offsets[1] == 1
    delays.step(1_000)
    assert delays.delivered() == [], "it was delivered before"


def put(delays: Delays, properties: bytes, topic: str = SCHEDULE) -> None:
    delays.world.log.append(delays.world.log.topic(topic), [record(b"x", properties)])


@pytest.mark.parametrize(
    ("properties", "why"),
    [
        (b"DELAY\x011", "message at 0 has no real topic"),
        (b"DELAY\x011\x02REAL_TOPIC\x01T\x02REAL_QID\x01x", "message at 0 has no real topic"),
        (
            b"DELAY\x011\x02REAL_TOPIC\x01%RETRY%a/b\x02REAL_QID\x010",
            "message at 0: topic name '%RETRY%a/b' cannot be a directory name",
        ),
        (
            b"DELAY\x011\x02REAL_TOPIC\x01RMQ_SYS_TRANS_HALF_TOPIC\x02REAL_QID\x010",
            "message at 0 has no real topic",
        ),
        (
            b"DELAY\x011\x02REAL_QID\x010\x02REAL_TOPIC\x01" + b"t" * 128,
            f"message at 0: topic name of 128 bytes (limit 127): {'t' * 40!r}…",
        ),
    ],
)
def test_a_message_without_home_holds_nobody_up(
    delays: Delays, caplog: pytest.LogCaptureFixture, properties: bytes, why: str
) -> None:
    put(delays, properties)
    delays.send(1)
    delays.step()
    delays.step(1_000)
    assert len(delays.delivered()) == 1
    skipped = [text for text in caplog.messages if text.startswith("delay level")]
    assert skipped == [f"delay level 1: skipped 1 message(s) from offset 0: {why}"]
    delays.flush()
    assert delays.offsets[1] == 2


def test_a_record_that_cannot_be_read_holds_nobody_up(
    delays: Delays, caplog: pytest.LogCaptureFixture
) -> None:
    delays.send(1, b"damaged")
    delays.send(1)
    delays.step()
    path = delays.world.directory / f"{0:020}"
    at = delays.world.raw_records()[0].index(b"damaged")
    with path.open("r+b") as file:
        file.seek(at)
        file.write(b"D")
    delays.step(1_000)
    assert len(delays.delivered()) == 1
    assert caplog.messages == [
        "delay level 1: skipped 1 message(s) from offset 0: no delayed message at 0"
    ]


def test_nothing_is_delivered_into_a_store_that_takes_nothing(delays: Delays) -> None:
    delays.send(1)
    delays.step()
    delays.world.counters[RUNNING_FLAGS] = 16
    assert delays.step(1_000) == 100
    delays.world.counters[RUNNING_FLAGS] = 0
    delays.step()
    assert len(delays.delivered()) == 1


def test_nothing_is_delivered_into_a_topic_that_is_being_deleted(
    delays: Delays, caplog: pytest.LogCaptureFixture
) -> None:
    """It would make a queue of the old offset again, and the next message one of offset 0."""
    delays.client.call(send_request())
    delays.send(1)
    delays.world.send_processor.block_topic("T")
    for _ in range(3):
        assert delays.step(10_000) == 100
    assert len(delays.delivered()) == 1
    assert len(caplog.messages) == 3, "once a look: it does not go round and round"
    delays.world.send_processor.unblock_topic("T", deleted=True)
    delays.step()
    delivered = delays.delivered()
    assert [message.queue_offset for message in delivered] == [0, 0]
    assert delays.client.call(send_request()).ext_fields["queueOffset"] == "1"


def test_a_delivery_waits_for_the_next_file(tmp_path: Path) -> None:
    delays = Delays(tmp_path, files=1)
    for _ in range(3):
        delays.send(1, bytes(300_000))
    delays.step()
    assert delays.step(1_000) == 5
    assert (len(delays.world.append_queue.held), delays.delivered()) == (1, [])
    delays.world.clock.advance(5_001)
    delays.world.turn()
    delays.world.turn()
    assert not delays.world.append_queue.held, "given up, for now"
    assert delays.step() == 5
    delays.world.allocate(1)
    delays.step()
    delays.step()
    assert [len(m.body) for m in delays.delivered()] == [300_000] * 3
    delays.flush()
    assert delays.offsets[1] == 3


def test_on_a_sync_master_progress_waits_for_the_replica(tmp_path: Path) -> None:
    delays = Delays(tmp_path, waits_for_replicas=True)
    counters = delays.world.counters
    counters[REPLICA_COUNT] = 1
    delays.world.turn()
    delays.client.send(send_request(properties="DELAY\x011"))
    delays.world.turn()
    assert delays.client.answers() == [], "the send waits"
    counters[REPLICATED_OFFSET] = counters[MAX_PHY_OFFSET]
    delays.step()
    assert [a.code for a in delays.client.answers()] == [0]
    delays.step(1_000)
    assert (len(delays.delivered()), delays.world.schedule.unsafe) == (1, 1)
    delays.flush()
    assert delays.offsets.get(1, 0) == 0
    counters[REPLICATED_OFFSET] = counters[MAX_PHY_OFFSET]
    delays.step()
    assert delays.world.schedule.unsafe == 0
    delays.flush()
    assert delays.offsets[1] == 1
    assert delays.world.stats.waited_answers == {(310, 0): 1, (None, 0): 1}


def test_a_lost_replica_stops_no_delivery(tmp_path: Path) -> None:
    delays = Delays(tmp_path, waits_for_replicas=True)
    for _ in range(3):
        delays.send(1)
        delays.world.turn()
    delays.step()
    delays.step(1_000)
    assert len(delays.delivered()) == 3
    delays.step()
    delays.flush()
    assert delays.offsets[1] == 3


def test_no_more_than_two_thousand_wait_for_the_replica(tmp_path: Path) -> None:
    delays = Delays(tmp_path, waits_for_replicas=True)
    delays.world.counters[REPLICA_COUNT] = 1
    delays.world.turn()
    for _ in range(2_001):
        delays.client.send(send_request(properties="DELAY\x011"))
    delays.step()
    delays.world.clock.advance(1_000)
    while delays.step() == 0:
        pass
    assert (delays.world.schedule.unsafe, delays.step()) == (2_000, 5)
    delays.world.counters[REPLICATED_OFFSET] = delays.world.counters[MAX_PHY_OFFSET]
    while delays.step() == 0:
        pass
    assert len(delays.delivered()) == 2_001


@pytest.mark.interpreted
def test_expired_messages_are_passed_over_in_words(
    delays: Delays, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        delays.send(1)
    delays.step()
    monkeypatch.setattr(
        delays.world.table, "offsets", lambda _, queue: (2, 3) if not queue else (0, 0)
    )
    delays.step(1_000)
    assert len(delays.delivered()) == 1
    assert caplog.messages == [
        "delay level 1: skipped 2 message(s) from offset 0: expired, undelivered"
    ]


# -- what Java stored ----------------------------------------------------------------------------


def golden_delays() -> list[dict[str, Any]]:
    records = json.loads((GOLDEN / "store-G" / "records-master.json").read_text())
    return [r for r in records if r.get("properties", {}).get("DELAY") not in (None, "0")]


def test_sent_and_delivered_as_by_java(tmp_path: Path) -> None:
    golden = golden_delays()
    sent = [r for r in golden if r["topic"] == SCHEDULE and r["properties"]["KEYS"][:5] == "delay"]
    delays = Delays(tmp_path)
    delays.world.topic("GTopic")
    for java in sent:
        properties = dict(java["properties"])
        level = "99" if java["properties"]["KEYS"] == "delay99" else properties["DELAY"]
        queue_id = properties.pop("REAL_QID")
        del properties["REAL_TOPIC"], properties["CLUSTER"]
        text = "\x02".join(f"{k}\x01{v}" for k, v in {**properties, "DELAY": level}.items())
        request = send_request(
            bytes.fromhex(java["bodyHexStored"]),
            topic="GTopic",
            queue_id=queue_id,
            properties=text,
            born_timestamp=java["bornTimestamp"],
        )
        assert delays.client.call(request).ext_fields["queueOffset"] == str(java["queueOffset"])
    stored = delays.world.records()
    assert [shape(m) for m in stored] == [java_shape(r) for r in sent]
    delays.step()
    delays.step(10_000)
    delivered = [r for r in golden if r["topic"] == "GTopic"]
    assert [shape(m) for m in delays.delivered()] == [java_shape(r) for r in delivered]


def shape(message: Message) -> tuple[Any, ...]:
    return (
        message.topic,
        message.queue_id,
        message.sys_flag,
        message.born_timestamp,
        message.reconsume_times,
        message.prepared_transaction_offset,
        message.body.hex(),
        properties_of(message.properties),
    )


def java_shape(java: dict[str, Any]) -> tuple[Any, ...]:
    return (
        java["topic"],
        java["queueId"],
        java["sysFlag"],
        java["bornTimestamp"],
        java["reconsumeTimes"],
        java["preparedTransactionOffset"],
        java["bodyHexStored"],
        java["properties"],
    )


# -- any history ---------------------------------------------------------------------------------

_steps = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 4)),
        st.tuples(st.just("wait"), st.sampled_from([0, 50, 1_000, 5_000, 30_000])),
        st.tuples(st.just("flush"), st.just(0)),
        st.tuples(st.just("stop"), st.just(0)),
        st.tuples(st.just("crash"), st.just(0)),
    ),
    max_size=40,
)


@given(_steps)
def test_any_history(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    """Everything due is delivered; twice only after a crash; never early, in a level's order."""
    delays = Delays(tmp_path_factory.mktemp("history"))
    sent: dict[bytes, int] = {}
    crashed = False
    for what, value in steps:
        if what == "send":
            body = b"%d" % len(sent)
            delays.send(value, body)
            sent[body] = delays.world.clock.now + delays.world.delay_level_ms[value]
        elif what == "wait":
            while delays.step(value) == 0:
                value = 0
        elif what == "flush":
            delays.flush()
        else:
            if what == "stop":
                delays.world.schedule.finish()
            crashed = crashed or what == "crash"
            delays.restart().start(Loop())
    while delays.step(30_000) == 0:
        pass
    delivered = delays.delivered()
    assert {m.body for m in delivered} == sent.keys()
    assert all(m.store_timestamp >= sent[m.body] for m in delivered)
    if not crashed:
        assert len(delivered) == len(sent)
    delays.world.close()
