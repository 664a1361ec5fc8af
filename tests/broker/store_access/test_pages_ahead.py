"""broker.store_access.pages_ahead on real files whose pages were dropped."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.store_access.pages_ahead import PagesAhead, PagesMissingError, runs_of
from store.mapped_file import file_name
from store.stored_units import CQ_UNIT, PRE_BLANK_SIZE
from tests.support.deadline import wait_until

FILE_SIZE = 4 << 20
FILES = 3
YOUNG = 64 << 20


def units(*places: tuple[int, int]) -> bytes:
    return b"".join(CQ_UNIT.pack(phy_offset, size, 0) for phy_offset, size in places)


ALL = units(*((at, 1000) for at in range(0, FILES * FILE_SIZE, 50_000)))


class Log:
    """Files of a log whose end is far away; what is to run on the loop."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.calls: list[Callable[[], None]] = []
        self.begin, self.end = 0, FILES * FILE_SIZE + YOUNG
        for number in range(FILES):
            self.path(number * FILE_SIZE).write_bytes(os.urandom(FILE_SIZE))
        self.pages = PagesAhead(
            self.path,
            FILE_SIZE,
            lambda: (self.begin, self.end),
            self.calls.append,
            reads_on=True,
        )

    def path(self, start: int) -> Path:
        return self.directory / file_name(start)

    def drop_pages(self) -> None:
        for path in self.directory.iterdir():
            fd = os.open(path, os.O_RDONLY)
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)

    def is_missing(self, wanted: bytes = ALL) -> bool:
        try:
            self.pages.check(wanted)
        except PagesMissingError as missing:
            return missing.units == wanted
        return False

    def bring(self, wanted: bytes = ALL) -> None:
        self.pages.bring(wanted, lambda: None)
        wait_until(lambda: self.calls, 30)
        self.calls.pop()()


@pytest.fixture
def log() -> Iterator[Log]:
    # On a disk, also where the other tests have their files in memory.
    with tempfile.TemporaryDirectory(prefix="pages-ahead-", dir="/var/tmp") as directory:
        made = Log(Path(directory))
        yield made
        made.pages.shutdown()


@pytest.fixture
def cold(log: Log) -> Log:
    """Nothing of the log is in memory."""
    log.drop_pages()
    if not log.is_missing():
        pytest.skip("this file system does not tell what is in memory (tmpfs?)")
    return log


@pytest.fixture
def telling(cold: Log) -> Iterator[Log]:
    """All of the log is in memory, on a file system that tells so."""
    cold.pages.shutdown()
    made = Log(cold.directory)
    yield made
    made.pages.shutdown()


def test_what_was_written_is_in_memory(log: Log) -> None:
    assert not log.is_missing()


def test_what_is_missing_is_there_when_it_was_brought(cold: Log) -> None:
    cold.bring()
    assert not cold.is_missing()
    assert cold.pages.brought == 1


def test_only_what_is_wanted_is_read_where_the_kernel_is_not_to_read_on(cold: Log) -> None:
    cold.pages.reads_on = False
    cold.bring(units((0, 1000)))
    assert not cold.is_missing(units((0, 1000)))
    assert cold.is_missing(units((2 * FILE_SIZE, 1000)))


def test_what_is_young_is_not_looked_at(cold: Log) -> None:
    cold.end = FILE_SIZE + YOUNG
    assert not cold.is_missing(units((FILE_SIZE, 1000)))
    assert cold.is_missing(units((FILE_SIZE - 2000, 1000)))
    assert not cold.is_missing(b"")


def test_a_file_that_is_gone_is_the_readers_business(cold: Log) -> None:
    far = units((9 * FILE_SIZE, 10))
    cold.end = 1 << 40
    assert not cold.is_missing(far)
    cold.bring(far)


def test_a_kernel_that_does_not_tell_is_not_asked_again(
    cold: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def refuse(*arguments: Any) -> int:
        asked.append(arguments[2])
        raise OSError(errno.EOPNOTSUPP, "not supported")

    monkeypatch.setattr(os, "preadv", refuse)
    assert not cold.is_missing()
    assert not cold.is_missing()
    assert len(asked) == 1


def test_of_records_side_by_side_few_are_looked_at(
    telling: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    really = os.preadv

    def counted(fd: int, buffers: list[bytearray], position: int, flags: int = 0) -> int:
        asked.append(position)
        return really(fd, buffers, position, flags)

    monkeypatch.setattr(os, "preadv", counted)
    assert not telling.is_missing(units(*((at, 1000) for at in range(0, 30_000, 1_000))))
    assert asked == [999, 17_999]
    assert not telling.is_missing(units((100_000, 10), (200_000, 10), (150_000, 10)))
    assert len(asked) == 5


def test_few_files_stay_open(tmp_path: Path) -> None:
    made = Log(tmp_path)
    for number in range(FILES, 40):
        made.path(number * FILE_SIZE).write_bytes(b"x")
    made.end = 1 << 40
    before = len(os.listdir("/proc/self/fd"))
    for number in range(40):
        made.is_missing(units((number * FILE_SIZE, 1)))
    assert len(os.listdir("/proc/self/fd")) - before <= 8
    made.pages.shutdown()
    assert len(os.listdir("/proc/self/fd")) == before


def test_files_that_are_deleted_are_not_kept_open(telling: Log) -> None:
    before = len(os.listdir("/proc/self/fd"))
    assert not telling.is_missing()
    assert len(os.listdir("/proc/self/fd")) == before + FILES
    telling.begin = 2 * FILE_SIZE
    assert not telling.is_missing(units((2 * FILE_SIZE, 1000)))
    assert len(os.listdir("/proc/self/fd")) == before + 1


def test_after_the_end_nothing_is_brought(log: Log) -> None:
    log.pages.shutdown()
    log.pages.shutdown()
    with pytest.raises(RuntimeError):
        log.pages.bring(ALL, lambda: None)


@pytest.mark.parametrize(
    ("places", "runs"),
    [
        ([], []),
        ([(0, 100), (100, 50), (150, 10)], [(0, 160)]),
        ([(0, 100), (60_000, 100), (400_000, 10)], [(0, 60_100), (400_000, 400_010)]),
        ([(FILE_SIZE - 100, 100), (FILE_SIZE, 10)], [(FILE_SIZE - 100, FILE_SIZE),
                                                     (FILE_SIZE, FILE_SIZE + 10)]),
        ([(FILE_SIZE - 100, 50), (FILE_SIZE + 9, 10)], [(FILE_SIZE - 100, FILE_SIZE - 50),
                                                        (FILE_SIZE + 9, FILE_SIZE + 19)]),
        ([(FILE_SIZE - 100, 500)], [(FILE_SIZE - 100, FILE_SIZE)]),
        ([(10, PRE_BLANK_SIZE), (-1, 5), (7, 0), (7, -3), (20, 5)], [(20, 25)]),
        ([(500, 10), (100, 10)], [(500, 510), (100, 110)]),
    ],
)  # fmt: skip
def test_runs(places: list[tuple[int, int]], runs: list[tuple[int, int]]) -> None:
    assert runs_of(units(*places), FILE_SIZE) == runs
