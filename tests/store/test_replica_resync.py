"""store.replica_resync: nothing is lost, nothing half done, and recovery makes the rest fit."""

from __future__ import annotations

import json
import os
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from store import replica_resync
from store.control_slots import MAX_PHY_OFFSET
from store.errors import DiskFullError, StoreError
from store.log_fences import LogFences, fences_path, new_fence, save_fences
from store.replica_resync import perform_request
from store.resync_request import (
    ResyncAction,
    ResyncRequest,
    drop_request,
    find_done,
    find_refused_cut,
    find_request,
    is_backup_name,
    write_request,
)
from store.store_checkpoint import StoreCheckpoint
from store.timer.timer_checkpoint import (
    TimerCheckpoint,
    load_timer_checkpoint,
    write_timer_checkpoint,
)
from tests.faults.store_world import (
    FILE_SIZE,
    StoreDesk,
    World,
    Writer,
    assert_closes_clean,
    assert_nothing_behind,
    assert_whole,
    number_of,
    walk,
)

COUNT = 150
"""Messages over three files and a bit."""


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A store that was closed orderly."""
    world = World(tmp_path / "store").boot()
    desk = StoreDesk(world).open()
    writer = Writer(world).open()
    for start in range(0, COUNT, 10):
        desk.allocate()
        writer.write(range(start, start + 10))
    desk.dispatch()
    desk.flush()
    writer.close()
    desk.shutdown()
    return world


class Place(NamedTuple):
    """Where a message's record ends, and its time."""

    number: int
    end: int
    store_timestamp: int


def places(world: World) -> list[Place]:
    found = walk(world, world.counter(MAX_PHY_OFFSET))
    return [Place(number_of(m), end, m.store_timestamp) for m, end in found]


def ask(world: World, action: ResyncAction, offset: int = 0) -> str:
    """The backup's name."""
    request = ResyncRequest(action=action, offset=offset, reason="the test says so")
    write_request(world.root, request)
    found = find_request(world.root)
    assert found is not None
    return found.backup


def content(world: World) -> dict[str, bytes]:
    """Every file of the store, the request's own files left out."""
    return {
        str(path.relative_to(world.root)): path.read_bytes()
        for path in sorted(world.root.rglob("*"))
        if path.is_file() and not path.name.startswith("resync.json")
    }


def test_nothing_to_do(world: World) -> None:
    before = content(world)
    assert find_request(world.root) is None
    assert perform_request(world.config) is None
    assert content(world) == before


def test_a_request_can_be_read_again_and_names_its_backup(world: World) -> None:
    names = {ask(world, ResyncAction.TRUNCATE, 7) for _ in range(20)}
    assert len(names) == 20
    found = find_request(world.root)
    assert found is not None
    assert (found.action, found.offset, found.reason) == ("truncate", 7, "the test says so")
    assert found.backup in names
    assert found.requested_at.endswith("+00:00")


# -- start over --------------------------------------------------------------------------------


def test_start_over_moves_everything_aside(world: World, caplog: pytest.LogCaptureFixture) -> None:
    (world.root / "config").mkdir()
    (world.root / "config" / "topics.json").write_text("{}")
    world.config.abort_path.write_text("another boot")
    before = content(world)
    name = ask(world, ResyncAction.START_OVER)
    text = perform_request(world.config)
    assert text is not None
    backup = world.root / name
    assert str(backup) in text
    assert "rm -r" in text
    assert text in caplog.text
    after = content(world)
    assert after.pop("config/topics.json") == b"{}"
    moved = {path.removeprefix(f"{name}/"): data for path, data in after.items()}
    del before["config/topics.json"], before["abort"]
    before["resync.json"] = b""
    moved["resync.json"] = b""
    assert {key: moved[key] for key in before if key != "resync.json"} == {
        key: data for key, data in before.items() if key != "resync.json"
    }
    assert find_request(world.root) is None
    assert (find_done(world.root) or "").endswith("the log was started over")
    assert not world.config.abort_path.exists()
    world.boot()
    desk = StoreDesk(world).open()
    assert world.counter(MAX_PHY_OFFSET) == 0
    writer = Writer(world).open()
    writer.write(range(7))
    desk.dispatch()
    assert_whole(world, desk, list(range(7)))
    writer.close()
    assert_closes_clean(world, desk)


def test_start_over_twice_keeps_both_backups(world: World) -> None:
    first = ask(world, ResyncAction.START_OVER)
    perform_request(world.config)
    second = ask(world, ResyncAction.START_OVER)
    perform_request(world.config)
    assert first != second
    assert len(list((world.root / first / "commitlog").iterdir())) >= 3
    assert not any((world.root / second / "commitlog").iterdir())


def test_start_over_where_nothing_is(tmp_path: Path) -> None:
    world = World(tmp_path / "store")
    world.root.mkdir()
    ask(world, ResyncAction.START_OVER)
    assert perform_request(world.config)
    assert find_request(world.root) is None


def test_a_linked_directory_stays_where_the_operator_put_it(world: World, tmp_path: Path) -> None:
    elsewhere = tmp_path / "disk" / "clog"
    elsewhere.parent.mkdir()
    os.rename(world.config.commit_log_path, elsewhere)
    world.config.commit_log_path.symlink_to(elsewhere)
    files = sorted(path.name for path in elsewhere.iterdir())
    name = ask(world, ResyncAction.START_OVER)
    text = perform_request(world.config)
    assert text is not None
    assert world.config.commit_log_path.is_symlink()
    assert not any(elsewhere.iterdir())
    backup = elsewhere.parent / name / "clog"
    assert sorted(path.name for path in backup.iterdir()) == files
    assert str(backup.parent) in text


def test_a_mount_point_has_its_backup_inside(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    log = world.config.commit_log_path
    monkeypatch.setattr(os.path, "ismount", lambda path: Path(path) == log)
    files = sorted(path.name for path in log.iterdir())
    name = ask(world, ResyncAction.START_OVER)
    text = perform_request(world.config)
    assert text is not None
    assert str(log / name) in text
    assert [path.name for path in log.iterdir()] == [name]
    assert sorted(path.name for path in (log / name).iterdir()) == files
    again = ask(world, ResyncAction.START_OVER)
    perform_request(world.config)
    assert sorted(path.name for path in log.iterdir()) == sorted([name, again])


def test_a_topic_whose_name_begins_like_a_backups_goes_with_the_others(world: World) -> None:
    queues = world.config.consume_queue_path
    (queues / "backup-orders" / "0").mkdir(parents=True)
    name = ask(world, ResyncAction.START_OVER)
    perform_request(world.config)
    assert list(queues.iterdir()) == []
    assert (world.root / name / "consumequeue" / "backup-orders" / "0").is_dir()


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("backup-20260101T000000Z-0123abcd", True),
        ("backup-20260101T000000Z-0123abcd/x", False),
        ("backup-20260101T000000Z-0123abcd\n", False),
        ("backup-orders", False),
        ("backup-", False),
        (None, False),
    ],
)
def test_backup_names(name: object, is_one: bool) -> None:
    assert is_backup_name(name) is is_one


# -- truncate ----------------------------------------------------------------------------------


@pytest.mark.parametrize("crashed", [False, True], ids=["closed", "crashed"])
@pytest.mark.parametrize("kept", [7, 60, COUNT - 1, COUNT])
def test_truncate_ends_the_log_and_all_that_follows_from_it(
    world: World, kept: int, crashed: bool
) -> None:
    found = places(world)
    log_end = found[-1].end
    offset = found[kept - 1].end
    files = sorted(path.name for path in world.config.commit_log_path.iterdir())
    data = {name: (world.config.commit_log_path / name).read_bytes() for name in files}
    if crashed:
        world.config.abort_path.write_text("another boot")
    name = ask(world, ResyncAction.TRUNCATE, offset)
    text = perform_request(world.config)
    assert text is not None
    assert f"ends at {offset}" in text
    assert (find_done(world.root) or "").endswith(f"the log was cut at {offset}")
    assert not world.config.clean_exit_path.exists()
    assert world.config.abort_path.exists() == crashed
    assert not world.config.queue_states_path.exists(), "another log's: its offsets do not count"
    assert (world.root / name / "queues.exit").exists()
    assert_nothing_behind(world, offset)
    assert_backup(world.root / name / "commitlog", data, offset, log_end)
    world.boot()
    desk = StoreDesk(world).open()
    assert world.counter(MAX_PHY_OFFSET) == offset
    assert_whole(world, desk, list(range(kept)))
    writer = Writer(world).open()
    writer.write(range(1000, 1040))
    desk.dispatch()
    assert_whole(world, desk, [*range(kept), *range(1000, 1040)])
    writer.close()
    assert_closes_clean(world, desk)


def assert_backup(backup: Path, data: dict[str, bytes], offset: int, log_end: int) -> None:
    """[offset, log_end) can be read back from it."""
    start = (offset - 1) - (offset - 1) % FILE_SIZE
    tail = backup / f"{start:020d}.from-{offset}"
    expected = data[f"{start:020d}"][offset - start :].rstrip(b"\0")
    assert (tail.read_bytes() if tail.exists() else b"") == expected
    later = [name for name in data if int(name) >= offset]
    assert sorted(path.name for path in backup.iterdir() if "from" not in path.name) == later
    for name in later:
        assert (backup / name).read_bytes() == data[name]
    assert log_end <= start + FILE_SIZE * (1 + len(later))


def test_truncate_at_the_end_of_a_file(world: World) -> None:
    name = ask(world, ResyncAction.TRUNCATE, FILE_SIZE)
    whole = [place.number for place in places(world) if place.end <= FILE_SIZE]
    assert perform_request(world.config)
    backup = world.root / name / "commitlog"
    assert f"{FILE_SIZE:020d}" in {path.name for path in backup.iterdir()}
    assert not list(backup.glob("*.from-*"))
    world.boot()
    desk = StoreDesk(world).open()
    assert world.counter(MAX_PHY_OFFSET) == FILE_SIZE
    assert_whole(world, desk, whole)
    desk.abandon()


def test_what_was_on_disk_is_not_said_of_what_comes_instead(world: World) -> None:
    before = StoreCheckpoint.load(world.config.checkpoint_path)
    before.physic_msg_timestamp = before.logics_msg_timestamp = 1 << 50
    before.index_msg_timestamp = 5
    before.confirm_offset = before.logics_physical_offset = 1 << 50
    before.flush()
    place = places(world)[9]
    ask(world, ResyncAction.TRUNCATE, place.end)
    perform_request(world.config)
    after = StoreCheckpoint.load(world.config.checkpoint_path)
    assert after.physic_msg_timestamp == after.logics_msg_timestamp == place.store_timestamp
    assert after.index_msg_timestamp == 5
    raw = world.config.checkpoint_path.read_bytes()
    assert struct.unpack_from(">qq", raw, 32) == (place.end, place.end), "as RocketMQ has them"


@pytest.mark.parametrize("later_ms", [-1, 0, 60_000])
def test_timers_whose_deliveries_were_cut_off_are_delivered_again(
    world: World, later_ms: int
) -> None:
    place = places(world)[9]
    path = world.config.timer_checkpoint_path
    before = TimerCheckpoint(place.store_timestamp + later_ms, 52, 7, 8, 1, 2, 3)
    write_timer_checkpoint(path, before)
    ask(world, ResyncAction.TRUNCATE, place.end)
    perform_request(world.config)
    read_time_ms = place.store_timestamp + min(later_ms, 0)
    assert load_timer_checkpoint(path) == replace(before, last_read_time_ms=read_time_ms)


@pytest.mark.parametrize("size", [-1, 0, 40, 1 << 30])
def test_known_damage_before_the_offset_does_not_hinder_a_cut(world: World, size: int) -> None:
    """What a damaged record says of its size leads anywhere; where it ends the fence knows."""
    found = places(world)
    start, end = found[4].end, found[5].end
    path = world.config.commit_log_path / f"{0:020d}"
    with path.open("r+b") as file:
        file.seek(start)
        file.write(struct.pack(">i", size))
    fences = LogFences([new_fence(start, end, "test")])
    save_fences(fences_path(world.config.commit_log_path), fences)
    for inside in (start + 1, end - 1):
        ask(world, ResyncAction.TRUNCATE, inside)
        assert "is not the end of a record" in str(perform_request(world.config))
    ask(world, ResyncAction.TRUNCATE, found[9].end)
    assert "the log ends at" in str(perform_request(world.config))
    world.boot()
    desk = StoreDesk(world).open()
    assert world.counter(MAX_PHY_OFFSET) == found[9].end
    desk.abandon()


def test_a_cut_directly_behind_known_damage(world: World) -> None:
    found = places(world)
    start, end = found[4].end, found[5].end
    save_fences(
        fences_path(world.config.commit_log_path), LogFences([new_fence(start, end, "test")])
    )
    ask(world, ResyncAction.TRUNCATE, end)
    assert "the log ends at" in str(perform_request(world.config))


# -- refused -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shift", "words"),
    [
        (lambda end: end + 1, "is not the end of a record"),
        (lambda end: end + 17, "is not the end of a record"),
        (lambda _end: 0, "is outside the log"),
        (lambda _end: -5, "is outside the log"),
        (lambda _end: 1 << 40, "is outside the log"),
        (lambda _end: FILE_SIZE + 40, "is not the end of a record"),
    ],
)
def test_an_offset_that_does_not_fit_changes_nothing(
    world: World, shift: Any, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    offset = shift(places(world)[20].end)
    before = content(world)
    ask(world, ResyncAction.TRUNCATE, offset)
    text = perform_request(world.config)
    assert text is not None
    assert words in text
    assert words in caplog.text
    assert content(world) == before
    assert find_request(world.root) is None
    assert find_done(world.root) is None
    refused = json.loads((world.root / "resync.json.refused").read_text())
    assert refused["offset"] == offset
    assert words in refused["refused"]
    with pytest.raises(StoreError, match=r"resync.json.refused.*remove that file"):
        ask(world, ResyncAction.TRUNCATE, offset)
    ask(world, ResyncAction.TRUNCATE, places(world)[20].end)
    (world.root / "resync.json.refused").unlink()
    ask(world, ResyncAction.TRUNCATE, offset)


def test_behind_the_end_of_the_log_is_no_record_end(world: World) -> None:
    end = places(world)[-1].end
    ask(world, ResyncAction.TRUNCATE, end + 100)
    text = perform_request(world.config)
    assert text is not None
    assert "is not the end of a record" in text


def test_damage_before_the_offset_is_no_agreement(world: World) -> None:
    """The record that would be the last must be whole: CRC, place, sizes."""
    place = places(world)[5]
    path = world.config.commit_log_path / f"{0:020d}"
    with path.open("r+b") as file:
        file.seek(place.end - 40)
        file.write(b"\xff" * 30)
    ask(world, ResyncAction.TRUNCATE, place.end)
    text = perform_request(world.config)
    assert text is not None
    assert "refused" in text


def test_a_request_that_is_none(world: World) -> None:
    before = content(world)
    for text in ("", "[]", '{"action": "burn"}', '{"action": "truncate", "offset": "x"}'):
        (world.root / "resync.json").write_text(text)
        found = perform_request(world.config)
        assert found is not None
        assert "resync.json" in found
        assert content(world) == before
    bad = {"action": "start_over", "offset": 0, "reason": "", "requested_at": ""}
    (world.root / "resync.json").write_text(json.dumps({**bad, "backup": "backup-/../x"}))
    assert "is not valid" in (perform_request(world.config) or "")
    assert content(world) == before


def test_no_room_for_the_backup(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    before = content(world)
    name = ask(world, ResyncAction.TRUNCATE, places(world)[2].end)
    monkeypatch.setattr(replica_resync, "_SPARE", 1 << 60)
    with pytest.raises(DiskFullError, match=r"remove resync.json"):
        perform_request(world.config)
    after = {k: v for k, v in content(world).items() if not k.startswith(name)}
    assert after == before
    monkeypatch.undo()
    assert perform_request(world.config)


@pytest.mark.parametrize("damage", ["not JSON", "[]", "a directory"])
def test_a_mark_that_says_nothing_is_one(world: World, damage: str) -> None:
    """What was done is not known; that something was, is."""
    path = world.root / "resync.json.done"
    if damage == "a directory":
        path.mkdir()
    else:
        path.write_text(damage)
    assert find_done(world.root) == f"{path}: the log was started over"


def test_drop_request(world: World) -> None:
    ask(world, ResyncAction.START_OVER)
    before = content(world)
    drop_request(world.root, "it is a master now")
    assert find_request(world.root) is None
    assert perform_request(world.config) is None
    assert content(world) == before
    assert "it is a master now" in (world.root / "resync.json.refused").read_text()


def test_where_a_refused_cut_was_to_end(tmp_path: Path) -> None:
    assert find_refused_cut(tmp_path) is None
    write_request(tmp_path, ResyncRequest(action=ResyncAction.TRUNCATE, offset=77))
    assert find_refused_cut(tmp_path) is None
    drop_request(tmp_path, "no record ends there")
    assert find_refused_cut(tmp_path) == 77
    (tmp_path / "resync.json.refused").write_bytes(b"torn")
    assert find_refused_cut(tmp_path) is None
