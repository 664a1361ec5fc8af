"""The scrub of closed log files: which damage it finds, at what rate, and where it goes on."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from store import closed_file_scrubber, scrub_service
from store.closed_file_scrubber import ClosedFileScrubber
from store.commit_log_reader import CommitLogReader
from store.consume_queue_files import ConsumeQueueFiles
from store.consume_queue_table import ConsumeQueueTable
from store.control_slots import (
    CHANGED_CHUNKS,
    DISPATCHED_OFFSET,
    FENCE_COUNT,
    FLUSHED_OFFSET,
    MAX_PHY_OFFSET,
    MIN_PHY_OFFSET,
    SCRUB_DAMAGED_RANGES,
    SCRUB_PASSES,
    SCRUBBED_BYTES,
)
from store.disk_reader import READ_STEP, DiskReader
from store.fence_keeper import FenceKeeper
from store.log_damage import LogDamage
from store.log_digests import LogDigests
from store.log_dispatch import dispatch_range
from store.log_fences import fences_path, load_fences
from store.log_repair import LogRepair
from store.message_store_config import MessageStoreConfig
from store.record_properties import PropertyExtractor
from store.scrub_pace import BUSY_SHARE, ScrubPace, progress_path
from store.scrub_service import ScrubService
from tests.support.manual_clock import ManualClock
from tests.support.memory_commit_log import RecordingPublisher
from tests.support.plain_log import PlainLog
from tests.support.shared_memory import fresh_page

FILE_SIZE = 64 << 10
CHUNK = 16 << 10
RATE = 1 << 20
HOUR_MS = 3_600_000


class TimedScrub(ScrubService):
    """Waiting takes time of its clock only; `waits` counts those for something to do."""

    clock: ManualClock
    waits = 0

    def wait_for_running(self, interval_ms: float) -> bool:
        self.waits += interval_ms == scrub_service.LOOK_MS
        self.clock.advance(int(interval_ms) + 1)
        return False


class Desk:
    """A log of three closed files and one that is not, with its queue, and the scrub."""

    def __init__(self, root: Path) -> None:
        self.log = PlainLog(root / "commitlog", FILE_SIZE)
        number = 0
        while self.log.end < 3 * FILE_SIZE + 1000:
            self.log.append(b"%06d" % number * (40 + number % 90), store_timestamp=1 + number)
            number += 1
        self.config = MessageStoreConfig(
            store_path_root_dir=str(root),
            mapped_file_size_commit_log=FILE_SIZE,
            scrub_bytes_per_second=RATE,
        )
        self.page = fresh_page()
        for slot in (MAX_PHY_OFFSET, FLUSHED_OFFSET, DISPATCHED_OFFSET):
            self.page.counters[slot] = self.log.end
        self.clock = ManualClock()
        self.path = fences_path(self.log.directory)
        self.digests = LogDigests(self.log.directory)
        self.keeper = FenceKeeper(self.path, self.page)
        self.queues = ConsumeQueueTable(
            ConsumeQueueFiles(root / "consumequeue", 2_000, writable=True), RecordingPublisher()
        )
        extractor = PropertyExtractor({})
        dispatch_range(self.reader(), 0, self.log.end, extractor, [self.queues.dispatch])

    def reader(self) -> CommitLogReader:
        return CommitLogReader(self.log.directory, FILE_SIZE, self.page)

    def damage(self) -> LogDamage:
        return LogDamage(self.keeper, self.queues, self.reader())

    def repair(self, scrub: ScrubService | None = None) -> LogRepair:
        return LogRepair(
            self.log.directory,
            FILE_SIZE,
            self.damage(),
            self.queues,
            PropertyExtractor({}),
            scrub.recheck if scrub else lambda start: None,
        )

    def scrub(self) -> TimedScrub:
        self.scrubber = ClosedFileScrubber(
            self.config,
            self.page,
            self.reader(),
            self.damage(),
            self.repair(),
            self.clock,
            chunk_size=CHUNK,
        )
        made = TimedScrub(self.config, self.page, self.scrubber, self.clock)
        made.clock = self.clock
        return made

    def run(self, scrub: TimedScrub | None = None) -> TimedScrub:
        """Until it waits for something to do."""
        scrub = scrub or self.scrub()
        until = scrub.waits + 1
        while scrub.waits < until:
            scrub.step()
        return scrub

    def flip(self, place: int, bit: int = 4) -> None:
        (byte,) = self.log.bytes_at(place, 1)
        self.log.put(place, bytes((byte ^ (1 << bit),)))

    def count(self, slot: int) -> int:
        return self.page.counters[slot]

    def tree(self, start: int) -> dict[str, Any]:
        path = self.digests.directory / f"{start:020d}.json"
        found: dict[str, Any] = json.loads(path.read_text())
        return found


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def record_in(desk: Desk, file: int, number: int = 10) -> tuple[int, bytes]:
    return [each for each in desk.log.records if each[0] // FILE_SIZE == file][number]


def test_digests_are_those_of_the_bytes_up_to_the_blank_record(desk: Desk) -> None:
    desk.run()
    for file in range(3):
        place, record = record_in(desk, file, -1)
        end = place % FILE_SIZE + len(record) + 8
        data = (desk.log.directory / f"{file * FILE_SIZE:020d}").read_bytes()[:end]
        tree = desk.tree(file * FILE_SIZE)
        assert tree["dataEnd"] == end
        assert tree["digests"] == [
            hashlib.blake2b(data[at : at + CHUNK], digest_size=32).hexdigest()
            for at in range(0, FILE_SIZE, CHUNK)
        ]
    assert desk.digests.starts() == [0, FILE_SIZE, 2 * FILE_SIZE]
    assert (desk.count(SCRUB_PASSES), desk.count(FENCE_COUNT)) == (1, 0)
    assert desk.count(SCRUBBED_BYTES) == 3 * FILE_SIZE


def test_nothing_is_read_that_may_still_be_written(desk: Desk) -> None:
    desk.page.counters[FLUSHED_OFFSET] = 2 * FILE_SIZE - 1
    desk.run()
    assert desk.digests.starts() == [0]


@pytest.mark.parametrize("at", [0, 3, 4, 7, 8, 28, 35, 84, 90])
def test_damage_that_a_record_shows_is_fenced(desk: Desk, at: int) -> None:
    place, record = record_in(desk, 1)
    desk.flip(place + at)
    scrub = desk.run()
    (fence,) = load_fences(desk.path)
    assert (fence.start, fence.end) == (place, place + len(record))
    assert fence.queues == (("T", 0, fence.queues[0][2]),)
    assert desk.reader().record_at(place) is None
    assert desk.count(SCRUB_DAMAGED_RANGES) == 1
    assert desk.tree(FILE_SIZE)["damaged"] == [place % FILE_SIZE // CHUNK]
    scrub.request_pass(RATE)
    desk.run(scrub)
    assert (desk.count(SCRUB_DAMAGED_RANGES), desk.count(SCRUB_PASSES)) == (1, 2)


def test_damage_at_the_ends_of_a_file_is_fenced(desk: Desk) -> None:
    first, _ = record_in(desk, 1, 0)
    last, record = record_in(desk, 1, -1)
    desk.flip(first + 4)
    desk.flip(last + len(record) + 4)
    desk.run()
    assert [(fence.start, fence.end) for fence in load_fences(desk.path)] == [
        (first, record_in(desk, 1, 1)[0]),
        (last + len(record), 2 * FILE_SIZE),
    ]


@pytest.mark.parametrize("at", [12, 20, 40, 48, 56, -1])
def test_what_no_record_shows_is_a_changed_chunk(desk: Desk, at: int) -> None:
    scrub = desk.run()
    place, record = record_in(desk, 1)
    before = desk.tree(FILE_SIZE)
    desk.flip(place + at % len(record))
    scrub.request_pass(RATE)
    desk.run(scrub)
    assert (desk.count(CHANGED_CHUNKS), desk.count(FENCE_COUNT)) == (1, 0)
    after = desk.tree(FILE_SIZE)
    chunk = (place + at % len(record)) % FILE_SIZE // CHUNK
    assert after["digests"] == before["digests"]
    assert list(after["found"]) == [str(chunk)]
    # A start knows it, and bytes that are as before end it.
    desk.page.counters[CHANGED_CHUNKS] = 0
    again = desk.run()
    assert desk.count(CHANGED_CHUNKS) == 1
    desk.flip(place + at % len(record))
    again.recheck(place)
    desk.run(again)
    assert desk.count(CHANGED_CHUNKS) == 0


def test_an_accepted_change_is_what_is_expected(desk: Desk) -> None:
    scrub = desk.run()
    place, _ = record_in(desk, 1)
    desk.flip(place + 12)
    scrub.request_pass(RATE)
    desk.run(scrub)
    ((chunk, digest),) = desk.tree(FILE_SIZE)["found"].items()
    desk.scrubber.accept(FILE_SIZE, int(chunk), digest)
    assert desk.count(CHANGED_CHUNKS) == 0
    scrub.request_pass(RATE)
    desk.run(scrub)
    assert desk.count(CHANGED_CHUNKS) == 0


def test_a_replaced_record_is_fenced_kept_and_read_again(desk: Desk, tmp_path: Path) -> None:
    scrub = desk.run()
    place, record = record_in(desk, 1)
    desk.flip(place + 20)
    scrub.request_pass(RATE)
    desk.run(scrub)
    source = tmp_path / "bytes"
    source.write_bytes(record)
    desk.repair(scrub).replace(place, place + len(record), source, "for a test")
    assert desk.log.bytes_at(place, len(record)) == record
    (kept,) = tmp_path.glob("commitlog-damaged-*")
    assert kept.read_bytes()[20] == record[20] ^ 0x10
    assert desk.reader().record_at(place) == record
    assert scrub.status()["unread_repairs"] == 1
    desk.run(scrub)
    assert scrub.status()["unread_repairs"] == 0
    assert (desk.count(CHANGED_CHUNKS), desk.count(FENCE_COUNT)) == (0, 0)


def test_what_the_page_cache_still_has_is_written_again(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, record = record_in(desk, 1)
    path = desk.log.path(place)
    good = path.read_bytes()

    class RottenDisk(DiskReader):
        """Returns a flipped bit until the file is written."""

        def _read_once(self, target: memoryview, position: int) -> int:
            count = super()._read_once(target, position)
            at = place % FILE_SIZE + 90 - position
            is_old = path.stat().st_mtime_ns == written
            if is_old and self._path == path and 0 <= at < count:
                target[at] ^= 1
            return count

    written = path.stat().st_mtime_ns
    monkeypatch.setattr(closed_file_scrubber, "DiskReader", RottenDisk)
    desk.run()
    assert (desk.count(FENCE_COUNT), desk.count(SCRUB_DAMAGED_RANGES)) == (0, 1)
    assert path.stat().st_mtime_ns != written
    assert path.read_bytes() == good
    assert desk.tree(FILE_SIZE)["damaged"] == []
    assert desk.reader().record_at(place) == record


def test_the_rate_holds_in_bytes(desk: Desk) -> None:
    started_ms = desk.clock.monotonic_ms()
    scrub = desk.scrub()
    while not desk.count(SCRUB_PASSES):
        scrub.step()
        passed_s = (desk.clock.monotonic_ms() - started_ms) / 1_000
        assert desk.count(SCRUBBED_BYTES) <= RATE * passed_s + READ_STEP
    assert desk.count(SCRUBBED_BYTES) == 3 * FILE_SIZE


@pytest.mark.parametrize("count", [1, 20])
def test_times_that_are_damaged_hide_no_record_behind_damage(desk: Desk, count: int) -> None:
    """Times of records are under no check; what follows is not as young as these say."""
    number = len([offset for offset, _ in desk.log.records if offset < FILE_SIZE]) // 2
    for offset, _ in desk.log.records[number - count : number]:
        desk.log.put(offset + 56, (1 << 62).to_bytes(8, "big"))
    (offset, raw), following = desk.log.records[number], desk.log.records[number + 1][0]
    desk.log.put(offset, bytes(len(raw)))
    desk.run()
    assert [(fence.start, fence.end) for fence in load_fences(desk.path)] == [(offset, following)]


def test_a_busy_broker_is_read_at_a_tenth() -> None:
    clock, busy = ManualClock(), [False]
    pace = ScrubPace(clock, lambda: busy[0])
    assert [pace.time_of(RATE, RATE) for _ in range(3)] == [0, 1_000, 2_000]
    busy[0] = True
    clock.advance(3_000)
    assert pace.time_of(RATE, RATE) == 3_000
    assert pace.time_of(RATE, RATE) == 3_000 + 1_000 / BUSY_SHARE
    # A read that takes long says that the disk is busy.
    busy[0] = False
    clock.advance(10_000)
    assert pace.time_of(RATE, RATE) == 23_000
    clock.advance(10_501)
    assert pace.time_of(RATE, RATE) == 24_000
    assert pace.time_of(RATE, RATE) == 34_000


def test_a_fast_pass_does_not_wait_for_a_slow_one(desk: Desk) -> None:
    scrub = desk.scrub()
    scrub.request_pass(0.001)
    scrub.step()
    started_ms = desk.clock.monotonic_ms()
    assert scrub.request_pass(RATE) == 2
    desk.run(scrub)
    assert scrub.status()["ended"] == 2
    assert desk.clock.monotonic_ms() - started_ms < 10_000


def test_a_pass_goes_on_where_it_was(desk: Desk) -> None:
    scrub = desk.scrub()
    scrub.step()
    assert json.loads(progress_path(desk.log.directory).read_text())["position"] == FILE_SIZE
    read = desk.count(SCRUBBED_BYTES)
    again = desk.scrub()
    again.step()
    assert desk.digests.starts() == [0, FILE_SIZE]
    assert desk.count(SCRUBBED_BYTES) == read + FILE_SIZE
    desk.run(again)
    assert (desk.count(SCRUBBED_BYTES), desk.count(SCRUB_PASSES)) == (3 * FILE_SIZE, 1)


def test_the_next_pass_comes_after_the_interval_and_a_new_file_at_once(desk: Desk) -> None:
    scrub = desk.run()
    while desk.log.end < 4 * FILE_SIZE + 500:
        desk.log.append(b"more" * 20, store_timestamp=10_000)
    for slot in (MAX_PHY_OFFSET, FLUSHED_OFFSET, DISPATCHED_OFFSET):
        desk.page.counters[slot] = desk.log.end
    desk.run(scrub)
    assert len(desk.digests.starts()) == 4
    assert desk.count(SCRUBBED_BYTES) == 4 * FILE_SIZE
    desk.clock.advance(168 * HOUR_MS)
    desk.run(scrub)
    assert desk.count(SCRUBBED_BYTES) == 8 * FILE_SIZE


def test_a_rate_of_0_reads_nothing_but_what_is_asked_for(desk: Desk) -> None:
    object.__setattr__(desk.config, "scrub_bytes_per_second", 0)
    scrub = desk.run()
    assert desk.count(SCRUBBED_BYTES) == 0
    assert scrub.request_pass(RATE) == 1
    desk.run(scrub)
    assert scrub.status()["ended"] == 1
    assert desk.count(SCRUBBED_BYTES) == 3 * FILE_SIZE


def test_digests_of_deleted_and_of_cut_files_go(desk: Desk) -> None:
    scrub = desk.run()
    desk.page.counters[MIN_PHY_OFFSET] = FILE_SIZE
    desk.run(scrub)
    assert desk.digests.starts() == [FILE_SIZE, 2 * FILE_SIZE]
    for slot in (MAX_PHY_OFFSET, FLUSHED_OFFSET, DISPATCHED_OFFSET):
        desk.page.counters[slot] = 2 * FILE_SIZE + 100
    desk.run()
    assert desk.digests.starts() == [FILE_SIZE]


def test_a_file_that_is_gone_does_not_end_the_scrub(desk: Desk) -> None:
    desk.log.path(FILE_SIZE).write_bytes(b"short")
    desk.run()
    assert desk.digests.starts() == [0, 2 * FILE_SIZE]
    assert desk.count(SCRUB_PASSES) == 1


def test_a_damaged_file_of_digests_is_made_anew(desk: Desk) -> None:
    scrub = desk.run()
    path = desk.digests.directory / f"{0:020d}.json"
    good = json.loads(path.read_text())
    path.write_text("{")
    progress_path(desk.log.directory).write_text("[]")
    desk.run()
    assert json.loads(path.read_text())["digests"] == good["digests"]
    assert scrub.status()["pass"] == 1
