"""One record that raises, at each place where a service reads records back: it is put aside, those
behind it are served, and neither a next turn nor a restart does anything about it again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.append.room_waits import RoomWaits
from broker.filter.unit_marks import UnitMarks
from broker.pop.pop_check_point import PopCheckPoint
from broker.pop.pop_inflight_message_counter import PopInflightMessageCounter
from broker.pop.pop_names import CK_TAG
from broker.pop.pop_revive_service import PopReviveService
from broker.pop.retry_record import under_asked_topics
from broker.pop.revive_parts import ReviveParts
from broker.pop.revive_progress import ReviveProgress
from broker.settings.broker_config import BrokerConfig
from broker.slave.delayed_escape_service import DelayedEscapeService
from broker.topic.system_topics import TRANS_HALF_TOPIC
from ha.record_columns import read_fields
from ha.record_expectations import QueueEnd, RecordExpectations
from ha.record_validator import RecordValidators
from ipc.clock import SystemClock
from ipc.control_page import ControlPage, ProcessIndex
from remoting.body.topic_config import TopicConfig
from remoting.headers.extra_info_util import ExtraInfo
from store.control_slots import MAX_PHY_OFFSET
from store.errors import DiskFullError
from store.message_codec import decode_record
from store.put_aside import RECORDS, ReadBy
from store.stored_units import CQ_UNIT
from tests.broker.hot_path_world import HotPathWorld, record, send_request
from tests.broker.schedule.test_schedule_message_service import Delays
from tests.broker.transaction_world import ROLLBACK, TransactionWorld
from tests.support.compaction_life import CompactionLife
from tests.support.deadline import wait_until
from tests.support.failpoints import POISON, PoisonError, failpoint, poison
from tests.support.memory_commit_log import MemoryCommitLog, message
from tests.support.plain_log import FILE_SIZE, PlainLog
from tests.support.timer_delivery import TimerDelivery

pytestmark = pytest.mark.interpreted
BODIES = [b"a", POISON, b"b"]


@pytest.fixture(autouse=True)
def own_list(tmp_path: Path) -> Iterator[None]:
    RECORDS.forget()
    page = ControlPage(ControlPage.create())
    RECORDS.keep(tmp_path, page, ProcessIndex.REMOTING, lambda _: None, SystemClock())
    yield
    RECORDS.forget()


# -- timers ----------------------------------------------------------------------------------------

DELIVERY = "broker.timer.timer_dequeue_service"


@pytest.mark.parametrize(
    "target",
    [
        f"{DELIVERY}.delivered_properties",
        f"{DELIVERY}.home_of",
        f"{DELIVERY}.record_again",
        "broker.timer.timer_records.decode_record",
        "broker.timer.timer_records.find_asked_ms",
        "is_recalled",
        "store.commit_log.CommitLog.append",
    ],
)
@pytest.mark.parametrize("is_over", [False, True], ids=["open", "over"])
def test_a_timer_that_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, is_over: bool
) -> None:
    world = TimerDelivery(tmp_path / "store")
    if target.endswith("append"):
        usual = world.life.log.append

        def put(topic: Any, records: Any) -> Any:
            if topic.name == "T" and POISON in records[0].properties:
                raise PoisonError
            return usual(topic, records)

        monkeypatch.setattr(world.life.log, "append", put)
    elif target == "is_recalled":
        for module in ("slot_delivery", "open_slot"):
            poison(monkeypatch, f"broker.timer.{module}.is_recalled")
    else:
        poison(monkeypatch, target)
    at_ms = world.clock.now_ms() + 300
    for key, put_ms in (("a", at_ms), (POISON.decode(), at_ms + 1), ("b", at_ms + 2)):
        world.put(key, put_ms)
    world.step()
    if is_over:
        world.clock.advance(3_000)
    world.pass_ms(2_000, 20)
    # One whose time cannot be read comes when its slot is over.
    comes = target.endswith("find_asked_ms")
    expected = ["POISON", "a", "b"] if comes else ["a", "b"]
    assert sorted(world.keys()) == expected
    count = RECORDS.count(ReadBy.TIMER_DELIVERY)
    assert count == 1
    world.restart()
    if target.endswith("append"):
        monkeypatch.undo()
    world.put("d", world.clock.now_ms() + 1_000)
    world.pass_ms(2_500, 20)
    assert sorted(world.keys()) == [*expected, "d"], "what follows is delivered, nothing twice"
    assert RECORDS.count(ReadBy.TIMER_DELIVERY) == count
    world.life.stop()


@pytest.mark.parametrize(
    "target",
    [
        "store.timer.timer_queue.read_properties",
        "store.timer.timer_queue.find_property",
        "store.timer.timer_enqueue.TimerEnqueue._place",
    ],
)
def test_a_timer_that_cannot_be_entered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    world = TimerDelivery(tmp_path / "store")
    if target.endswith("read_properties"):
        usual = __import__("store.timer.timer_queue", fromlist=["x"]).read_properties

        def read(view: memoryview, position: int) -> bytes:
            found: bytes = usual(view, position)
            if POISON in found:
                raise PoisonError
            return found

        monkeypatch.setattr(target, read)
    elif target.endswith("_place"):
        from store.timer.timer_enqueue import TimerEnqueue

        place = TimerEnqueue._place

        def raising(self: TimerEnqueue, entered: Any, *times: int) -> Any:
            if entered.topic == POISON.decode():
                raise PoisonError
            return place(self, entered, *times)

        monkeypatch.setattr(TimerEnqueue, "_place", raising)
    else:
        poison(monkeypatch, target)
    at_ms = world.clock.now_ms() + 300
    world.put("a", at_ms)
    world.put("x", at_ms, topic=POISON.decode())
    world.put("b", at_ms)
    world.pass_ms(2_000, 20)
    assert sorted(world.keys()) == ["a", "b"]
    assert RECORDS.count(ReadBy.TIMER_ENQUEUE) == 1
    world.restart()
    world.pass_ms(100, 20)
    assert RECORDS.count(ReadBy.TIMER_ENQUEUE) == 1
    world.life.stop()


# -- delays ----------------------------------------------------------------------------------------

SCHEDULE = "broker.schedule.schedule_message_service"


@pytest.mark.parametrize(
    "target",
    [
        f"{SCHEDULE}.home_of",
        f"{SCHEDULE}.record_again",
        "store.commit_log_reader.read_checked",
        "append",
        "append full",
    ],
)
def test_a_delay_that_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    delays = Delays(tmp_path / "store")
    for body in (b"a", POISON, b"b"):
        text = f"KEYS\x01{body.decode()}\x02DELAY\x011"
        delays.client.call(send_request(body, properties=text))
    delays.step()
    if target.startswith("append"):
        usual = delays.world.log.append
        error = DiskFullError("full") if "full" in target else PoisonError("poison")

        def put(topic: Any, records: Any) -> Any:
            if records[0].body == POISON:
                raise error
            return usual(topic, records)

        monkeypatch.setattr(delays.world.log, "append", put)
    elif target.endswith("read_checked"):
        from store import commit_log_reader

        read = commit_log_reader.read_checked

        def read_checked(*arguments: Any) -> Any:
            found = read(*arguments)
            if found is not None and found.body == POISON:
                raise PoisonError
            return found

        monkeypatch.setattr(target, read_checked)
    else:
        poison(monkeypatch, target)
    delays.step(1_100)
    delays.step(1_100)
    if "full" in target:
        assert [m.body for m in delays.delivered()] == [b"a"], "it waits, and is not put aside"
        assert RECORDS.count(ReadBy.DELAY_DELIVERY) == 0
        monkeypatch.undo()
        delays.step(1_100)
        assert [m.body for m in delays.delivered()] == [b"a", POISON, b"b"]
        return
    assert [m.body for m in delays.delivered()] == [b"a", b"b"]
    assert RECORDS.count(ReadBy.DELAY_DELIVERY) == 1
    assert delays.world.schedule.unsafe == 0
    delays.flush()
    assert delays.offsets[1] == 3, "progress passes it"
    delays.restart().start(delays.loop)
    delays.step(1_100)
    assert [m.body for m in delays.delivered()] == [b"a", b"b"]
    assert RECORDS.count(ReadBy.DELAY_DELIVERY) == 1


def test_a_delay_that_raises_on_an_acting_slave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    delays = Delays(tmp_path / "store")
    for body in (b"a", POISON, b"b"):
        delays.send(1, body)
    delays.step()
    poison(monkeypatch, "broker.slave.delayed_escape_service.read_due_message")
    put: list[bytes] = []

    class Bridge:
        def put(self, message: Any) -> None:
            put.append(message.record.body if hasattr(message, "record") else message.body)

    class Messages:
        offsets = staticmethod(delays.world.table.offsets)
        record_at = staticmethod(delays.world.loop_reader.record_at)

        def unit_at(self, topic: str, queue_id: int, offset: int) -> Any:
            raw = delays.world.checked_units.read(topic, queue_id, offset, 1, offset + 1)
            return CQ_UNIT.unpack(raw)

    delays.world.clock.advance(2_000)
    service = DelayedEscapeService(
        lambda: True,
        {1: 1_000},
        Messages(),
        delays.world.schedule_offsets,
        Bridge(),  # type: ignore[arg-type]
        delays.world.clock,
    )
    service._deliver(1)
    assert put == [b"a", b"b"]
    assert RECORDS.count(ReadBy.DELAY_ESCAPE) == 1
    assert delays.world.schedule_offsets.find_offset(1) == 3


# -- transactions ----------------------------------------------------------------------------------

CHECK = "broker.transaction.transactional_message_service"


@pytest.mark.parametrize(
    "target",
    [
        "broker.transaction.earlier_ends.decode_record",
        f"{CHECK}.number_in",
        f"{CHECK}.half_copy",
        f"{CHECK}.check_header",
        f"{CHECK}.check_body",
        "append",
    ],
)
def test_a_half_that_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    world = TransactionWorld(tmp_path / "store")
    producer = world.connect()
    for body in (b"a", POISON, b"b"):
        world.prepare(body)
    if target == "append":
        usual = world.hot.log.append

        def put(topic: Any, records: Any) -> Any:
            if records[0].body == POISON:
                raise PoisonError
            return usual(topic, records)

        monkeypatch.setattr(world.hot.log, "append", put)
    else:
        poison(monkeypatch, target)
    world.hot.clock.advance(world.time_out_ms + 1)
    world.round()
    asked = [each.body for each in producer.sent]
    assert sum(b"a" in each or b"b" in each for each in asked) == 2
    assert not any(POISON in each for each in asked)
    assert RECORDS.count(ReadBy.TRANSACTION_CHECK) == 1
    if "check_" not in target:
        world.round()
        assert RECORDS.count(ReadBy.TRANSACTION_CHECK) == 1
        assert world.service._position == world.bridge.offsets(TRANS_HALF_TOPIC)[1] - 2


def test_an_op_that_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = TransactionWorld(tmp_path / "store")
    halves = [world.prepare(body) for body in (b"a", b"b", b"c")]
    for half in halves:
        world.end(half, ROLLBACK)
    from broker.transaction import transactional_message_bridge as module

    usual = module.halves_of_op

    def raising(op: Any) -> list[int]:
        if op.body == b"1":
            raise PoisonError
        return usual(op)

    monkeypatch.setattr(module, "halves_of_op", raising)
    for _ in range(2):
        world.build()
        assert world.service.recover()
        assert [world.halves.is_ended(number) for number in range(3)] == [True, False, True]
        assert RECORDS.count(ReadBy.TRANSACTION_OP) == 1


# -- pops ------------------------------------------------------------------------------------------


class Revival:
    """The revive topic's queue 0 and the topic T of a broker, and the service over its lives."""

    TOPIC = "rmq_sys_REVIVE_LOG_x"

    def __init__(self, root: Path) -> None:
        self.root = root
        self.world = HotPathWorld(root, file_size=1 << 20)
        self.world.topic()
        self.later: list[Callable[[], None]] = []
        self.offsets: dict[tuple[str, str, int], int] = {}
        self.service = self.begin()

    def begin(self) -> PopReviveService:
        world = self.world
        parts = ReviveParts(
            commit_log=world.log,
            append_queue=world.append_queue,
            table=world.table,
            units=world.checked_units,
            reader=world.loop_reader,
            offsets=self,
            records=self,  # type: ignore[arg-type]
            topics=self,  # type: ignore[arg-type]
            find_topic=lambda name: TopicConfig(topic_name=name),
            find_group=lambda name: object(),  # type: ignore[arg-type, return-value]
            inflight=PopInflightMessageCounter(0),
            progress=ReviveProgress(self.root / "poprevive", bytes(16), 1),
            stats=world.stats,
            counts=self,
            room_waits=RoomWaits(world.counters, world.clock),
            timer_read_time_ms=lambda: 1 << 50,
            published_offset=lambda: world.counters[MAX_PHY_OFFSET],
            flushed_offset=lambda: world.counters[MAX_PHY_OFFSET],
        )
        settings = BrokerConfig(
            revive_interval=100,
            enable_retry_topic_v2=False,
            skip_when_ck_re_put_reach_max_times=True,
            broker_name="b",
        )
        service = PopReviveService(settings, parts, self.TOPIC, 1)
        service.start(self)
        return service

    def query_offset(self, group: str, topic: str, queue_id: int) -> int | None:
        return self.offsets.get((group, topic, queue_id))

    def commit_own_offset(
        self, _by: str, group: str, topic: str, queue_id: int, offset: int
    ) -> None:
        self.offsets[group, topic, queue_id] = offset

    def taken(self, *_: object) -> None:
        pass

    copied = taken

    def call_at_multiple(self, _ms: int, function: Callable[[], None]) -> None:
        self.later.append(function)

    @property
    def watches(self) -> Revival:
        """As LoopWatches."""
        return self

    def call_once(self, function: Callable[[], None]) -> None:
        self.later.append(function)

    def call_soon_threadsafe(self, function: Callable[[], None]) -> None:
        self.later.append(function)

    def put(self, topic: str, body: bytes, properties: bytes = b"") -> None:
        self.world.log.append(self.world.log.topic(topic), (record(body, properties),))

    def pop(self, queue_offset: int, *, name: str = "T") -> None:
        point = PopCheckPoint(
            start_offset=queue_offset,
            pop_time=1,
            invisible_time=1,
            num=1,
            queue_id=0,
            topic=name,
            group="g",
            queue_offset_diff=[0],
            broker_name="b",
        )
        self.put(self.TOPIC, point.to_json_bytes(), b"TAGS\x01" + CK_TAG.encode())

    def turn(self) -> None:
        self.world.turn()
        self.world.dispatch()
        self.service.run_pass()
        self.world.turn()
        self.world.dispatch()
        for function in self.later[:]:
            function()

    def revived(self) -> list[bytes]:
        return [bytes(m.body) for m in self.world.records() if m.topic.startswith("%RETRY%")]


REVIVE = "broker.pop.pop_revive_service"


@pytest.mark.parametrize(
    "target",
    [
        f"{REVIVE}.decode_record",
        f"{REVIVE}.revived_record",
        "append",
        "broker.pop.pop_check_point.PopCheckPoint.from_json_bytes",
        f"{REVIVE}.parse_normal_topic",
        "a body that is no check point",
    ],
)
def test_a_pop_that_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    world = Revival(tmp_path / "store")
    is_point = "check_point" in target or "topic" in target
    for body in (b"a", b"x" if is_point else POISON, b"b"):
        world.put("T", body)
    world.pop(0)
    if target.startswith("a body"):
        is_point = True
        world.put(world.TOPIC, b"{", b"TAGS\x01" + CK_TAG.encode())
    else:
        world.pop(1, name=POISON.decode() if is_point else "T")
    world.pop(2)
    if target == "append":
        usual = world.world.log.append

        def put(topic: Any, records: Any) -> Any:
            if records[0].body == POISON:
                raise PoisonError
            return usual(topic, records)

        monkeypatch.setattr(world.world.log, "append", put)
    elif target.endswith("from_json_bytes"):
        usual_point = PopCheckPoint.from_json_bytes
        monkeypatch.setattr(PopCheckPoint, "from_json_bytes", failpoint(usual_point))
    elif "." in target:
        poison(monkeypatch, target)
    for _ in range(3):
        world.turn()
    assert world.revived() == [b"a", b"b"]
    assert RECORDS.count(ReadBy.POP_REVIVAL) == 1
    assert world.offsets["CID_RMQ_SYS_REVIVE_GROUP", world.TOPIC, 0] == 2, "progress passes it"
    world.service = world.begin()
    for _ in range(3):
        world.turn()
    assert world.revived() == [b"a", b"b"]
    assert RECORDS.count(ReadBy.POP_REVIVAL) == 1


def test_a_retried_message_that_raises_is_handed_out_as_it_is_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = MemoryCommitLog()
    places = [log.append(message("%RETRY%g_T", 0, n, body=body)) for n, body in enumerate(BODIES)]
    ends = [*places[1:], len(log.data)]
    records = [memoryview(log.data)[at:end] for at, end in zip(places, ends, strict=True)]
    poison(monkeypatch, "broker.pop.retry_record.under_asked_topic")
    shown = under_asked_topics(records, "T", ExtraInfo(0, 1, 2, 3, "1", "b"), 0)
    assert [decode_record(each, 0)[0].topic for each in shown] == ["T", "%RETRY%g_T", "T"]
    assert [decode_record(each, 0)[0].body for each in shown] == BODIES
    assert RECORDS.count(ReadBy.POP) == 1


# -- filters ---------------------------------------------------------------------------------------


def test_a_filter_that_raises_withholds_nothing() -> None:
    class Log:
        file_size = 1_000

        def view_of_file(self, _phy_offset: int) -> memoryview:
            return memoryview(bytes(1_000))

    class Wanted:
        def matches(self, _view: memoryview, position: int) -> bool:
            if position == 100:
                raise PoisonError
            return False

    raw = b"".join(CQ_UNIT.pack(at, 50, 0) for at in (0, 100, 200))
    for _ in range(2):
        marked = UnitMarks(Log(), lambda: 0).mark(raw, None, Wanted(), 32, lambda *_: True)
        assert [mark for _, _, mark in CQ_UNIT.iter_unpack(marked)] == [0, 1, 0]
    assert RECORDS.count(ReadBy.FILTER) == 1


# -- compaction ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "target", ["store.compaction.compaction_log.key_of", "store.compaction.compaction_run.key_of"]
)
def test_a_compaction_record_that_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    poison(monkeypatch, target)
    life = CompactionLife(tmp_path / "store", compaction_schedule_internal=1).start()
    try:
        for number in range(200):
            life.put(f"k{number % 7}", POISON if number == 3 else b"%d" % number)
        life.wait_followed()
        wait_until(lambda: len(life.read_all()) < 100)
        bodies = [each.body for each in life.read_all()]
        assert (POISON in bodies) is target.endswith("run.key_of"), "kept, or never taken"
        assert bodies[-7:] == [b"%d" % number for number in range(193, 200)]
        assert RECORDS.count(ReadBy.COMPACTION) == 1
    finally:
        life.stop()


# -- a slave's checks ------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["judge", "admit", "admit_many"])
def test_a_replicated_record_that_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    """It is taken unjudged: its parts add up, and a link that ended for it would end again."""
    log = PlainLog(tmp_path / "log", start=0)
    for number in range(25):
        log.append(POISON if number == 10 else b"x")
    usual = getattr(RecordExpectations, target)

    def raising(self: RecordExpectations, found: Any, *rest: Any) -> Any:
        if target == "admit_many" or found.store_timestamp == -1:
            raise PoisonError
        return usual(self, found, *rest)

    def read(record: memoryview) -> Any:
        fields = read_fields(record)
        return fields._replace(store_timestamp=-1) if POISON in record.tobytes() else fields

    monkeypatch.setattr(RecordExpectations, target, raising)
    if target != "admit_many":
        monkeypatch.setattr("ha.record_validator.read_fields", read)
        monkeypatch.setattr(RecordExpectations, "admit_usual", lambda *_: False)
    monkeypatch.setattr("ha.record_validator._MANY", 8 if target == "admit_many" else 1 << 20)
    validators = RecordValidators(
        FILE_SIZE, lambda *_: QueueEnd(0, 0), SystemClock(), check_crc=True
    )
    validator = validators.begin(0)
    file = memoryview(log.path(0).read_bytes())
    for _ in range(20):
        if validator.position < log.end:
            validator.check(file, log.end)
            validator = validators.begin(validator.position)
    assert validator.position == log.end
    assert RECORDS.count(ReadBy.REPLICA_CHECK) == (0 if target == "admit_many" else 1)
