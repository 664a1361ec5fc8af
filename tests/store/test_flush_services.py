"""LogFlusher and the two services that drive it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from store.errors import FlushFailedError
from store.flush_real_time_service import FlushRealTimeService
from store.group_commit_service import GroupCommitService
from store.log_flusher import LogFlusher
from store.mapped_file import file_name
from store.message_store_config import MessageStoreConfig
from store.store_checkpoint import StoreCheckpoint
from tests.support.deadline import wait_until
from tests.support.manual_clock import ManualClock

SIZE = 65_536


class FlushRig:
    """A log of three files whose writer is a number, and an fdatasync that is watched."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        for start in range(0, 3 * SIZE, SIZE):
            (directory / file_name(start)).write_bytes(bytes(SIZE))
        self.checkpoint = StoreCheckpoint(directory / "checkpoint")
        self.max_phy_offset = 0
        self.wanted = 0
        self.timestamp = 7
        self.published: list[int] = []
        self.synced: list[str] = []
        self.fail = False
        self.flusher = LogFlusher(
            directory,
            SIZE,
            self.checkpoint,
            flushed_offset=0,
            max_phy_offset=lambda: self.max_phy_offset,
            store_timestamp=lambda: self.timestamp,
            publish=self.published.append,
            fdatasync=self.fdatasync,
        )

    def fdatasync(self, fd: int) -> None:
        if self.fail:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self.synced.append(Path(os.readlink(f"/proc/self/fd/{fd}")).name)
        os.fdatasync(fd)


@pytest.fixture
def rig(tmp_path: Path) -> FlushRig:
    return FlushRig(tmp_path)


def test_only_files_with_unflushed_bytes_are_synced(rig: FlushRig) -> None:
    assert not rig.flusher.flush()
    rig.max_phy_offset = 10
    assert rig.flusher.flush()
    assert not rig.flusher.flush()
    rig.max_phy_offset = SIZE
    rig.flusher.flush()
    assert rig.synced == [file_name(0)] * 2
    rig.max_phy_offset = 2 * SIZE + 1
    rig.flusher.flush()
    assert rig.synced[2:] == [file_name(SIZE), file_name(2 * SIZE)]
    assert rig.published == [10, SIZE, 2 * SIZE + 1]
    assert rig.checkpoint.physic_msg_timestamp == 7


def test_a_timestamp_that_is_known_only_later(rig: FlushRig) -> None:
    """A slave's: its records are flushed, and dispatched after it."""
    rig.max_phy_offset, rig.timestamp = 10, 0
    assert rig.flusher.flush()
    rig.timestamp = 7
    assert not rig.flusher.flush()
    assert rig.checkpoint.physic_msg_timestamp == 7
    assert rig.published == [10]


def open_files_below(directory: Path) -> int:
    """Descriptors of this process on files in `directory`."""
    found = 0
    for link in Path("/proc/self/fd").iterdir():
        try:
            found += os.readlink(link).startswith(f"{directory}/")
        except FileNotFoundError:
            continue
    return found


def test_descriptors_of_flushed_files_are_closed(rig: FlushRig) -> None:
    rig.max_phy_offset = 2 * SIZE + 1
    rig.flusher.flush()
    assert open_files_below(rig.directory) == 1
    rig.flusher.close()
    assert open_files_below(rig.directory) == 0


def test_a_failed_flush_publishes_nothing(rig: FlushRig) -> None:
    rig.max_phy_offset, rig.fail = 10, True
    with pytest.raises(FlushFailedError, match=f"{file_name(0)}.*Input/output error"):
        rig.flusher.flush()
    assert rig.published == []
    assert rig.flusher.flushed_offset == 0
    assert rig.checkpoint.physic_msg_timestamp == 0


def test_nothing_before_the_log_begins_is_flushed(rig: FlushRig) -> None:
    """A slave's log begins where its master's does; earlier files do not exist."""
    (rig.directory / file_name(0)).unlink()
    rig.flusher.begin_at(SIZE)
    rig.max_phy_offset = SIZE
    assert not rig.flusher.flush()
    rig.max_phy_offset = SIZE + 7
    assert rig.flusher.flush()
    assert rig.synced == [file_name(SIZE)]
    assert rig.published == [SIZE + 7]


def test_a_missing_file_is_a_failed_flush(rig: FlushRig) -> None:
    (rig.directory / file_name(0)).unlink()
    rig.max_phy_offset = 10
    with pytest.raises(FlushFailedError):
        rig.flusher.flush()


# -- FlushRealTimeService ----------------------------------------------------------------------


def real_time(rig: FlushRig, clock: ManualClock, interval_ms: int = 500) -> FlushRealTimeService:
    config = MessageStoreConfig(flush_interval_commit_log=interval_ms)
    return FlushRealTimeService(rig.flusher, config, clock)


@pytest.mark.parametrize(
    ("flushed", "end", "due"),
    [
        (0, 0, False),
        (0, 4 * 4096 - 1, False),
        (0, 4 * 4096, True),
        (SIZE - 100, SIZE - 1, False),
        (SIZE - 100, SIZE, True),
        (SIZE, SIZE + 5, False),
    ],
)
def test_async_flush_by_pages_and_full_files(
    rig: FlushRig, flushed: int, end: int, due: bool
) -> None:
    service = real_time(rig, ManualClock())
    rig.flusher.flushed_offset, rig.max_phy_offset = flushed, end
    assert service.flush_if_due() is due
    assert rig.published == ([end] if due else [])


def test_async_flush_is_thorough_now_and_then(rig: FlushRig) -> None:
    clock = ManualClock()
    service = real_time(rig, clock)
    rig.max_phy_offset = 1
    clock.advance(9_999)
    assert not service.flush_if_due()
    clock.advance(1)
    assert service.flush_if_due()
    rig.max_phy_offset = 2
    assert not service.flush_if_due()


def test_async_flush_thread_flushes_the_rest_at_its_stop(rig: FlushRig) -> None:
    service = real_time(rig, ManualClock(), interval_ms=1)
    service.start()
    rig.max_phy_offset = SIZE
    wait_until(lambda: rig.published == [SIZE])
    rig.max_phy_offset = SIZE + 1
    assert service.shutdown()
    assert rig.published == [SIZE, SIZE + 1]


# -- GroupCommitService ------------------------------------------------------------------------


def test_sync_flush_shares_one_fdatasync(rig: FlushRig) -> None:
    service = GroupCommitService(rig.flusher, lambda: rig.wanted)
    rig.max_phy_offset = rig.wanted = 1000
    service.step()
    assert rig.synced == [file_name(0)]
    assert rig.published == [1000]
    service.step()
    assert len(rig.synced) == 1


def test_sync_flush_looks_after_records_nobody_waits_for(rig: FlushRig) -> None:
    service = GroupCommitService(rig.flusher, lambda: 0)
    rig.max_phy_offset = 10
    service.step()
    assert rig.published == [10]


def test_sync_flush_thread_follows_the_wish(rig: FlushRig) -> None:
    service = GroupCommitService(rig.flusher, lambda: rig.wanted)
    service.start()
    for end in (10, 20, 30):
        rig.max_phy_offset = rig.wanted = end
        service.wakeup()
        wait_until(lambda end=end: rig.published[-1:] == [end])  # type: ignore[misc]
    rig.max_phy_offset = 31
    assert service.shutdown()
    assert rig.published[-1] == 31


def test_a_failed_fdatasync_ends_the_service_and_is_not_repeated(rig: FlushRig) -> None:
    told: list[Exception] = []
    service = GroupCommitService(
        rig.flusher, lambda: rig.wanted, on_failure=lambda thread, error: told.append(error)
    )
    rig.fail = True
    rig.max_phy_offset = rig.wanted = 10
    service.start()
    wait_until(lambda: told)
    rig.fail = False
    assert isinstance(told[0], FlushFailedError)
    assert not service.is_alive
    assert rig.published == []
