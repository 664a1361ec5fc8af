"""ha.replication_lag: the age of what is not acknowledged, on real files and with V2 records."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ha import replication_lag
from ha.replication_lag import LagAge, ReplicationLag
from store.commit_log_reader import CommitLogReader
from store.control_slots import MAX_PHY_OFFSET, MIN_PHY_OFFSET
from store.errors import StoreError
from store.message_codec import MAGIC_V1, encode_record
from tests.support.manual_clock import ManualClock
from tests.support.memory_commit_log import MemoryCommitLog, message
from tests.support.plain_log import FILE_SIZE, PlainLog
from tests.support.shared_memory import fresh_page

BORN = 1_700_000_000_000


class World:
    """Record n was stored n seconds after BORN; now is a thousand seconds after it."""

    def __init__(self, tmp_path: Path) -> None:
        self.log = PlainLog(tmp_path / "commitlog")
        self.page = fresh_page()
        self.reader = CommitLogReader(self.log.directory, FILE_SIZE, self.page)
        self.lag = ReplicationLag(self.reader, ManualClock(BORN + 1_000_000))

    def fill(self, count: int, size: int = 500) -> None:
        for number in range(count):
            self.log.append(bytes([number]) * size, store_timestamp=BORN + 1000 * number)
        self.page.counters[MAX_PHY_OFFSET] = self.log.end

    def age(self, ack_offset: int) -> LagAge:
        return self.lag.age(ack_offset, BORN + 999_000)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def age_of(number: int, *, exact: bool = True) -> LagAge:
    return LagAge(1_000_000 - 1000 * number, exact)


def test_everything_acknowledged(world: World) -> None:
    world.fill(10)
    assert world.age(world.log.end) == LagAge(0, True)
    assert world.age(world.log.end + 5) == LagAge(0, True)
    assert world.age(2**60) == LagAge(0, True)


def test_at_the_start_of_each_record_and_anywhere_in_it(world: World) -> None:
    world.fill(30)
    assert len(list(world.log.directory.iterdir())) > 3
    for number, (phy_offset, raw) in enumerate(world.log.records):
        for within in (0, 1, 4, 7, 8, 200, len(raw) - 1):
            assert world.age(phy_offset + within) == age_of(number)


def test_in_the_blank_at_a_file_s_end(world: World) -> None:
    world.fill(30)
    blanks = 0
    for number, (phy_offset, raw) in enumerate(world.log.records[:-1]):
        end, following = phy_offset + len(raw), world.log.records[number + 1][0]
        for offset in {end, end + 1, end + 8, following - 1} if following > end else ():
            blanks += 1
            assert world.age(offset) == age_of(number + 1)
    assert blanks > 3


def test_a_blank_alone_is_no_record_to_wait_for(world: World) -> None:
    world.fill(7)
    left = FILE_SIZE - world.log.end % FILE_SIZE
    world.log.append(b"x" * (left - 50), store_timestamp=BORN + 900_000)
    end_of_first = world.log.records[6][0] + len(world.log.records[6][1])
    world.page.counters[MAX_PHY_OFFSET] = world.log.records[7][0]  # the blank is published
    assert world.age(end_of_first) == LagAge(0, True)


def test_below_the_oldest_file(world: World) -> None:
    world.fill(30)
    first_of_second = next(n for n, (at, _) in enumerate(world.log.records) if at >= FILE_SIZE)
    world.page.counters[MIN_PHY_OFFSET] = FILE_SIZE
    os.unlink(world.log.path(0))
    assert world.age(0) == age_of(first_of_second, exact=False)
    assert world.age(FILE_SIZE - 1) == age_of(first_of_second, exact=False)
    assert world.age(FILE_SIZE) == age_of(first_of_second)


def test_a_file_that_vanishes_before_it_is_published_as_gone(world: World) -> None:
    world.fill(30)
    os.unlink(world.log.path(0))
    assert world.age(100).exact is False


def test_no_record_can_be_found(world: World) -> None:
    world.fill(3)
    for phy_offset, _ in world.log.records:
        world.log.put(phy_offset + 4, b"\1\2\3\4")
    assert world.age(100) == LagAge(1000, False)
    empty = world.lag.age(100, 0)
    assert empty == LagAge(0, False), "nobody knows when the newest record was stored"


def test_the_search_is_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replication_lag, "SEARCH_LIMIT", 1500)
    world.fill(1, size=3000)
    world.log.append(b"next", store_timestamp=BORN + 7000)
    world.page.counters[MAX_PHY_OFFSET] = world.log.end
    assert world.age(1400) == age_of(0)
    assert world.age(1700) == LagAge(993_000, False), "the next record: at least its age"
    monkeypatch.setattr(replication_lag, "SEARCH_LIMIT", 700)
    assert world.age(1700) == LagAge(1000, False)


def test_a_magic_code_in_a_body_is_no_record(world: World) -> None:
    magic = MAGIC_V1.to_bytes(4, "big")
    world.log.append(b"a" * 20 + magic * 50, store_timestamp=BORN)
    elsewhere = encode_record(message(phy_offset=12345, store_timestamp=BORN + 5))
    world.log.append(b"b" * 20 + elsewhere, store_timestamp=BORN + 1000)
    world.page.counters[MAX_PHY_OFFSET] = world.log.end
    for number, (phy_offset, raw) in enumerate(world.log.records):
        for within in range(0, len(raw), 3):
            assert world.age(phy_offset + within) == age_of(number)


def test_both_versions_of_records_and_searches_over_chunks() -> None:
    log = MemoryCommitLog(file_size=1 << 20)
    places = []
    for number in range(12):
        record = message(body=bytes(100_000), store_timestamp=BORN + 1000 * number)
        places.append(log.append(record, v2=number % 2 == 0))
    lag = ReplicationLag(log, ManualClock(BORN + 1_000_000))
    for number, phy_offset in enumerate(places):
        for within in (0, 5, 65_528, 65_536, 99_999):
            assert lag.age(phy_offset + within, 0) == age_of(number)


def test_a_clock_that_was_set_back_gives_no_negative_age(world: World) -> None:
    world.fill(3)
    clock = ManualClock(BORN - 10)
    assert ReplicationLag(world.reader, clock).age(0, BORN) == LagAge(0, True)


@pytest.mark.parametrize(
    "error", [StoreError("cannot be opened"), OSError(24, "Too many open files", "commitlog")]
)
def test_a_file_that_cannot_be_opened_is_as_one_that_is_gone(
    world: World, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    world.fill(3)

    def refuse(_offset: int) -> None:
        raise error

    monkeypatch.setattr(world.reader, "view_of_file", refuse)
    assert world.age(0) == LagAge(1000, False)


def test_a_file_that_cannot_be_opened_is_said_once(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world.fill(30)
    trouble = "too many open files"

    def fail(_offset: int) -> None:
        raise StoreError(trouble)

    monkeypatch.setattr(world.reader, "view_of_file", fail)
    for _ in range(3):
        assert not world.age(0).exact
    trouble = "no memory"
    world.age(0)
    said = [record.getMessage().rpartition(": ")[2] for record in caplog.records]
    assert said == ["too many open files", "no memory"]
