"""Reading queues of another process; offsets by time against a plain model of 4.9."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.boundary_type import BoundaryType, parse_boundary
from store.consume_queue import ConsumeQueue
from store.consume_queue_files import ConsumeQueueFiles
from store.consume_queue_reader import ConsumeQueueReader
from store.message_store_config import MessageStoreConfig
from store.stored_units import CQ_UNIT, PRE_BLANK_SIZE

FILE_SIZE = 200


def config(root: Path) -> MessageStoreConfig:
    return MessageStoreConfig(
        store_path_root_dir=str(root), mapped_file_size_consume_queue=FILE_SIZE
    )


def write(root: Path, count: int, first: int = 0, phy_offset: int = 0) -> ConsumeQueue:
    files = ConsumeQueueFiles(root / "consumequeue", FILE_SIZE, writable=True)
    queue = ConsumeQueue(files, "T", 0)
    data = b"".join(CQ_UNIT.pack(phy_offset + n, 1, n) for n in range(count))
    queue.append(memoryview(data), first, phy_offset + 1, phy_offset + count)
    files.close()
    return queue


def test_reads_stop_at_the_files_end(tmp_path: Path) -> None:
    write(tmp_path, 25)
    reader = ConsumeQueueReader(config(tmp_path), open_files=1)
    assert reader.read_units("T", 0, 8, 5) == CQ_UNIT.pack(8, 1, 8) + CQ_UNIT.pack(9, 1, 9)
    assert len(reader.read_units("T", 0, 10, 5)) == 100
    assert reader.find_unit("T", 0, 24) == (24, 1, 24)
    assert reader.find_unit("T", 0, 25) is None
    reader.close()


def test_what_is_missing_is_empty(tmp_path: Path) -> None:
    reader = ConsumeQueueReader(config(tmp_path))
    assert reader.read_units("T", 0, 0, 5) == b""
    assert reader.read_units("../T", 0, 0, 5) == b""
    assert reader.read_units("T", 0, -1, 5) == b""
    write(tmp_path, 3)
    assert len(reader.read_units("T", 0, 0, 3)) == 60
    assert reader.read_units("T", 0, 10, 3) == b""


def test_forget_lets_go_of_a_deleted_file(tmp_path: Path) -> None:
    queue = write(tmp_path, 3)
    reader = ConsumeQueueReader(config(tmp_path))
    assert reader.find_unit("T", 0, 0) == (0, 1, 0)
    queue.destroy()
    write(tmp_path, 3, phy_offset=700)
    reader.forget("T", 0)
    assert reader.find_unit("T", 0, 0) == (700, 1, 0)


def test_blank_units_are_no_units(tmp_path: Path) -> None:
    write(tmp_path, 2, first=4, phy_offset=50)
    reader = ConsumeQueueReader(config(tmp_path))
    assert CQ_UNIT.unpack(reader.read_units("T", 0, 3, 1))[1] == PRE_BLANK_SIZE
    assert reader.find_unit("T", 0, 3) is None
    assert reader.find_unit("T", 0, 4) == (50, 1, 0)


def log_of(times: list[int], min_phy: int) -> Any:
    """A log whose records were stored at these times, by their offsets."""
    return SimpleNamespace(store_timestamp_at=lambda phy: times[phy], min_phy_offset=min_phy)


def at_boundary(
    root: Path, times: list[int], timestamp: int, boundary: BoundaryType, **more: int
) -> int:
    reader = ConsumeQueueReader(config(root))
    low, min_phy = more.get("low", 0), more.get("min_phy", 0)
    return reader.offset_by_timestamp(
        "T",
        0,
        timestamp,
        low,
        len(times),
        log_of(times, min_phy),
        boundary=boundary,
    )


@pytest.mark.parametrize(
    ("timestamp", "lower", "upper"),
    [(0, 0, 0), (99, 0, 0), (100, 0, 2), (105, 3, 2), (120, 3, 4), (130, 5, 5), (131, 6, 5)],
)
def test_both_sides_of_a_time(tmp_path: Path, timestamp: int, lower: int, upper: int) -> None:
    """The table in RocketMQ's ConsumeQueue: equal times, a time between two, before all, behind
    all."""
    times = [100, 100, 100, 120, 120, 130]
    write(tmp_path, len(times))
    assert at_boundary(tmp_path, times, timestamp, BoundaryType.LOWER) == lower
    assert at_boundary(tmp_path, times, timestamp, BoundaryType.UPPER) == upper


def test_both_sides_where_records_are_gone_or_unreadable(tmp_path: Path) -> None:
    times = [100, 110, 120, 130]
    write(tmp_path, 4)
    for boundary in BoundaryType:
        assert at_boundary(tmp_path, [], 5, boundary) == 0
        assert at_boundary(tmp_path, [-1, -1, -1, -1], 5, boundary) == 0
        assert at_boundary(tmp_path, times, 0, boundary, low=2) == 2
    assert at_boundary(tmp_path, times, 0, BoundaryType.LOWER, min_phy=2) == 2
    assert at_boundary(tmp_path, times, 125, BoundaryType.UPPER, min_phy=2) == 2
    assert at_boundary(tmp_path, times, 999, BoundaryType.LOWER, low=2) == 4


@given(st.lists(st.integers(0, 30), min_size=1, max_size=45), st.integers(-2, 35))
def test_both_sides_against_a_model(
    tmp_path_factory: pytest.TempPathFactory, times: list[int], timestamp: int
) -> None:
    """Over several files."""
    root = tmp_path_factory.mktemp("cq")
    times.sort()
    write(root, len(times))
    lower = next((i for i, time in enumerate(times) if time >= timestamp), len(times))
    upper = max((i for i, time in enumerate(times) if time <= timestamp), default=0)
    assert at_boundary(root, times, timestamp, BoundaryType.LOWER) == lower
    assert at_boundary(root, times, timestamp, BoundaryType.UPPER) == upper


@pytest.mark.parametrize(
    ("text", "boundary"),
    [
        (None, None),
        ("UPPER", BoundaryType.UPPER),
        ("upper", BoundaryType.UPPER),
        ("LOWER", BoundaryType.LOWER),
        ("", BoundaryType.LOWER),
        ("middle", BoundaryType.LOWER),
    ],
)
def test_the_words_of_the_header(text: str | None, boundary: BoundaryType | None) -> None:
    assert parse_boundary(text) is boundary


def by_time(root: Path, times: list[int], timestamp: int, low: int = 0, min_phy: int = 0) -> int:
    reader = ConsumeQueueReader(config(root))
    return reader.offset_by_timestamp("T", 0, timestamp, low, len(times), log_of(times, min_phy))


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [(0, 0), (100, 0), (104, 0), (105, 0), (106, 1), (110, 1), (126, 3), (999, 3)],
)
def test_nearest_record(tmp_path: Path, timestamp: int, expected: int) -> None:
    write(tmp_path, 4)
    assert by_time(tmp_path, [100, 110, 120, 130], timestamp) == expected


@pytest.mark.parametrize("boundary", [None, BoundaryType.LOWER, BoundaryType.UPPER])
@pytest.mark.parametrize("damaged_ms", [0, 1 << 62])
def test_one_time_that_is_damaged_leads_to_no_other_place(
    tmp_path: Path, damaged_ms: int, boundary: BoundaryType | None
) -> None:
    """Over several files; what is asked for is not the damaged record itself, nor beside it."""
    whole = [100 + 10 * number for number in range(45)]
    write(tmp_path, len(whole))
    for place in range(len(whole)):
        times = [*whole]
        times[place] = damaged_ms
        for wanted in {0, 7, 22, 23, 44} - {place - 1, place, place + 1}:
            if boundary is None:
                found = by_time(tmp_path, times, whole[wanted])
            else:
                found = at_boundary(tmp_path, times, whole[wanted], boundary)
            assert found == wanted, (place, wanted)


def test_empty_unreadable_and_removed(tmp_path: Path) -> None:
    assert by_time(tmp_path, [], 5) == 0
    write(tmp_path, 4)
    assert by_time(tmp_path, [-1, -1, -1, -1], 5) == 0
    assert by_time(tmp_path, [100, 110, 120, 130], 0, min_phy=2) == 2
    assert by_time(tmp_path, [100, 110, 120, 130], 105, low=2) == 2
    assert by_time(tmp_path, [100, 110, 120, 130], 105, min_phy=9) == 3


@given(st.lists(st.integers(0, 30), min_size=1, max_size=45), st.integers(-2, 35))
def test_against_a_model(
    tmp_path_factory: pytest.TempPathFactory, times: list[int], timestamp: int
) -> None:
    root = tmp_path_factory.mktemp("cq")
    times.sort()
    write(root, len(times))
    found = by_time(root, times, timestamp)
    per_file = FILE_SIZE // 20
    chunks = [times[i : i + per_file] for i in range(0, len(times), per_file)]
    number = next((i for i, c in enumerate(chunks) if c[-1] >= timestamp), len(chunks) - 1)
    best = min(abs(time - timestamp) for time in chunks[number])
    assert abs(times[found] - timestamp) == best
    assert found // per_file == number
