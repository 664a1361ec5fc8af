"""SIGKILL of each side of the store at each of its steps; what the next one makes of it.

The steps are found by a run that is not killed: every store to the control page, every part of a
copy, every write (torn at page ends), sync, unlink and rename, every row of the queue table. The
`slow` tests take every line of store/ and ipc/ as a step.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from store.control_slots import APPEND_END, MAX_PHY_OFFSET
from tests.faults.store_world import (
    FILE_SIZE,
    StoreDesk,
    World,
    Writer,
    assert_closes_clean,
    assert_nothing_behind,
    assert_whole,
    published_numbers,
)
from tests.support.our_broker import HOME

# Lines of compiled functions are traced by nobody.
pytestmark = pytest.mark.interpreted

BEFORE = range(12)
"""Written before the one that dies."""
DURING = range(12, 64)
AFTER = range(1_000, 1_020)


class Zygote:
    """The helper that forks the dying child."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.step_child"],
            cwd=HOME,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def play(self, world: World, **request: Any) -> int:
        """One child from its start to its end; its exit code, -9 for SIGKILL."""
        own = f"/proc/{os.getpid()}/fd"
        request |= {
            "root": str(world.root),
            "page": f"{own}/{world.page_fd}",
            "table": f"{own}/{world.table_fd}",
            "steps": str(world.root.parent / "steps"),
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        """End it."""
        self._process.communicate(timeout=10)


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    found = Zygote()
    yield found
    found.close()


class Theatre:
    """Plays one scene for every step at which an actor can die."""

    def __init__(self, directory: Path, zygote: Zygote) -> None:
        self._directory = directory
        self._zygote = zygote

    def each_step(
        self,
        prepare: Callable[[World], None],
        role: str,
        judge: Callable[[World], None],
        *,
        stride: int = 1,
        only: str = "",
        lines: bool = False,
        **request: Any,
    ) -> int:
        """prepare, the actor dies at step n, judge: for every stride-th n whose name matches
        `only`. Returns how many steps it died at."""
        original = self._directory / "original"
        prepared = World(original).boot()
        prepare(prepared)
        page, table = _content(prepared.page_fd), _content(prepared.table_fd)
        prepared.close()

        killed: list[bool] = []

        def run(kill_at: int) -> None:
            world = World(self._directory / "store").boot()
            shutil.rmtree(world.root, ignore_errors=True)
            shutil.copytree(original, world.root)
            _restore(world.page_fd, page)
            _restore(world.table_fd, table)
            code = self._zygote.play(world, role=role, kill_at=kill_at, lines=lines, **request)
            # The index flushes full files on a thread of its own: the last steps may not come.
            assert code in ((0,) if kill_at < 0 else (-signal.SIGKILL, 0))
            killed.append(code != 0)
            judge(world)
            world.close()

        run(-1)
        names = (self._directory / "steps").read_text().splitlines()
        chosen = [at for at, name in enumerate(names) if re.match(only, name)][::stride]
        for number in chosen:
            try:
                run(number)
            except BaseException as error:
                around = names[max(number - 3, 0) : number + 1]
                error.add_note(f"{role} killed at step {number} of {len(names)}: {around}")
                raise
        return sum(killed)


def _content(fd: int) -> list[tuple[int, bytes]]:
    """The pieces of a sparse memfd that hold data."""
    pieces: list[tuple[int, bytes]] = []
    end = 0
    size = os.fstat(fd).st_size
    while end < size:
        try:
            start = os.lseek(fd, end, os.SEEK_DATA)
        except OSError:
            break
        end = os.lseek(fd, start, os.SEEK_HOLE)
        pieces.append((start, os.pread(fd, end - start, start)))
    return pieces


def _restore(fd: int, pieces: list[tuple[int, bytes]]) -> None:
    for start, data in pieces:
        os.pwrite(fd, data, start)


@pytest.fixture
def theatre(tmp_path: Path, zygote: Zygote) -> Iterator[Theatre]:
    """In memory where that is possible: hundreds of recoveries, each with its syncs."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path) as directory:
        yield Theatre(Path(directory), zygote)


# -- scenes ------------------------------------------------------------------------------------


def running_store(world: World) -> None:
    """A store with some messages, all dispatched; its process is gone, its page lives."""
    desk = StoreDesk(world).open()
    writer = Writer(world).open()
    writer.write(BEFORE)
    desk.dispatch()
    writer.close()
    desk.abandon()


def busy_store(world: World) -> None:
    """The same, and a writer that has gone on alone."""
    running_store(world)
    writer = Writer(world).open()
    writer.write(DURING)
    writer.close()


def one_busy_queue(world: World) -> None:
    """Units of one queue over a page's end: a write that can tear."""
    running_store(world)
    writer = Writer(world).open()
    writer.write((30 * n + 30 for n in range(230)), batch=50)
    writer.close()


def crashed_broker(world: World) -> None:
    """Nobody lives any more; the log ends in unpublished bytes."""
    busy_store(world)
    page = world.page()
    end = page.counters[MAX_PHY_OFFSET]
    with (world.config.commit_log_path / f"{end - end % FILE_SIZE:020d}").open("r+b") as file:
        file.seek(end % FILE_SIZE)
        file.write(b"torn" * 9)
    world.boot()


def is_prefix(found: list[int], of: list[int]) -> bool:
    return found == of[: len(found)]


ALL = [*BEFORE, *DURING]


def writer_is_replaced(world: World) -> None:
    """The next writer on the same page: unpublished bytes are dead, all else goes on."""
    published = world.counter(MAX_PHY_OFFSET)
    found = published_numbers(world, published)
    assert is_prefix(found, ALL)
    desk = StoreDesk(world).open()
    writer = Writer(world).open()
    assert world.counter(MAX_PHY_OFFSET) == world.counter(APPEND_END) == published
    assert_nothing_behind(world, published)
    writer.write(AFTER)
    desk.dispatch()
    assert_whole(world, desk, [*found, *AFTER])
    writer.close()
    assert_closes_clean(world, desk)


def everything_is_restarted(world: World) -> None:
    """Both processes died: a new page, recovery from the files."""
    published = published_numbers(world, world.counter(MAX_PHY_OFFSET))
    world.boot()
    desk = StoreDesk(world).open()
    found = published_numbers(world, world.counter(MAX_PHY_OFFSET))
    assert is_prefix(published, found)
    expected = ALL if is_prefix(found, ALL) else found
    assert is_prefix(found, expected)
    assert_whole(world, desk, found)
    assert_nothing_behind(world, world.counter(MAX_PHY_OFFSET))
    writer = Writer(world).open()
    writer.write(AFTER)
    desk.dispatch()
    assert_whole(world, desk, [*found, *AFTER])
    writer.close()
    assert_closes_clean(world, desk)


def everything_is_indexed_once(world: World) -> None:
    """As everything_is_restarted, and no key is found twice."""
    world.boot()
    desk = StoreDesk(world).open()
    found = published_numbers(world, world.counter(MAX_PHY_OFFSET))
    assert_whole(world, desk, found, index_once=True)
    desk.abandon()


class WatchedStore(StoreDesk):
    """A store that comes back while readers read: what was published stays readable."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._seen = world.queue_maxima()

    def look(self) -> None:
        """No queue's end goes back, every unit before it is there."""
        maxima = self.world.queue_maxima()
        for key, before in self._seen.items():
            assert maxima[key] >= before, f"{key}: {before} -> {maxima[key]}"
        self._seen = maxima

    def _ring(self) -> None:
        super()._ring()
        self.look()


def store_is_replaced(world: World) -> None:
    """The next store on the same page, beside a living writer and readers."""
    expected = published_numbers(world, world.counter(MAX_PHY_OFFSET))
    desk = WatchedStore(world)
    desk.open()
    desk.look()
    writer = Writer(world).open()
    writer.write(AFTER)
    desk.dispatch()
    assert_whole(world, desk, [*expected, *AFTER])
    writer.close()
    assert_closes_clean(world, desk)


# -- tests -------------------------------------------------------------------------------------

WRITES: dict[str, Any] = {"numbers": [DURING.start, DURING.stop]}


@pytest.mark.fault(5)
def test_writer_alone(theatre: Theatre) -> None:
    steps = theatre.each_step(running_store, "writer", writer_is_replaced, stride=2, **WRITES)
    assert steps > 50


def test_writer_and_store_with_it(theatre: Theatre) -> None:
    steps = theatre.each_step(running_store, "writer", everything_is_restarted, stride=2, **WRITES)
    assert steps > 50


def test_store_alone(theatre: Theatre) -> None:
    steps = theatre.each_step(busy_store, "store", store_is_replaced, stride=5, stop=False)
    assert steps > 30


def test_store_and_writer_with_it(theatre: Theatre) -> None:
    steps = theatre.each_step(busy_store, "store", everything_is_restarted, stride=5, stop=True)
    assert steps > 30


@pytest.mark.fault(5)
def test_between_two_counters_of_a_batch(theatre: Theatre) -> None:
    """The writer has published one counter of the control page and not yet the next."""
    counters = "(APPEND_END|MAX_PHY_OFFSET|STORE_TIMESTAMP) set"
    steps = theatre.each_step(
        running_store, "writer", writer_is_replaced, only=counters, stride=2, **WRITES
    )
    assert steps > 18


def test_torn_units(theatre: Theatre) -> None:
    """A write of units that SIGKILL cut at a page's end, in the middle of a unit."""
    for judge in (store_is_replaced, everything_is_restarted):
        torn = theatre.each_step(
            one_busy_queue, "store", judge, only="pwrite of .* torn", stop=False
        )
        assert torn


def test_writer_rolls_while_the_store_comes_back(tmp_path: Path) -> None:
    """Into files that the dead store had made; the new one goes on behind them."""
    world = World(tmp_path / "store").boot()
    running_store(world)
    desk = StoreDesk(world)
    desk.store.open()
    writer = Writer(world).open()
    first_file = writer.log.position // FILE_SIZE
    writer.write(DURING)
    assert writer.log.position // FILE_SIZE > first_file
    desk.allocate()
    desk.dispatch()
    assert_whole(world, desk, ALL)
    writer.close()
    assert_closes_clean(world, desk)
    world.close()


def test_index_file_cut_short_in_its_creation(theatre: Theatre) -> None:
    """No entry is doubled by the dispatch that follows."""
    theatre.each_step(
        busy_store, "store", everything_is_indexed_once, only="after ftruncate", stop=False
    )


def test_recovery_itself(theatre: Theatre) -> None:
    """Killed while it recovers from a crash, again and again; then let live."""
    steps = theatre.each_step(
        crashed_broker, "store", everything_is_restarted, stride=5, stop=False
    )
    assert steps > 30


@pytest.mark.fault(5)
@pytest.mark.long
def test_every_step(theatre: Theatre, proved: Callable[[str], None]) -> None:
    """The quick tests leave steps out."""
    steps = sum(
        theatre.each_step(prepare, "store", judge, stop=stop)
        for prepare, judge, stop in (
            (busy_store, store_is_replaced, False),
            (busy_store, everything_is_restarted, True),
            (crashed_broker, everything_is_restarted, True),
        )
    )
    proved(f"the store killed at each of {steps} steps: nothing published is lost")


def some_or_many(some: int, many: int) -> pytest.MarkDecorator:
    """How many lines are passed over between two at which the actor dies."""
    params = (
        pytest.param(some, marks=pytest.mark.slow),
        pytest.param(many, marks=[pytest.mark.long, pytest.mark.timeout(1200)]),
    )
    return pytest.mark.parametrize("stride", params)


@some_or_many(31, 3)
def test_lines_of_the_writer(theatre: Theatre, stride: int, proved: Callable[[str], None]) -> None:
    steps = sum(
        theatre.each_step(running_store, "writer", judge, lines=True, stride=stride, **WRITES)
        for judge in (writer_is_replaced, everything_is_restarted)
    )
    assert steps > 150
    proved(f"the writer killed at {steps} lines of its code: nothing published is lost")


@some_or_many(211, 23)
def test_lines_of_the_store(theatre: Theatre, stride: int, proved: Callable[[str], None]) -> None:
    steps = sum(
        theatre.each_step(busy_store, "store", judge, lines=True, stride=stride, stop=True)
        for judge in (store_is_replaced, everything_is_restarted)
    )
    assert steps > 40
    proved(f"the store killed at {steps} lines of its code: nothing published is lost")
