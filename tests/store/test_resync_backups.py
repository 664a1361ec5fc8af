"""store.resync_backups: backups are listed, and deleted when their time has really passed."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from store.message_store_config import MessageStoreConfig
from store.resync_backups import CONFIRM_MS, LOOK_MS, CleanBackupsService, list_backups
from store.resync_request import ResyncAction, ResyncRequest, find_request, write_request
from tests.broker.broker_fakes import FakeClock

HOUR_MS = 3_600_000


class World:
    """A store whose consume queues are on another disk."""

    def __init__(self, root: Path, hours: int = 72) -> None:
        self.root = root / "store"
        self.elsewhere = root / "elsewhere" / "queues"
        for path in (self.root / "commitlog", self.elsewhere):
            path.mkdir(parents=True)
        (self.root / "consumequeue").symlink_to(self.elsewhere)
        self.config = MessageStoreConfig(
            store_path_root_dir=str(self.root), ha_backup_reserved_hours=hours
        )
        self.clock = FakeClock()
        self.service = CleanBackupsService(self.config, self.clock)

    def backup(self, age_hours: float, *parents: Path, tag: str = "0a1b2c3d") -> str:
        made = datetime.fromtimestamp(self.clock.now_ms() / 1000, UTC)
        made -= timedelta(hours=age_hours)
        name = f"backup-{made:%Y%m%dT%H%M%SZ}-{tag}"
        for parent in parents or (self.root,):
            (parent / name / "commitlog").mkdir(parents=True)
            (parent / name / "commitlog" / f"{0:020d}").write_bytes(b"x" * 100_000)
        return name

    def names(self) -> list[str]:
        return [backup.name for backup in list_backups(self.config)]

    def pass_time(self, hours: float) -> None:
        """The service looks as often as its thread does."""
        for _ in range(int(hours * HOUR_MS / LOOK_MS)):
            self.service.look()
            self.clock.advance(LOOK_MS)
        self.service.look()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_they_are_listed_with_all_their_places(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    world.service.look()
    assert caplog.messages == []
    newer = world.backup(1, world.root)
    older = world.backup(2, world.root, world.elsewhere.parent)
    assert world.names() == [older, newer]
    first, second = list_backups(world.config)
    assert first.places == (world.elsewhere.parent / older, world.root / older)
    assert 200_000 <= first.count_bytes() == 2 * second.count_bytes()
    CleanBackupsService(world.config, world.clock).look()
    (line,) = caplog.messages
    size = first.count_bytes() + second.count_bytes()
    assert line.startswith(f"2 backups of re-syncs take {size} bytes: {first.places[0]}, ")
    assert "after 72 hours (haBackupReservedHours)" in line


def test_old_ones_go_with_a_line(world: World, caplog: pytest.LogCaptureFixture) -> None:
    old = world.backup(73, world.root, world.elsewhere.parent)
    young = world.backup(70)
    world.pass_time(CONFIRM_MS / HOUR_MS)
    assert world.names() == [young]
    assert not (world.elsewhere.parent / old).exists()
    assert f"{world.root / old}: backup of a re-sync deleted, " in caplog.text
    assert (world.root / "commitlog").is_dir()
    assert world.elsewhere.is_dir()


def test_a_clock_that_jumps_deletes_nothing(world: World) -> None:
    name = world.backup(1)
    for _ in range(5):
        world.clock.now += 30 * 24 * HOUR_MS
        world.service.look()
        world.clock.advance(CONFIRM_MS - 1)
        world.service.look()
        world.clock.now -= 30 * 24 * HOUR_MS
        world.service.look()
    assert world.names() == [name]


def test_zero_keeps_them(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    world = World(tmp_path, hours=0)
    name = world.backup(24 * 365)
    world.pass_time(3)
    assert world.names() == [name]
    assert "delete them with `rm -r`" in caplog.text


def test_nothing_else_is_touched(world: World, tmp_path: Path) -> None:
    name = world.backup(1_000)
    kept = [
        world.root / f"{name}.old",
        world.root / "backup-20200101T000000Z-0A1B2C3D",
        world.root / "backup-20200101T000000Z",
        world.root / "backup-20209901T000000Z-0a1b2c3d",
        world.root / "my-backup-20200101T000000Z-0a1b2c3d",
        world.root / "commitlog" / "backup-20200101T000000Z-0a1b2c3d",
        tmp_path / "backup-20200101T000000Z-0a1b2c3d",
    ]
    for path in kept:
        path.mkdir()
    file = world.root / "backup-20200101T000000Z-ffffffff"
    file.write_text("no directory")
    link = world.root / "backup-20200101T000000Z-eeeeeeee"
    link.symlink_to(tmp_path)
    world.pass_time(3)
    assert not (world.root / name).exists()
    assert all(path.is_dir() for path in kept)
    assert file.is_file()
    assert link.is_symlink()


def test_one_that_a_request_still_needs_stays(world: World) -> None:
    """The broker stopped in the middle of the re-sync, days ago."""
    write_request(world.root, ResyncRequest(action=ResyncAction.START_OVER, reason="x"))
    request = find_request(world.root)
    assert request is not None
    (world.root / request.backup).mkdir()
    made_ms = list_backups(world.config)[0].made_ms
    world.clock.now = made_ms + 100 * HOUR_MS
    world.pass_time(3)
    assert world.names() == [request.backup]
    (world.root / "resync.json").unlink()
    world.service.look()
    assert world.names() == []


def test_one_that_cannot_be_deleted_is_tried_again(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = world.backup(100)

    def fail(_path: Path) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr("shutil.rmtree", fail)
        world.pass_time(1)
    assert f"{world.root / name}: backup cannot be deleted, will retry" in caplog.text
    world.service.look()
    assert world.names() == []
