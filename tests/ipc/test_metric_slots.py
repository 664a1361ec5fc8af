"""The shared slots: two mappings of the same memory, as two processes have them."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator

import pytest

from ipc import metric_slots
from ipc.control_page import ProcessIndex
from ipc.errors import SharedMemoryFullError
from ipc.metric_slots import (
    OVERFLOW,
    SERIES_CAPPED,
    MetricSlots,
    MetricSlotsReader,
    create_metric_slots,
)

IN = "rocketmq_messages_in_total"


class World:
    def __init__(self) -> None:
        self.fd = create_metric_slots()
        self._open: list[MetricSlots | MetricSlotsReader] = []
        self.reader = MetricSlotsReader(self.fd)
        self._open.append(self.reader)

    def slots(
        self, process: ProcessIndex = ProcessIndex.REMOTING, max_series: int = 100
    ) -> MetricSlots:
        slots = MetricSlots(self.fd, process, max_series=max_series)
        self._open.append(slots)
        return slots

    def read(self, metric: str = IN) -> dict[tuple[str, ...], list[float]]:
        return dict(self.reader.read(metric))

    def close(self) -> None:
        for mapping in self._open:
            mapping.close()
        os.close(self.fd)


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.close()


def memory_of(fd: int) -> int:
    """Bytes of memory behind a memfd."""
    return os.fstat(fd).st_blocks * 512


def test_nothing_is_there_and_costs_nothing(world: World) -> None:
    assert world.read() == {}
    world.slots()
    assert memory_of(world.fd) < 64 << 10


def test_counting_is_seen_by_the_reader(world: World) -> None:
    slots = world.slots()
    a, b = slots.find(IN, ("a", "x")), slots.find(IN, ("b", "x"))
    slots.values[a] += 3
    slots.values[b] += 0.25
    assert world.read() == {("a", "x"): [3.0], ("b", "x"): [0.25]}
    slots.values[a] += 1
    assert slots.find(IN, ("a", "x")) == a
    assert slots.series(IN) == {("a", "x"): a, ("b", "x"): b}
    assert world.read()["a", "x"] == [4.0]
    assert world.read("another") == {}


def test_no_labels_and_many_slots(world: World) -> None:
    slots = world.slots()
    first = slots.find("histogram", (), 5)
    after = slots.find("histogram_2", ("l",), 2)
    for n in range(5):
        slots.values[first + n] += n
    assert after >= first + 5
    assert world.read("histogram") == {(): [0, 1, 2, 3, 4]}
    assert world.read("histogram_2") == {("l",): [0, 0]}
    with pytest.raises(ValueError, match="histogram has 5 slots a series, not 6"):
        slots.find("histogram", ("other",), 6)


def test_a_process_that_starts_again_goes_on_counting(world: World) -> None:
    slots = world.slots()
    slots.values[slots.find(IN, ("a",))] += 7
    slots.values[slots.find(IN, ("gone",))] += 9
    slots.find("histogram", ("h",), 4)
    slots.hide(IN, ("gone",))
    again = world.slots()
    assert again.series(IN) == slots.series(IN)
    again.values[again.find(IN, ("a",))] += 1
    fresh = again.find(IN, ("b",))
    assert fresh not in slots.series(IN).values()
    again.values[fresh] += 2
    assert world.read() == {("a",): [8.0], ("b",): [2.0]}
    again.values[again.find(IN, ("gone",))] += 1
    assert world.read()["gone",] == [1.0]
    assert again.find("histogram", ("h",), 4) == slots.find("histogram", ("h",), 4)


def test_processes_have_regions_of_their_own_and_equal_labels_are_summed(world: World) -> None:
    remoting, ha = world.slots(ProcessIndex.REMOTING), world.slots(ProcessIndex.HA)
    remoting.values[remoting.find(IN, ("a",))] += 1
    ha.values[ha.find(IN, ("a",))] += 10
    ha.values[ha.find(IN, ("b",))] += 100
    first = remoting.find("h", (), 2)
    remoting.values[first] += 1
    ha.values[ha.find("h", (), 2) + 1] += 5
    assert world.read() == {("a",): [11.0], ("b",): [100.0]}
    assert world.read("h") == {(): [1.0, 5.0]}


def test_the_last_process_has_room_too(world: World) -> None:
    last = world.slots(max(ProcessIndex))
    slot = last.find(IN, ("a",))
    last.values[slot] += 1
    last.values[len(last.values) - 1] = 5
    assert world.read() == {("a",): [1.0]}


def test_hidden_is_not_shown_and_begins_again_at_zero(world: World) -> None:
    slots = world.slots()
    slots.values[slots.find(IN, ("a",))] += 7
    slots.hide(IN, ("a",))
    slots.hide(IN, ("never there",))
    slots.hide("no such metric", ())
    assert world.read() == {}
    assert slots.series(IN) == {}
    slots.values[slots.find(IN, ("a",))] += 1
    assert world.read() == {("a",): [1.0]}


def test_a_hidden_histogram_begins_again_at_zero(world: World) -> None:
    slots = world.slots()
    first = slots.find("h", ("a",), 3)
    for n in range(3):
        slots.values[first + n] += 4
    slots.hide("h", ("a",))
    slots.values[first + 1] += 1
    assert world.read("h") == {}
    assert slots.find("h", ("a",), 3) == first
    assert world.read("h") == {("a",): [0, 0, 0]}


LABELS = ['quo"te', "new\nline", "back\\slash", "Thema-Überblick 主题 🚀", "", "\x00\x85\u2028"]


@pytest.mark.parametrize("label", LABELS)
def test_any_text_is_a_label(world: World, label: str) -> None:
    slots = world.slots()
    slots.values[slots.find(IN, (label, "b"))] += 1
    assert world.read() == {(label, "b"): [1.0]}
    assert world.slots().find(IN, (label, "b")) == slots.find(IN, (label, "b"))


def test_what_utf_8_cannot_say_and_what_is_too_long(world: World) -> None:
    slots = world.slots()
    slots.values[slots.find(IN, ("\ud800x",))] += 1
    long = "ü" * 300
    slots.values[slots.find(IN, (long,))] += 1
    slots.values[slots.find(IN, (long,))] += 1
    assert world.read() == {("?x",): [1.0], ("ü" * 127,): [2.0]}
    slots.hide(IN, (long,))
    assert world.read() == {("?x",): [1.0]}


# -- the cap -----------------------------------------------------------------------------------


def test_beyond_the_cap_everything_counts_as_overflow(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    slots = world.slots(max_series=3)
    for n in range(10):
        slots.values[slots.find(IN, (f"t{n}", "g"))] += 1
    assert world.read() == {
        ("t0", "g"): [1.0],
        ("t1", "g"): [1.0],
        ("t2", "g"): [1.0],
        (OVERFLOW, OVERFLOW): [7.0],
    }
    assert world.read(SERIES_CAPPED) == {(IN,): [7.0]}
    assert slots.find(IN, ("t1", "g")) == slots.series(IN)["t1", "g"]
    assert caplog.text.count("metricsMaxSeries") == 1
    slots.hide(IN, (OVERFLOW, OVERFLOW))
    assert world.read()[OVERFLOW, OVERFLOW] == [7.0]
    # Without labels there is always room, and another metric has its own.
    slots.find("plain")
    slots.find("other", ("t9",))
    assert world.read("other") == {("t9",): [0.0]}


def test_the_cap_holds_after_a_restart(world: World) -> None:
    slots = world.slots(max_series=2)
    for n in range(4):
        slots.values[slots.find(IN, (f"t{n}",))] += 1
    again = world.slots(max_series=2)
    again.values[again.find(IN, ("t9",))] += 1
    assert world.read() == {("t0",): [1.0], ("t1",): [1.0], (OVERFLOW,): [3.0]}


def test_hidden_series_make_room_the_oldest_first(world: World) -> None:
    slots = world.slots(max_series=3)
    for n in range(3):
        slots.values[slots.find(IN, (f"t{n}",))] += 5
    slots.hide(IN, ("t1",))
    slots.hide(IN, ("t0",))
    assert world.read() == {("t2",): [5.0]}
    slots.values[slots.find(IN, ("new",))] += 1
    assert world.read() == {("t2",): [5.0], ("new",): [1.0]}
    slots.values[slots.find(IN, ("t0",))] += 2
    assert world.read() == {("t2",): [5.0], ("new",): [1.0], ("t0",): [2.0]}
    assert slots.find(IN, ("t1",)) == slots.find(IN, (OVERFLOW,))
    fresh_reader = MetricSlotsReader(world.fd)
    assert dict(fresh_reader.read(IN)) == world.read()
    fresh_reader.close()
    assert world.slots(max_series=3).series(IN) == slots.series(IN)


def test_hidden_rings_leave_room_for_all_metrics(world: World) -> None:
    """Slots of 2,048 for each name that a slave ever gave itself."""
    slots = world.slots(max_series=10_000)
    for n in range(2_000):
        slots.find("ring", (f"broker-a:{n}",), 2_048)
        if n >= 64:
            slots.hide("ring", (f"broker-a:{n - 64}",))
    slots.values[slots.find(IN, ("late",))] += 1
    assert world.read() == {("late",): [1.0]}
    assert len(world.read("ring")) == 64


def test_a_gauge_s_overflow_goes_and_keeps_its_slot(world: World) -> None:
    slots = world.slots(max_series=2)
    everything = (OVERFLOW,)
    for _ in range(2):
        slots.find(IN, ("a",))
        slots.find(IN, ("b",))
        own = slots.find(IN, ("c",))
        assert own == slots.find(IN, everything)
        slots.hide(IN, everything, is_gauge=True)
        assert world.read() == {("a",): [0.0], ("b",): [0.0]}
        slots.hide(IN, ("a",))
        assert slots.find(IN, ("new",)) != own, "somebody else's place, not that of all"
        slots.hide(IN, ("new",))
        assert slots.find(IN, everything) == own
        slots = world.slots(max_series=2)
    assert slots.series(IN).keys() == {("b",), everything}


def test_overflow_takes_nobody_s_room(world: World) -> None:
    """One goes, one of those that had no room gets its place."""
    slots = world.slots(max_series=1)
    slots.find(IN, ("a",))
    assert slots.find(IN, ("b",)) == slots.find(IN, (OVERFLOW,))
    slots.hide(IN, ("a",))
    assert slots.find(IN, ("b",)) != slots.find(IN, (OVERFLOW,))


def test_a_hundred_thousand_hostile_names(world: World) -> None:
    slots = world.slots(max_series=10_000)
    began = time.process_time()
    for n in range(100_000):
        name = f"{n:06d}" + "x" * 1000
        slots.values[slots.find(IN, (name, "g" * 500))] += 1
    took = time.process_time() - began
    found = world.read()
    assert len(found) == 10_001
    assert sum(values[0] for values in found.values()) == 100_000
    assert world.read(SERIES_CAPPED) == {(IN,): [90_000.0]}
    assert memory_of(world.fd) < 10_001 * 600 + (1 << 20)
    assert took < 20  # Processor seconds: a loop over all series at each find would take minutes.


def test_names_that_come_and_go_for_years(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory is tidied when it is full; the reader follows at any distance."""
    monkeypatch.setattr(metric_slots, "_DIRECTORY_SIZE", 20_000)
    monkeypatch.setattr(metric_slots, "_KEPT_BYTES", 2_000)
    small = World()
    try:
        slots = small.slots(max_series=20)
        kept = slots.find(IN, ("kept",))
        for n in range(5_000):
            slots.values[kept] += 1
            slots.values[slots.find(IN, (f"t{n}",))] += 1
            if n % 997 == 0:
                assert small.read() == {("kept",): [n + 1.0], (f"t{n}",): [1.0]}
            slots.hide(IN, (f"t{n}",))
            if n == 3_000:
                slots = small.slots(max_series=20)
        assert small.read() == {("kept",): [5000.0]}
        assert small.read(SERIES_CAPPED) == {}
        assert small.slots(max_series=20).series(IN) == {("kept",): kept}
    finally:
        small.close()


def test_a_region_that_is_full(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metric_slots, "_DIRECTORY_SIZE", 20_000)
    monkeypatch.setattr(metric_slots, "_KEPT_BYTES", 4_000)
    small = World()
    try:
        slots = small.slots(max_series=100_000)
        for n in range(2_000):
            slots.values[slots.find(IN, (f"t{n}",))] += 1
        found = small.read()
        assert 100 < len(found) < 1_000
        assert sum(values[0] for values in found.values()) == 2_000
        slots.values[slots.find("late", ("a", "b"))] += 1
        assert small.read("late") == {(OVERFLOW, OVERFLOW): [1.0]}
        with pytest.raises(SharedMemoryFullError, match="full"):
            find_many(slots, 1_000)
    finally:
        small.close()


def find_many(slots: MetricSlots, count: int) -> None:
    for n in range(count):
        slots.find(f"metric_{n}")


# -- the reader --------------------------------------------------------------------------------


def test_the_reader_reads_the_directory_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    original = metric_slots._Region.entries

    def entries(self: object, generation: int, start: int, end: int) -> object:
        read.append(end - start)
        return original(self, generation, start, end)  # type: ignore[arg-type]

    slots = world.slots()
    for n in range(50):
        slots.find(IN, (f"t{n}",))
    monkeypatch.setattr(metric_slots._Region, "entries", entries)
    assert len(world.read()) == 50
    assert len(world.read()) == 50
    assert len(read) == 1
    slots.find(IN, ("new",))
    assert len(world.read()) == 51
    assert len(read) == 2
    assert read[1] < read[0] / 20


def test_nan_hides_a_gauge(world: World) -> None:
    slots = world.slots()
    slot = slots.find("gauge", ("a",))
    slots.values[slot] = math.nan
    assert world.read("gauge") == {}
    slots.values[slot] = -1
    assert world.read("gauge") == {("a",): [-1.0]}
