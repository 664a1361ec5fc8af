from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from store.emergency_space import CALM_LOOKS, DiskSpace, EmergencySpace, size_of_reserve
from store.message_store_config import MessageStoreConfig
from store.running_flags import RunningFlag, RunningFlags

MIB = 1 << 20


class Rig:
    """A reserve of 1 MiB on a disk of which the test says how much is free."""

    def __init__(self, root: Path, *, free: int = 100 * MIB, **settings: int) -> None:
        wanted = {"emergency_reserved_bytes": MIB, **settings}
        self.config = MessageStoreConfig(store_path_root_dir=str(root), **wanted)  # type: ignore[arg-type]
        self.path = root / "emergency.space"
        self.free = free
        self.told: list[int] = []
        self.reasons: list[str] = []
        self.flags = RunningFlags(lambda _, reason: self.reasons.append(reason))
        self.space = EmergencySpace(
            self.config,
            self.flags,
            publish=self.told.append,
            look=lambda _: DiskSpace(1000 * MIB, self.free),
        )

    @property
    def refuses(self) -> bool:
        return self.flags.is_set(RunningFlag.DISK_FULL)

    def look(self, free: int, times: int = 1) -> None:
        self.free = free
        for _ in range(times):
            self.space.look_once()


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    rig = Rig(tmp_path / "store")
    rig.space.open()
    return rig


def test_the_space_is_allocated_at_the_start(rig: Rig) -> None:
    assert rig.path.stat().st_blocks * 512 >= MIB
    assert rig.told[-1] == MIB
    assert not rig.refuses


def test_it_is_given_back_below_a_quarter_of_it(rig: Rig) -> None:
    rig.look(MIB // 4)
    assert not rig.refuses
    rig.look(MIB // 4 - 1)
    assert rig.refuses
    assert not rig.path.exists()
    assert rig.told[-1] == 0
    assert (
        "free space on this partition: sends are accepted again 3 s after 2.0 MiB are free"
        in (rig.reasons[-1])
    )


def test_it_is_made_again_after_some_looks_with_room_for_it_twice(rig: Rig) -> None:
    rig.look(0)
    rig.look(2 * MIB - 1, times=10)
    assert rig.refuses
    rig.look(2 * MIB, times=CALM_LOOKS - 1)
    rig.look(0)
    rig.look(2 * MIB, times=CALM_LOOKS - 1)
    assert rig.refuses
    assert not rig.path.exists()
    rig.look(2 * MIB)
    assert not rig.refuses
    assert rig.path.stat().st_blocks * 512 >= MIB


def test_a_writer_without_room_gets_it_once(rig: Rig) -> None:
    assert rig.space.release("writing x")
    assert "writing x" in rig.reasons[-1]
    assert not rig.path.exists()
    assert not rig.space.release("writing y")
    assert rig.refuses


def test_no_log_file_takes_what_was_released(rig: Rig) -> None:
    rig.look(3 * MIB)
    assert rig.space.allows_log_file(100 * MIB)
    rig.space.release("full")
    assert not rig.space.allows_log_file(MIB + 1)
    assert rig.space.allows_log_file(MIB)


@pytest.mark.parametrize(("free", "held", "refuses"), [(MIB // 4, True, False), (0, False, True)])
def test_what_an_earlier_start_has_left(
    rig: Rig, tmp_path: Path, free: int, held: bool, refuses: bool
) -> None:
    again = Rig(tmp_path / "store", free=free)
    again.space.open()
    assert (again.path.exists(), again.refuses) == (held, refuses)


def test_a_start_without_room_refuses_until_there_is(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "store", free=2 * MIB - 1)
    rig.space.open()
    assert rig.refuses
    assert not rig.path.exists()
    rig.look(2 * MIB, times=CALM_LOOKS)
    assert not rig.refuses
    assert rig.path.exists()


@pytest.mark.parametrize(
    ("spoil", "blocks"),
    [
        (lambda path: os.truncate(path, 3 * MIB), MIB),
        (lambda path: os.truncate(path, 4096), MIB),
        (lambda path: (os.truncate(path, 0), os.truncate(path, MIB)), MIB),
    ],
    ids=["larger", "shorter", "holes"],
)
def test_a_file_of_another_size_is_made_right(
    rig: Rig, tmp_path: Path, spoil: Callable[[Path], object], blocks: int
) -> None:
    spoil(rig.path)
    again = Rig(tmp_path / "store")
    again.space.open()
    assert again.path.stat().st_size == MIB
    assert again.path.stat().st_blocks * 512 == blocks


def test_switched_off_the_file_goes_and_nothing_is_refused(rig: Rig, tmp_path: Path) -> None:
    off = Rig(tmp_path / "store", free=0, emergency_reserved_bytes=0)
    off.space.open()
    off.look(0, times=5)
    assert not off.path.exists()
    assert not off.refuses


@pytest.mark.parametrize(
    ("setting", "log_file", "partition", "size"),
    [
        (64 * MIB, 1 << 30, 100 << 30, 64 * MIB),
        (64 * MIB, 1 << 30, 200 * MIB, 10 * MIB),
        (64 * MIB, MIB, 100 << 30, MIB),
        (5000, 1 << 30, 100 << 30, 4096),
        (0, 1 << 30, 100 << 30, 0),
    ],
)
def test_its_size(setting: int, log_file: int, partition: int, size: int) -> None:
    config = MessageStoreConfig(
        emergency_reserved_bytes=setting, mapped_file_size_commit_log=log_file
    )
    assert size_of_reserve(config, partition) == size


def test_a_partition_that_cannot_be_looked_at_changes_nothing(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: Path) -> DiskSpace:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(rig.space, "_look", fail)
    rig.space.look_once()
    rig.space.look_once()
    assert not rig.refuses
    assert rig.path.exists()
    assert caplog.text.count("Input/output error") == 1


def test_a_file_system_that_allocates_nothing_refuses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_space(*_: object) -> None:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    monkeypatch.setattr(os, "posix_fallocate", no_space)
    rig = Rig(tmp_path / "store")
    rig.space.open()
    rig.look(100 * MIB, times=10)
    assert not rig.refuses
    assert not rig.path.exists()
    assert caplog.text.count("no emergency space on the disk") == 1
