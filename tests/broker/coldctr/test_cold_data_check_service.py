"""ColdDataCheckService: cold by distance, and by what the page cache lacks; on real files."""

from __future__ import annotations

import dataclasses
import mmap
from pathlib import Path

from broker.coldctr.cold_data_check_service import ColdDataCheckService
from store.mapped_file import file_name
from store.mapped_file_queue import list_store_files
from store.message_store_config import MessageStoreConfig
from tests.support.deadline import wait_until

PAGE = mmap.PAGESIZE
PAGES = 1024
SIZE = PAGES * PAGE
CONFIG = MessageStoreConfig(
    mapped_file_size_commit_log=SIZE,
    cold_data_flow_control_enable=True,
    cold_data_scan_enable=True,
)
OFF = dataclasses.replace(CONFIG, cold_data_scan_enable=False)


def make_file(directory: Path, start: int, *, written: int) -> None:
    """Without blocks but for page `written`: a page that nobody has touched is not resident."""
    with (directory / file_name(start)).open("wb") as file:
        file.truncate(SIZE)
        file.seek(written * PAGE)
        file.write(b"x" * PAGE)


def make_service(directory: Path, config: MessageStoreConfig = CONFIG) -> ColdDataCheckService:
    return ColdDataCheckService(config, 100, lambda: list_store_files(directory))


def test_the_newest_bytes_are_never_cold(tmp_path: Path) -> None:
    assert make_service(tmp_path).cold_edge(1000) == 900


def test_without_a_look_all_that_is_old_is_cold(tmp_path: Path) -> None:
    assert not make_service(tmp_path, OFF).is_in_page_cache(0)


def test_pages_of_the_page_cache(tmp_path: Path) -> None:
    make_file(tmp_path, 0, written=512)
    make_file(tmp_path, SIZE, written=0)
    service = make_service(tmp_path)
    assert service.is_in_page_cache(0), "a file that was not looked at counts as in memory"
    service.start()
    wait_until(lambda: not service.is_in_page_cache(0))
    assert service.is_in_page_cache(512 * PAGE)
    assert service.is_in_page_cache(512 * PAGE + 31 * PAGE + 5), "the sample of 32 pages"
    assert not service.is_in_page_cache(900 * PAGE)
    assert service.is_in_page_cache(SIZE + 1)
    assert not service.is_in_page_cache(SIZE + 512 * PAGE)
    assert service.is_in_page_cache(2 * SIZE)
    service.shutdown()


def test_it_is_turned_off_and_on(tmp_path: Path) -> None:
    make_file(tmp_path, 0, written=0)
    service = make_service(tmp_path, OFF)
    service.start()
    assert not service.is_in_page_cache(0)
    service.use(dataclasses.replace(CONFIG, sample_steps=1))
    wait_until(lambda: service.is_in_page_cache(0) and not service.is_in_page_cache(900 * PAGE))
    service.use(OFF)
    assert not service.is_in_page_cache(0)
    service.shutdown()
    assert service.failure is None


def test_a_file_that_cannot_be_opened_counts_as_in_memory(tmp_path: Path) -> None:
    make_file(tmp_path, 0, written=0)
    (tmp_path / file_name(SIZE)).mkdir()
    make_file(tmp_path, 2 * SIZE, written=0)
    files = list_store_files(tmp_path)
    broken = dataclasses.replace(files[0], start_offset=SIZE, path=tmp_path / "gone")
    service = ColdDataCheckService(CONFIG, 0, lambda: [files[0], broken, files[1]])
    service.start()
    wait_until(lambda: not service.is_in_page_cache(2 * SIZE + 900 * PAGE))
    assert service.is_in_page_cache(SIZE)
    service.shutdown()
