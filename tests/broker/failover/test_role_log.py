"""RoleLog: the roles that were taken, over restarts, damaged files and full disks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from broker.failover import role_log
from broker.failover.messages import Cause, Taken
from broker.failover.role_log import MOST_KEPT, RoleLog
from ha.control_slots import (
    MASTER_BROKER_ID,
    MASTER_SEEN_MS,
    MEMBER_ID,
    ROLE_RECORDS,
    ROLE_SINCE_MS,
    MemberRole,
)
from ha.taken_role import read_roles
from ipc.control_page import ControlPage
from store.clean_exit import boot_id
from tests.support.manual_clock import ManualClock

TAKEN = Taken(Cause.NOTIFIED, 4, 1, frozenset({3, 9, 2}), 600, 693)


class World:
    def __init__(self, root: Path) -> None:
        self.path = root / "memberRoles.json"
        self.clock = ManualClock(monotonic_ms=50_000)
        self.counters = ControlPage(ControlPage.create()).counters
        self.counters[MEMBER_ID] = self.counters[MASTER_BROKER_ID] = 2
        self.log = RoleLog(self.path, self.counters, self.clock)


def test_what_is_kept_of_a_role(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.counters[MASTER_SEEN_MS] = 47_700
    world.clock.sleep(7_000)
    world.log.took(MemberRole.LEAD, 5, TAKEN)
    (record,) = json.loads(world.path.read_text())["roles"]
    assert record == {
        "number": 1,
        "ts": world.clock.now_ms(),
        "mono": 50_000,
        "machine_boot": boot_id().replace("-", "")[:16],  # As in the lines of the dump.
        "uptime": 57_000,
        "role": "LEAD",
        "cause": "notified",
        "id": 2,
        "epoch": 5,
        "master": 2,
        "old_epoch": 4,
        "old_master": 1,
        "without_master_ms": 2_300,
        "members": [2, 3, 9],
        "confirm_offset": 600,
        "log_end": 693,
    }
    assert world.counters[ROLE_SINCE_MS] == 50_000
    assert world.counters[ROLE_RECORDS] == 1


def test_numbers_go_on_over_restarts_and_the_newest_are_kept(tmp_path: Path) -> None:
    for _ in range(2):
        world = World(tmp_path)
        for _ in range(MOST_KEPT - 10):
            world.log.took(MemberRole.FENCED, 5, TAKEN)
    roles = read_roles(world.path)
    last = 2 * (MOST_KEPT - 10)
    assert [role.number for role in roles] == [*range(last - MOST_KEPT + 1, last + 1)]
    again = World(tmp_path)
    assert again.counters[ROLE_RECORDS] == last
    assert again.log.newest == roles[-1]


def test_a_new_store_is_no_damage(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert World(tmp_path).log.newest is None
    assert not caplog.records


def test_before_it_had_a_master_nobody_knows_how_long_there_was_none(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.counters[MASTER_BROKER_ID] = 0
    world.log.took(MemberRole.FENCED, 5, TAKEN)
    (role,) = read_roles(world.path)
    assert (role.without_master_ms, role.master) == (None, None)


def test_a_master_that_is_seen_meanwhile_was_never_away(tmp_path: Path) -> None:
    """Another thread looks for it; a line with a negative number is a bad one."""
    world = World(tmp_path)
    world.counters[MASTER_SEEN_MS] = 50_001
    world.log.took(MemberRole.FOLLOW, 5, TAKEN)
    assert [role.without_master_ms for role in read_roles(world.path)] == [0]


def test_who_is_told_of_a_role_finds_it_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, told = World(tmp_path), []

    def write(path: Path, content: bytes) -> None:
        told.append(world.counters[ROLE_RECORDS])
        path.write_bytes(content)

    monkeypatch.setattr(role_log, "write_atomic", write)
    world.log.took(MemberRole.LEAD, 5, TAKEN)
    assert (told, world.counters[ROLE_RECORDS]) == ([0], 1)


@pytest.mark.parametrize("damage", [b"", b"{", b'{"roles": [{"number": "one"}]}', b"\xff\xfe"])
def test_a_damaged_file_is_put_aside(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "memberRoles.json").write_bytes(damage)
    world = World(tmp_path)
    assert (tmp_path / "memberRoles.json.unreadable").read_bytes() == damage
    world.log.took(MemberRole.FOLLOW, 5, TAKEN)
    assert [role.number for role in read_roles(world.path)] == [1]


def test_what_cannot_be_read_at_all_is_put_aside(tmp_path: Path) -> None:
    (tmp_path / "memberRoles.json").mkdir()
    world = World(tmp_path)
    assert (tmp_path / "memberRoles.json.unreadable").is_dir()
    world.log.took(MemberRole.FOLLOW, 5, TAKEN)
    assert [role.number for role in read_roles(world.path)] == [1]


def test_a_damaged_file_that_cannot_be_put_aside_stops_no_start(tmp_path: Path) -> None:
    (tmp_path / "memberRoles.json").write_bytes(b"{")
    (tmp_path / "memberRoles.json.unreadable").mkdir()
    world = World(tmp_path)
    world.log.took(MemberRole.FOLLOW, 5, TAKEN)
    assert [role.number for role in read_roles(world.path)] == [1]


def test_a_disk_that_takes_nothing_ends_no_role(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(tmp_path / "store")
    (tmp_path / "store").write_text("no directory")
    world.log.took(MemberRole.LEAD, 5, TAKEN)
    assert "the next role is written with it" in caplog.text
    (tmp_path / "store").unlink()
    world.log.took(MemberRole.FOLLOW, 6, TAKEN)
    assert [role.role for role in read_roles(world.path)] == ["LEAD", "FOLLOW"]
