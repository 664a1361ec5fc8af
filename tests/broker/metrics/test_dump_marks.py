"""What happens between two lines of the dump: the marks against a list of what happened."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.metrics.dump_marks import EXPOSURE_LE, LAG_LE_MS, DumpMarksReader, Exposure
from broker.metrics.high_water_ring import BUCKETS, HighWaterRing
from ha.slave_progress import SlaveProgress
from store.control_slots import LOG_OPENED, MAX_PHY_OFFSET
from tests.broker.metrics.test_ha_metrics import INTERVAL_MS, World

SLACK_MS = 1_250
"""Marks may reach so much further back than the last line."""


class Marked(World):
    """Keeps a list of (moment, bytes that no replica had acknowledged just before and after)."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.happened: list[tuple[int, int]] = []
        self.marks = DumpMarksReader(INTERVAL_MS)
        self.furthest = 0

    def note(self) -> None:
        self.happened.append((self.clock.monotonic_ms(), self.log.end - self.furthest))

    def write(self, count: int = 1) -> None:
        super().write(count)
        self.note()

    def report(self, progress: SlaveProgress) -> None:
        """As its ReadSocketService does."""
        log_end = self.page.counters[MAX_PHY_OFFSET]
        self.ack(progress)
        self.furthest = max(self.furthest, self.log.end)
        self.service.notify_transfer_some(progress, log_end)
        self.note()

    def since(self, ms: int) -> Exposure:
        """What a line says whose predecessor was written `ms` ago."""
        now_ms = self.clock.monotonic_ms()
        found = self.marks.exposure(self.reader, self.marks.since_ms(now_ms - ms, now_ms))
        assert found is not None
        return found

    def worst(self, ms: int) -> int:
        """The truth of that time; what was at its begin counts."""
        begin_ms = self.clock.monotonic_ms() - ms
        before = [size for at_ms, size in self.happened if at_ms < begin_ms]
        return max([*before[-1:], *(size for at_ms, size in self.happened if at_ms >= begin_ms)])


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Marked]:
    found = Marked(tmp_path)
    yield found
    found.close()


def test_what_was_at_risk_for_a_moment_between_two_looks(world: Marked) -> None:
    """As between two lines: both show nothing at risk."""
    slave = world.connect(1)
    world.write(5)
    world.report(slave)
    world.look(10_000)
    quiet = world.since(5_000)
    assert (quiet.bytes_at_least, quiet.bytes_at_most) == (0, 0)
    world.write(40)
    truth = world.happened[-1][1]
    world.report(slave)
    world.look(3_000)
    assert world.exposure() == (0, 1)
    found = world.since(3_000)
    assert (found.bytes_at_least, found.bytes_at_most) == (truth, truth)
    assert found.ms_at_least == 0
    assert 0 < found.ms_at_most <= 400
    world.look(10_000)
    assert world.since(5_000).bytes_at_most == 0, "it was before that line"
    assert world.since(13_000).bytes_at_least == truth, "if the lines since then were not written"


@pytest.mark.parametrize("seed", range(30))
def test_marks_hold_what_happened(tmp_path: Path, seed: int) -> None:
    """Two slaves, any order of writes, reports, looks and deaths of process `ha`."""
    chance = random.Random(seed)
    world = Marked(tmp_path)
    world.write(3)
    slaves = [world.connect(1), world.connect(2)]
    world.report(slaves[0])
    world.look()
    looks = 2  # the first when the broker started
    for _ in range(150):
        what = chance.random()
        if what < 0.35:
            world.write(chance.choice((1, 1, 3, 40)))
        elif what < 0.65:
            world.report(chance.choice(slaves))
        elif what < 0.95:
            ms = 200 * chance.randrange(1, 8)
            world.look(ms)
            looks += ms // 200
        else:  # killed, and started again: nothing is acknowledged meanwhile
            world.clock.advance(chance.choice((100, 900)))
            world.start_ha()
            slaves = [world.connect(1), world.connect(2)]
            world.furthest = world.log.end  # their first report
            world.note()
            world.look()
            looks += 2  # one before anybody connects
        if what >= 0.65:
            ms = chance.choice((2_000, 5_000, 9_000))
            found = world.since(ms)
            assert found.bytes_at_most >= world.worst(ms), seed
            assert found.bytes_at_least <= world.worst(ms + SLACK_MS), seed
            assert sum(found.looks) == looks
    world.close()


@pytest.mark.parametrize("seed", range(12))
def test_marks_hold_while_replicas_come_and_go(tmp_path: Path, seed: int) -> None:
    """Three slaves; each says at its handshake that it has all of the log."""
    chance = random.Random(seed)
    world = Marked(tmp_path)
    world.write(3)
    live: dict[int, SlaveProgress] = {}
    for _ in range(150):
        what, slave = chance.random(), chance.randrange(1, 4)
        if what < 0.35:
            world.write(chance.choice((1, 1, 3, 40)))
        elif what < 0.5 and slave in live:
            world.report(live[slave])
        elif what < 0.58 and slave in live:
            world.leave(live.pop(slave))
        elif what < 0.66 and slave not in live:
            live[slave] = world.connect(slave)
            world.furthest = world.log.end
            world.note()
        elif what >= 0.66:
            world.look(200 * chance.randrange(1, 8))
            ms = chance.choice((2_000, 5_000, 9_000))
            found = world.since(ms)
            assert found.bytes_at_most >= world.worst(ms), seed
            assert found.bytes_at_least <= world.worst(ms + SLACK_MS), seed
    world.close()


@pytest.mark.parametrize("knew_it", [True, False])
def test_what_was_at_risk_until_a_replica_connected(world: Marked, knew_it: bool) -> None:
    """It says at the handshake what it has: that ends the exposure as a report does."""
    if knew_it:
        slave = world.connect(1)
        world.report(slave)
        world.look()
        world.leave(slave)
    world.furthest = world.log.end
    world.look(2_000)
    before = world.log.end
    world.write(40)
    at_risk = world.log.end - before
    world.clock.advance(100)
    world.connect(1)
    world.furthest = world.log.end
    world.note()
    world.look()
    found = world.since(400)
    assert world.worst(400) == at_risk > 0
    assert found.bytes_at_least <= at_risk <= found.bytes_at_most


def test_looks_are_counted_by_what_was_at_risk(world: Marked) -> None:
    slave = world.connect(1)
    world.report(slave)
    world.look(1_000)
    before = world.since(1_000).looks
    world.write(40)
    size = world.happened[-1][1]
    world.report(slave)
    world.look(1_000)
    after = world.since(1_000).looks
    bucket = next(place for place, bound in enumerate(EXPOSURE_LE) if size <= bound)
    risen = {place: b - a for place, (a, b) in enumerate(zip(before, after, strict=True)) if b > a}
    assert risen == {0: 4, bucket: 1}


def test_a_promoted_master_does_not_count_what_it_got_from_another_broker(world: Marked) -> None:
    """Until a replica says where it stands: at least what was written since, at most all of it."""
    world.write(50)
    world.page.counters[LOG_OPENED] = 1 + world.log.end
    world.look()
    found = world.since(200)
    assert (found.bytes_at_least, found.bytes_at_most) == (0, world.log.end)
    assert world.exposure() == (world.log.end, 0), "an upper bound"
    opened = world.log.end
    world.write(2)
    world.look()
    found = world.since(200)
    assert (found.bytes_at_least, found.bytes_at_most) == (world.log.end - opened, world.log.end)
    slave = world.connect(1, opened)
    world.look(4_000)
    assert world.exposure() == (world.log.end - opened, 1)
    found = world.since(1_000)
    assert (found.bytes_at_least, found.bytes_at_most) == (world.log.end - opened,) * 2
    assert slave.position == opened


def test_time_in_sync_by_lag(world: Marked) -> None:
    """It does not acknowledge for 3 s: the time of each lag is in the buckets that hold it."""
    slave = world.connect(1)
    world.report(slave)
    world.look(2_000)
    world.write()
    world.look(3_000)
    world.report(slave)
    world.look(1_000)
    times = world.marks.lag_times(world.reader)["b:1"]
    in_sync_s = world.seconds("b:1")[0]
    assert in_sync_s is not None
    assert sum(times) == round(in_sync_s * 1000), "all of it was exact"
    late_ms = sum(times[LAG_LE_MS.index(1_000) + 1 :])
    assert 1_800 <= late_ms <= 2_400
    now_ms = world.clock.monotonic_ms()
    largest = world.marks.largest_lags(world.reader, world.marks.since_ms(now_ms - 5_000, now_ms))
    assert 3_000 <= largest["b:1"] <= 3_400
    largest = world.marks.largest_lags(world.reader, world.marks.since_ms(now_ms, now_ms))
    assert largest["b:1"] == 0


@pytest.mark.parametrize("gap_ms", [1_100, 1_900])
def test_time_between_late_looks_is_not_called_in_time(world: Marked, gap_ms: int) -> None:
    """Process `ha` came late, by less than a gap: the replica lagged meanwhile, and no look saw."""
    slave = world.connect(1)
    world.report(slave)
    world.look(1_000)
    before = world.marks.lag_times(world.reader)["b:1"]
    world.write()
    world.clock.advance(gap_ms - 200)
    world.report(slave)
    world.look()
    times = world.marks.lag_times(world.reader)["b:1"]
    in_time = LAG_LE_MS.index(1_000) + 1
    assert sum(before) == sum(before[:in_time]) > 0
    assert times[:in_time] == before[:in_time]
    world.clock.advance(gap_ms - 200)
    world.look()
    later = world.marks.lag_times(world.reader)["b:1"]
    assert sum(later) == sum(times) + gap_ms, "nothing was written: it lagged at no moment"


def test_why_the_last_connection_ended(world: Marked) -> None:
    slave = world.connect(1)
    world.look()
    link = world.marks.links(world.reader)["b:1"]
    assert (link.remote, link.error) == (slave.remote, "")
    world.leave(slave)
    world.look()
    link = world.marks.links(world.reader)["b:1"]
    assert (link.remote, link.error, link.error_ms) == (
        slave.remote,
        "gone",
        world.clock.now_ms() - 200,
    )
    again = world.connect(1)
    world.look()
    link = world.marks.links(world.reader)["b:1"]
    assert (link.remote, link.error) == (again.remote, "gone")
    assert len(world.marks.links(world.reader)) == 1


@pytest.mark.parametrize("interval_ms", [1_000, 5_000, 3_600_000])
def test_a_ring_reaches_back_two_lines(interval_ms: int) -> None:
    ring = HighWaterRing(1, interval_ms)
    slots = memoryview(bytearray(8 * ring.size)).cast("d")
    now_ms = 10**9
    step_ms = ring.bucket_ms
    for number in range(2 * BUCKETS):
        ring.write(slots, 0, now_ms + number * step_ms, (number,))
    now_ms += (2 * BUCKETS - 1) * step_ms
    since_ms = ring.since_ms(now_ms - 2 * interval_ms, now_ms)
    assert since_ms <= now_ms - 2 * interval_ms
    assert ring.largest(slots, since_ms) == [2 * BUCKETS - 1]
    assert ring.largest(slots, now_ms + step_ms) == [0]
    assert ring.since_ms(0, now_ms) > now_ms - BUCKETS * step_ms, "no further than it holds"
