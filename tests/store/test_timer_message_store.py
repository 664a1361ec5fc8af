"""Timers of a store: entered, counted, recovered; and what Java 5.3.3 made of the same log."""

from __future__ import annotations

import errno
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from store.control_slots import DISPATCHED_OFFSET
from store.errors import DiskFullError
from store.timer import timer_log
from store.timer.placement import Placement
from store.timer.timer_checkpoint import load_timer_checkpoint
from store.timer.timer_log import TimerUnit
from store.timer.timer_metrics import load_timer_metrics
from store.timer.timer_slots import (
    TIMER_COMMIT_QUEUE_OFFSET,
    TIMER_MASTER_QUEUE_OFFSET,
    TIMER_READ_TIME_MS,
    TIMER_START_TIME_MS,
    TIMER_STOP_ENQUEUE,
    TIMER_WRITE_TIME_MS,
)
from tests.support.archives import unpack
from tests.support.manual_clock import ManualClock
from tests.support.timer_life import START_MS, TimerLife

GOLDEN = Path(__file__).parents[1] / "golden" / "timer-5.3.3"
S = 1000


@pytest.fixture
def life(tmp_path: Path) -> Iterator[TimerLife]:
    life = TimerLife(tmp_path / "store")
    life.run()
    life.deliver(START_MS)
    yield life
    life.stop()


@pytest.mark.parametrize(
    ("out_ms", "expected"),
    [
        (5_999, (5_000, False)),
        (99_999, (99_000, False)),
        (100_000, (50_000, True)),
        (132_999, (50_000, True)),
        (133_000, (100_000, True)),
        (500_000, (100_000, True)),
    ],
)
def test_where_a_timer_goes(out_ms: int, expected: tuple[int, bool]) -> None:
    """doEnqueue of RocketMQ by hand: a window of 100 slots."""
    assert Placement(1000, 100).place(out_ms, 0) == expected


def test_timers_are_entered_into_their_slots(life: TimerLife) -> None:
    """In order of the log; what has no time is passed over."""
    life.put(START_MS + 5 * S, START_MS + 9 * S, START_MS + 5 * S)
    life.put(START_MS + 5 * S, topic="Q", more="\x02TIMER_DEL_UNIQKEY\x01Q+id")
    life.put(-1)
    life.run()
    assert life.counters[TIMER_COMMIT_QUEUE_OFFSET] == 5
    assert life.offsets() == {START_MS + 5 * S: [0, 2, 3], START_MS + 9 * S: [1]}
    units = life.waiting()[START_MS + 5 * S]
    assert [unit.prev_pos for unit in units] == [-1, 0, 104]
    assert [unit.magic for unit in units] == [1, 1, 5]
    assert [unit.topic_hash for unit in units] == [ord("T"), ord("T"), ord("Q")]
    counts = {topic: each.count for topic, each in life.timers._pending.metrics.topics.items()}
    assert counts == {"T": 3, "Q": -1}


def test_a_store_without_timers_rests_until_the_slot_is_over(
    life: TimerLife, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And looks ten times a second while the log grows, and once there was a timer."""
    rests: list[float] = []
    timers = life.timers

    def rest(interval_ms: float) -> bool:
        rests.append(interval_ms)
        woken = timers._notified
        timers._notified = False
        return woken

    monkeypatch.setattr(timers, "wait_for_running", rest)
    life.clock.advance(S - life.clock.now_ms() % S)
    for _ in range(3):
        timers.step()
    assert rests[1:] == [S, S]
    life.counters[DISPATCHED_OFFSET] += 100
    timers.log_grows()
    assert not timers._notified, "it is awake"
    timers.step()
    timers.step()
    assert rests[3:] == [100, S]
    monkeypatch.setattr(timers, "wait_for_running", lambda _ms: timers.log_grows())
    timers.step()
    assert timers._notified, "it was woken while it rested"
    life.counters[DISPATCHED_OFFSET] -= 100
    life.put(START_MS + 50 * S)
    life.run()
    monkeypatch.setattr(timers, "wait_for_running", rest)
    rests.clear()
    for _ in range(3):
        timers.step()
    assert set(rests) <= {100, 2}


def test_a_far_timer_rolls(tmp_path: Path) -> None:
    life = TimerLife(tmp_path / "store", timer_roll_window_slot=100)
    life.run()
    life.put(START_MS + 1000 * S)
    life.run()
    [(time_ms, [unit])] = life.waiting().items()
    assert (time_ms, unit.magic) == (START_MS + 100 * S, 3)
    life.stop()


def test_slots_are_closed_when_all_before_is_entered(life: TimerLife) -> None:
    """What comes later still, goes into the first open slot: never lost."""
    assert life.counters[TIMER_WRITE_TIME_MS] == START_MS
    life.put(START_MS + S)
    life.clock.advance(2 * S)
    life.run()
    assert life.counters[TIMER_WRITE_TIME_MS] == START_MS + 2 * S
    assert life.rings == 1
    life.put(START_MS + S)
    life.run()
    assert life.offsets() == {START_MS + S: [0], START_MS + 2 * S: [1]}
    life.counters[TIMER_STOP_ENQUEUE] = 1
    life.put(START_MS + 9 * S)
    life.run()
    assert life.counters[TIMER_COMMIT_QUEUE_OFFSET] == 2
    life.counters[TIMER_STOP_ENQUEUE] = 0


def test_slots_wait_for_dispatch(life: TimerLife) -> None:
    """One second at most."""
    life.put(START_MS + 50 * S)
    life.run()
    end = life.counters[DISPATCHED_OFFSET]
    life.counters[DISPATCHED_OFFSET] = end - 1
    for _ in range(2):
        life.clock.advance(999)
        life.run()
        assert life.counters[TIMER_WRITE_TIME_MS] == START_MS
    life.counters[DISPATCHED_OFFSET] = end
    life.run()
    assert life.counters[TIMER_WRITE_TIME_MS] == START_MS + S
    life.counters[DISPATCHED_OFFSET] = end - 1
    life.clock.jump_to(START_MS + 9 * S)
    life.run()
    life.clock._monotonic_ms += 1_001
    life.run()
    assert life.counters[TIMER_WRITE_TIME_MS] == START_MS + 9 * S
    life.counters[DISPATCHED_OFFSET] = end


def test_what_is_delivered_is_counted_out(life: TimerLife) -> None:
    """The commit log keeps its files until then."""
    life.put(*[START_MS + 50 * S] * 300, *[START_MS + 5 * S] * 300)
    life.run()
    size = life.config.mapped_file_size_commit_log
    assert life.timers.keep_from == 0
    life.clock.jump_to(START_MS + 60 * S)
    life.run()
    for seconds, kept, count in ((5, 0, 600), (6, 0, 300), (51, 1 << 62, 0)):
        life.deliver(START_MS + seconds * S)
        life.run()
        assert life.timers.keep_from == kept
        assert life.timers._pending.metrics.topics["T"].count == count
    life.put(START_MS + 90 * S)
    life.run()
    assert life.timers.keep_from == life.log.position // size * size
    assert life.timers.keep_from > 0


def test_a_killed_store_enters_nothing_twice(life: TimerLife) -> None:
    """Whatever of wheel, log and check point was written by then."""
    life.put(START_MS + 5 * S, START_MS + 6 * S, START_MS + 5 * S)
    life.run()
    life.timers.flush()
    life.put(START_MS + 6 * S, START_MS + 7 * S)
    life.run()
    expected = life.offsets()
    life.put(START_MS + 5 * S)
    life.timers._wheel.write_out = lambda: None  # type: ignore[method-assign]
    life.run()
    assert life.offsets() == expected
    life.timers = life.new_timers()
    life.run()
    assert life.offsets() == {**expected, START_MS + 5 * S: [0, 2, 5]}
    assert life.timers._pending.metrics.topics["T"].count == 6
    slot = life.timers._wheel.slot(START_MS + 5 * S)
    assert slot is not None
    assert (slot.first_pos, slot.num) == (0, 3)


def test_nothing_is_written_when_nothing_is_due(life: TimerLife) -> None:
    """The read time is written down when it has left a slot that held something."""
    path = life.config.timer_checkpoint_path
    life.put(START_MS + 5 * S, START_MS + 19 * S)
    for seconds, expected in ((4, 4), (7, 7), (9, 7), (19, 7), (20, 20)):
        life.clock.jump_to(START_MS + seconds * S)
        life.run()
        life.deliver(START_MS + seconds * S)
        life.clock._monotonic_ms += S
        before = path.stat().st_mtime_ns if path.exists() else 0
        life.run()
        found = load_timer_checkpoint(path)
        assert found is not None
        assert found.last_read_time_ms == START_MS + expected * S
        assert (path.stat().st_mtime_ns == before) == (seconds in (9, 19))


def remove_wheel(life: TimerLife) -> None:
    life.config.timer_wheel_path.unlink()


def shorten_wheel(life: TimerLife) -> None:
    os.truncate(life.config.timer_wheel_path, 4096)


def remove_log(life: TimerLife) -> None:
    shutil.rmtree(life.config.timer_log_path)


def remove_checkpoint(life: TimerLife) -> None:
    life.config.timer_checkpoint_path.unlink()


def remove_all(life: TimerLife) -> None:
    remove_wheel(life)
    remove_log(life)
    remove_checkpoint(life)


def spoil_log(life: TimerLife) -> None:
    with (life.config.timer_log_path / f"{0:020d}").open("r+b") as file:
        file.seek(52 * 3)
        file.write(bytes(52))


def spoil_slots(life: TimerLife) -> None:
    with life.config.timer_wheel_path.open("r+b") as file:
        for second in (31, 32):
            file.seek((START_MS // 1000 + second) % 1_209_600 * 32 + 16)
            file.write((9 if second == 31 else 1 << 40).to_bytes(8, "big"))


@pytest.mark.parametrize(
    "spoil",
    [
        *(remove_wheel, shorten_wheel, remove_log, remove_checkpoint, remove_all),
        *(spoil_log, spoil_slots),
    ],
)
def test_damaged_files_are_built_again(
    tmp_path: Path, spoil: Callable[[TimerLife], None], caplog: pytest.LogCaptureFixture
) -> None:
    """Timers that wait are all there, once; what was delivered before is not entered again."""
    life = TimerLife(tmp_path / "store")
    life.run()
    life.deliver(START_MS)
    life.put(START_MS + 5 * S, START_MS + 31 * S, START_MS + 32 * S, START_MS + 6 * S)
    life.put(*[START_MS + (30 + each % 7) * S for each in range(60)])
    life.run()
    life.clock.advance(20 * S)
    life.run()
    life.deliver(START_MS + 20 * S)
    life.put(START_MS + 33 * S)
    life.run()
    expected = life.offsets(START_MS + 20 * S)
    assert sum(map(len, expected.values())) == 63
    life.stop()
    spoil(life)
    caplog.clear()
    clock = ManualClock(START_MS + 25 * S)
    life = TimerLife(tmp_path / "store", clock=clock)
    with caplog.at_level(logging.ERROR):
        life.run()
    assert len(caplog.messages) == (0 if spoil is remove_checkpoint else 1), caplog.messages
    read_ms = life.counters[TIMER_START_TIME_MS]
    assert START_MS + 18 * S <= read_ms <= START_MS + 20 * S
    assert life.offsets(read_ms) == expected
    assert life.timers._pending.metrics.topics["T"].count == 63
    life.stop()


def test_a_wheel_whose_snapshots_a_broker_of_5_5_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It leaves `timerwheel` as it was, here empty, and says that the log is flushed."""
    monkeypatch.setattr("store.timer.timer_recovery._BEFORE_FLUSH", 0)
    life = TimerLife(tmp_path / "store")
    life.run()
    life.put(*[START_MS + (30 + each % 7) * S for each in range(60)])
    life.run()
    expected = life.offsets(START_MS)
    life.stop()
    wheel = life.config.timer_wheel_path
    snapshots = [wheel.with_name(f"{wheel.name}.{at}") for at in (52 * 20, 52 * 60)]
    others = [wheel.with_name(f"{wheel.name}.{name}") for name in ("52.tmp", "old")]
    for path in (*snapshots, *others):
        path.write_bytes(wheel.read_bytes())
    wheel.write_bytes(bytes(wheel.stat().st_size))
    for _ in range(2):
        life = TimerLife(tmp_path / "store", clock=ManualClock(START_MS))
        life.run()
        assert life.offsets(life.counters[TIMER_START_TIME_MS]) == expected
        assert [path.exists() for path in (*snapshots, *others)] == [False, False, True, True]
        life.stop()


@pytest.mark.parametrize("is_flushed", [True, False])
def test_a_new_message_makes_no_timer_a_delivered_one(tmp_path: Path, is_flushed: bool) -> None:
    """Without a check point the log's last flushed record says how far delivery was, as the log was
    found; without that the last timer does."""
    life = TimerLife(tmp_path / "store")
    life.run()
    life.deliver(START_MS)
    life.put(*[START_MS + (30 + each) * S for each in range(40)])
    life.run()
    life.stop()
    remove_all(life)
    life = TimerLife(tmp_path / "store", clock=ManualClock(START_MS + 60 * S))
    if is_flushed:
        life.put(START_MS + 70 * S)
    else:
        life.timers._stored_ms = 0
    life.run()
    assert life.counters[TIMER_START_TIME_MS] == START_MS - 2 * S
    assert sum(map(len, life.offsets(START_MS - 2 * S).values())) == 40 + is_flushed
    life.stop()


def test_what_is_entered_again_is_waited_for(life: TimerLife) -> None:
    """However long its dispatch takes: a slot that was closed before counts as delivered."""
    life.timers._enqueue.replay_end = 1
    end = life.counters[DISPATCHED_OFFSET]
    life.put(START_MS + 50 * S)
    life.counters[DISPATCHED_OFFSET] = end
    life.timers._queue_end = -1
    queue_offset = life.timers._enqueue.queue_offset
    life.timers._enqueue.queue_offset = 0
    life.clock.jump_to(START_MS + 9 * S)
    life.timers.move_write_time()
    life.clock._monotonic_ms += 60_000
    life.timers.move_write_time()
    assert (life.counters[TIMER_WRITE_TIME_MS], queue_offset) == (START_MS, 0)
    life.run()
    assert life.offsets() == {START_MS + 50 * S: [0]}


@pytest.mark.parametrize(("before", "after"), [(1000, 100), (100, 1000)])
def test_another_precision(tmp_path: Path, before: int, after: int) -> None:
    """RocketMQ forbids it, and then finds no timer."""
    life = TimerLife(tmp_path / "store", timer_precision_ms=before)
    life.run()
    life.put(START_MS + 31_300, START_MS + 32_900, START_MS + 33_000, START_MS + S)
    life.run()
    life.clock.advance(9 * S)
    life.run()
    life.deliver(START_MS + 7 * S)
    life.run()
    life.stop()
    clock = ManualClock(START_MS + 9 * S)
    life = TimerLife(tmp_path / "store", clock=clock, timer_precision_ms=after)
    life.run()
    slots = life.offsets(START_MS + 7 * S)
    assert sorted(offset for held in slots.values() for offset in held) == [0, 1, 2]
    assert all(time_ms % after == 0 for time_ms in slots)
    life.put(START_MS + 34 * S)
    life.run()
    assert life.counters[TIMER_COMMIT_QUEUE_OFFSET] == 5
    life.stop()


def test_timers_that_were_due_meanwhile_are_due_at_the_start(tmp_path: Path) -> None:
    """An outage loses nothing: neither what was entered nor what was not."""
    life = TimerLife(tmp_path / "store")
    life.run()
    life.deliver(START_MS)
    life.put(START_MS + 5 * S)
    life.run()
    life.timers.flush()
    life.put(START_MS + 6 * S)
    life.kill()
    life = TimerLife(tmp_path / "store", clock=ManualClock(START_MS + 900_000 * S))
    life.run()
    assert life.counters[TIMER_START_TIME_MS] == START_MS
    assert life.offsets() == {START_MS + 5 * S: [0], START_MS + 6 * S: [1]}
    life.put(START_MS + 900_009 * S)
    life.run()
    # Ten days: the wheel waits for the delivery.
    assert life.counters[TIMER_WRITE_TIME_MS] == START_MS + (604_800 - 60) * S
    life.deliver(START_MS + 604_740 * S)
    life.run()
    assert life.counters[TIMER_WRITE_TIME_MS] == START_MS + 900_000 * S
    life.stop()


def test_units_of_records_that_were_lost_go(tmp_path: Path) -> None:
    """The machine went down: the timer log was on disk, the end of the commit log was not."""
    life = TimerLife(tmp_path / "store")
    life.put(*[START_MS + 30 * S] * 50)
    life.run()
    life.stop()
    shutil.copytree(tmp_path / "store", tmp_path / "other")
    life = TimerLife(tmp_path / "store")
    life.put(*[START_MS + 31 * S] * 50, START_MS + 30 * S)
    life.run()
    life.stop()
    for name in ("timerwheel", "timerlog", "config"):
        target = tmp_path / "other" / name
        shutil.rmtree(target) if target.is_dir() else target.unlink()
        shutil.move(tmp_path / "store" / name, target)
    life = TimerLife(tmp_path / "other")
    life.run()
    assert life.offsets() == {START_MS + 30 * S: list(range(50))}
    life.put(START_MS + 31 * S)
    life.run()
    assert life.offsets()[START_MS + 31 * S] == [50]
    life.stop()


def test_the_wall_clock_is_set_back(life: TimerLife) -> None:
    """Timers that are due by then wait for their time again; nothing comes twice."""
    life.clock.jump_to(START_MS + 3600 * S)
    life.run()
    life.put(START_MS + 3601 * S, START_MS + 3590 * S)
    life.run()
    life.clock.jump_to(START_MS + 10 * S)
    life.put(START_MS + 20 * S, START_MS + 3601 * S)
    life.run()
    assert life.offsets() == {START_MS + 3600 * S: [1], START_MS + 3601 * S: [0]}
    assert life.counters[TIMER_WRITE_TIME_MS] == START_MS + 3600 * S
    life.deliver(START_MS + 3600 * S)
    life.run()
    assert life.counters[TIMER_WRITE_TIME_MS] == START_MS + 10 * S
    life.clock.advance(5 * S)
    life.run()
    assert life.counters[TIMER_WRITE_TIME_MS] == START_MS + 10 * S, "the delivery has not seen it"
    life.deliver(START_MS + 10 * S)
    life.run()
    assert life.counters[TIMER_WRITE_TIME_MS] == START_MS + 15 * S
    assert life.offsets() == {
        START_MS + 20 * S: [2],
        START_MS + 3600 * S: [1],
        START_MS + 3601 * S: [0, 3],
    }


def test_a_slave_enters_what_its_master_has(tmp_path: Path) -> None:
    life = TimerLife(tmp_path / "store", is_slave=True)
    life.run()
    life.put(START_MS + 5 * S, START_MS + 30 * S, START_MS + 31 * S)
    life.run()
    assert life.counters[TIMER_COMMIT_QUEUE_OFFSET] == 0
    life.counters[TIMER_MASTER_QUEUE_OFFSET] = 2
    life.deliver(START_MS + 10 * S)
    life.run()
    assert life.offsets() == {START_MS + 30 * S: [1]}
    life.stop()
    found = load_timer_checkpoint(life.config.timer_checkpoint_path)
    assert found is not None
    assert found.last_read_time_ms == START_MS + 10 * S
    assert found.master_timer_queue_offset == found.last_timer_queue_offset == 2
    life = TimerLife(tmp_path / "store", clock=ManualClock(START_MS + 12 * S))
    life.run()
    assert life.counters[TIMER_START_TIME_MS] == START_MS + 10 * S
    assert life.offsets() == {START_MS + 30 * S: [1], START_MS + 31 * S: [2]}
    life.stop()


def test_a_full_disk_stops_timers_until_there_is_room(
    life: TimerLife, monkeypatch: pytest.MonkeyPatch
) -> None:
    life.put(START_MS + 5 * S)
    life.run()

    def no_room(fd: int, data: bytes, at: int) -> int:
        raise OSError(errno.ENOSPC, "no room")

    life.put(START_MS + 5 * S)
    with monkeypatch.context() as context:
        context.setattr(timer_log.os, "pwrite", no_room)
        for _ in range(2):
            with pytest.raises(DiskFullError):
                life.timers.run_once()
        life.clock.advance(9 * S)
        with pytest.raises(DiskFullError):
            life.timers.run_once()
    assert life.counters[TIMER_COMMIT_QUEUE_OFFSET] == 1
    assert life.counters[TIMER_WRITE_TIME_MS] == START_MS
    life.run()
    assert life.offsets() == {START_MS + 5 * S: [0, 1]}


def test_old_files_of_the_timer_log_go(life: TimerLife) -> None:
    life.put(*[START_MS + 5 * S] * 500)
    life.run()
    first, *_, last = life.timers._log.start_offsets()
    assert (first, last) == (0, 499 // 39 * 2048)
    life.timers._log.delete_expired(0)
    assert life.timers._log.start_offsets()[0] == 0
    life.timers._log.delete_expired(65_536)
    kept = life.timers._log.start_offsets()
    unit = life.timers._log.last_unit_of_file(kept[0])
    assert unit is not None
    assert unit.phy_offset >= 65_536
    assert kept[0] > 0


# -- a store of Java ---------------------------------------------------------------------------

JAVA_READ_MS = 1_795_392_206_000
JAVA_SIZES = {
    "mapped_file_size_commit_log": 16_777_216,
    "mapped_file_size_consume_queue": 60_000,
    "mapped_file_size_timer_log": 104_857_600,
    "max_index_num": 20_000,
    "max_hash_slot_num": 5_000,
}


def java_store(tmp_path: Path, name: str) -> Path:
    unpack(GOLDEN / f"{name}.tar.xz", tmp_path)
    return next(tmp_path.glob("store*"))


def java_units() -> list[TimerUnit]:
    found = []
    for line in (GOLDEN / "timer-units.txt").read_text().splitlines():
        kind, _, text = line.split(" ", 2)
        if kind == "timerlog":
            keys = ("prev", "magic", "write", "delay", "offsetPy", "sizePy", "hash")
            values = eval(text)
            found.append(TimerUnit(*(values[key] for key in keys)))
    return found


@pytest.mark.parametrize("name", ["store-clean-stop", "store-running"])
def test_a_store_of_java_opens_with_its_timers(tmp_path: Path, name: str) -> None:
    root = java_store(tmp_path, name)
    life = TimerLife(root, clock=ManualClock(JAVA_READ_MS + 5 * S), **JAVA_SIZES)
    life.run()
    # The copy of the running broker has a check point of a few seconds before.
    read_ms = life.counters[TIMER_START_TIME_MS]
    assert JAVA_READ_MS - 30 * S <= read_ms <= JAVA_READ_MS
    assert life.counters[TIMER_COMMIT_QUEUE_OFFSET] == 54
    expected: dict[int, list[TimerUnit]] = {}
    for unit in java_units():
        if unit.slot_time_ms >= JAVA_READ_MS:
            expected.setdefault(unit.slot_time_ms, []).append(unit)
    assert life.waiting(JAVA_READ_MS) == expected
    counts = {topic: each.count for topic, each in life.timers._pending.metrics.topics.items()}
    revives = 9 if name == "store-clean-stop" else 11
    assert counts == {"TDelay": 4, "rmq_sys_REVIVE_LOG_DefaultCluster": revives}
    assert life.timers.keep_from == 0
    life.stop()
    if name == "store-clean-stop":
        kept = load_timer_metrics(root / "config" / "timermetrics").topics
        assert {topic: each.count for topic, each in kept.items()} == counts


def test_the_log_of_java_makes_the_units_of_java(tmp_path: Path) -> None:
    """Wheel, log and check point are gone; built from Java's commit log they are Java's."""
    root = java_store(tmp_path, "store-clean-stop")
    wheel = (root / "timerwheel").read_bytes()
    (root / "timerwheel").unlink()
    shutil.rmtree(root / "timerlog")
    (root / "config" / "timercheck").unlink()
    theirs = java_units()
    first_ms = theirs[0].write_time_ms
    life = TimerLife(root, clock=ManualClock(first_ms), **JAVA_SIZES)
    life.counters[TIMER_READ_TIME_MS] = life.counters[TIMER_WRITE_TIME_MS] = first_ms
    life.run()
    ours = [life.timers._log.reader.unit(52 * number) for number in range(len(theirs))]
    for our, their in zip(ours, theirs, strict=True):
        assert our is not None
        # Java's write time may be that of the second in which it came to enter the record.
        assert 0 <= their.write_time_ms - our.write_time_ms <= S
        assert our.slot_time_ms == their.slot_time_ms
        fields = {"write_time_ms": 0, "delay_ms": 0}
        assert our._replace(**fields) == their._replace(**fields)
    life.stop()
    assert (root / "timerwheel").read_bytes() == wheel
