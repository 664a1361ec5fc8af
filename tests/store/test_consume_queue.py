"""One consume queue: build rules, recovery, truncation, retention."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.consume_queue import ConsumeQueue
from store.consume_queue_files import ConsumeQueueFiles
from store.errors import WrongFileSizeError
from store.queue_recovery import QueueRecovery
from store.stored_units import CQ_UNIT, PRE_BLANK_SIZE

FILE_SIZE = 200
"""10 units."""
SIZE = 100


def files(root: Path) -> ConsumeQueueFiles:
    return ConsumeQueueFiles(root, FILE_SIZE, writable=True, open_files=2)


def new_queue(root: Path) -> ConsumeQueue:
    return ConsumeQueue(files(root), "T", 3)


def reopened(root: Path) -> ConsumeQueue:
    queue = new_queue(root)
    QueueRecovery(queue).recover()
    return queue


def unit(phy_offset: int) -> bytes:
    return CQ_UNIT.pack(phy_offset, SIZE, 7)


def put(queue: ConsumeQueue, queue_offset: int, phy_offset: int, count: int = 1) -> bool:
    """`count` records of SIZE bytes that follow each other in queue and log."""
    data = b"".join(unit(phy_offset + n * SIZE) for n in range(count))
    end = phy_offset + count * SIZE
    return queue.append(memoryview(data), queue_offset, phy_offset + SIZE, end)


def phys(queue: ConsumeQueue) -> list[int | None]:
    """phy_offset of every unit from offset 0 or the first file; None for blanks."""
    found: list[int | None] = []
    at = queue.start_offset
    while at < queue.max_offset:
        units = queue.read_units(at, 1000)
        found += [
            None if row["size"] == PRE_BLANK_SIZE else int(row["phy_offset"]) for row in units
        ]
        at += len(units)
    return found


def names(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "T" / "3").iterdir())


def test_units_are_javas_bytes_in_files_of_full_size(tmp_path: Path) -> None:
    queue = new_queue(tmp_path)
    assert put(queue, 0, 0, 12)
    assert (queue.min_offset, queue.max_offset, queue.max_phy_offset) == (0, 12, 1200)
    first = (tmp_path / "T" / "3" / f"{0:020d}").read_bytes()
    second = (tmp_path / "T" / "3" / f"{FILE_SIZE:020d}").read_bytes()
    assert first == b"".join(unit(n * SIZE) for n in range(10))
    assert second == (unit(1000) + unit(1100)).ljust(FILE_SIZE, b"\0")
    assert names(tmp_path) == [f"{0:020d}", f"{FILE_SIZE:020d}"]


def test_a_full_last_file_has_no_successor_yet(tmp_path: Path) -> None:
    put(new_queue(tmp_path), 0, 0, 10)
    assert names(tmp_path) == [f"{0:020d}"]
    assert reopened(tmp_path).max_offset == 10


def test_what_is_built_is_skipped(tmp_path: Path) -> None:
    queue = new_queue(tmp_path)
    put(queue, 0, 0, 5)
    assert not put(queue, 0, 0, 5)
    assert put(queue, 3, 300, 4)
    assert phys(queue) == [n * SIZE for n in range(7)]
    assert not put(queue, 2, 900)  # An old offset with a new record: ignored, as in the original.
    assert queue.max_offset == 7


def test_a_first_file_in_the_middle_gets_blanks_in_front(tmp_path: Path) -> None:
    queue = new_queue(tmp_path)
    put(queue, 23, 5000, 2)
    assert (queue.min_offset, queue.max_offset) == (23, 25)
    raw = (tmp_path / "T" / "3" / f"{400:020d}").read_bytes()
    assert raw[:60] == CQ_UNIT.pack(0, PRE_BLANK_SIZE, 0) * 3
    assert raw[60:100] == unit(5000) + unit(5100)
    again = reopened(tmp_path)
    assert (again.max_offset, again.max_phy_offset) == (25, 5200)
    assert again.correct_min_offset(0)
    assert again.min_offset == 23


def test_a_queue_that_begins_again_is_emptied(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    queue = new_queue(tmp_path)
    put(queue, 0, 0, 15)
    queue.emptied = False
    with caplog.at_level(logging.WARNING):
        assert put(queue, 0, 9000, 2)
    assert queue.emptied
    assert "restarts at offset 0" in caplog.text
    assert phys(queue) == [9000, 9100]
    assert names(tmp_path) == [f"{0:020d}"]
    assert not put(queue, 5, 500)  # The old life, dispatched once more.
    assert phys(reopened(tmp_path)) == [9000, 9100]


def test_a_gap_is_filled_and_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    queue = new_queue(tmp_path)
    put(queue, 0, 0, 5)
    assert put(queue, 18, 700, 2)
    assert caplog.text.count("no record for the offsets before it") == 1
    assert phys(queue) == [0, 100, 200, 300, 400] + [None] * 13 + [700, 800]
    again = reopened(tmp_path)
    assert (again.max_offset, again.max_phy_offset) == (20, 900)
    again.correct_min_offset(450)
    assert again.min_offset == 18


def test_a_huge_gap_begins_anew(tmp_path: Path) -> None:
    queue = new_queue(tmp_path)
    put(queue, 0, 0, 5)
    assert queue.begins_anew_at(1_000_003)
    assert not queue.begins_anew_at(105)
    assert put(queue, 1_000_003, 700)
    assert (queue.min_offset, queue.max_offset) == (1_000_003, 1_000_004)
    assert not queue.whole
    assert names(tmp_path) == [f"{20_000_000:020d}"]
    assert reopened(tmp_path).max_phy_offset == 800


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 35, 60])
def test_recovery_finds_the_end(tmp_path: Path, count: int) -> None:
    if count:
        put(new_queue(tmp_path), 0, 0, count)
        queue = reopened(tmp_path)
    else:
        queue = new_queue(tmp_path)
        (tmp_path / "T" / "3").mkdir(parents=True)
        QueueRecovery(queue).recover()
    assert (queue.max_offset, queue.max_phy_offset) == (count, count * SIZE)
    assert put(queue, count, count * SIZE)
    assert phys(queue) == [n * SIZE for n in range(count + 1)]


def test_recovery_drops_bad_ends_and_zeroes_them(tmp_path: Path) -> None:
    put(new_queue(tmp_path), 0, 0, 25)
    second = tmp_path / "T" / "3" / f"{FILE_SIZE:020d}"
    raw = bytearray(second.read_bytes())
    raw[80:100] = bytes(20)
    second.write_bytes(raw)
    queue = reopened(tmp_path)
    assert (queue.max_offset, queue.max_phy_offset) == (14, 1400)
    assert names(tmp_path) == [f"{0:020d}", f"{FILE_SIZE:020d}"]
    assert second.read_bytes()[80:] == bytes(120)


def test_an_empty_last_file_is_dropped(tmp_path: Path) -> None:
    put(new_queue(tmp_path), 0, 0, 20)
    (tmp_path / "T" / "3" / f"{400:020d}").write_bytes(bytes(FILE_SIZE))
    queue = reopened(tmp_path)
    assert queue.max_offset == 20
    assert names(tmp_path) == [f"{0:020d}", f"{FILE_SIZE:020d}"]


def test_an_empty_only_file_keeps_its_offset(tmp_path: Path) -> None:
    directory = tmp_path / "T" / "3"
    directory.mkdir(parents=True)
    (directory / f"{400:020d}").write_bytes(bytes(FILE_SIZE))
    queue = reopened(tmp_path)
    assert (queue.min_offset, queue.max_offset) == (20, 20)
    assert put(queue, 20, 5000)
    assert phys(queue) == [5000]


def test_sizes_of_files(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    put(new_queue(tmp_path), 0, 0, 20)
    last = tmp_path / "T" / "3" / f"{FILE_SIZE:020d}"
    last.write_bytes(last.read_bytes()[:60])
    (last.parent / "notes.txt").write_text("x")
    assert reopened(tmp_path).max_offset == 13
    assert "completed" in caplog.text
    first = tmp_path / "T" / "3" / f"{0:020d}"
    first.write_bytes(bytes(60))
    assert reopened(tmp_path).doubtful_from == 0, "cut: to be rebuilt"
    first.write_bytes(bytes(60))
    last.write_bytes(bytes(60))
    with pytest.raises(WrongFileSizeError, match="mappedFileSizeConsumeQueue"):
        reopened(tmp_path)


def test_a_missing_file_between_others_is_to_be_rebuilt(tmp_path: Path) -> None:
    queue = new_queue(tmp_path)
    put(queue, 0, 0, 35)
    end_of_first = queue.record_end(9)
    (tmp_path / "T" / "3" / f"{FILE_SIZE:020d}").unlink()
    queue = reopened(tmp_path)
    assert (queue.min_offset, queue.max_offset) == (0, 10)
    assert queue.doubtful_from == end_of_first


def test_files_that_are_far_apart_are_left_out(tmp_path: Path) -> None:
    put(new_queue(tmp_path), 0, 0, 5)
    last = tmp_path / "T" / "3" / f"{50 * FILE_SIZE:020d}"
    last.write_bytes((tmp_path / "T" / "3" / f"{0:020d}").read_bytes())
    queue = reopened(tmp_path)
    assert (queue.min_offset, queue.max_offset) == (500, 505)


@given(st.integers(0, 45), st.integers(0, 46), st.integers(0, 30))
def test_truncation_is_prefix(
    tmp_path_factory: pytest.TempPathFactory, count: int, keep: int, first: int
) -> None:
    root = tmp_path_factory.mktemp("cq")
    queue = new_queue(root)
    if count:
        put(queue, first, 0, count)
    queue.truncate(keep * SIZE)
    left = min(keep, count)
    real = [phy for phy in phys(queue) if phy is not None]
    assert real == [n * SIZE for n in range(left)]
    assert queue.max_phy_offset == left * SIZE
    if count:
        again = reopened(root)
        assert [phy for phy in phys(again) if phy is not None] == real
        assert put(again, first + left, left * SIZE)
        assert phys(again)[-left - 1 :] == [n * SIZE for n in range(left + 1)]
        assert again.max_offset == first + left + 1


def test_a_kill_while_files_are_removed_moves_no_offset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next start truncates to the same place: the queue must end there as without the kill."""
    unlink = os.unlink
    for step in range(7):
        root = tmp_path / str(step)
        put(new_queue(root), 0, 0, 80)
        removals = iter([True] * step)

        def remove(path: str, left: Iterator[bool] = removals) -> None:
            next(left)  # StopIteration: killed.
            unlink(path)

        monkeypatch.setattr(os, "unlink", remove)
        killed = reopened(root)
        with contextlib.suppress(StopIteration):
            killed.truncate(15 * SIZE)
        monkeypatch.setattr(os, "unlink", unlink)
        again = reopened(root)
        again.truncate(15 * SIZE)
        assert phys(again) == [n * SIZE for n in range(15)]


def test_truncation_drops_a_record_that_reaches_over(tmp_path: Path) -> None:
    queue = new_queue(tmp_path)
    put(queue, 0, 0, 5)
    queue.truncate(350)
    assert (queue.max_offset, queue.max_phy_offset) == (3, 300)
    assert reopened(tmp_path).max_offset == 3


@pytest.mark.parametrize(("low", "expected"), [(0, 4), (1, 5), (100, 5), (950, 14), (10**6, 35)])
def test_min_offset_follows_the_log(tmp_path: Path, low: int, expected: int) -> None:
    queue = new_queue(tmp_path)
    put(queue, 4, 0, 31)
    queue.correct_min_offset(low)
    assert queue.min_offset == expected


def test_expired_files_go_but_never_the_last(tmp_path: Path) -> None:
    queue = new_queue(tmp_path)
    put(queue, 0, 0, 25)
    assert not queue.delete_first_expired(900)
    assert queue.delete_first_expired(901)
    assert (queue.min_offset, names(tmp_path)[0]) == (10, f"{FILE_SIZE:020d}")
    assert queue.delete_first_expired(10**6)
    assert not queue.delete_first_expired(10**6)
    assert queue.is_expired(2500)
    assert not queue.is_expired(2499)
    again = reopened(tmp_path)
    assert (again.min_offset, again.max_offset) == (20, 25)


def test_destroy_removes_the_directories(tmp_path: Path) -> None:
    queue = new_queue(tmp_path)
    put(queue, 0, 0, 25)
    queue.destroy()
    assert list(tmp_path.iterdir()) == []
    assert put(queue, 0, 900)


def test_dirty_files(tmp_path: Path) -> None:
    queue = new_queue(tmp_path)
    put(queue, 0, 0, 25)
    starts, names_unsynced, mark = queue.begin_flush()
    assert (list(starts), names_unsynced) == ([0, 200, 400], True)
    put(queue, 25, 2500)
    queue.bounds.mark_flushed(mark)
    starts, names_unsynced, mark = queue.begin_flush()
    assert (list(starts), names_unsynced) == ([400], False)
    queue.empty()
    queue.bounds.mark_flushed(mark)
    assert queue.bounds.flushed == 0


# -- damaged records ---------------------------------------------------------------------------


def test_units_of_records_that_cannot_be_read_are_blank_and_come_back(tmp_path: Path) -> None:
    queue = new_queue(tmp_path)
    put(queue, 0, 0, 12)
    assert queue.repair.blank_out(250, 500) == 5
    assert queue.repair.blank_out(250, 500) == 5
    assert queue.repair.blank_out(1200, 9999) == 0
    expected = [0, 100, 200, None, None, *range(500, 1200, 100)]
    assert phys(queue) == expected
    assert queue.repair.blank_out(1100, 1200) == 12
    assert (queue.max_offset, queue.max_phy_offset) == (12, 1100)
    assert phys(reopened(tmp_path)) == [*expected[:-1], None]
    assert queue.repair.fill_blank(11, 1100, SIZE, 7)
    assert not queue.repair.fill_blank(10, 5, SIZE, 7)
    assert phys(queue) == expected
    assert queue.max_phy_offset == 1200


def test_reserved_offsets_are_used_up(tmp_path: Path) -> None:
    queue = new_queue(tmp_path)
    put(queue, 0, 0, 3)
    assert queue.reserve(5)
    assert not queue.reserve(4)
    assert not queue.reserve(10**9)
    assert phys(queue) == [0, 100, 200, None, None]
    put(queue, 5, 900)
    assert phys(queue) == [0, 100, 200, None, None, 900]


def test_one_record_with_a_wrong_queue_offset_does_not_hide_the_ones_behind_it(
    tmp_path: Path,
) -> None:
    queue = new_queue(tmp_path)
    put(queue, 0, 0, 3)
    put(queue, 3 + 16, 300)
    put(queue, 4, 400, 3)
    assert phys(queue)[:7] == [0, 100, 200, None, 400, 500, 600]
    assert queue.max_offset == 20
