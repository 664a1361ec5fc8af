"""A power cut: of what was not flushed, each page of each file is on disk or not, as it pleases.

What was flushed is all there; what the log still holds behind it is in order, what is missing in
between is fenced; consumequeue and index say the same as the log, whatever became of their pages.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from store.control_slots import FENCE_COUNT, FLUSHED_OFFSET, MAX_PHY_OFFSET
from tests.faults.store_world import (
    StoreDesk,
    World,
    Writer,
    assert_closes_clean,
    assert_nothing_behind,
    assert_whole,
    published_numbers,
)

PAGE = 4096
FLUSHED = range(70)
LATER = range(70, 150)
AFTER = range(1_000, 1_020)
STEP_MS = 4_000
"""Time between two commits: recovery starts at the newest file that is old enough."""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path) as directory:
        world = World(Path(directory) / "store").boot()
        yield world
        world.close()


def write_slowly(writer: Writer, desk: StoreDesk, numbers: range) -> None:
    """Commits that lie seconds apart; the next files are made as they are needed."""
    for number in numbers:
        writer.write([number], batch=1)
        if number % 5 == 0:
            writer.log.now_ms += STEP_MS
            desk.allocate()


def lose_pages(root: Path, flushed: Path, chance: random.Random) -> None:
    """Each page of `root` that differs from the flushed state falls back to it, or not.

    The checkpoint and full index files were flushed whenever they were written.
    """
    share = chance.choice((0.05, 0.5, 0.95))
    durable = {root / "checkpoint", *sorted((root / "index").iterdir())[:-1]}
    for path in sorted(root.rglob("*")):
        if not path.is_file() or path in durable:
            continue
        now = bytearray(path.read_bytes())
        before = flushed / path.relative_to(root)
        old = before.read_bytes() if before.exists() else b""
        old = old[: len(now)].ljust(len(now), b"\0")
        for start in range(0, len(now), PAGE):
            if chance.random() < share:
                now[start : start + PAGE] = old[start : start + PAGE]
        path.write_bytes(now)
    (root / "abort").write_text("another boot")


@pytest.mark.fault(2)
@pytest.mark.parametrize("cuts", [10, pytest.param(400, marks=pytest.mark.long)])
@pytest.mark.parametrize("dispatched", [True, False], ids=["dispatched", "behind"])
def test_power_cut(
    world: World, dispatched: bool, cuts: int, proved: Callable[[str], None]
) -> None:
    desk = StoreDesk(world).open()
    writer = Writer(world).open()
    writer.log.now_ms -= 1_000 * STEP_MS
    write_slowly(writer, desk, FLUSHED)
    desk.dispatch()
    desk.flush()
    flushed_end = world.counter(FLUSHED_OFFSET)
    flushed = world.root.with_name("flushed")
    shutil.copytree(world.root, flushed)
    write_slowly(writer, desk, LATER)
    if dispatched:
        desk.dispatch()
    desk.store._derived.index._join_flushing(10)
    writer.log._file.close()  # type: ignore[union-attr]
    desk.abandon()
    written = world.root.with_name("written")
    world.root.rename(written)
    seed = random.randrange(1 << 32)
    for number in range(seed, seed + cuts):
        shutil.rmtree(world.root, ignore_errors=True)
        shutil.copytree(written, world.root)
        lose_pages(world.root, flushed, random.Random(number))
        try:
            assert_recovers(world.boot(), flushed_end)
        except BaseException as error:
            error.add_note(f"seed {number}")
            raise
    proved(f"{cuts} power cuts, {'dispatched' if dispatched else 'behind'}: flushed is there")


def assert_recovers(world: World, flushed_end: int) -> None:
    """The flushed part and whole records of the rest, then new messages, then a clean stop."""
    desk = StoreDesk(world).open()
    end = world.counter(MAX_PHY_OFFSET)
    assert end >= flushed_end
    found = published_numbers(world, end)
    assert found[: len(FLUSHED)] == list(FLUSHED)
    assert found == sorted(set(found))
    if not world.counter(FENCE_COUNT):
        assert found == [*FLUSHED, *LATER][: len(found)]
    assert_nothing_behind(world, end)
    assert_whole(world, desk, found)
    writer = Writer(world).open()
    writer.write(AFTER)
    desk.dispatch()
    assert_whole(world, desk, [*found, *AFTER])
    writer.close()
    assert_closes_clean(world, desk)
