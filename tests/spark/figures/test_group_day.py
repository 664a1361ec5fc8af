"""The figures of a day, of replicas and of groups, each worked out by hand."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from spark.config.objectives import Objective, ReplicaName, SlaConfig
from spark.reported_day import Day
from tests.spark.core_tables import core_tables
from tests.spark.dump_lines_builder import (
    ACK_LE,
    DATE,
    T0,
    Cases,
    Life,
    Line,
    ack_latency,
    directory_of,
    every,
    replica,
    sync,
    write_dump,
    write_file,
)

W0 = T0 + 600_000
W1 = W0 + 600_000
DAY = Day(DATE, W0, W1)
OBJECTIVES = (Objective("rest", lag_seconds=10.0),)
BOUNDS = ("at_least_ms", "at_most_ms", "unbounded_s")
"""Of metadata: tests/spark/figures/test_bounds.py."""
MOMENTS = list(every(W0 + 5_000, W1))
"""119 samples in the window, and the one that closes it."""

_case = Cases()
Row = dict[str, Any]


@_case
def _lags(life: Life) -> list[Line]:
    """60 samples (300 s) with lag 0, 47 (235 s) with 700 ms, the last 13 (65 s) with 9 s."""
    lag = [0] * 60 + [700] * 47 + [9_000] * 13
    return [
        life.line(ts, replicas=[replica("b:1", lag_ms=ms, lag_bytes=ms * 1_000)])
        for ts, ms in zip(MOMENTS, lag, strict=True)
    ]


@_case
def _short(life: Life) -> list[Line]:
    """Two thirds of 15 s known; a long hole; states by their counters over the hole."""

    def row(in_sync: int, disconnected: int, **fields: Any) -> Row:
        times = {"in_sync": in_sync, "disconnected": disconnected}
        return replica("b:1", state_ms=times, **fields)

    return [
        life.line(W0 + 5_000, replicas=[row(5_000, 0, transferred=1, reconnects=1)]),
        life.line(W0 + 10_000, replicas=[row(10_000, 0, transferred=5, reconnects=1)]),
        life.line(
            W0 + 310_000,
            skip=59,
            replicas=[row(290_000, 20_000, transferred=105, reconnects=4, rejected_acks=2)],
        ),
    ]


@_case
def _lives(life: Life) -> list[Line]:
    """Two lives, 25 s down between them; counters of the second begin anew."""
    first = [
        life.line(W0 + ts, replicas=[replica("b:1", transferred=ts, state_ms={"in_sync": ts})])
        for ts in (5_000, 10_000)
    ]
    after = life.restarted(W0 + 35_000)
    second = [
        after.line(W0 + 35_000 + ts, replicas=[
            replica("b:1", "catching_up", transferred=10 * ts, ack_offset=1_000 * ts,
                    state_ms={"catching_up": ts})
        ])
        for ts in (5_000, 10_000, 20_000)
    ]  # fmt: skip
    return first + second


@_case
def _gaps(life: Life) -> list[Line]:
    """Good: 40 to 45 s, within 10 s of a boot; a line is too late, or has no time (at 200 s)."""
    other, third = (life.restarted(W0 + ms, proved=False) for ms in (35_000, 200_000))
    third.boot = "00000003" * 2
    last = third.restarted(W0 + 390_000, proved=False)
    return [
        life.line(W0 + 5_000),
        other.line(W0 + 45_000),
        third.line(W0 + 200_000),
        last.line(W0 + 405_000),
    ]


@_case
def _clock(life: Life) -> list[Line]:
    mono = 10_000_000
    steps = ((5_000, 0), (10_000, 5_100), (8_000, 10_000), (9_000, 11_000), (15_000, 15_050))
    return [life.line(W0 + ts, mono=mono + after) for ts, after in steps]


@_case
def _intervals(life: Life) -> list[Line]:
    """The interval changes with the second life."""
    first = [life.line(W0 + 5_000)]
    return [*first, life.restarted(W0 + 8_000, interval_ms=16_000).line(W0 + 12_000)]


@_case
def _faster(life: Life) -> list[Line]:
    """500 s with a sample every 5 s, then the interval is set to 1 s."""
    slow = [life.line(ts) for ts in every(W0 + 5_000, W0 + 500_000)]
    life.interval_ms = 1_000
    return slow + [life.line(ts) for ts in range(W0 + 501_000, W1 + 1, 1_000)]


@_case
def _catch_up(life: Life) -> list[Line]:
    """Runs of 10 s (2.5 MB) and of 25 s over two missing lines (5 MB); one of a single sample."""
    states = ["catching_up"] * 3 + ["in_sync"] + ["catching_up"] * 4 + ["in_sync", "catching_up"]
    acks = [0, 1, 2.5, 9, 10, 11, 13, 15, 16, 20]
    skips = [0, 0, 0, 0, 0, 0, 2, 0, 0, 0]
    lines, ts = [], W0
    for state, ack, skip in zip(states, acks, skips, strict=True):
        ts += 5_000 * (1 + skip)
        row = replica("b:1", state, ack_offset=int(ack * 1_000_000))
        lines.append(life.line(ts, skip=skip, replicas=[row]))
    return lines


@_case
def _sums(life: Life) -> list[Line]:
    """Group figures over two lives; the first life began before the window."""
    before = life.line(
        W0 - 5_000, msgs_in=100, bytes_in=1_000, sync=sync(50),
        ack_latency=ack_latency([50, 0, 0, 0, 0], 1.0),
    )  # fmt: skip
    first = life.line(
        W0 + 5_000, msgs_in=110, bytes_in=1_500, sync=sync(54, 1), unreplicated_bytes=300,
        oldest_unreplicated_ms=40, ack_latency=ack_latency([54, 2, 0, 0, 0], 1.5),
    )  # fmt: skip
    second = life.line(
        W0 + 10_000, msgs_in=120, bytes_in=2_000, sync=sync(60, 2, 1), unreplicated_bytes=100,
        oldest_unreplicated_ms=7, ack_latency=ack_latency([56, 4, 0, 0, 1], 3.0),
    )  # fmt: skip
    after = life.restarted(W0 + 20_000, role="SYNC_MASTER")
    third = after.line(
        W0 + 24_000, msgs_in=7, bytes_in=70, sync=sync(5, 0, 0, 1), unreplicated_bytes=50,
        ack_latency=ack_latency([1, 0, 4, 0, 0], 0.5),
    )  # fmt: skip
    return [before, first, second, third]


@_case
def _slave_view(life: Life) -> list[Line]:
    """The master's one line, and the slave's own three: 5, 5 and 15 s of the second life's."""
    slave = Life(broker=life.broker, broker_id=1, role="SLAVE", boot="000000aa" * 2)

    def metadata(topics: int | None, failures: int, delay: int) -> list[Row]:
        return [
            {"kind": "topics", "age_ms": topics, "failures": failures},
            {"kind": "delay_offsets", "age_ms": delay, "failures": 0},
        ]

    return [
        life.line(W0 + 5_000, replicas=[replica("slave_view:1")]),
        slave.line(W0 + 5_000, metadata=metadata(None, 2, 10)),
        slave.line(W0 + 10_000, metadata=metadata(4_000, 3, 20)),
        slave.line(W0 + 25_000, metadata=metadata(1_000, 7, 30)),
    ]


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Row], dict[str, Row]]:
    """Of replica b:1 of each case (slave_view:1 of that), and of each group."""
    root = tmp_path_factory.mktemp("dump")
    _case.write(root)
    return _figures(root)


def _figures(
    root: Path, day: Day = DAY, expect: tuple[ReplicaName, ...] = ()
) -> tuple[dict[str, Row], dict[str, Row]]:
    found = core_tables([root], day, SlaConfig(OBJECTIVES, expect))
    replicas, groups = found["replica_days"], found["group_days"]
    assert len(replicas) == len({(row["broker"], row["replica"]) for row in replicas})
    return {row["broker"]: row for row in replicas}, {row["broker"]: row for row in groups}


Figures = tuple[dict[str, Row], dict[str, Row]]


def _some(row: Row, *names: str) -> list[Any]:
    return [row[name] for name in names]


def test_percentiles_are_weighted_by_time(figures: Figures) -> None:
    """300 s of 600 s have lag 0: the median is 0, exactly at the border."""
    row = figures[0]["lags"]
    lags = [f"lag_ms_{name}" for name in ("p50", "p90", "p95", "p99", "p999", "max")]
    assert _some(row, *lags) == [0, 9_000, 9_000, 9_000, 9_000, 9_000]
    sizes = [f"lag_bytes_{name}" for name in ("p50", "p90", "p95", "p99", "p999", "max")]
    assert _some(row, *sizes) == [0] + [9_000_000] * 5
    # From 9 s of lag it could have passed 10 s and come down again, for 4 of 5 s, 12 times; and
    # before the first line, which comes 10 minutes after the boot, nobody saw the lag.
    assert _some(row, "good_s", "bad_s", "unknown_s") == [547.0, 0.0, 53.0]
    assert _some(row, "coverage", "availability") == [547 / 600, 1.0]


def test_histograms(figures: Figures) -> None:
    row = figures[0]["lags"]

    def bucket(value: int) -> int:
        return 1 + math.floor(math.log(value) / math.log(1.02))

    assert row["lag_ms_hist"] == {0: 300_000, bucket(700): 235_000, bucket(9_000): 65_000}
    assert sum(row["lag_bytes_hist"].values()) == 600_000
    assert bucket(9_000_000) in row["lag_bytes_hist"]


def test_states_and_counters_go_on_over_missing_lines(figures: Figures) -> None:
    row = figures[0]["short"]
    # 20 s disconnected are counted over the hole, wherever in it they were.
    # The first line counts 5 s in sync since the boot, of which 600 s were before the window.
    assert _some(row, "good_s", "bad_s", "unknown_s") == [5.0, 20.0, 575.0]
    assert row["coverage"] == pytest.approx(25 / 600)
    states = ("in_sync", "catching_up", "disconnected", "down", "unknown")
    assert _some(row, *(f"state_{name}_s" for name in states)) == [285.0, 0.0, 20.0, 0.0, 295.0]
    assert _some(row, "transferred_bytes", "reconnects", "rejected_acks") == [105, 4, 2]
    assert _some(row, "received", "expected", "interval_s") == [3, 120, 5.0]
    # Of the 280 s in sync that follow, and of what is behind the last line, nobody saw the lag.
    assert row["longest_gap_s"] == 570.0


def test_two_lives(figures: Figures) -> None:
    row = figures[0]["lives"]
    assert _some(row, "good_s", "bad_s", "unknown_s") == [5.0, 25.0 + 20.0, 550.0]
    assert row["availability"] == pytest.approx(5 / 50)
    assert _some(row, "state_in_sync_s", "state_catching_up_s", "state_down_s") == [5, 20, 25]
    assert row["transferred_bytes"] == 10_000 + 200_000
    assert _some(row, "catch_up_s", "catch_up_longest_s") == [15.0, 15.0]
    assert row["catch_up_bytes"] == 15_000_000
    assert row["catch_up_mb_s"] == pytest.approx(1.0)


def test_the_longest_gap_is_contiguous_time(figures: Figures) -> None:
    row = figures[0]["gaps"]
    assert row["unknown_s"] == 600 - 5
    assert row["longest_gap_s"] == 555.0


@pytest.mark.fault(33)
def test_clock(figures: Figures) -> None:
    """ts - mono: 5000, 4900, -2000, -2000, -50 (and what is common)."""
    row = figures[0]["clock"]
    assert row["clock_skew_ms"] == 7_000
    assert row["out_of_order"] == 2
    assert row["received"] == 5


def test_expected_samples_by_each_samples_interval(figures: Figures) -> None:
    """5 s at 5 s, 4 s at 16 s, and what nobody speaks for at the last interval."""
    row = figures[0]["intervals"]
    assert _some(row, "interval_s", "expected") == [16.0, 38]  # 1 + 0.25 + 36.9375
    faster = figures[0]["faster"]
    assert _some(faster, "received", "expected", "coverage") == [199, 200, 595 / 600]


def test_catch_up(figures: Figures) -> None:
    row = figures[0]["catch_up"]
    assert _some(row, "catch_up_s", "catch_up_longest_s") == [35.0, 25.0]
    assert row["catch_up_bytes"] == 7_500_000
    assert row["catch_up_mb_s"] == pytest.approx(7.5 / 35)
    assert figures[0]["short"]["catch_up_mb_s"] is None


def test_group_sums(figures: Figures) -> None:
    row = figures[1]["sums"]
    assert _some(row, "role", "samples", "restarts") == ["SYNC_MASTER", 3, 1]
    assert _some(row, "msgs_in", "bytes_in") == [20 + 7, 1_000 + 70]
    names = ("ok", "flush_slave_timeout", "slave_not_available", "flush_disk_timeout")
    assert _some(row, *(f"sync_{name}" for name in names)) == [10 + 5, 2, 1, 1]
    assert row["sync_ok_ratio"] == pytest.approx(15 / 19)
    assert figures[1]["short"]["sync_ok_ratio"] is None


def test_exposure(figures: Figures) -> None:
    """300 B for 5 s, 100 B for 5 s, 50 B for 4 s: 99 % of the 14 s reach into the 300 B."""
    row = figures[1]["sums"]
    assert row["exposure_byte_s"] == 1_500 + 500 + 200
    assert _some(row, "unreplicated_bytes_max", "unreplicated_bytes_p99") == [300, 300]
    assert _some(row, "oldest_unreplicated_ms_max", "oldest_unreplicated_ms_p99") == [40, 40]
    # 1 + ln 300 / ln 1.02 = 289.03, and so on.
    assert row["unreplicated_bytes_hist"] == {198: 4_000, 233: 5_000, 289: 5_000}
    assert sum(row["oldest_unreplicated_ms_hist"].values()) == 14_000


def test_ack_latency(figures: Figures) -> None:
    """Counts [6+1, 4, 4, 0, 1]: 16 sends. Rank 8 is the first of four in (1 ms, 10 ms]."""
    row = figures[1]["sums"]
    assert row["ack_le"] == list(ACK_LE)
    assert row["ack_counts"] == [7, 4, 4, 0, 1]
    assert row["ack_sum_s"] == 2.0 + 0.5
    assert row["ack_p50_s"] == pytest.approx(0.001 + 0.009 * 1 / 4)
    assert row["ack_p99_s"] == 1.0
    assert row["ack_p999_s"] == 1.0
    assert figures[1]["short"]["ack_p50_s"] is None


def test_metadata(figures: Figures) -> None:
    """The slave's segments: 5 s, 5 s, 15 s; of topics the first 5 s have no age."""
    row = figures[0]["slave_view"]
    told = {
        item["kind"]: {k: v for k, v in item.items() if k not in BOUNDS} for item in row["metadata"]
    }
    assert told["topics"] == {
        "kind": "topics", "max_age_ms": 4_000, "p99_age_ms": 4_000, "failures": 7,
        "covered_s": 20.0,
    }  # fmt: skip
    assert told["delay_offsets"] == {
        "kind": "delay_offsets", "max_age_ms": 30, "p99_age_ms": 30, "failures": 0,
        "covered_s": 25.0,
    }  # fmt: skip
    assert figures[0]["short"]["metadata"] == []
    assert row["received"] == 1


def test_a_replica_that_nobody_dumped(tmp_path: Path) -> None:
    replicas, groups = _figures(tmp_path, expect=(ReplicaName("c", "gone", "b:1"),))
    row = replicas["gone"]
    assert _some(row, "good_s", "bad_s", "unknown_s", "longest_gap_s") == [0.0, 0.0, 600.0, 600.0]
    assert _some(row, "coverage", "availability", "lag_ms_p99", "clock_skew_ms") == [
        0.0, None, None, None,
    ]  # fmt: skip
    assert _some(row, "expected", "received", "duplicates", "transferred_bytes") == [120, 0, 0, 0]
    assert _some(row, "state_unknown_s", "input_digest", "metadata") == [600.0, "", []]
    assert _some(groups["gone"], "samples", "verdict") == [0, "insufficient data"]


def test_the_digest_knows_samples_only(tmp_path: Path) -> None:
    """Other files, order and duplicates: the same figures; another sample: another digest."""
    life = Life()
    lines = life.lines(W0 + 5_000, 6)
    write_dump(tmp_path / "one", lines)
    path = directory_of(tmp_path / "two", lines[0])
    write_file(path / "0010-0-b.jsonl", lines[:1:-1] + lines[3:4])
    write_file(path / "0011-0-a.jsonl", lines[:2])
    write_dump(tmp_path / "three", lines[:-1])
    one, two, three = (_figures(tmp_path / name)[0]["b"] for name in ("one", "two", "three"))
    assert two.pop("duplicates") == 1
    assert one.pop("duplicates") == 0
    assert one == two
    assert one["input_digest"] != three["input_digest"]


def test_a_whole_day_has_its_predecessors(tmp_path: Path) -> None:
    life = Life(start_ms=T0 - 3_600_000)
    rows = [replica("b:1", transferred=n) for n in (100, 250, 260)]
    times = (-2_000, 3_000, 8_000)
    lines = [life.line(T0 + ms, replicas=[row]) for ms, row in zip(times, rows, strict=True)]
    write_dump(tmp_path, lines)
    row = _figures(tmp_path, Day.whole(DATE))[0]["b"]
    assert _some(row, "received", "good_s", "window_s") == [2, 8.0, 86_400.0]
    assert _some(row, "transferred_bytes", "expected") == [160, 17_280]
