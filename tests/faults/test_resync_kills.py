"""SIGKILL of the store at each step of a re-sync: the next start ends it, and nothing is missing.

Judged after every kill: what is in the store now, and that the backup still holds every byte
that is not in the log any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from store.control_slots import MAX_PHY_OFFSET
from store.replica_resync import perform_request
from store.resync_request import ResyncAction, ResyncRequest, find_done, find_request, write_request
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
from tests.faults.test_step_kills import Theatre, Zygote, theatre

ALL = range(130)
KEPT = 30
AFTER = range(1_000, 1_020)
__all__ = ["theatre"]


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    found = Zygote()
    yield found
    found.close()


class Scene:
    """A closed store of some files with a request; remembers the log's bytes."""

    def __init__(self, action: ResyncAction) -> None:
        self._action = action
        self.files: dict[str, bytes] = {}
        self.offset = 0

    def prepare(self, world: World) -> None:
        """Write, close, ask."""
        desk = StoreDesk(world).open()
        writer = Writer(world).open()
        for start in range(0, len(ALL), 10):
            desk.allocate()
            writer.write(range(start, start + 10))
        desk.dispatch()
        desk.flush()
        writer.close()
        desk.shutdown()
        ends = [end for _, end in walk(world, world.counter(MAX_PHY_OFFSET))]
        assert ends[-1] > 2 * FILE_SIZE > ends[KEPT - 1]
        if self._action is ResyncAction.TRUNCATE:
            self.offset = ends[KEPT - 1]
        self.files = {p.name: p.read_bytes() for p in world.config.commit_log_path.iterdir()}
        request = ResyncRequest(action=self._action, offset=self.offset, reason="test")
        write_request(world.root, request)

    def backup(self, world: World) -> Path:
        """The one there is."""
        found = list(world.root.glob("backup-*"))
        assert len(found) == 1
        return found[0] / "commitlog"

    def byte_of(self, world: World, name: str) -> bytes:
        """A file of the old log, put together again from log and backup."""
        backup = self.backup(world)
        if (backup / name).exists():
            return (backup / name).read_bytes()
        data = (world.config.commit_log_path / name).read_bytes()
        tail = backup / f"{name}.from-{self.offset}"
        if not tail.exists():
            return data
        kept = data[: self.offset - int(name)]
        return (kept + tail.read_bytes()).ljust(len(data), b"\0")


def ended(scene: Scene) -> Callable[[World], None]:
    """The next start performs what is left, and the store is as asked."""

    def judge(world: World) -> None:
        world.boot()
        perform_request(world.config)
        assert find_request(world.root) is None
        assert find_done(world.root) is not None
        for name, data in scene.files.items():
            assert scene.byte_of(world, name) == data, name
        desk = StoreDesk(world).open()
        assert world.counter(MAX_PHY_OFFSET) == scene.offset
        assert_nothing_behind(world, scene.offset)
        kept = [number_of(message) for message, _ in walk(world, scene.offset)]
        assert kept == list(ALL[: KEPT if scene.offset else 0])
        assert_whole(world, desk, kept)
        writer = Writer(world).open()
        writer.write(AFTER)
        desk.dispatch()
        assert_whole(world, desk, [*kept, *AFTER])
        writer.close()
        assert_closes_clean(world, desk)

    return judge


@pytest.mark.parametrize("action", list(ResyncAction))
def test_killed_at_every_step(theatre: Theatre, action: ResyncAction) -> None:
    scene = Scene(action)
    assert theatre.each_step(scene.prepare, "resync", ended(scene)) > 30


@pytest.mark.parametrize(
    "stride", [pytest.param(23, marks=pytest.mark.slow), pytest.param(1, marks=pytest.mark.long)]
)
@pytest.mark.parametrize("action", list(ResyncAction))
def test_killed_at_lines(theatre: Theatre, action: ResyncAction, stride: int) -> None:
    scene = Scene(action)
    assert theatre.each_step(scene.prepare, "resync", ended(scene), lines=True, stride=stride) > 10
