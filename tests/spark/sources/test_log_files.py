"""Which files are read, and what lacks between them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from spark.sources.errors import OptionError, SourceError
from spark.sources.log_files import CLOCK_MS, LogPlan, plan_log
from spark.sources.log_filter import Bounds, LogFilter
from store.mapped_file import file_name
from store.message_codec import encode_record
from tests.support.memory_commit_log import message

SIZE = 4096
DAY_MS = 86_400_000
MS = 1_795_000_000_000


def put(directory: Path, start: int, size: int = SIZE, *, ms: int = MS, **more: int) -> Path:
    fields = {"born_timestamp": ms, "store_timestamp": ms, **more}
    record = encode_record(message("T", phy_offset=start, **fields))
    path = directory / file_name(start)
    path.write_bytes(record.ljust(size, b"\0")[:size])
    return path


def plan(*paths: Path, live: bool = False) -> LogPlan:
    return plan_log([str(path) for path in paths], is_written=live)


def sizes(found: LogPlan) -> list[tuple[int, int]]:
    return [(each.file.start, each.file.size) for each in found.files]


def test_a_directory_and_the_store_around_it(tmp_path: Path) -> None:
    log = tmp_path / "commitlog"
    log.mkdir()
    put(log, 0)
    put(log, SIZE)
    (log / "notes.txt").write_text("x")
    (log / "1").write_text("x")
    assert sizes(plan(tmp_path)) == sizes(plan(log)) == [(0, SIZE), (SIZE, SIZE)]
    assert [each.file.is_newest for each in plan(log).files] == [False, True]


def test_only_what_brokers_write_is_being_written(tmp_path: Path) -> None:
    put(tmp_path, 0)
    put(tmp_path, SIZE)
    assert [each.file.is_written for each in plan(tmp_path, live=True).files] == [False, True]


def test_files_that_were_made_before_they_were_needed(tmp_path: Path) -> None:
    put(tmp_path, 0)
    put(tmp_path, SIZE)
    for number in (2, 3):
        (tmp_path / file_name(number * SIZE)).write_bytes(bytes(SIZE))
    (tmp_path / file_name(4 * SIZE)).write_bytes(b"")
    newest = [each.file.is_newest for each in plan(tmp_path).files]
    assert newest == [False, True, True, True, True]


def test_what_is_missing_is_a_gap(tmp_path: Path) -> None:
    for number in (0, 1, 4):
        put(tmp_path, number * SIZE)
    (gap,) = plan(tmp_path).gaps
    assert (gap.kind, gap.start, gap.end) == ("missing", 2 * SIZE, 4 * SIZE)


def test_a_shorter_file_should_have_been_longer(tmp_path: Path) -> None:
    put(tmp_path, 0)
    put(tmp_path, SIZE, 100)
    put(tmp_path, 2 * SIZE)
    put(tmp_path, 3 * SIZE, 0)
    assert sizes(plan(tmp_path)) == [(number * SIZE, SIZE) for number in range(4)]
    assert not plan(tmp_path).gaps


def test_a_file_reaches_to_the_next_at_most(tmp_path: Path) -> None:
    put(tmp_path, 0, 3 * SIZE)
    put(tmp_path, SIZE)
    put(tmp_path, 2 * SIZE)
    assert sizes(plan(tmp_path)) == [(number * SIZE, SIZE) for number in range(3)]


def test_files_by_their_names(tmp_path: Path) -> None:
    first, second = put(tmp_path, 0), put(tmp_path, SIZE)
    renamed = second.rename(tmp_path / "backup.of.friday")
    assert sizes(plan(first, renamed)) == [(0, SIZE), (SIZE, SIZE)]


def test_a_name_that_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "backup").write_bytes(b"no record")
    with pytest.raises(OptionError, match=r"backup: its name .*20 digits.*: rename it"):
        plan(tmp_path / "backup")


def test_no_log(tmp_path: Path) -> None:
    (tmp_path / "readme").write_text("x")
    with pytest.raises(OptionError, match=r"no file of a commit log.*there is: readme"):
        plan(tmp_path)
    with pytest.raises(OptionError, match=r"gone: No such file.*every executor"):
        plan(tmp_path / "gone")
    with pytest.raises(OptionError, match=r"no log is named"):
        plan_log([], is_written=False)
    with pytest.raises(OptionError, match=r"hdfs://x/y: only files that are mounted"):
        plan_log(["hdfs://x/y"], is_written=False)


def test_what_is_no_file_of_a_log(tmp_path: Path) -> None:
    """A FIFO would wait for ever; offsets have 63 bits."""
    fifo = tmp_path / f"{0:020}"
    os.mkfifo(fifo)
    with pytest.raises(OptionError, match="neither a directory nor a regular file"):
        plan(fifo)
    with pytest.raises(OptionError, match="no file of a commit log"):
        plan(tmp_path)
    (tmp_path / ("9" * 20)).write_bytes(b"x")
    with pytest.raises(OptionError, match=r"no log has a file that begins at 9{20}"):
        plan(tmp_path)


def test_two_copies_of_one_file(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        put(tmp_path / name, 0)
    with pytest.raises(OptionError, match="the same part of a log"):
        plan(tmp_path / "a", tmp_path / "b")


def test_a_log_of_several_directories(tmp_path: Path) -> None:
    for number, name in enumerate(("a", "b")):
        (tmp_path / name).mkdir()
        put(tmp_path / name, number * SIZE)
    assert sizes(plan(tmp_path / "b", tmp_path / "a")) == [(0, SIZE), (SIZE, SIZE)]


def test_a_file_that_vanishes_while_it_is_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put(tmp_path, 0)
    monkeypatch.setattr("spark.sources.log_files._with_sizes", lambda files: path.unlink() or files)
    with pytest.raises(SourceError, match="gone since the log was listed"):
        plan(tmp_path)


# -- filters -----------------------------------------------------------------------------------


def wanted(found: LogPlan, **bounds: Bounds) -> list[int]:
    return [file.start // SIZE for file in found.wanted(LogFilter(bounds=bounds))]


def test_files_of_other_places_are_left_out(tmp_path: Path) -> None:
    for number in range(4):
        put(tmp_path, number * SIZE)
    found = plan(tmp_path)
    assert wanted(found, physical_offset=Bounds(SIZE, 2 * SIZE - 1)) == [1]
    assert wanted(found, physical_offset=Bounds(SIZE, 2 * SIZE)) == [1, 2]


def test_files_of_other_times_are_left_out(tmp_path: Path) -> None:
    for number in range(5):
        put(tmp_path, number * SIZE, ms=MS + number * DAY_MS)
    noon = MS + 2 * DAY_MS + DAY_MS // 2
    found = plan(tmp_path)
    assert wanted(found, store_timestamp=Bounds(noon, noon)) == [2]
    morning = MS + 2 * DAY_MS
    assert wanted(found, store_timestamp=Bounds(morning, morning)) == [1, 2]
    assert wanted(found, store_timestamp=Bounds(morning - CLOCK_MS, noon)) == [1, 2]
    assert wanted(found, store_timestamp=Bounds(noon)) == [2, 3, 4]
    for near in (morning - CLOCK_MS // 2, morning + CLOCK_MS // 2):
        assert wanted(found, store_timestamp=Bounds(near, near)) == [1, 2]
    for away in (morning - 2 * CLOCK_MS, morning + 2 * CLOCK_MS):
        assert len(wanted(found, store_timestamp=Bounds(away, away))) == 1
    assert wanted(found, store_timestamp=Bounds(MS + 50 * DAY_MS)) == [4]


def test_a_damaged_time_leaves_out_nothing(tmp_path: Path) -> None:
    for number in range(4):
        put(tmp_path, number * SIZE, ms=MS + number * DAY_MS)
    noon = MS + 1 * DAY_MS + DAY_MS // 2
    for wrong in (MS - 400 * DAY_MS, MS + 400 * DAY_MS):
        for number in (1, 2):
            put(tmp_path, number * SIZE, ms=MS + number * DAY_MS, store_timestamp=wrong)
            assert 1 in wanted(plan(tmp_path), store_timestamp=Bounds(noon, noon))
            put(tmp_path, number * SIZE, ms=MS + number * DAY_MS)
