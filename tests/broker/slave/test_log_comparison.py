"""broker.slave.log_comparison: whether two logs on disk end alike, and where they part."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.slave.log_comparison import OwnLog, find_common_end, has_same_end, newest_queued_offset
from store.control_slots import MIN_PHY_OFFSET
from store.message_codec import encode_blank
from tests.broker.replica_pair import FakeMaster, ReplicaPair
from tests.support.plain_log import FILE_SIZE, PlainLog

MASTERS = pytest.mark.parametrize("java", [False, True], ids=["ours", "java"])


# -- the end -----------------------------------------------------------------------------------


@MASTERS
@pytest.mark.parametrize("common", [1, 7, 40, 150])
@pytest.mark.parametrize("theirs", [0, 1, 60])
def test_a_slave_that_is_behind_has_the_same_end(
    tmp_path: Path, common: int, theirs: int, java: bool
) -> None:
    pair = ReplicaPair(tmp_path, common=common, theirs=theirs, java=java)
    assert has_same_end(pair.own_log(), pair.master)
    assert pair.master.asked[0] == pair.own.records[-1][0]
    assert len(pair.master.asked) <= 2


@MASTERS
@pytest.mark.parametrize("common", [0, 5, 77])
def test_another_last_record(tmp_path: Path, common: int, java: bool) -> None:
    pair = ReplicaPair(tmp_path, common=common, ours=3, theirs=60, java=java)
    assert not has_same_end(pair.own_log(), pair.master)


@MASTERS
def test_a_frame_that_ends_within_a_record(tmp_path: Path, java: bool) -> None:
    """Every cut of the last record: what is there of it is the master's, or it is not."""
    pair = ReplicaPair(tmp_path, common=20, theirs=5, java=java)
    start, record = pair.own.records[-1]
    for size in (1, 4, 8, 40, len(record) - 1):
        pair.own_max = start + size
        assert has_same_end(pair.own_log(), pair.master), size
    pair.own.put(start + 20, b"\xff")
    for size in (21, 40, len(record) - 1):
        pair.own_max = start + size
        assert not has_same_end(pair.own_log(), pair.master), size


def _file_end(pair: ReplicaPair) -> int:
    """Where the blank of the first file begins."""
    offset, record = max(r for r in pair.own.records if r[0] < FILE_SIZE)
    return offset + len(record)


@MASTERS
def test_a_log_that_ends_with_a_blank(tmp_path: Path, java: bool) -> None:
    pair = ReplicaPair(tmp_path, common=60, java=java)
    blank = _file_end(pair)
    for end in (FILE_SIZE, FILE_SIZE - 1, blank + 8, blank + 3):
        pair.own_max = end
        assert has_same_end(pair.own_log(), pair.master), end


@MASTERS
def test_a_blank_where_the_master_has_a_record(tmp_path: Path, java: bool) -> None:
    """The master lost its blank in a crash, and had a smaller message to write after that."""
    pair = ReplicaPair(tmp_path, common=10, theirs=70, java=java)
    left = FILE_SIZE - pair.common_end
    pair.own.put(pair.common_end, encode_blank(left))
    pair.own_max = FILE_SIZE
    assert not has_same_end(pair.own_log(), pair.master)
    assert find_common_end(pair.own_log(), pair.master) == pair.common_end


@MASTERS
def test_a_record_where_the_master_has_a_blank(tmp_path: Path, java: bool) -> None:
    pair = ReplicaPair(tmp_path, common=10, ours=1, java=java)
    master = pair.master.log
    master.put(master.end, encode_blank(FILE_SIZE - master.end))
    master.end = FILE_SIZE
    master.allocate(FILE_SIZE)
    master.append(b"next file")
    assert not has_same_end(pair.own_log(), pair.master)
    assert find_common_end(pair.own_log(), pair.master) == pair.common_end


def test_rubbish_at_our_end(tmp_path: Path) -> None:
    """Bytes that were published unchecked and are no records."""
    pair = ReplicaPair(tmp_path, common=10, theirs=70)
    pair.own.put(pair.common_end, b"rubbish" * 100)
    pair.own_max = pair.common_end + 700
    assert not has_same_end(pair.own_log(), pair.master)
    assert find_common_end(pair.own_log(), pair.master) == pair.common_end


def test_what_the_master_deleted_cannot_be_compared(tmp_path: Path) -> None:
    pair = ReplicaPair(tmp_path, common=30, theirs=60)
    pair.master.min_offset = (pair.own_max // FILE_SIZE + 1) * FILE_SIZE
    assert has_same_end(pair.own_log(), pair.master)
    assert pair.master.asked == []


@pytest.mark.parametrize("hint", ["first", "late", "last", "wrong", "file before"])
def test_the_walk_to_the_end_begins_near_it(tmp_path: Path, hint: str) -> None:
    pair = ReplicaPair(tmp_path, common=150, theirs=2)
    file = pair.own_max // FILE_SIZE * FILE_SIZE
    inside = [offset for offset, _ in pair.own.records if offset >= file]
    near = {
        "first": inside[0],
        "late": inside[-2],
        "last": inside[-1],
        "wrong": inside[-2] + 1,
        "file before": pair.own.records[0][0],
    }[hint]
    assert pair.own_log(near).tail() == pair.own_log().tail()
    assert has_same_end(pair.own_log(near), pair.master)


def test_an_empty_log_has_no_end(tmp_path: Path) -> None:
    pair = ReplicaPair(tmp_path, common=0, start=FILE_SIZE)
    assert OwnLog(pair.reader, FILE_SIZE, FILE_SIZE).tail() == []


# -- the last common record --------------------------------------------------------------------


@MASTERS
@pytest.mark.parametrize("common", [1, 2, 17, 18, 19, 60, 151])
@pytest.mark.parametrize(("ours", "theirs"), [(1, 1), (40, 3), (3, 40), (90, 90), (1, 0), (50, 0)])
def test_the_last_common_record_is_found(
    tmp_path: Path, common: int, ours: int, theirs: int, java: bool
) -> None:
    pair = ReplicaPair(tmp_path, common=common, ours=ours, theirs=theirs, java=java)
    assert find_common_end(pair.own_log(), pair.master) == pair.common_end
    assert len(pair.master.asked) <= 14


@MASTERS
def test_nothing_in_common(tmp_path: Path, java: bool) -> None:
    pair = ReplicaPair(tmp_path, common=0, ours=50, theirs=50, java=java)
    assert find_common_end(pair.own_log(), pair.master) == -1
    empty = FakeMaster(PlainLog(tmp_path / "empty"))
    assert find_common_end(pair.own_log(), empty) == -1


@MASTERS
def test_only_what_both_still_have_is_compared(tmp_path: Path, java: bool) -> None:
    pair = ReplicaPair(tmp_path, common=150, ours=10, theirs=10, java=java)
    pair.master.min_offset = 2 * FILE_SIZE
    assert find_common_end(pair.own_log(), pair.master) == pair.common_end
    assert min(pair.master.asked) >= 2 * FILE_SIZE
    pair.own_min = pair.page.counters[MIN_PHY_OFFSET] = 3 * FILE_SIZE
    pair.master.asked.clear()
    assert find_common_end(pair.own_log(), pair.master) == pair.common_end
    assert min(pair.master.asked) >= 3 * FILE_SIZE
    pair.master.min_offset = (pair.own_max // FILE_SIZE + 1) * FILE_SIZE
    assert find_common_end(pair.own_log(), pair.master) == -1


def test_a_record_of_ours_that_is_damaged_is_not_common(tmp_path: Path) -> None:
    pair = ReplicaPair(tmp_path, common=30, ours=3, theirs=3)
    offset, record = pair.own.records[29]
    pair.own.put(offset + 90, b"\xee")
    assert find_common_end(pair.own_log(), pair.master) == offset
    assert offset + len(record) == pair.common_end


# -- where the end is near ---------------------------------------------------------------------


class Queues:
    """StoreAccess: the queues and their newest units."""

    def __init__(self, newest: dict[tuple[str, int], int]) -> None:
        self._newest = newest
        self.asked = 0

    def queues(self) -> Iterator[tuple[str, int]]:
        return iter(self._newest)

    def offsets(self, topic: str, queue_id: int) -> tuple[int, int]:
        return (3, 9) if self._newest[topic, queue_id] else (0, 0)

    def unit_at(self, topic: str, queue_id: int, queue_offset: int) -> tuple[int, int, int] | None:
        assert queue_offset == 8
        self.asked += 1
        found = self._newest[topic, queue_id]
        return None if found < 0 else (found, 100, 0)


def test_the_newest_entry_of_a_bounded_number_of_queues() -> None:
    assert newest_queued_offset(Queues({})) == 0
    few = Queues({("A", 0): 500, ("A", 1): 900, ("B", 0): 0, ("B", 1): -1, ("C", 0): 700})
    assert newest_queued_offset(few) == 900
    many = Queues({("A", n): n + 1 for n in range(10_000)})
    assert newest_queued_offset(many) > 9_900
    assert many.asked <= 512
