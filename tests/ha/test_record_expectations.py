"""What a slave expects of the next record: legitimate logs pass, flipped bits do not."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ha.record_doubts import RecordDoubts
from ha.record_expectations import CHOSEN_BY_CLIENTS, Field, QueueEnd
from ha.record_validator import BadRecord, RecordValidator, RecordValidators
from ipc.clock import SystemClock
from store.message_codec import encode_blank, encode_record
from tests.support.every_row import every_row
from tests.support.manual_clock import ManualClock
from tests.support.memory_commit_log import as_v2, message

GOLDEN = Path(__file__).parents[1] / "golden" / "store-G"
SIZE = 1 << 16
NOW = 1_795_177_732_448


def at_zero(_topic: str, _queue_id: int, _phy_offset: int) -> QueueEnd:
    return QueueEnd(0, 0)


def anywhere(_topic: str, _queue_id: int, phy_offset: int) -> QueueEnd:
    return QueueEnd(0, phy_offset // 91)


class Log:
    """Records of queues in turn, as a Java master writes them; `fields` changes single ones."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.starts: list[int] = []
        self._next: dict[tuple[str, int], int] = {}

    def add(self, topic: str = "TopicTest", queue_id: int = 0, **fields: Any) -> Log:
        key = (topic, queue_id)
        offset = fields.pop("queue_offset", self._next.get(key, 0))
        if not fields.get("sys_flag", 0) & 4:
            self._next[key] = offset + 1
        number = len(self.starts)
        plain = message(
            topic,
            queue_id,
            offset,
            born_timestamp=NOW + number,
            properties=b"KEYS\x01k%d\x02" % number,
            body=bytes([65 + number % 26]) * (10 + number % 7),
        )
        fields.setdefault("store_timestamp", NOW + number)
        self.starts.append(len(self.data))
        whole = dataclasses.replace(plain, phy_offset=len(self.data), **fields)
        self.data += encode_record(whole)
        return self


def usual(count: int) -> Log:
    log = Log()
    for number in range(count):
        log.add(("TopicTest", "other-topic", "third")[number % 3], number % 4)
    return log


def validator(
    ends: Callable[[str, int, int], QueueEnd] = at_zero, *, check_crc: bool = False
) -> RecordValidator:
    return RecordValidators(SIZE, ends, SystemClock(), check_crc=check_crc).begin(0)


def judge(
    log: Log | bytes, *, many: bool, ends: Callable[[str, int, int], QueueEnd] = at_zero
) -> tuple[BadRecord | None, int]:
    """What is said of a file with the log, in columns or one by one."""
    data = bytes(log.data) if isinstance(log, Log) else log
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ha.record_validator._MANY", 1 if many else SIZE)
        made = validator(ends)
        return made.check(memoryview(data.ljust(SIZE, b"\0")), len(data)), made.position


both = pytest.mark.parametrize("many", [True, False], ids=["columns", "one-by-one"])


# -- what is legitimate ------------------------------------------------------------------------


@both
def test_an_inner_batch_uses_up_an_offset_for_each_message(many: bool) -> None:
    """5.3.3, topics with queue.type=BatchCQ."""
    log = usual(20)
    for base, number in ((0, 3), (3, 1), (4, 32_767)):
        properties = b"INNER_NUM\x01%d\x02INNER_BASE\x01%d" % (number, base)
        log.add("batches", sys_flag=192, queue_offset=base, properties=properties)
    log.add("batches", queue_offset=32_771).add("batches")
    assert judge(log, many=many) == (None, len(log.data))
    for offset in (32_772, 32_774):
        wrong = Log()
        wrong.data, wrong.starts = bytearray(log.data), list(log.starts)
        bad, position = judge(wrong.add("batches", queue_offset=offset), many=many)
        assert bad is not None
        assert position == len(log.data)


@pytest.mark.parametrize("node", ["master", "slave2", "master-while-running"])
@pytest.mark.parametrize("piece", [77, 4096, 16384])
def test_every_record_of_a_java_broker_is_expected(node: str, piece: int) -> None:
    """Half and op messages, delays, retries, batches and replies, as 4.9.8 wrote them."""
    files = sorted((GOLDEN / node / "commitlog").iterdir())
    start = int(files[0].name)
    made = RecordValidators(16384, anywhere, SystemClock(), check_crc=True).begin(start)
    for path in files:
        file = memoryview(path.read_bytes())
        for received in range(piece, 16384 + piece, piece):
            bad = made.check(file, int(path.name) + min(received, 16384))
            if bad is not None:
                assert bad.text == "zero bytes"
                assert not any(file[made.position % 16384 :])
                return
    assert made.position == int(files[-1].name) + 16384


@both
@pytest.mark.parametrize(
    "name", ["%RETRY%G_T", "%RETRY%G+T", "%RETRY%G_".ljust(128, "T"), "%RETRY%G+".ljust(255, "T")]
)
def test_every_retry_topic_of_pops_is_usual(name: str, many: bool) -> None:
    """V2 names have a "+", long ones V2 records."""
    log = usual(20)
    for _ in range(20):
        log.add().add(name)
    assert judge(log, many=many) == (None, len(log.data))
    bad, position = judge(log.add(name, queue_offset=25), many=many)
    assert bad is not None
    assert "continues at 20" in bad.text
    assert position == log.starts[-1]


@both
def test_kinds_that_are_usual(many: bool) -> None:
    log = Log()
    for number in range(8):
        log.add(sys_flag=number % 4)  # compressed, several tags
        log.add("RMQ_SYS_TRANS_HALF_TOPIC", 0)
        log.add(sys_flag=8, prepared_transaction_offset=log.starts[-1])  # a committed half
        log.add("other", sys_flag=4)  # prepared: no offset of its own
        log.add("other", sys_flag=12)
        log.add("%RETRY%group", reconsume_times=16, born_timestamp=NOW - 30 * 86_400_000)
        log.add("SCHEDULE_TOPIC_XXXX", 17, born_timestamp=NOW + 3_600_000)
        log.add("zstd", sys_flag=0x201)
    assert judge(log, many=many) == (None, len(log.data))


def test_ipv6_hosts_and_v2_records() -> None:
    data = b""
    for number in range(60):
        plain = message(
            queue_offset=number,
            phy_offset=len(data),
            born_timestamp=NOW,
            sys_flag=(0, 0x10)[number % 2],
        )
        record = encode_record(plain)
        data += as_v2(record) if number % 3 == 0 else record
    assert judge(data, many=True) == (None, len(data))


def test_a_queue_that_the_slave_knows_goes_on_where_it_ends() -> None:
    log = Log().add(queue_offset=700).add()
    ends = {700: QueueEnd(700, 700), 650: QueueEnd(650, 710)}
    for end in ends.values():
        assert judge(log, many=False, ends=lambda *_, end=end: end)[0] is None
    bad, position = judge(log, many=False, ends=lambda *_: QueueEnd(701, 701))
    assert bad is not None
    assert bad.is_record
    assert position == 0
    assert "queueOffset says 700, queue TopicTest/0 continues at 701" in bad.text


def test_a_topic_that_was_deleted_begins_again_at_0() -> None:
    """The consume queue is empty then, and dispatch has seen all that was published."""
    data = Log().add().add().add(queue_offset=0).data
    made = validator(at_zero)
    assert made.check(memoryview(bytes(data).ljust(SIZE)), len(data)) is None


def test_another_place_in_the_log_forgets_what_was_expected() -> None:
    log = usual(20)
    made = RecordValidators(SIZE, anywhere, SystemClock(), check_crc=False)
    file = memoryview(bytes(log.data).ljust(SIZE, b"\0"))
    assert made.begin(0).check(file, log.starts[10]) is None
    assert made.begin(log.starts[12]).check(file, len(log.data)) is None


# -- what is not -------------------------------------------------------------------------------

ODD: dict[str, tuple[dict[str, Any], Field]] = {
    "far offset": ({"queue_offset": 68_719_476_774}, Field.QUEUE_OFFSET),
    "one too far": ({"queue_offset": 9}, Field.QUEUE_OFFSET),
    "again": ({"queue_offset": 7}, Field.QUEUE_OFFSET),
    "negative offset": ({"queue_offset": -1}, Field.QUEUE_OFFSET),
    "back to 0": ({"queue_offset": 0}, Field.QUEUE_OFFSET),
    "prepared with an offset": ({"sys_flag": 4, "queue_offset": 8}, Field.QUEUE_OFFSET),
    "another queue": ({"queue_id": 3, "queue_offset": 8}, Field.QUEUE_OFFSET),
    "another topic": ({"topic": "TopicUest", "queue_offset": 8}, Field.QUEUE_OFFSET),
    "no topic": ({"topic": "", "queue_offset": 0}, Field.TOPIC),
    "two signs": ({"topic": "%RETRY%G+T+T", "queue_offset": 0}, Field.TOPIC),
    "a bad name": ({"topic": "Topic\x14est", "queue_offset": 0}, Field.TOPIC),
    "queue id": ({"queue_id": 1 << 20, "queue_offset": 0}, Field.QUEUE_ID),
    "negative queue id": ({"queue_id": -(1 << 31), "queue_offset": 0}, Field.QUEUE_ID),
    "flags": ({"sys_flag": 1 << 20}, Field.SYS_FLAG),
    "stored early": ({"store_timestamp": NOW - (1 << 20)}, Field.STORE_TIMESTAMP),
    "stored late": ({"store_timestamp": NOW + (1 << 40)}, Field.STORE_TIMESTAMP),
    "born early": ({"born_timestamp": NOW - (1 << 40)}, Field.BORN_TIMESTAMP),
    "born late": ({"born_timestamp": NOW + (1 << 28)}, Field.BORN_TIMESTAMP),
    "store host": ({"store_host": bytes((126, 0, 0, 1, 0, 0, 42, 159))}, Field.STORE_HOST),
    "born port": ({"born_host": bytes((127, 0, 0, 1, 0, 1, 42, 159))}, Field.BORN_PORT),
    "reconsumed": ({"reconsume_times": 1 << 25}, Field.RECONSUME_TIMES),
    "a half's place": ({"prepared_transaction_offset": 64}, Field.PREPARED_TRANSACTION_OFFSET),
    "a later half": (
        {"prepared_transaction_offset": 1 << 40, "sys_flag": 8},
        Field.PREPARED_TRANSACTION_OFFSET,
    ),
}


@both
@every_row("kind", ODD)
def test_a_field_that_cannot_be_is_named(kind: str, many: bool) -> None:
    fields, field = ODD[kind]
    log = Log()
    for _ in range(8):
        log.add()
    place = len(log.data)
    log.add(**fields)
    for number in range(8):
        log.add(queue_offset=9 + number)
    bad, position = judge(log, many=many, ends=anywhere)
    assert bad is not None
    assert bad.is_record
    assert not bad.came_before
    is_no_topic = field is Field.TOPIC and "is not a topic name" in bad.text
    assert bad.text.startswith(field) or is_no_topic
    assert position == place


def test_a_time_that_only_the_next_record_gives_away() -> None:
    """A log of last year is copied: then a jump ahead is not beyond the slave's own clock."""
    log = Log()
    for number in range(30):
        past = NOW - 300 * 86_400_000 + number
        log.add(store_timestamp=past + (1 << 26 if number == 20 else 0), born_timestamp=past)
    bad, position = judge(log, many=True)
    assert bad is not None
    assert bad.text.startswith(Field.STORE_TIMESTAMP)
    assert position == log.starts[20]


@pytest.mark.parametrize("seed", range(4))
def test_columns_say_what_one_by_one_says(seed: int) -> None:
    """One flipped bit anywhere in the heads; only the jump ahead is seen in columns alone."""
    chance = random.Random(seed)
    data = bytes(usual(60).data)
    starts = usual(60).starts
    for _ in range(300):
        flipped = bytearray(data)
        at = chance.choice(starts) + chance.randrange(110)
        flipped[min(at, len(data) - 1)] ^= 1 << chance.randrange(8)
        columns, one = (judge(bytes(flipped), many=many) for many in (True, False))
        if columns[0] is not None and columns[0].text.startswith(Field.STORE_TIMESTAMP):
            assert columns[1] <= one[1]
        else:
            assert columns[1] == one[1]
            assert (columns[0] is None) == (one[0] is None)


def test_most_flips_in_heads_and_topics_are_seen() -> None:
    """The others are in what nothing can be compared with: see docs/replication.md."""
    log = usual(60)
    place = log.starts[40]
    end = log.starts[41]
    unseen = set()
    for bit in range(8 * (end - place)):
        flipped = bytearray(log.data)
        flipped[place + bit // 8] ^= 1 << bit % 8
        made = validator(check_crc=True)
        bad = made.check(memoryview(bytes(flipped).ljust(SIZE, b"\0")), len(flipped))
        if bad is None or made.position > place:
            unseen.add(bit // 8)
    # A low bit of queueId: a queue that has as many records. The rest: nothing to compare with.
    head = {15, *range(16, 20), *range(36, 64), *range(72, 76)}
    properties = range(end - place - 12, end - place)
    assert unseen <= head | set(properties)
    assert {17, 39, 48, 55 - 8} <= unseen  # flag, compression, born address, born time's low bits


# -- what comes twice --------------------------------------------------------------------------


class Twice:
    """A slave that asks again for what it has refused."""

    def __init__(self) -> None:
        self.clock = ManualClock(NOW)
        self.made = RecordValidators(SIZE, at_zero, self.clock, check_crc=True)
        self.position = 0

    def receive(self, data: bytes | bytearray) -> BadRecord | None:
        """One link that sends the log up to its end."""
        link = self.made.begin(self.position)
        bad = link.check(memoryview(bytes(data).ljust(SIZE, b"\0")), len(data))
        self.position = link.position
        return bad


def test_a_flip_on_the_way_is_right_the_second_time() -> None:
    log, slave = usual(40), Twice()
    flipped = bytearray(log.data)
    flipped[log.starts[30] + 22] ^= 1
    bad = slave.receive(flipped)
    assert bad is not None
    assert slave.position == log.starts[30]
    assert slave.receive(log.data) is None
    assert slave.position == len(log.data)


def test_what_comes_twice_is_the_masters_own(caplog: pytest.LogCaptureFixture) -> None:
    slave = Twice()
    log = Log().add().add().add(queue_offset=900).add().add()
    assert slave.receive(log.data) is not None
    assert slave.receive(log.data) is None
    assert slave.position == len(log.data)
    assert "came twice with the same bytes" in caplog.text


def test_bytes_that_are_no_record_stay_refused() -> None:
    log, slave = usual(40), Twice()
    flipped = bytearray(log.data)
    flipped[log.starts[30] + 3] ^= 1  # the size
    for came_before in (False, True, True):
        bad = slave.receive(flipped)
        assert bad == (bad and bad._replace(is_record=False, came_before=came_before))
        assert slave.position == log.starts[30]
    assert slave.receive(log.data) is None


def test_a_field_that_a_master_writes_otherwise_is_left_alone_for_an_hour() -> None:
    slave = Twice()
    log = Log()
    for number in range(40):
        log.add(reconsume_times=1 << 20 if number % 2 else 0)
    refused = 0
    while slave.position < len(log.data):
        refused += slave.receive(log.data) is not None
    assert refused == 3
    slave.clock.advance(3_600_000)
    log.add(reconsume_times=1 << 20)
    assert slave.receive(log.data) is not None


# -- a link whose frames carry checksums ---------------------------------------------------------


def checked(log: Log, made: RecordValidators, *, many: bool) -> None:
    """Everything that the master has is taken at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ha.record_validator._MANY", 1 if many else SIZE)
        link = made.begin(0, is_checked=True)
        assert link.check(memoryview(bytes(log.data).ljust(SIZE, b"\0")), len(log.data)) is None
        assert link.position == len(log.data)


@both
@pytest.mark.parametrize("kind", ODD)
def test_on_a_checked_link_an_odd_record_is_taken_at_once(
    kind: str, many: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """It is what the master has. Of what clients choose nothing is odd; the rest is said."""
    fields, field = ODD[kind]
    log = Log()
    for _ in range(8):
        log.add()
    log.add(**fields).add("other-topic")
    checked(log, RecordValidators(SIZE, anywhere, ManualClock(NOW), check_crc=True), many=many)
    said = [line for line in caplog.messages if "which is the master's" in line]
    if field in CHOSEN_BY_CLIENTS:
        assert said == []
    else:
        assert str(log.starts[8]) in said[0]


def test_a_checked_link_never_stops_judging_a_field(caplog: pytest.LogCaptureFixture) -> None:
    """Nor does it forget what it has not said, since lines come once a minute."""
    clock = ManualClock(NOW)
    made = RecordValidators(SIZE, anywhere, clock, check_crc=True)
    log = Log()
    for number in range(20):
        log.add(store_host=bytes((127, 0, 0, number, 0, 0, 42, 159)))
    checked(log, made, many=False)
    assert len(caplog.messages) == 1
    clock.advance(60_000)
    checked(log, made, many=False)
    assert len(caplog.messages) == 2
    assert "18 more" in caplog.messages[1]


def test_a_checked_link_switches_no_check_of_another_one_off() -> None:
    clock = ManualClock(NOW)
    made = RecordValidators(SIZE, anywhere, clock, check_crc=True)
    log = Log()
    for number in range(40):
        log.add(reconsume_times=-5, store_host=bytes((127, 0, 0, number, 0, 0, 42, 159)))
    checked(log, made, many=True)
    link = made.begin(0)
    assert link.check(memoryview(bytes(log.data).ljust(SIZE, b"\0")), len(log.data)) is not None


def test_doubts_forget_other_places() -> None:
    doubts = RecordDoubts(SystemClock())
    assert not doubts.came_before(10, memoryview(b"a"))
    assert not doubts.came_before(11, memoryview(b"a"))
    assert not doubts.came_before(10, memoryview(b"a"))
    assert doubts.came_before(10, memoryview(b"a"))


def test_a_blank_is_no_gap() -> None:
    log = Log().add().add()
    file = memoryview(bytes(log.data) + encode_blank(SIZE - len(log.data)).ljust(64, b"x"))
    file = memoryview(bytes(file).ljust(SIZE, b"y"))
    made = RecordValidators(SIZE, at_zero, SystemClock(), check_crc=False)
    first = made.begin(0)
    assert first.check(file, SIZE) is None
    assert first.position == SIZE
    following = message("TopicTest", 0, 2, phy_offset=SIZE, born_timestamp=NOW, store_timestamp=NOW)
    record = encode_record(following)
    assert made.begin(SIZE).check(memoryview(record.ljust(SIZE, b"\0")), SIZE + len(record)) is None
