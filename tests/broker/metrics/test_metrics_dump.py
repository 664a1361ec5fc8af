"""The dump's files, with a clock that is moved by hand."""

from __future__ import annotations

import errno
import fcntl
import gzip
import hashlib
import itertools
import json
import logging
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.metrics.dump_file_names import path_component
from broker.metrics.metrics_dump import NO_ID, MetricsDump, dump_settings
from broker.metrics.metrics_dump_files import DumpSettings
from broker.settings.startup_options import StartupOptions
from store.clean_exit import boot_id
from tests.support.deadline import wait_until
from tests.support.manual_clock import ManualClock

INTERVAL_MS = 5_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
MEMORY = Path("/dev/shm")
START = datetime(2026, 3, 31, 23, 59, 0, tzinfo=UTC)


def ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


class World:
    """A directory, a clock, and the dumps of brokers."""

    def __init__(self, directory: Path, start: datetime = START) -> None:
        self.directory = directory
        self.clock = ManualClock(now_ms=ms(start), monotonic_ms=7_000)
        self.trouble: Exception | None = None
        self.written_ms = 0
        """Of the line before, as the last snapshot was told."""
        self.padding = ""
        """Makes lines longer."""
        self._dumps: list[MetricsDump] = []

    def dump(self, ended: dict[str, Any] | None = None, **changes: Any) -> MetricsDump:
        values: dict[str, Any] = {
            "directory": self.directory,
            "cluster": "C1",
            "broker": "broker-a",
            "broker_id": 0,
            "interval_ms": INTERVAL_MS,
            "max_bytes": 512 << 20,
            "keep_days": 40,
        }
        self._dumps.append(
            MetricsDump(DumpSettings(**(values | changes)), self.snapshot, self.clock, ended=ended)
        )
        return self._dumps[-1]

    def close(self) -> None:
        """Kill the dumps that still write."""
        for dump in self._dumps:
            if dump._files._open is not None:
                kill(dump)

    def snapshot(self, written_ms: int) -> dict[str, Any]:
        self.written_ms = written_ms
        if self.trouble is not None:
            raise self.trouble
        found = {"cluster": "C1", "broker": "broker-a", "broker_id": 0}
        return found | {"padding": self.padding} if self.padding else found

    def turn(self, dump: MetricsDump, times: int = 1, delta_ms: int = INTERVAL_MS) -> None:
        for _ in range(times):
            dump.turn()
            self.clock.advance(delta_ms)

    def files(self) -> list[str]:
        return sorted(
            str(path.relative_to(self.directory))
            for path in self.directory.rglob("*")
            if path.is_file()
        )

    def total_bytes(self) -> int:
        """Of all files that readers see."""
        names = [name for name in self.files() if not Path(name).name.startswith(".")]
        return sum((self.directory / name).stat().st_size for name in names)

    def lines(self, only: Callable[[str], bool] = lambda name: True) -> list[dict[str, Any]]:
        """Every line that a reader sees, in the order of the files' names."""
        found = []
        for name in self.files():
            if not Path(name).name.startswith(".") and only(name):
                found += read_lines(self.directory / name)
        return found


def read_lines(path: Path) -> list[dict[str, Any]]:
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    return [json.loads(line) for line in data[: data.rfind(b"\n") + 1].splitlines()]


def place(dump: MetricsDump, day: str, hhmm: str, seq: int, end: str = "jsonl.gz") -> str:
    return f"dt={day}/cluster=C1/broker=broker-a/{hhmm}-0-{dump.boot[:8]}-{seq:08}.{end}"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    found = World(tmp_path / "metrics")
    yield found
    found.close()


# -- the chain ---------------------------------------------------------------------------------


def chain_of(world: World) -> list[tuple[str | None, str]]:
    """Of each line, in the order they were written: the digest that it names, and its own."""
    texts = []
    for name in world.files():
        data = (world.directory / name).read_bytes()
        texts += (gzip.decompress(data) if name.endswith(".gz") else data).splitlines()
    texts.sort(key=lambda text: (json.loads(text)["boot_ts"], json.loads(text)["seq"]))
    return [(json.loads(text)["prev_digest"], hashlib.sha256(text).hexdigest()) for text in texts]


def is_unbroken(chain: list[tuple[str | None, str]]) -> bool:
    digests = [None, *(own for _, own in chain)]
    return [named for named, _ in chain] == digests[:-1]


def test_each_line_names_the_one_before(world: World) -> None:
    first = world.dump()
    world.turn(first, 30)  # over an hour's and a day's end
    kill(first)
    second = world.dump()
    world.turn(second, 3)
    second.finish()
    third = world.dump()
    world.turn(third, 2)
    chain = chain_of(world)
    assert len(chain) == 36
    assert is_unbroken(chain)


def test_a_promoted_broker_names_its_last_line_as_a_slave(world: World, tmp_path: Path) -> None:
    """And a master that comes back as a slave its last one as the master."""
    own = {"host": "10.0.0.2:10911", "past_life": tmp_path / "of-two.json"}
    other = {"host": "10.0.0.1:10911", "past_life": tmp_path / "of-one.json"}
    lives = ((other, 0), (own, 1), (own, 0), (other, 1), (own, 0))
    dumps = []
    for place, broker_id in lives:
        dumps.append(world.dump(broker_id=broker_id, **place))
        world.turn(dumps[-1], 2)
        dumps[-1].finish()
    boots = [dump.boot for dump in dumps]
    named = {line["boot"]: (line["prev_boot"], line["prev_seq"]) for line in world.lines()}
    past = [named[boot] for boot in boots]
    assert past == [(None, None), (None, None), (boots[1], 3), (boots[0], 3), (boots[2], 3)]
    digests = {
        hashlib.sha256(json.dumps(line, separators=(",", ":")).encode()).hexdigest(): line
        for line in world.lines()
    }
    for line in world.lines():
        if line["seq"] == 1 and line["prev_boot"] is not None:
            assert digests[line["prev_digest"]]["boot"] == line["prev_boot"]


def test_who_has_no_id_yet_writes_no_line(world: World) -> None:
    """Nobody could tell whose it is: a member whose controller has not answered yet."""
    found = [0]
    settings = DumpSettings(
        directory=world.directory,
        cluster="C1",
        broker="broker-a",
        broker_id=NO_ID,
        interval_ms=INTERVAL_MS,
        max_bytes=512 << 20,
        keep_days=40,
    )
    dump = MetricsDump(settings, world.snapshot, world.clock, find_id=lambda: found[0])
    world.turn(dump, 3)
    dump.finish()
    assert world.files() == []
    found[0] = 3
    world.turn(dump, 2)
    kill(dump)
    (name,) = world.files()
    assert Path(name).name.split("-")[1] == "3"
    assert [line["seq"] for line in world.lines()] == [1, 2]


def test_a_killed_master_tells_as_a_slave_how_it_ended(world: World, tmp_path: Path) -> None:
    """Another host was promoted meanwhile: nobody else knows what it had answered."""
    own = {"host": "10.0.0.2:10911", "past_life": tmp_path / "life.json"}
    master = world.dump(broker_id=0, **own)
    world.turn(master, 2)
    kill(master)
    ended = {"boot": master.boot, "sync": {"ok": 7}}
    slave = world.dump(broker_id=1, ended=ended, **own)
    world.turn(slave, 2)
    found = [line for line in world.lines() if line["boot"] == slave.boot]
    assert [line.get("ended") for line in found] == [ended, None]
    assert (found[0]["prev_boot"], found[0]["prev_seq"]) == (master.boot, 2)


def test_a_note_that_was_not_written_forks_no_chain(world: World, tmp_path: Path) -> None:
    """A promoted broker was killed behind its first line: who comes next follows that one."""
    own = {"host": "10.0.0.2:10911", "past_life": tmp_path / "life.json"}
    world.dump(broker_id=1, **own).finish()
    note = own["past_life"].read_bytes()
    promoted = world.dump(broker_id=0, **own)
    promoted.finish()
    own["past_life"].write_bytes(note)
    again = world.dump(broker_id=0, **own)
    again.finish()
    (first,) = (line for line in world.lines() if line["boot"] == again.boot)
    assert first["prev_boot"] == promoted.boot


def test_a_copied_store_is_another_brokers_past(world: World, tmp_path: Path) -> None:
    """A slave that began with a copy of its master's files has another host."""
    path = tmp_path / "life.json"
    world.dump(host="10.0.0.1:10911", past_life=path).finish()
    copied = world.dump(broker_id=1, host="10.0.0.2:10911", past_life=path)
    copied.finish()
    assert [line["prev_boot"] for line in world.lines() if line["boot"] == copied.boot] == [None]


@pytest.mark.parametrize("wrote", [0, 10, None])
def test_a_line_that_was_not_written_is_in_no_chain(
    world: World, monkeypatch: pytest.MonkeyPatch, wrote: int | None
) -> None:
    """Nothing of it, a part of it, or all of it and then no sync: it is taken back."""
    dump = world.dump()
    world.turn(dump, 2)
    written_ms = world.clock.monotonic_ms() - INTERVAL_MS

    def fail(_fd: int, line: bytes | None = None) -> int:
        if line is not None and wrote:
            return write(_fd, line[:wrote])
        raise OSError(errno.ENOSPC, "no space")

    write = os.write
    monkeypatch.setattr(os, "fdatasync" if wrote is None else "write", fail)
    world.turn(dump, 2)
    assert dump.failures == 2
    assert world.written_ms == written_ms, "marks go back to the last line that was written"
    monkeypatch.undo()
    world.turn(dump, 2)
    assert [line["seq"] for line in world.lines()] == [1, 2, 5, 6]
    assert is_unbroken(chain_of(world))
    assert world.written_ms == world.clock.monotonic_ms() - 2 * INTERVAL_MS


def test_a_line_that_could_not_be_cut_off_goes_when_it_is_compressed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was written whole, but no disk said so: the next line does not follow it."""
    dump = world.dump()
    world.turn(dump, 2)

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(os, "fdatasync", fail)
    monkeypatch.setattr(os, "ftruncate", fail)
    world.turn(dump, 1)
    monkeypatch.undo()
    world.turn(dump, 3)
    assert dump.failures == 1
    assert [line["seq"] for line in world.lines()] == [1, 2, 4, 5, 6]
    assert is_unbroken(chain_of(world))


def test_a_torn_line_is_no_predecessor(world: World) -> None:
    first = world.dump()
    world.turn(first, 2)
    (name,) = world.files()
    kill(first)
    with (world.directory / name).open("ab") as file:
        file.write(b'{"v":2,"ts":')
    world.turn(world.dump(), 2)
    chain = chain_of(world)
    assert len(chain) == 4
    assert is_unbroken(chain)


# -- lines -------------------------------------------------------------------------------------


def test_a_line_is_exactly_this(world: World) -> None:
    dump = world.dump()
    world.clock.advance(40)
    dump.turn()
    (name,) = world.files()
    assert name == place(dump, "2026-03-31", "2359", 1, "jsonl")
    start = ms(START)
    assert (world.directory / name).read_text() == (
        f'{{"v":2,"ts":{start + 40},"mono":7040,"boot":"{dump.boot}","boot_ts":{start},'
        '"seq":1,"prev_boot":null,"prev_seq":null,"prev_digest":null,"interval_ms":5000,"final":false,'
        f'"machine_boot":"{boot_id().replace("-", "")[:16]}","uptime":7040,"clock_error_ms":null,'
        '"cluster":"C1","broker":"broker-a","broker_id":0}\n'
    )
    assert len(dump.boot) == 16
    assert int(dump.boot, 16) >= 0


def test_the_clock_of_the_machine_goes_on_over_lives(world: World) -> None:
    """Whatever is done to the wall clock between them."""
    for _ in range(2):
        world.dump().finish()
        world.clock.advance(60_000)
        world.clock.sleep(1_000)
        world.clock.jump_to(ms(START))
    first, second = sorted(world.lines(), key=lambda line: line["prev_seq"] or 0)
    assert first["machine_boot"] == second["machine_boot"]
    assert second["uptime"] - first["uptime"] == 61_000


def test_what_the_life_before_had_counted_is_in_the_first_line(world: World) -> None:
    first = world.dump()
    world.turn(first)
    kill(first)
    second = world.dump(ended={"boot": first.boot, "sync": {"ok": 7}})
    world.trouble = OSError("no")
    world.turn(second)
    world.trouble = None
    world.turn(second, 2)
    found = [line.get("ended") for line in world.lines() if line["boot"] == second.boot]
    assert found == [{"boot": first.boot, "sync": {"ok": 7}}, None]


def test_what_another_life_had_counted_is_in_no_line(world: World) -> None:
    world.turn(world.dump(ended={"boot": "ab" * 8}))
    world.turn(world.dump(ended={"boot": "ab" * 8}))
    assert [line.get("ended") for line in world.lines()] == [None, None]


def test_the_interval_does_not_drift(world: World) -> None:
    dump = world.dump()
    for late_ms in (0, 30, 4_999, 0, 12_000, 0, 0):
        world.clock.advance(late_ms)
        world.clock.advance(dump.turn())
    mono = [line["mono"] for line in world.lines()]
    # Two moments passed within the 12 s; they are left out.
    assert mono == [7_000, 12_030, 21_999, 22_000, 39_000, 42_000, 47_000]
    assert [line["seq"] for line in world.lines()] == list(range(1, 8))


def test_nothing_is_written_before_it_is_due(world: World) -> None:
    dump = world.dump()
    dump.turn()
    world.clock.advance(4_999)
    assert dump.turn() == 1
    assert len(world.lines()) == dump.lines == 1


# -- rotation ----------------------------------------------------------------------------------


def test_hour_day_and_orderly_stop(world: World) -> None:
    dump = world.dump()
    world.turn(dump, 12 + 720 + 5)
    dump.finish()
    assert world.files() == [
        place(dump, "2026-03-31", "2359", 1),
        place(dump, "2026-04-01", "0000", 13),
        place(dump, "2026-04-01", "0100", 733),
    ]
    lines = world.lines()
    assert [line["seq"] for line in lines] == list(range(1, 739))
    assert [line["final"] for line in lines] == [False] * 737 + [True]
    assert dump.lines == 738
    assert dump.failures == 0


def test_the_file_before_is_compressed_after_the_next_line(world: World) -> None:
    dump = world.dump()
    world.turn(dump, 12)
    assert world.files() == [place(dump, "2026-03-31", "2359", 1, "jsonl")]
    world.turn(dump)
    assert world.files() == [
        place(dump, "2026-03-31", "2359", 1),
        place(dump, "2026-04-01", "0000", 13, "jsonl"),
    ]


def test_a_stop_that_comes_first(world: World) -> None:
    dump = world.dump()
    dump.finish()
    (line,) = world.lines()
    assert line["final"] is True
    assert world.files() == [place(dump, "2026-03-31", "2359", 1)]


def test_a_stop_at_the_turn_of_the_hour(world: World) -> None:
    dump = world.dump()
    world.turn(dump, 12)
    dump.finish()
    assert world.files() == [
        place(dump, "2026-03-31", "2359", 1),
        place(dump, "2026-04-01", "0000", 13),
    ]


def test_a_wall_clock_that_goes_back_and_forth(world: World) -> None:
    dump = world.dump()
    world.turn(dump, 2)
    world.clock.jump_to(ms(START) - DAY_MS)
    world.turn(dump, 2)
    world.clock.jump_to(ms(START))
    world.turn(dump, 2)
    dump.finish()
    assert world.files() == [
        place(dump, "2026-03-30", "2359", 3),
        place(dump, "2026-03-31", "2359", 1),
        place(dump, "2026-03-31", "2359", 5),
    ]
    assert [line["seq"] for line in world.lines()] == [3, 4, 1, 2, 5, 6, 7]


MOVES = st.one_of(
    st.tuples(st.just("advance"), st.sampled_from([1, 4_999, 5_000, 5_001, 61_000, HOUR_MS])),
    st.tuples(st.just("advance"), st.integers(0, 2 * HOUR_MS)),
    st.tuples(st.just("jump"), st.integers(-3 * DAY_MS, 3 * DAY_MS)),
    st.tuples(st.just("restart"), st.sampled_from([0, 1])),
)


@given(st.lists(MOVES, max_size=40))
def test_every_line_once_without_holes_where_it_belongs(moves: list[tuple[str, int]]) -> None:
    """A restart 1 is an orderly one, 0 a kill."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as directory:
        world = World(Path(directory))
        dump = world.dump()
        lives, due = [dump], set[int]()
        for kind, value in moves:
            if kind == "advance":
                world.clock.advance(value)
            elif kind == "jump":
                world.clock.jump_to(world.clock.now_ms() + value)
            else:
                if value:
                    dump.finish()
                elif dump.lines:
                    kill(dump)
                dump, due = world.dump(), set()
                lives.append(dump)
            before = dump.lines
            wait_ms = dump.turn()
            assert 0 < wait_ms <= INTERVAL_MS
            due.add((world.clock.monotonic_ms() + wait_ms) % INTERVAL_MS)
            assert len(due) == 1  # always the same phase of the monotonic clock
            assert dump.lines - before <= 1
        world.turn(dump, 25)  # closes what the killed ones left
        dump.finish()
        assert_all_there(world, lives)
        assert [name for name in world.files() if not name.endswith(".jsonl.gz")] == []


def assert_all_there(world: World, lives: list[MetricsDump]) -> None:
    seen: dict[str, list[int]] = {}
    for name in world.files():
        lines = read_lines(world.directory / name)
        moments = [datetime.fromtimestamp(line["ts"] / 1000, UTC) for line in lines]
        assert len({f"{moment:%Y-%m-%d %H}" for moment in moments}) == 1
        assert name.startswith(f"dt={moments[0]:%Y-%m-%d}/")
        assert Path(name).name.startswith(f"{moments[0]:%H%M}-0-{lines[0]['boot'][:8]}-")
        assert int(Path(name).name.split("-")[3].partition(".")[0]) == lines[0]["seq"]
        for line in lines:
            seen.setdefault(line["boot"], []).append(line["seq"])
    for life in lives:
        assert sorted(seen.get(life.boot, [])) == list(range(1, life.lines + 1))
        assert life.failures == 0


# -- lives -------------------------------------------------------------------------------------


def kill(dump: MetricsDump) -> None:
    """As a kill leaves it: the descriptor closes, nothing else happens."""
    file = dump._files._open
    assert file is not None
    os.close(file.fd)
    dump._files._open = None


def test_what_a_predecessor_left_is_closed(world: World) -> None:
    before = world.dump()
    world.turn(before, 3)
    kill(before)
    name = place(before, "2026-03-31", "2359", 1, "jsonl")
    with (world.directory / name).open("ab") as file:
        file.write(b'{"v":1,"ts":17')  # torn
    hidden = (world.directory / name).with_name(f".{Path(name).name}.gz.tmp")
    hidden.write_bytes(b"half")
    orphan = hidden.with_name(hidden.name.replace("00000001", "00000000"))
    orphan.write_bytes(b"half")

    after = world.dump()
    world.turn(after)

    assert not hidden.exists()
    assert not orphan.exists()
    assert [line["seq"] for line in read_lines(world.directory / f"{name}.gz")] == [1, 2, 3]
    assert not (world.directory / name).exists()
    (line,) = world.lines(lambda name: after.boot[:8] in name)
    assert (line["prev_boot"], line["prev_seq"]) == (before.boot, 3)


def test_only_a_torn_line(world: World) -> None:
    before = world.dump()
    world.turn(before)
    kill(before)
    path = world.directory / world.files()[0]
    path.write_bytes(path.read_bytes()[:-1])
    after = world.dump()
    world.turn(after)
    (line,) = world.lines()
    assert (line["boot"], line["prev_boot"], line["prev_seq"]) == (after.boot, None, None)
    assert len(world.files()) == 1


def test_a_crash_between_rename_and_removal(world: World) -> None:
    before = world.dump()
    world.turn(before, 3)
    before.finish()
    packed = world.directory / world.files()[0]
    plain = packed.with_suffix("")
    plain.write_bytes(gzip.decompress(packed.read_bytes()))
    whole = packed.read_bytes()
    after = world.dump()
    world.turn(after)
    assert not plain.exists()
    assert packed.read_bytes() == whole
    (line,) = world.lines(lambda name: after.boot[:8] in name)
    assert (line["prev_boot"], line["prev_seq"]) == (before.boot, 4)


def test_the_last_life_is_found_although_the_clock_went_back(world: World) -> None:
    lives = []
    for jump_ms in (0, HOUR_MS, -3 * HOUR_MS, HOUR_MS, 0):
        world.clock.jump_to(world.clock.now_ms() + jump_ms)
        dump = world.dump()
        world.turn(dump, 2)
        kill(dump)
        lives.append(dump)
    found = {line["boot"]: (line["prev_boot"], line["prev_seq"]) for line in world.lines()}
    assert found[lives[0].boot] == (None, None)
    for before, after in itertools.pairwise(lives):
        assert found[after.boot] == (before.boot, 2)


def test_a_damaged_file_proves_nothing(world: World, caplog: pytest.LogCaptureFixture) -> None:
    before = world.dump()
    world.turn(before, 3)
    before.finish()
    packed = world.directory / world.files()[0]
    packed.write_bytes(packed.read_bytes()[:-20])
    after = world.dump()
    world.turn(after, 2)
    lines = [json.loads(text) for text in open_text(world, after)]
    assert [(line["prev_boot"], line["prev_seq"]) for line in lines] == [(None, None)] * 2
    assert f"{packed} is damaged" in caplog.text


def open_text(world: World, dump: MetricsDump) -> list[str]:
    (name,) = [name for name in world.files() if dump.boot[:8] in name]
    return (world.directory / name).read_text().splitlines()


def test_many_lives_are_closed_a_few_at_a_time(world: World) -> None:
    for _ in range(7):
        dump = world.dump()
        world.turn(dump)
        kill(dump)
    last = world.dump()
    counts = []
    for _ in range(4):
        world.turn(last)
        counts.append(Counter(Path(name).suffix for name in world.files())[".jsonl"])
    # Each life closed two of those before it, as far as there were any; one is being written.
    assert counts[-1] == 1
    assert len(world.lines()) == 7 + 4


def test_files_are_taken_over_when_they_can_be_listed_again(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    before = world.dump()
    world.turn(before, 3)
    kill(before)
    name = place(before, "2026-03-31", "2359", 1, "jsonl")
    orphan = world.directory / Path(name).with_name(".2359-0-0000abcd-00000001.jsonl.gz.tmp")
    orphan.write_bytes(b"half")
    after = world.dump()
    with monkeypatch.context() as patch:

        def refuse(path: Path) -> list[str]:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))

        patch.setattr(os, "listdir", refuse)
        world.turn(after, 2)
    assert (world.directory / name).exists()
    assert "reading the last line of the previous run: [Errno 13]" in caplog.text
    assert "lines of this run do not refer to it" in caplog.text
    assert "finding the files of previous runs: [Errno 13]" in caplog.text
    world.turn(after)
    own = place(after, "2026-03-31", "2359", 1, "jsonl")
    assert set(world.files()) == {f"{name}.gz", own}
    assert len(world.lines()) == 3 + 3


# -- two brokers -------------------------------------------------------------------------------


def test_master_and_slave_share_a_directory(world: World) -> None:
    slave = world.dump(broker_id=1)
    world.turn(slave, 3)
    slave_file = world.files()[0]
    assert Path(slave_file).name.startswith("2359-1-")
    stopped = world.dump(broker_id=12)
    world.turn(stopped, 3)
    kill(stopped)
    hidden = (world.directory / slave_file).with_name(".2359-1-00000000-00000001.jsonl.gz.tmp")
    hidden.write_bytes(b"its work")
    foreign = [*world.files()]

    master = world.dump(max_bytes=0, keep_days=1)
    world.turn(master, 3)
    world.clock.advance(100 * DAY_MS)
    world.turn(master, 3)
    master.finish()

    assert set(foreign) <= set(world.files())
    (first, *_) = world.lines(lambda name: "-0-" in name)
    assert first["prev_boot"] is None


def test_a_second_broker_of_the_same_name_and_id(world: World) -> None:
    first = world.dump()
    world.turn(first, 3)
    second = world.dump(max_bytes=0)
    world.turn(second, 30)
    assert (world.directory / place(first, "2026-03-31", "2359", 1, "jsonl")).exists()
    world.turn(first, 3)
    lines = world.lines()
    assert [line["seq"] for line in lines if line["boot"] == first.boot] == [1, 2, 3, 4, 5, 6]
    assert {line["prev_boot"] for line in lines} == {None}


# -- bounds ------------------------------------------------------------------------------------


def old_files(world: World, days: int, size: int) -> list[Path]:
    made = []
    for age in range(days, 0, -1):
        day = f"{datetime.fromtimestamp(ms(START) / 1000 - age * 86_400, UTC):%Y-%m-%d}"
        path = world.directory / f"dt={day}/cluster=C1/broker=broker-a"
        path.mkdir(parents=True)
        made.append(path / "1200-0-0000abcd-00000001.jsonl.gz")
        line = json.dumps({"boot": "0000abcd" * 2, "boot_ts": 1, "seq": 1}) + "\n"
        made[-1].write_bytes(gzip.compress(line.encode()) + b"\0" * (size - 100))
    return made


def test_old_files_go(world: World) -> None:
    made = old_files(world, 44, 200)
    other = made[0].with_name("notes.txt")
    other.write_text("keep")
    dump = world.dump()
    world.turn(dump)
    assert [path.exists() for path in made[:3]] == [False, False, True]
    world.turn(dump)
    assert [path.exists() for path in made[:5]] == [False] * 4 + [True]
    world.turn(dump, 4)
    assert [path.exists() for path in made[4:]] == [True] * 40
    assert other.exists()
    assert not (world.directory / f"{made[1].parents[2].name}").exists()


def test_files_get_too_old_while_it_runs(world: World) -> None:
    made = old_files(world, 40, 200)
    dump = world.dump()
    world.turn(dump, 3)
    assert made[0].exists()
    world.clock.advance(DAY_MS)
    world.turn(dump)
    assert [path.exists() for path in made[:2]] == [False, True]


def test_the_oldest_go_when_there_is_too_much(world: World) -> None:
    made = old_files(world, 10, 10_000)
    sizes = sum(path.stat().st_size for path in made)
    dump = world.dump(max_bytes=sizes - 15_000)
    world.turn(dump, 5)
    assert [path.exists() for path in made] == [False] * 2 + [True] * 8
    assert len(world.lines(lambda name: dump.boot[:8] in name)) == 5


def test_the_file_being_written_stays(world: World) -> None:
    dump = world.dump(max_bytes=0, keep_days=1)
    world.turn(dump, 3)
    assert len(world.lines()) == 3
    world.turn(dump, 12)
    world.turn(dump, 3)
    assert [line["seq"] for line in world.lines()] == list(range(13, 19))


def test_what_cannot_be_compressed_goes_too(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(os, "rename", refuse)
    monkeypatch.setattr(os, "fdatasync", lambda _fd: None)  # 240 times a slow disk's time
    world.padding = "x" * 14_200
    dump = world.dump(max_bytes=1_800_000, interval_ms=60_000)
    for _ in range(4):  # hours, of 864,000 bytes or more
        world.turn(dump, 60, 60_000)
        assert 864_000 <= world.total_bytes() <= 1_800_000
    assert [line["seq"] for line in world.lines()][-60:] == list(range(4 * 60 - 59, 4 * 60 + 1))


def test_the_file_being_written_counts(world: World) -> None:
    made = old_files(world, 10, 10_000)
    world.padding = "x" * 1850
    max_bytes = sum(path.stat().st_size for path in made) + 5_000
    dump = world.dump(max_bytes=max_bytes)
    for _ in range(11):
        world.turn(dump)
        assert world.total_bytes() <= max_bytes
    assert [path.exists() for path in made] == [False] * 2 + [True] * 8


def test_files_are_not_counted_for_every_line(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    dump = world.dump()
    world.turn(dump)
    listed = []
    listdir = os.listdir

    def watched(path: Path) -> list[str]:
        listed.append(path)
        return listdir(path)

    monkeypatch.setattr(os, "listdir", watched)
    world.turn(dump, 11)
    assert listed == []
    world.turn(dump)
    assert world.directory in listed, "another hour"


def test_files_of_days_to_come_go_first_when_there_is_too_much(world: World) -> None:
    ahead = World(world.directory, START.replace(year=2036))
    wrong = ahead.dump()
    ahead.turn(wrong, 3)
    wrong.finish()
    made = old_files(world, 4, 10_000)
    (future,) = world.directory.glob("dt=2036-*/*/*/*.gz")
    os.truncate(future, 10_000)
    size = sum(path.stat().st_size for path in (*made, future))

    roomy = world.dump(max_bytes=size + 100_000)
    world.turn(roomy, 3)
    roomy.finish()
    assert future.exists()

    tight = world.dump(max_bytes=size - 5_000)
    world.turn(tight, 3)
    assert not future.exists()
    assert [path.exists() for path in made] == [True] * 4


def test_a_clock_that_is_wrong_for_a_moment_costs_little(world: World) -> None:
    made = old_files(world, 30, 200)
    dump = world.dump()
    now_ms = world.clock.now_ms()
    world.clock.jump_to(now_ms + 3650 * DAY_MS)
    world.turn(dump, 2)
    world.clock.jump_to(now_ms)
    world.turn(dump, 20)
    assert [path.exists() for path in made] == [False] * 4 + [True] * 26


# -- trouble -----------------------------------------------------------------------------------


class Disk:
    """Stands before os.write and others: `full` lets `room` more bytes in."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = False
        self.room = 0
        self.failing_sync = False
        self._write, self._sync = os.write, os.fdatasync
        monkeypatch.setattr(os, "write", self.write)
        monkeypatch.setattr(os, "fdatasync", self.sync)

    def write(self, fd: int, data: Any) -> int:
        if not self.full:
            return self._write(fd, data)
        if self.room == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        size = min(self.room, len(data))
        self.room -= size
        return self._write(fd, data[:size])

    def sync(self, fd: int) -> None:
        if self.failing_sync:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._sync(fd)


def test_a_full_disk(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    disk = Disk(monkeypatch)
    dump = world.dump()
    world.turn(dump, 2)
    disk.full, disk.room = True, 30
    world.turn(dump, 5)
    assert (dump.lines, dump.failures) == (2, 5)
    assert [len(read_lines(world.directory / name)) for name in world.files()] == [2]
    assert (world.directory / world.files()[0]).read_bytes().endswith(b"\n")
    disk.full = False
    world.turn(dump, 2)
    dump.finish()
    assert [line["seq"] for line in world.lines()] == [1, 2, 8, 9, 10]
    assert [Path(name).suffix for name in world.files()] == [".gz", ".gz"]
    errors = [r.message for r in caplog.records if r.levelno == logging.ERROR]
    assert len(errors) == 3  # a line in part, none at all, no compression
    assert "No space left on device" in errors[-1]
    assert str(world.directory) in errors[0]
    (again,) = [r.message for r in caplog.records if r.levelno == logging.WARNING]
    assert "5 lines are missing" in again


def test_trouble_is_logged_once_an_hour(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.trouble = OSError(errno.EIO, "no")
    dump = world.dump()
    world.turn(dump, 721)
    assert len(caplog.records) == 2
    assert dump.failures == 721


def test_a_failed_sync_takes_its_line_back(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch)
    dump = world.dump()
    world.turn(dump)
    disk.failing_sync = True
    world.turn(dump)
    disk.failing_sync = False
    world.turn(dump)
    assert [line["seq"] for line in world.lines()] == [1, 3]
    assert (dump.lines, dump.failures) == (2, 1)


def test_a_directory_that_cannot_be_made(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.directory.parent.mkdir(exist_ok=True)
    world.directory.write_text("a file")
    dump = world.dump()
    world.turn(dump, 3)
    assert (dump.lines, dump.failures) == (0, 3)
    assert "Not a directory" in caplog.text
    world.directory.unlink()
    world.turn(dump, 2)
    assert [line["seq"] for line in world.lines()] == [4, 5]


def test_a_directory_that_vanishes(world: World, caplog: pytest.LogCaptureFixture) -> None:
    dump = world.dump()
    world.turn(dump, 2)
    shutil.rmtree(world.directory)
    world.turn(dump, 2)
    assert [line["seq"] for line in world.lines()] == [3, 4]
    assert dump.failures == 0
    assert "was deleted or moved" in caplog.text
    dump.finish()
    assert [line["seq"] for line in world.lines()] == [3, 4, 5]


def test_a_file_that_was_moved_away(world: World) -> None:
    dump = world.dump()
    world.turn(dump, 2)
    path = world.directory / world.files()[0]
    path.rename(path.with_name("taken"))
    world.turn(dump, 2)
    assert [line["seq"] for line in world.lines(lambda name: "taken" not in name)] == [3, 4]


def test_a_bug_in_the_snapshot_leaves_holes(world: World, caplog: pytest.LogCaptureFixture) -> None:
    dump = world.dump()
    world.turn(dump)
    world.trouble = ZeroDivisionError("oops")
    world.turn(dump, 2)
    world.trouble = None
    world.turn(dump)
    assert [line["seq"] for line in world.lines()] == [1, 4]
    assert (dump.lines, dump.failures) == (2, 2)
    (error,) = [r for r in caplog.records if r.levelno == logging.ERROR]
    assert error.exc_info is not None


def test_a_file_that_cannot_be_compressed_is_tried_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    dump = world.dump()
    world.turn(dump, 12)
    rename = os.rename
    with monkeypatch.context() as patch:

        def refuse(*_: object) -> None:
            raise OSError(errno.EROFS, "read-only")

        patch.setattr(os, "rename", refuse)
        world.turn(dump, 3)
        assert [Path(name).suffix for name in world.files()] == [".jsonl", ".jsonl"]
    assert os.rename is rename
    world.turn(dump)
    assert [Path(name).suffix for name in world.files()] == [".gz", ".jsonl"]
    assert [line["seq"] for line in world.lines()] == list(range(1, 17))


def test_without_locks(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(fcntl, "flock", refuse)
    dump = world.dump()
    world.turn(dump, 13)
    dump.finish()
    assert [line["seq"] for line in world.lines()] == list(range(1, 15))


# -- names, thread -----------------------------------------------------------------------------


def digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:16]


@pytest.mark.parametrize(
    ("name", "component"),
    [
        ("broker-a_1.B", "broker-a_1.B"),
        ("a/b", "a%2Fb"),
        ("100% =x", "100%25%20%3Dx"),
        ("ünï", "%C3%BCn%C3%AF"),
        ("..", ".."),
        ("\u96c6" * 27, "%E9%9B%86" * 27),
        ("\u96c6" * 28, "%E9%9B%86" * 25 + "%E9%9~" + digest("\u96c6" * 28)),
        ("x" * 247, "x" * 247),
        ("x" * 248, "x" * 230 + "~" + digest("x" * 248)),
        ("x" * 247 + "y", "x" * 230 + "~" + digest("x" * 247 + "y")),
    ],
    ids=["plain", "slash", "percent", "umlauts", "dots", "243", "252", "247", "248", "248y"],
)
def test_names_in_paths(world: World, name: str, component: str) -> None:
    assert path_component(name) == component
    dump = world.dump(cluster=name, broker=name)
    dump.finish()
    (file,) = world.files()
    assert file.startswith(f"dt=2026-03-31/cluster={component}/broker={component}/2359-0-")


def test_settings(tmp_path: Path) -> None:
    texts = {
        "storePathRootDir": str(tmp_path),
        "brokerName": "b",
        "brokerClusterName": "C",
        "brokerId": "3",
        "metricsDumpIntervalSeconds": "7",
        "metricsDumpMaxMegabytes": "2",
        "metricsDumpKeepDays": "9",
    }
    options = StartupOptions.from_settings(texts)
    assert dump_settings(options) == DumpSettings(
        directory=tmp_path / "metrics",
        cluster="C",
        broker="b",
        broker_id=3,
        interval_ms=7_000,
        max_bytes=2 << 20,
        keep_days=9,
        host=f"{options.broker.broker_ip1}:{options.server.listen_port}",
        past_life=tmp_path / "metricsDumpLife.json",
    )
    off = StartupOptions.from_settings({**texts, "metricsDumpPath": "none"})
    assert dump_settings(off) is None


def test_the_thread(world: World) -> None:
    dump = world.dump()
    dump.start()
    wait_until(lambda: dump.lines == 1)
    assert dump.shutdown()
    assert dump.shutdown()
    assert not dump.is_alive
    assert dump.failure is None
    assert [line["final"] for line in world.lines()] == [False, True]
    assert [Path(name).suffix for name in world.files()] == [".gz"]


def test_a_stop_that_was_not_in_order_has_no_final_line(world: World) -> None:
    dump = world.dump()
    dump.start()
    wait_until(lambda: dump.lines == 1)
    assert dump.shutdown(in_order=False)
    assert [line["final"] for line in world.lines()] == [False, False]
    assert [Path(name).suffix for name in world.files()] == [".gz"]
