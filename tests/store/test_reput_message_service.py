"""Following the log: chunks, files, blanks, what cannot be dispatched; the thread itself."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from ipc.clock import SystemClock
from store.careful_dispatch import CarefulDispatch
from store.consume_queue_files import ConsumeQueueFiles
from store.consume_queue_table import ConsumeQueueTable
from store.errors import DiskFullError, RecordDamagedError, StoreError
from store.index_service import IndexService
from store.log_dispatch import LogDispatch, dispatch_range
from store.log_fences import new_fence
from store.record_arrays import RecordArrays
from store.record_properties import PropertyExtractor
from store.reput_message_service import ReputMessageService
from store.running_flags import RunningFlag, RunningFlags
from tests.support.memory_commit_log import MemoryCommitLog, RecordingPublisher, message

FILE_SIZE = 4096


class Collector:
    """A dispatcher that remembers phy_offsets."""

    def __init__(self) -> None:
        self.phy_offsets: list[int] = []

    def dispatch(self, records: RecordArrays) -> None:
        self.phy_offsets += records.phy_offsets.tolist()


class Bell:
    """A sleeper that tests ring."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self.sleeping = False
        self.on_lie_down: Callable[[], None] = lambda: None

    def announce_sleep(self) -> None:
        self.sleeping = True
        self.on_lie_down()

    def announce_awake(self) -> None:
        self.sleeping = False

    def ring(self) -> None:
        self.event.set()

    def wait(self, timeout_ms: float) -> None:
        self.event.wait(timeout_ms / 1000)
        self.event.clear()
        self.sleeping = False


class Desk:
    """A service with all its ends in the test's hands."""

    def __init__(
        self, log: MemoryCommitLog, *, slave: bool = False, chunk: int = 500, idle_ms: float = 5
    ) -> None:
        self.log = log
        self.slave = slave
        self.confirm_offset = 1 << 62
        self.collector = Collector()
        self.published: list[int] = []
        self.times: list[int] = []
        self.bell = Bell()
        self.dispatch = LogDispatch(
            log,
            CarefulDispatch(log, PropertyExtractor({}), [self.collector.dispatch]),
            self._publish,
            role=self,
            chunk_size=chunk,
        )
        self.service = ReputMessageService(self.dispatch, self.bell, idle_ms=idle_ms)

    def _publish(self, phy_offset: int, store_timestamp: int | None) -> None:
        self.published.append(phy_offset)
        if store_timestamp is not None:
            self.times.append(store_timestamp)

    def is_slave(self) -> bool:
        return self.slave

    def readable_end(self) -> int:
        return min(self.log.max_phy_offset, self.confirm_offset)

    def fence_damage(self) -> None:
        """As process `store` does."""

        def fence_off(start: int, end: int, reason: str) -> None:
            self.log.fences = self.log.fences.with_fence(new_fence(start, end, reason))

        self.dispatch._fence_off = fence_off

    def run(self) -> None:
        while self.dispatch.dispatch_once():
            pass


def fill(log: MemoryCommitLog, count: int, body_size: int = 20) -> list[int]:
    return [log.append(message("T", 0, n, body=bytes(body_size))) for n in range(count)]


@pytest.mark.parametrize("chunk", [1, 100, 500, 1 << 20])
@pytest.mark.parametrize("start", [0, 5 * FILE_SIZE])
def test_every_record_once_over_file_ends(chunk: int, start: int) -> None:
    log = MemoryCommitLog(FILE_SIZE, start)
    places = fill(log, 120)
    desk = Desk(log, chunk=chunk)
    desk.run()
    assert desk.collector.phy_offsets == places
    assert desk.published[-1] == log.max_phy_offset
    assert desk.published == sorted(set(desk.published))
    assert desk.dispatch.behind_bytes == 0
    assert desk.times


def test_records_larger_than_a_chunk() -> None:
    log = MemoryCommitLog(1 << 16)
    places = [*fill(log, 3), log.append(message(body=bytes(30000))), *fill(log, 3)]
    desk = Desk(log, chunk=400)
    desk.run()
    assert desk.collector.phy_offsets == places


def test_a_published_blank_leads_to_the_next_file() -> None:
    log = MemoryCommitLog(FILE_SIZE)
    places = fill(log, 60)
    second = next(place for place in places if place > FILE_SIZE)
    log.publish_up_to = FILE_SIZE
    desk = Desk(log)
    desk.run()
    assert desk.published[-1] == FILE_SIZE
    log.publish_up_to = None
    desk.run()
    assert second in desk.collector.phy_offsets
    assert desk.collector.phy_offsets == places


def test_a_slave_waits_for_the_rest_of_a_record() -> None:
    log = MemoryCommitLog(FILE_SIZE)
    places = fill(log, 60)
    desk = Desk(log, slave=True)
    for end in range(1, log.max_phy_offset, 37):
        log.publish_up_to = end
        desk.run()
    log.publish_up_to = None
    desk.run()
    assert desk.collector.phy_offsets == places
    assert desk.published[-1] == log.max_phy_offset


def test_a_master_refuses_half_a_record() -> None:
    log = MemoryCommitLog(FILE_SIZE)
    places = fill(log, 3)
    log.publish_up_to = places[2] + 10
    desk = Desk(log)
    with pytest.raises(RecordDamagedError, match=str(places[2])):
        desk.run()
    assert desk.collector.phy_offsets == places[:2]


def damaged() -> tuple[MemoryCommitLog, list[int]]:
    log = MemoryCommitLog(FILE_SIZE)
    places = fill(log, 5)
    log.data[places[3] + 4] ^= 0xFF
    return log, places


def test_damage_stops_a_master_naming_the_offset() -> None:
    log, places = damaged()
    desk = Desk(log)
    with pytest.raises(StoreError, match=f"magic .* at {places[3]}"):
        desk.run()
    assert desk.collector.phy_offsets == places[:3]
    assert desk.dispatch.reput_from_offset == places[3]


def test_damage_at_the_end_stalls_a_slave_and_is_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log, places = damaged()
    log.publish_up_to = places[4]
    desk = Desk(log, slave=True)
    for _ in range(3):
        desk.run()
    assert desk.collector.phy_offsets == places[:3]
    assert caplog.text.count("dispatch waits for a whole record") == 1


@pytest.mark.parametrize("slave", [False, True])
@pytest.mark.parametrize("field", [2, 4, 35, 87])
def test_damage_is_fenced_and_dispatch_goes_on(slave: bool, field: int) -> None:
    """Size, magic, place and body size of a record."""
    log = MemoryCommitLog(FILE_SIZE)
    places = fill(log, 80)
    log.data[places[40] + field] ^= 0x10
    desk = Desk(log, slave=slave)
    desk.fence_damage()
    desk.run()
    assert desk.collector.phy_offsets == places[:40] + places[41:]
    assert [(fence.start, fence.end) for fence in log.fences] == [(places[40], places[41])]


def test_damage_in_the_last_record_of_a_master_is_fenced_up_to_the_end() -> None:
    log = MemoryCommitLog(FILE_SIZE)
    places = fill(log, 5)
    log.data[places[4] + 2] ^= 0x10
    desk = Desk(log)
    desk.fence_damage()
    desk.run()
    assert [(fence.start, fence.end) for fence in log.fences] == [(places[4], log.max_phy_offset)]
    assert desk.dispatch.behind_bytes == 0


def test_recovery_dispatches_around_damage() -> None:
    log = MemoryCommitLog(FILE_SIZE)
    places = fill(log, 80)
    for number in (0, 40, 41, 79):
        log.data[places[number] + 4] ^= 0x10
    found = Collector()

    def fence_off(start: int, end: int, reason: str) -> None:
        log.fences = log.fences.with_fence(new_fence(start, end, reason))

    extractor = PropertyExtractor({})
    end = log.max_phy_offset
    dispatch_range(log, 0, end, extractor, [found.dispatch], fence_off=fence_off)
    assert found.phy_offsets == [
        place for number, place in enumerate(places) if number not in (0, 40, 41, 79)
    ]
    assert [fence.start for fence in log.fences] == [places[0], places[40], places[79]]


def test_an_offset_below_the_log_is_moved_up(caplog: pytest.LogCaptureFixture) -> None:
    log = MemoryCommitLog(FILE_SIZE, 3 * FILE_SIZE)
    places = fill(log, 5)
    desk = Desk(log)
    desk.dispatch.reput_from_offset = 100
    desk.run()
    assert desk.collector.phy_offsets == places
    assert f"continuing at {3 * FILE_SIZE}" in caplog.text


def test_a_missing_file_is_named() -> None:
    log = MemoryCommitLog(FILE_SIZE)
    fill(log, 5)
    log.publish_up_to = 3 * FILE_SIZE
    desk = Desk(log)
    desk.dispatch.reput_from_offset = 2 * FILE_SIZE
    with pytest.raises(StoreError, match=f"no file for offset {2 * FILE_SIZE}"):
        desk.run()


def test_an_append_between_looking_and_lying_down_is_seen() -> None:
    log = MemoryCommitLog(FILE_SIZE)
    desk = Desk(log)

    def append() -> None:
        fill(log, 1)

    desk.bell.on_lie_down = append
    desk.service.step()
    assert desk.collector.phy_offsets == [0]
    assert not desk.bell.sleeping


def test_the_thread_follows_and_catches_up_before_it_stops() -> None:
    log = MemoryCommitLog(FILE_SIZE)
    desk = Desk(log)
    reached = threading.Event()
    publish = desk.published.append

    def publish_and_tell(offset: int, _store_timestamp: int | None) -> None:
        publish(offset)
        if offset == log.max_phy_offset:
            reached.set()

    desk.dispatch._publish = publish_and_tell
    desk.service.start()
    fill(log, 50)
    desk.bell.event.set()
    assert reached.wait(10)
    more = fill(log, 5)
    assert desk.service.shutdown(10_000)
    assert desk.collector.phy_offsets[-1] == more[-1]


def test_a_full_disk_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    log = MemoryCommitLog(FILE_SIZE)
    places = fill(log, 3)
    desk = Desk(log)
    said: list[int] = []
    desk.service._flags = RunningFlags(lambda value, reason: said.append(value))
    collect, full = desk.collector.dispatch, [True, True]

    def dispatch(records: RecordArrays) -> None:
        if full:
            full.pop()
            raise DiskFullError("no room")
        collect(records)

    monkeypatch.setattr(desk.dispatch._careful, "_dispatchers", (dispatch,))
    monkeypatch.setattr(desk.service, "wait_for_running", lambda interval_ms: False)
    for _ in range(3):
        desk.service.step()
    assert desk.collector.phy_offsets == places
    assert desk.service._flags.value == 0
    assert RunningFlag.DISK_FULL in said


def test_room_that_is_made_is_used_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is refused by dispatch itself then, and nobody waits."""
    log = MemoryCommitLog(FILE_SIZE)
    places = fill(log, 3)
    desk = Desk(log)
    desk.service._flags = RunningFlags(lambda value, reason: None)
    asked: list[str] = []
    collect = desk.collector.dispatch

    def dispatch(records: RecordArrays) -> None:
        if not asked:
            raise DiskFullError("no room for the unit")
        collect(records)

    def make_room(why: str) -> bool:
        asked.append(why)
        return True

    monkeypatch.setattr(desk.dispatch._careful, "_dispatchers", (dispatch,))
    monkeypatch.setattr(desk.service, "_make_room", make_room)
    monkeypatch.setattr(desk.service, "wait_for_running", lambda _: pytest.fail("it waits"))
    for _ in range(2):
        desk.service.step()
    assert asked == ["no room for the unit"]
    assert desk.collector.phy_offsets == places
    assert desk.service._flags.value == 0


@pytest.mark.parametrize("room", [True, False])
def test_a_stop_on_a_full_disk(monkeypatch: pytest.MonkeyPatch, room: bool) -> None:
    """It takes the room that there is; without any it leaves the rest to the next start."""
    log = MemoryCommitLog(FILE_SIZE)
    places = fill(log, 3)
    desk = Desk(log)
    full, collect = [True], desk.collector.dispatch

    def dispatch(records: RecordArrays) -> None:
        if full:
            raise DiskFullError("no room")
        collect(records)

    def make_room(why: str) -> bool:
        if room:
            full.clear()
        return room

    monkeypatch.setattr(desk.dispatch._careful, "_dispatchers", (dispatch,))
    monkeypatch.setattr(desk.service, "_make_room", make_room)
    desk.service.finish()
    assert desk.collector.phy_offsets == (places if room else [])
    assert desk.dispatch.behind_bytes == (0 if room else log.max_phy_offset)


def test_dispatch_range_reports_and_refuses() -> None:
    log, places = damaged()
    collector = Collector()
    progress: list[int] = []
    count = dispatch_range(
        log,
        places[1],
        places[3],
        PropertyExtractor({}),
        [collector.dispatch],
        progress.append,
        chunk_size=150,
    )
    assert (count, collector.phy_offsets) == (2, places[1:3])
    assert progress[-1] == places[3]
    with pytest.raises(RecordDamagedError, match=str(places[3])):
        dispatch_range(log, 0, log.max_phy_offset, PropertyExtractor({}), [collector.dispatch])


def test_a_crash_at_any_chunk_leaves_no_trace(tmp_path: Path) -> None:
    """Stop anywhere, dispatch again from anywhere before: the same files as in one go."""
    log = MemoryCommitLog(FILE_SIZE)
    for n in range(150):
        properties = f"UNIQ_KEY\x01u{n}\x02KEYS\x01a{n} b{n}\x02TAGS\x01t".encode()
        log.append(message(f"T{n % 3}", n % 2, n // 6, properties=properties))

    def build(root: Path, ranges: list[tuple[int, int]]) -> dict[str, bytes]:
        files = ConsumeQueueFiles(root / "consumequeue", 200, writable=True)
        queues = ConsumeQueueTable(files, RecordingPublisher())
        index = IndexService(root / "index", 5, 1000, SystemClock(), lambda timestamp: None)
        for start, end in ranges:
            dispatchers = [queues.dispatch, index.dispatch]
            dispatch_range(log, start, end, PropertyExtractor({}), dispatchers, chunk_size=900)
        found = {
            str(path.relative_to(root / "consumequeue")): path.read_bytes()
            for path in (root / "consumequeue").rglob("*")
            if path.is_file()
        }
        (index_file,) = (root / "index").iterdir()
        return found | {"index": index_file.read_bytes()}

    desk = Desk(log, chunk=900)
    desk.run()
    stops = desk.published
    whole = build(tmp_path / "a", [(0, stops[-1])])
    ranges = [(0, stops[2]), (stops[0], stops[5]), (0, stops[3]), (stops[4], stops[-1])]
    assert build(tmp_path / "b", ranges) == whole


def test_a_stop_ends_the_sleep_on_the_bell() -> None:
    desk = Desk(MemoryCommitLog(FILE_SIZE), idle_ms=3_600_000)
    asleep = threading.Event()
    desk.bell.on_lie_down = asleep.set
    desk.service.start()
    assert asleep.wait(10)
    assert desk.service.shutdown(10_000)
