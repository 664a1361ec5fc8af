"""Records that raise: counted once, named, kept over restarts; dispatch goes on behind them."""

from __future__ import annotations

import base64
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ipc.clock import SystemClock
from ipc.control_page import ControlPage, ProcessIndex
from ipc.errors import SharedMemoryFullError
from store.careful_dispatch import dispatch_piece
from store.control_slots import PUT_ASIDE, READING
from store.errors import (
    DiskFullError,
    DispatchStoppedError,
    MessageIllegalError,
    RecordDamagedError,
    StoreError,
)
from store.put_aside import RECORDS, PutAside, ReadBy, RecordGuard, StoredPlace, is_of_record
from store.record_arrays import RecordArrays
from store.record_properties import PropertyExtractor
from store.stored_units import PRE_BLANK_SIZE
from tests.store.test_few_records import World, ordinary
from tests.support.memory_commit_log import MemoryCommitLog, message

POISON = b"POISON"


@pytest.fixture(autouse=True)
def own_list() -> Iterator[None]:
    RECORDS.forget()
    yield
    RECORDS.forget()


class Desk:
    """The list of a process, over its lives and its broker's."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.log = MemoryCommitLog()
        self.page = ControlPage(ControlPage.create())

    def begin(self) -> PutAside:
        records = PutAside()
        records.keep(self.root, self.page, ProcessIndex.REMOTING, self.find_record, SystemClock())
        return records

    def find_record(self, phy_offset: int) -> bytes | None:
        return bytes(self.log.data[phy_offset:]) or None

    def lines(self) -> list[dict[str, object]]:
        text = (self.root / "putaside.remoting.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]


def error_of(text: str = "no number") -> ValueError:
    try:
        raise ValueError(text)
    except ValueError as error:
        return error


def test_a_record_is_named_and_kept_with_its_bytes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    desk = Desk(tmp_path)
    at = desk.log.append(message("Orders", 3, 17, body=b"what it says"))
    desk.begin().put(ReadBy.TIMER_DELIVERY, at, error_of())
    (line,) = desk.lines()
    assert line["by"] == "timer_delivery"
    assert (line["topic"], line["queueId"], line["queueOffset"]) == ("Orders", 3, 17)
    assert line["physicalOffset"] == at
    assert line["error"] == "ValueError: no number"
    assert "in error_of" in str(line["at"])
    assert b"what it says" in base64.b64decode(str(line["record"]))
    assert line["time"]
    for word in ("timer_delivery", "Orders", "queue 3", "queue offset 17", "no number"):
        assert word in caplog.text
    assert desk.page.counters[PUT_ASIDE + ReadBy.TIMER_DELIVERY] == 1


def test_it_counts_once_over_restarts(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    at = desk.log.append(message())
    for _ in range(3):
        records = desk.begin()
        records.put(ReadBy.POP_REVIVAL, at, error_of())
        records.put(ReadBy.FILTER, StoredPlace(at, "T", 0, 0), error_of())
        assert (records.count(ReadBy.POP_REVIVAL), records.count(ReadBy.FILTER)) == (1, 1)
    assert len(desk.lines()) == 2
    # A broker that was started anew has an empty page.
    desk.page = ControlPage(ControlPage.create())
    desk.begin()
    assert desk.page.counters[PUT_ASIDE + ReadBy.POP_REVIVAL] == 1


def test_a_line_that_was_cut_off_is_not_joined_to_the_next(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    path = tmp_path / "putaside.remoting.jsonl"
    path.write_bytes(b'{"by": "filter", "physicalOffset": 1}\n{"by": "fil')
    records = desk.begin()
    assert records.count(ReadBy.FILTER) == 1
    records.put(ReadBy.FILTER, 5, error_of())
    assert json.loads(path.read_text().splitlines()[-1])["physicalOffset"] == 5
    assert desk.begin().count(ReadBy.FILTER) == 2


def test_large_records_leave_room_for_the_lines_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("store.put_aside._FILE_LIMIT", 8_000)
    monkeypatch.setattr("store.put_aside._RECORDS_LIMIT", 4_000)
    desk = Desk(tmp_path)
    places = [desk.log.append(message("T", 0, n, body=bytes(900))) for n in range(10)]
    records = desk.begin()
    for at in reversed(places):  # the last one first: its bytes are 992
        records.put(ReadBy.DISPATCH, at, error_of())
    lines = desk.lines()
    assert [line["physicalOffset"] for line in lines] == places[::-1]
    kept = ["record" in line for line in lines]
    assert kept == sorted(kept, reverse=True)
    assert 0 < sum(kept) < 4
    assert all(line["size"] for line in lines)


def test_a_full_file_takes_no_more_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("store.put_aside._FILE_LIMIT", 1_000)
    desk = Desk(tmp_path)
    records = desk.begin()
    for phy_offset in range(50):
        records.put(ReadBy.FILTER, phy_offset, error_of())
    first = (tmp_path / "putaside.remoting.jsonl").read_bytes()
    assert len(first) <= 1_000
    assert "is full, the record is not copied into it" in caplog.text
    # A process that is started again goes on counting.
    records = desk.begin()
    records.put(ReadBy.FILTER, 99, error_of())
    assert records.count(ReadBy.FILTER) == desk.page.counters[PUT_ASIDE + ReadBy.FILTER] == 51
    assert (tmp_path / "putaside.remoting.jsonl").read_bytes() == first


def test_a_disk_that_is_full_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(28, "No space left on device")

    records = Desk(tmp_path).begin()
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", refuse)
        records.put(ReadBy.FILTER, 5, error_of())
    assert records.count(ReadBy.FILTER) == 1
    assert "cannot be written, the record is not copied into it" in caplog.text


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError(), True),
        (IndexError(), True),
        (UnicodeError(), True),
        (OverflowError(), True),
        (RecursionError(), True),
        (AttributeError(), True),
        (MessageIllegalError(), True),
        (RecordDamagedError(), True),
        (StoreError(), False),
        (DiskFullError(), False),
        (OSError(5, "EIO"), False),
        (TimeoutError(), False),
        (MemoryError(), False),
        (SharedMemoryFullError(), False),
        (DispatchStoppedError(), False),
        (KeyboardInterrupt(), False),
        (SystemExit(), False),
    ],
)
def test_what_is_the_records_fault(error: BaseException, expected: bool) -> None:
    assert is_of_record(error) is expected
    guard = RecordGuard(ReadBy.FILTER)
    if expected:
        with guard.of(7):
            raise error
        assert guard.failed
        assert RECORDS.count(ReadBy.FILTER) == 1
        return
    with pytest.raises(type(error)), guard.of(7):
        raise error
    assert not guard.failed
    assert RECORDS.count(ReadBy.FILTER) == 0


def test_what_is_read_is_said_in_shared_memory(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    guard = RecordGuard(ReadBy.POP_REVIVAL, desk.begin())
    slot = READING + 2 * ProcessIndex.REMOTING
    with guard.of(77):
        assert list(desk.page.counters[slot : slot + 2]) == [1 + ReadBy.POP_REVIVAL, 77]
    assert desk.page.counters[slot] == 0
    with pytest.raises(MemoryError), guard.of(78):
        raise MemoryError
    assert list(desk.page.counters[slot : slot + 2]) == [1 + ReadBy.POP_REVIVAL, 78], "it dies"


# -- dispatch --------------------------------------------------------------------------------------


def poisoned_log(count: int, at: int, *, topic: str = "T") -> tuple[MemoryCommitLog, list[int]]:
    log = MemoryCommitLog()
    places = [
        log.append(
            message(
                topic,
                0,
                number,
                properties=b"UNIQ_KEY\x01u%d\x02KEYS\x01%b\x02TAGS\x01a"
                % (number, POISON if number == at else b"good"),
            )
        )
        for number in range(count)
    ]
    return log, places


def poison_extraction(patch: pytest.MonkeyPatch) -> None:
    """Properties with POISON cannot be read, whichever way is taken."""
    extract, hashes = PropertyExtractor.extract, "store.few_records.key_hashes"

    def raising(self: PropertyExtractor, view: memoryview, at: object, *rest: object) -> object:
        if type(self) is PropertyExtractor and POISON in bytes(view):
            raise IndexError("poison")
        return extract(self, view, at, *rest)  # type: ignore[arg-type]

    def few_raising(properties: bytes, topic: str) -> list[int]:
        if POISON in properties:
            raise IndexError("poison")
        return []

    patch.setattr(PropertyExtractor, "extract", raising)
    patch.setattr(hashes, few_raising)


@pytest.mark.interpreted
@pytest.mark.parametrize("few", [True, False])
@pytest.mark.parametrize("at_once", [True, False])
def test_a_record_with_unreadable_properties_keeps_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: bool, at_once: bool
) -> None:
    poison_extraction(monkeypatch)
    log, places = poisoned_log(40, at=17)
    end = log.start + len(log.data)
    world = World(log, tmp_path, few=few, queue_file=20_000)
    world.follow([end] if at_once else [*places[1:], end])
    queue = world.queues.find("T", 0)
    assert queue is not None
    assert queue.max_offset == 40
    units = queue.read_units(0, 40)
    assert units["phy_offset"].tolist() == places
    assert [number for number, code in enumerate(units["tags_code"].tolist()) if not code] == [17]
    assert RECORDS.count(ReadBy.DISPATCH) == 1
    # What is dispatched again after a crash counts for nothing new.
    world.dispatch.reput_from_offset = 0
    world.follow([end])
    assert RECORDS.count(ReadBy.DISPATCH) == 1
    assert queue.max_offset == 40


@pytest.mark.interpreted
def test_a_delayed_record_is_not_early_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poison_extraction(monkeypatch)
    log = MemoryCommitLog()
    log.append(message("SCHEDULE_TOPIC_XXXX", 4, 0, properties=b"DELAY\x015\x02POISON\x01x"))
    world = World(log, tmp_path, few=True)
    world.follow([len(log.data)])
    queue = world.queues.find("SCHEDULE_TOPIC_XXXX", 4)
    assert queue is not None
    stored_ms = message().store_timestamp
    assert queue.read_units(0, 1)["tags_code"].tolist() == [stored_ms + 60_000], "level 5: 1 m"


@pytest.mark.parametrize("broken", ["queues", "index"])
def test_a_dispatcher_that_raises_lacks_one_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    log, places = poisoned_log(40, at=17)
    world = World(log, tmp_path, few=False, queue_file=20_000)
    dispatchers = list(world.dispatch._careful._dispatchers)
    number = 1 if broken == "queues" else 2
    usual = dispatchers[number]

    def raising(records: object) -> None:
        if places[17] in records.phy_offsets.tolist():  # type: ignore[attr-defined]
            raise KeyError("poison")
        usual(records)  # type: ignore[arg-type]

    dispatchers[number] = raising
    monkeypatch.setattr(world.dispatch._careful, "_dispatchers", tuple(dispatchers))
    world.follow([len(log.data)])
    queue = world.queues.find("T", 0)
    assert queue is not None
    assert queue.max_offset == 40
    assert RECORDS.count(ReadBy.DISPATCH) == 1
    sizes = queue.read_units(0, 40)["size"].tolist()
    blank = [number for number, size in enumerate(sizes) if size == PRE_BLANK_SIZE]
    assert blank == ([17] if broken == "queues" else [])


@pytest.mark.interpreted
def test_what_means_not_now_is_not_put_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, _ = poisoned_log(10, at=5)
    world = World(log, tmp_path, few=False)

    tried: list[object] = []

    def full(records: object) -> None:
        tried.append(records)
        raise DiskFullError("no room")

    monkeypatch.setattr(world.dispatch._careful, "_dispatchers", (full,))
    with pytest.raises(DiskFullError):
        world.dispatch.dispatch_once()
    assert RECORDS.count(ReadBy.DISPATCH) == 0
    assert len(tried) == 1, "no smaller piece is tried"


@pytest.mark.interpreted
def test_repaired_bytes_with_a_record_that_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    poison_extraction(monkeypatch)
    log, places = poisoned_log(40, at=17)
    seen: list[tuple[int, bool]] = []

    def take(records: RecordArrays) -> None:
        tags = records.tags_codes.tolist()
        seen.extend(zip(records.phy_offsets.tolist(), map(bool, tags), strict=True))

    view = memoryview(bytes(log.data))
    dispatch_piece(view, 0, PropertyExtractor({}), take)
    assert seen == [(at, number != 17) for number, at in enumerate(places)]
    assert RECORDS.count(ReadBy.DISPATCH) == 1


# -- no message is forgotten -----------------------------------------------------------------------


def test_no_run_of_few_records_is_forgotten(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Fifteen hundred turns of a quiet broker: each message is in its queue after its turn, and
    dispatch had not to notice that one was missing."""
    log = MemoryCommitLog()
    places = [log.append(message("T", 0, number)) for number in range(1_500)]
    world = World(log, tmp_path, few=True, queue_file=20_000)
    for number, end in enumerate([*places[1:], len(log.data)]):
        world.follow([end])
        queue = world.queues.find("T", 0)
        assert queue is not None
        assert queue.max_offset == number + 1
    assert sum(world.by_few) > 1_490
    assert "got no unit" not in caplog.text


def test_a_run_that_was_forgotten_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """By the dispatch itself, which then takes the way of arrays."""
    log, places = ordinary(60)
    world = World(log, tmp_path / "short", few=True)
    plain = World(log, tmp_path / "plain", few=False)
    append, turn = world.queues.append_runs, [0]

    def forgetful(runs: object, only: object = None) -> None:
        turn[0] += 1
        if only is None and turn[0] % 5 == 0 and not isinstance(runs, list):
            runs = list(runs)[1:]  # type: ignore[call-overload]
        append(runs, only)  # type: ignore[arg-type]

    def usual(records: object) -> None:
        monkeypatch.setattr(world.queues, "append_runs", append)
        world.queues.dispatch(records)  # type: ignore[arg-type]
        monkeypatch.setattr(world.queues, "append_runs", forgetful)

    first, _, *rest = world.dispatch._careful._dispatchers
    monkeypatch.setattr(world.dispatch._careful, "_dispatchers", (first, usual, *rest))
    monkeypatch.setattr(world.queues, "append_runs", forgetful)
    ends = [*places[1:], log.start + len(log.data)]
    world.follow(ends)
    plain.follow(ends)
    assert "got no unit, dispatching it again" in caplog.text
    assert world.state()["queues"] == plain.state()["queues"]


def test_the_first_of_a_kind_has_its_stack_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    records = Desk(tmp_path).begin()
    with caplog.at_level(logging.ERROR):
        for phy_offset in range(3):
            records.put(ReadBy.FILTER, phy_offset, error_of())
    assert [bool(each.exc_info) for each in caplog.records] == [True, False, False]
