"""What a log holds: counted as the 5.3.3 brokers that wrote it were told."""

from __future__ import annotations

from pathlib import Path

import pytest

from adopt.log_survey import QueueCount, survey_log
from store.errors import StoreError
from tests.adopt.golden_stores import GOLDEN, QUEUES, copied, unpack_all
from tests.support.archives import unpack

FIRST = "0" * 20


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("golden")
    unpack_all(directory)
    unpack(GOLDEN / "timer-5.3.3" / "store-clean-stop.tar.xz", directory / "timer")
    return directory


def test_messages_by_queue_and_the_end(golden: Path) -> None:
    seen: list[tuple[int, int]] = []
    found = survey_log(
        golden / "killed/commitlog",
        dispatched_to=236940,
        check_crc=True,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert (found.records, found.end_offset, found.behind) == (1100, 259540, "")
    assert {name: queue.known for name, queue in found.queues.items()} == QUEUES
    assert found.queues["TRocksA", 3] == QueueCount(count=150, known=125, first=0, end=150)
    assert seen == [(16 << 20, 16 << 20)]


def test_half_messages_without_an_end(golden: Path) -> None:
    """Halves 0, 1 and 4 were ended, 2 and 3 put again by the broker's check."""
    (log,) = (golden / "timer").rglob("commitlog")
    found = survey_log(log)
    assert found.open_halves == {("RMQ_SYS_TRANS_HALF_TOPIC", 2), ("RMQ_SYS_TRANS_HALF_TOPIC", 3)}


def test_damage_ends_it_and_is_named(golden: Path, tmp_path: Path) -> None:
    place = copied(golden / "clean/commitlog", tmp_path / "log")
    with (place / FIRST).open("r+b") as file:
        file.seek(914 + 4)
        file.write(b"XXXX")
    found = survey_log(place)
    assert found.end_offset == 914
    assert found.records == 4
    assert "position 914: " in found.behind


def test_bytes_behind_the_end_are_named(golden: Path, tmp_path: Path) -> None:
    place = copied(golden / "clean/commitlog", tmp_path / "log")
    with (place / FIRST).open("r+b") as file:
        file.seek(5_000_000)
        file.write(b"x")
    found = survey_log(place)
    assert found.records == 1000
    assert found.behind.endswith("byte 5000000 behind the end is not zero")


@pytest.mark.parametrize("size", [0, 1 << 20])
def test_files_of_several_sizes_are_refused(golden: Path, tmp_path: Path, size: int) -> None:
    place = copied(golden / "clean/commitlog", tmp_path / "log")
    (place / f"{16 << 20:020d}").write_bytes(bytes(size))
    with pytest.raises(StoreError, match="missing or cut short"):
        survey_log(place)


def test_nothing_at_all(tmp_path: Path) -> None:
    assert survey_log(tmp_path / "none").files == 0
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / FIRST).touch()
    with pytest.raises(StoreError, match="it is empty"):
        survey_log(tmp_path / "log")
