"""History: rings, gaps, clocks that go back, bounds; plots on one axis."""

from __future__ import annotations

from console.history import COARSE_MS, FINE_MS, MAX_SERIES, SHARE, STEPS, History, Series
from console.plots import Line, plot_data

KEY = ("broker", "lag")
T0 = 1_800_000_000_000


def test_steps_hold_the_largest_value_and_gaps_stay_gaps() -> None:
    history = History()
    for at, value in ((0, 1.0), (1_000, 5.0), (2_000, 2.0), (15_000, 7.0)):
        history.add(T0 + at, {KEY: value})
    read = history.read(KEY, T0, T0 + 15_000)
    assert read.times_ms == [T0, T0 + 5_000, T0 + 10_000, T0 + 15_000]
    assert read.values == [5.0, None, None, 7.0]


def test_an_hour_is_fine_and_more_is_coarse() -> None:
    history = History()
    for step in range(2 * STEPS):
        history.add(T0 + step * FINE_MS, {KEY: float(step)})
    last_ms = T0 + (2 * STEPS - 1) * FINE_MS
    fine = history.read(KEY, last_ms - FINE_MS * STEPS, last_ms)
    assert fine.values == [float(step) for step in range(STEPS, 2 * STEPS)]
    coarse = history.read(KEY, T0, last_ms)
    assert coarse.times_ms[1] - coarse.times_ms[0] == COARSE_MS
    assert coarse.values[-1] == float(2 * STEPS - 1)
    assert coarse.values[0] == 5.0
    assert len(coarse.values) == 2 * STEPS * FINE_MS // COARSE_MS


def test_what_a_ring_held_a_turn_ago_is_not_shown() -> None:
    history = History()
    history.add(T0, {KEY: 1.0})
    history.add(T0 + STEPS * FINE_MS * 3, {KEY: 2.0})
    read = history.read(KEY, T0 + STEPS * FINE_MS * 2 + FINE_MS, T0 + STEPS * FINE_MS * 3)
    assert [value for value in read.values if value is not None] == [2.0]


def test_a_clock_that_goes_back_changes_nothing() -> None:
    history = History()
    history.add(T0 + 60_000, {KEY: 3.0})
    history.add(T0, {KEY: 9.0})
    assert history.read(KEY, T0, T0 + 60_000).values[-1] == 3.0


def test_names_of_strangers_are_bounded() -> None:
    history = History()
    history.add(T0, {(str(i), "x"): 1.0 for i in range(MAX_SERIES + 10)})
    assert len(history.names()) == MAX_SERIES
    later_ms = T0 + COARSE_MS * (STEPS - 1)
    history.add(later_ms, {("0", "x"): 1.0, ("new", "x"): 1.0})
    assert ("new", "x") not in history.names()
    history.add(later_ms + COARSE_MS, {("new", "x"): 1.0})
    assert history.names() == [("0", "x"), ("new", "x")]


def test_one_broker_has_its_share_and_no_more() -> None:
    history = History()
    history.add(T0, {("good:1", "in"): 1.0})
    for look in range(3):
        names = {(f"bad:1 r{look}.{n}", "lag"): 1.0 for n in range(MAX_SERIES)}
        history.add(T0 + look * COARSE_MS, names)
    history.add(T0, {("other:1", "in"): 1.0})
    kept = history.names()
    assert {("good:1", "in"), ("other:1", "in")} < set(kept)
    assert len(kept) == SHARE + 2
    assert {key[0][:8] for key in kept if key[0].startswith("bad")} == {"bad:1 r2"}


def test_what_a_broker_tells_beyond_its_share_does_not_push_out_the_rest_of_it() -> None:
    history = History()
    for look in range(3):
        told = {(f"b:1 r{n}", "lag"): 1.0 for n in range(2 * SHARE)}
        history.add(T0 + look * COARSE_MS, told)
    read = history.read(("b:1 r0", "lag"), T0, T0 + STEPS * FINE_MS + 1)
    assert read.values == [1.0] * 3


def test_replicas_that_have_another_port_each_time_do_not_blind_the_history() -> None:
    """Java names a replica by its connection: what is told no more makes room for what is."""
    history = History()
    for look in range(3 * SHARE):
        at_ms = T0 + look * COARSE_MS
        history.add(at_ms, {("b:1", "in"): 1.0, (f"b:1 10.0.0.1:{look}", "lag"): 1.0})
    assert len(history.names()) == SHARE
    assert (f"b:1 10.0.0.1:{3 * SHARE - 1}", "lag") in history.names()
    read = history.read(("b:1", "in"), T0, T0 + 3 * SHARE * COARSE_MS)
    assert read.values == [1.0] * (3 * SHARE)


def test_series_of_a_time_that_never_was_make_room_for_others() -> None:
    """The clock was a year ahead, and set right: their brokers say nothing any more."""
    history, year_ms = History(), 365 * 86_400_000
    history.add(T0 + year_ms, {(str(i), "x"): 1.0 for i in range(MAX_SERIES)})
    history.add(T0, {("new", "x"): 1.0})
    assert history.names() == [("new", "x")]


def test_lines_share_one_axis() -> None:
    data = plot_data(
        [
            Line("a\u202e", "s", Series([1, 3], [0.5, None])),
            Line("b", "bytes", Series([2, 3], [7.0, 8.0])),
        ],
        [(1, 2, "lag")],
    )
    assert data["times"] == [1, 2, 3]
    assert data["series"][0]["name"] == "a\\u202e"
    assert [s["values"] for s in data["series"]] == [[0.5, None, None], [None, 7.0, 8.0]]
    assert data["incidents"] == [{"from": 1, "to": 2, "kind": "lag"}]


def test_a_clock_that_was_set_back_does_not_blind_it() -> None:
    history, year_ms = History(), 365 * 86_400_000
    for at_ms in (year_ms, 2 * year_ms, year_ms + FINE_MS):
        history.add(at_ms, {KEY: at_ms / year_ms})
    read = history.read(KEY, year_ms - FINE_MS, year_ms + 10 * FINE_MS)
    assert read.times_ms[-1] == year_ms + FINE_MS
    assert read.values[-1] is not None
    assert history.read(KEY, 2 * year_ms - FINE_MS, 2 * year_ms + FINE_MS).values == []
