"""ha.replica_memory: the file of known replicas, on a real disk."""

from __future__ import annotations

import errno
import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conf.atomic_file import replace_file
from ha.replica_memory import (
    FILE_NAME,
    WRITE_EVERY_MS,
    WRITE_PAUSE_MS,
    KnownReplica,
    ReplicaMemory,
)
from ipc.clock import SystemClock
from tests.support.deadline import wait_until
from tests.support.manual_clock import ManualClock


def known(name: str, *, left_ms: int | None = None, ack: int = 700) -> KnownReplica:
    return KnownReplica(
        id=name,
        remote="10.0.0.1:4711",
        ack_offset=ack,
        position=ack,
        connected_since_ms=1_600_000_000_000,
        left_ms=left_ms,
    )


class World:
    """A memory whose thread is this one."""

    def __init__(self, root: Path) -> None:
        self.path = root / FILE_NAME
        self.clock = ManualClock()
        self.memory = ReplicaMemory(self.path, self.clock)
        self.slept: list[float] = []
        self.writes = 0

    def content(self) -> Any:
        return json.loads(self.path.read_bytes())

    def acks(self) -> list[int]:
        return [each["ack_offset"] for each in self.content()["replicas"]]

    def again(self) -> list[KnownReplica]:
        """What the next start finds."""
        return ReplicaMemory(self.path, self.clock).load()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(tmp_path)

    def counting(path: Path, data: bytes) -> None:
        world.writes += 1
        replace_file(path, data)

    monkeypatch.setattr("ha.replica_memory.replace_file", counting)
    monkeypatch.setattr(world.memory, "wait_for_running", world.slept.append)
    return world


def test_what_is_noted_is_found_again(world: World) -> None:
    world.memory.note([known("b:1"), known("b:2", left_ms=1_699_999_999_000)])
    world.memory.step()
    written_ms = world.clock.now_ms()
    world.clock.advance(3_600_000)
    assert world.again() == [
        known("b:1", left_ms=written_ms),
        known("b:2", left_ms=1_699_999_999_000),
    ]


def test_no_file_without_replicas(world: World) -> None:
    assert world.memory.load() == []
    world.memory.note([])
    for _ in range(3):
        world.memory.step()
        world.clock.advance(WRITE_EVERY_MS)
    world.memory.finish()
    assert not world.path.exists()


def test_the_last_one_that_is_forgotten_leaves_the_file(world: World) -> None:
    world.memory.note([known("b:1", left_ms=1)])
    world.memory.finish()
    other = ReplicaMemory(world.path, world.clock)
    assert len(other.load()) == 1
    other.note([])
    other.finish()
    assert world.again() == []


def test_somebody_came_or_left_is_written_soon_the_rest_once_a_minute(world: World) -> None:
    world.memory.note([known("b:1")])
    world.memory.step()
    assert (world.writes, world.slept) == (1, [])
    world.memory.note([known("b:1", ack=800)])
    world.memory.step()
    assert (world.writes, world.slept) == (1, [WRITE_EVERY_MS])
    world.clock.advance(WRITE_EVERY_MS)
    world.memory.step()
    assert (world.writes, world.acks()) == (2, [800])
    world.memory.note([known("b:1", left_ms=5)])
    world.memory.step()
    assert world.slept[1:] == [WRITE_PAUSE_MS], "not more often, however often they come and leave"
    world.clock.advance(WRITE_PAUSE_MS)
    world.memory.step()
    assert world.writes == 3


def test_a_failed_write_is_said_once_and_tried_again(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "ha")
    moved = world.path.parent.with_name("elsewhere")
    world.path.parent.rename(moved)
    for number in range(3):
        world.memory.note([known("b:1", left_ms=number if number else None)])
        world.memory.step()
        world.clock.advance(WRITE_EVERY_MS)
    [record] = caplog.records
    assert str(world.path) in record.getMessage()
    assert "free space" in record.getMessage()
    moved.rename(world.path.parent)
    world.memory.step()
    assert [each.left_ms for each in world.again()] == [2]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"\xff\xfe",
        b'{"version": 2, "writtenMs": 5, "replicas": []}',
        b'{"version": 1, "writtenMs": "5", "replicas": []}',
        b'{"version": 1, "writtenMs": 5, "replicas": {}}',
        b'{"version": 1, "writtenMs": 5, "replicas": [5]}',
        b'{"version": 1, "writtenMs": 5, "replicas": [{"id": "b:1"}]}',
    ],
)
def test_a_file_that_is_none_is_said_and_replaced(
    world: World, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    world.path.write_bytes(content)
    assert world.memory.load() == []
    assert str(world.path) in caplog.text
    world.memory.note([known("b:1", left_ms=7)])
    world.memory.step()
    assert world.again() == [known("b:1", left_ms=7)]


@pytest.mark.parametrize(
    ("member", "value"),
    [("id", 5), ("remote", None), ("ack_offset", "700"), ("position", True), ("left_ms", 1.5)],
)
def test_members_of_the_wrong_kind(
    world: World, member: str, value: object, caplog: pytest.LogCaptureFixture
) -> None:
    world.memory.note([known("b:1")])
    world.memory.step()
    content = world.content()
    content["replicas"][0][member] = value
    world.path.write_text(json.dumps(content))
    assert world.again() == []
    assert member in caplog.text


def test_its_thread_writes_and_says_the_last_word(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    memory = ReplicaMemory(path, SystemClock())
    memory.start()
    memory.note([known("b:1")])
    wait_until(path.exists)
    memory.note([known("b:1", left_ms=77)])
    assert memory.shutdown()
    assert ReplicaMemory(path, SystemClock()).load() == [known("b:1", left_ms=77)]


class TestTheLastWord:
    """Only what an orderly stop wrote may be exact, and only for the next life."""

    def test_it_is_there_once(self, world: World) -> None:
        gone = replace(known("b:1", left_ms=5), ack_limit=700)
        world.memory.note([gone], is_last=True)
        world.memory.finish()
        assert world.again() == [gone]
        assert world.again() == [replace(gone, ack_limit=None)], "that life was killed"

    def test_who_is_still_connected_may_get_more(self, world: World) -> None:
        world.memory.note([replace(known("b:1"), ack_limit=700)], is_last=True)
        world.memory.finish()
        assert world.again()[0].ack_limit is None

    def test_what_is_noted_in_passing_is_no_last_word(self, world: World) -> None:
        world.memory.note([replace(known("b:1", left_ms=5), ack_limit=700)])
        world.memory.step()
        world.memory.finish()
        assert world.again()[0].ack_limit is None

    def test_what_cannot_be_taken_back_is_removed(
        self, world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        gone = replace(known("b:1", left_ms=5), ack_limit=700)
        world.memory.note([gone], is_last=True)
        world.memory.finish()

        def full(_path: Path, _data: bytes) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr("ha.replica_memory.replace_file", full)
        assert world.again() == [gone]
        assert "No space left" in caplog.text
        assert world.again() == []

    def test_a_file_of_an_earlier_version_has_none(self, world: World) -> None:
        world.memory.note([known("b:1", left_ms=5)])
        world.memory.step()
        content = world.content()
        del content["replicas"][0]["ack_limit"]
        world.path.write_text(json.dumps(content))
        assert world.again() == [known("b:1", left_ms=5)]
