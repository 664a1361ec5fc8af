"""Order, predecessors and the time a sample speaks for: every case of docs/sla_report.md by hand.

One dump holds a broker group for each case; the window is 00:10 to 00:20.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import desc

from spark.dump_lines import read_lines
from spark.samples import DUPLICATES, MASTERS, renamed, replica_names, samples
from spark.schema import Day
from tests.spark.dump_lines_builder import (
    DATE,
    T0,
    Cases,
    Life,
    Line,
    directory_of,
    processes,
    replica,
    sync,
    write_dump,
    write_file,
)

pytestmark = pytest.mark.slow
W0 = T0 + 600_000
W1 = W0 + 600_000
DAY = Day(DATE, W0, W1)

_case = Cases()
Span = tuple[int, int, int, int]


@_case
def _consecutive(life: Life) -> list[Line]:
    first, second, third = (life.line(W0 + ms) for ms in (5_000, 10_000, 24_999))
    return [first, second, third, life.line(W0 + 45_000)]  # 20 s late: more than 3 intervals


@_case
def _missing(life: Life) -> list[Line]:
    return [life.line(W0 + 5_000), life.line(W0 + 30_000, skip=4), life.line(W0 + 32_000, skip=1)]


@_case
def _proved(life: Life) -> list[Line]:
    lines = [life.line(W0 + 5_000)]
    return [*lines, life.restarted(W0 + 30_000).line(W0 + 33_000)]


@_case
def _proved_slow_start(life: Life) -> list[Line]:
    lines = [life.line(W0 + 5_000)]
    return [*lines, life.restarted(W0 + 30_000).line(W0 + 60_000)]


@_case
def _unproved(life: Life) -> list[Line]:
    lines = [life.line(W0 + 5_000)]
    return [*lines, life.restarted(W0 + 30_000, proved=False).line(W0 + 38_000)]


@_case
def _first_line_lost(life: Life) -> list[Line]:
    lines = [life.line(W0 + 5_000)]
    return [*lines, life.restarted(W0 + 30_000).line(W0 + 42_000, skip=1)]


@_case
def _first_in_window(life: Life) -> list[Line]:
    return [life.line(W0 + 3_000, skip=10)]


@_case
def _born_in_window(life: Life) -> list[Line]:
    life.start_ms = W0 + 58_000
    return [life.line(W0 + 60_000)]


@_case
def _predecessor(life: Life) -> list[Line]:
    return [life.line(W0 - 2_000), life.line(W0 + 3_000)]


@_case
def _predecessor_gap(life: Life) -> list[Line]:
    return [life.line(W0 - 20_000), life.line(W0 + 30_000, skip=3)]


@_case
def _too_old(life: Life) -> list[Line]:
    return [life.line(W0 - 7_200_001), life.line(W0 + 30_000, mono=9_000_000)]


@_case
def _long_down(life: Life) -> list[Line]:
    life.start_ms = W0 - 4_000_000
    lines = [life.line(W0 - 3_600_000)]
    return [*lines, life.restarted(W0 + 300_000).line(W0 + 301_000)]


@_case
def _down_over_the_beginning(life: Life) -> list[Line]:
    lines = [life.line(W0 - 60_000)]
    return [*lines, life.restarted(W0 + 20_000).line(W0 + 21_000)]


@_case
def _back(life: Life) -> list[Line]:
    """The wall clock is set back by 8 s after the second line."""
    mono = 5_000_000
    return [
        life.line(W0 + 5_000, mono=mono),
        life.line(W0 + 10_000, mono=mono + 5_000),
        life.line(W0 + 7_000, mono=mono + 10_000),
        life.line(W0 + 12_000, mono=mono + 15_000),
        life.line(W0 + 17_000, mono=mono + 20_000),
    ]


@_case
def _ahead(life: Life) -> list[Line]:
    """For two lines the wall clock is five minutes ahead; it comes there once more."""
    mono = 5_000_000
    moments = (5_000, 10_000, 315_000, 320_000, 25_000, 30_000, 318_000)
    true = (5_000, 10_000, 15_000, 20_000, 25_000, 30_000, 318_000)
    return [life.line(W0 + ts, mono=mono + now) for ts, now in zip(moments, true, strict=True)]


@_case
def _ahead_then_restarted(life: Life) -> list[Line]:
    """The next life tells of nothing before the moment that the wrong clock showed."""
    lines = [life.line(W0 + 5_000), life.line(W0 + 100_000, mono=1_610_000)]
    after = life.restarted(W0 + 20_000)
    return lines + [after.line(W0 + ms) for ms in (21_000, 99_000, 104_000)]


@_case
def _mono_stands(life: Life) -> list[Line]:
    return [life.line(W0 + 5_000, mono=50), life.line(W0 + 10_000, mono=20)]


@_case
def _split_brain(life: Life) -> list[Line]:
    """A second master of the group from 00:10:12; the first one writes until 00:10:25."""
    other = Life(
        start_ms=W0 + 12_000, broker=life.broker, broker_id=2, boot="000000ff" * 2,
        role="SYNC_MASTER",
    )  # fmt: skip
    lines = [life.line(W0 + ms) for ms in range(5_000, 30_000, 5_000)]
    return lines + [other.line(W0 + ms) for ms in (15_000, 20_000, 25_000, 30_000)]


@_case
def _after(life: Life) -> list[Line]:
    return [life.line(W1 - 4_000), life.line(W1 + 1_000)]


@_case
def _long_after(life: Life) -> list[Line]:
    return [life.line(W1 - 6_000), life.line(W1)]


@pytest.fixture(scope="module")
def found(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """The stream of each case, in order, whole rows."""
    root = tmp_path_factory.mktemp("dump")
    _case.write(root)
    return _samples(spark, root)


def _samples(
    spark: SparkSession, root: Path, day: Day = DAY, stream: int = MASTERS
) -> dict[str, list[Any]]:
    lines = read_lines(spark, [str(root)], day)
    by_case: dict[str, list[Any]] = defaultdict(list)
    for row in samples(lines, day).orderBy("boot_ts", "boot", "seq").collect():
        if row.stream == stream:
            by_case[row.broker].append(row)
    lines.release()
    return by_case


SPANS: dict[str, list[Span]] = {
    # from, down until, segment from, to; seconds of the window, -1: no segment
    "consecutive": [
        (0, 0, 0, 5_000),
        (5_000, 5_000, 5_000, 10_000),
        (10_000, 10_000, 10_000, 24_999),
        (24_999, 24_999, 30_000, 45_000),
    ],
    "missing": [(0, 0, 0, 5_000), (5_000, 5_000, 25_000, 30_000), (30_000, 30_000, 30_000, 32_000)],
    "proved": [(0, 0, 0, 5_000), (5_000, 30_000, 30_000, 33_000)],
    "proved_slow_start": [(0, 0, 0, 5_000), (5_000, 30_000, 45_000, 60_000)],
    "unproved": [(0, 0, 0, 5_000), (5_000, 5_000, 33_000, 38_000)],
    "first_line_lost": [(0, 0, 0, 5_000), (5_000, 5_000, 37_000, 42_000)],
    "first_in_window": [(0, 0, 0, 3_000)],
    "born_in_window": [(0, 0, 58_000, 60_000)],
    "predecessor": [(0, 0, 0, 3_000)],
    "predecessor_gap": [(0, 0, 25_000, 30_000)],
    "too_old": [(0, 0, 25_000, 30_000)],
    "long_down": [(0, 300_000, 300_000, 301_000)],
    "down_over_the_beginning": [(0, 20_000, 20_000, 21_000)],
    "ahead": [
        (0, 0, 0, 5_000),
        (5_000, 5_000, 5_000, 10_000),
        (30_000, 30_000, 310_000, 315_000),
        (318_000, 318_000, 318_000, 320_000),
        (10_000, 10_000, 20_000, 25_000),
        (25_000, 25_000, 25_000, 30_000),
        (315_000, 315_000, 315_000, 318_000),
    ],
    "ahead_then_restarted": [
        (0, 0, 0, 5_000),
        (5_000, 5_000, 95_000, 100_000),
        (21_000, 21_000, 21_000, 21_000),
        (99_000, 99_000, 99_000, 99_000),
        (100_000, 100_000, 100_000, 104_000),
    ],
    "back": [
        (0, 0, 0, 5_000),
        (7_000, 7_000, 7_000, 10_000),
        (5_000, 5_000, 5_000, 7_000),
        (10_000, 10_000, 10_000, 12_000),
        (12_000, 12_000, 12_000, 17_000),
    ],
    "mono_stands": [(0, 0, 0, 5_000), (5_000, 5_000, 10_000, 10_000)],
    "split_brain": [
        (0, 0, 0, 5_000),
        (5_000, 5_000, 5_000, 10_000),
        (10_000, 10_000, 10_000, 15_000),
        (15_000, 15_000, 15_000, 20_000),
        (20_000, 20_000, 20_000, 25_000),
        (15_000, 15_000, 15_000, 15_000),
        (20_000, 20_000, 20_000, 20_000),
        (25_000, 25_000, 25_000, 25_000),
        (25_000, 25_000, 25_000, 30_000),
    ],
    "after": [(0, 0, 591_000, 596_000)],
    "long_after": [(0, 0, 589_000, 594_000)],
}


@pytest.mark.parametrize("case", SPANS)
def test_spans(found: dict[str, list[Any]], case: str) -> None:
    rows = [row for row in found[case] if row.in_window]
    spans = [(row.from_ms, row.down_ms, row.start_ms, row.ts) for row in rows]
    assert [tuple(ms - W0 for ms in span) for span in spans] == SPANS[case]


def test_every_case_is_told() -> None:
    assert set(SPANS) == _case.names


@pytest.mark.parametrize(
    ("case", "begin", "is_known"),
    [("after", 596_000, True), ("long_after", 594_000, False), ("back", 17_000, False)],
)
def test_the_rest_of_the_window(
    found: dict[str, list[Any]], case: str, begin: int, is_known: bool
) -> None:
    *others, last = found[case]
    assert (last.rest_ms - W0, last.rest_known) == (begin, is_known)
    assert all(row.rest_ms is None for row in others)


def test_out_of_order(found: dict[str, list[Any]]) -> None:
    assert [row.seq for row in found["back"] if row.out_of_order] == [3]
    assert [row.seq for row in found["ahead"] if row.out_of_order] == [5, 6, 7]
    assert not any(row.out_of_order for row in found["split_brain"])


def test_proved(found: dict[str, list[Any]]) -> None:
    proved = {case for case, rows in found.items() if any(row.proved for row in rows)}
    assert proved == {
        *("proved", "proved_slow_start", "down_over_the_beginning"),
        *("long_down", "ahead_then_restarted"),
    }


def test_overtaken(found: dict[str, list[Any]]) -> None:
    """Samples of moments that a boot before theirs told of."""
    late = {case: [row.ts - W0 for row in rows if row.overtaken] for case, rows in found.items()}
    assert {case: moments for case, moments in late.items() if moments} == {
        "split_brain": [15_000, 20_000, 25_000],
        "ahead_then_restarted": [21_000, 99_000],
    }


def test_duplicates_and_conflicts(spark: SparkSession, tmp_path: Path) -> None:
    """The same lines in two files count once; of two texts the smaller one counts."""
    life = Life()
    lines = life.lines(W0 + 5_000, 4)
    write_dump(tmp_path, lines)
    larger = lines[2] | {"msgs_in": 7, "version": "0.2.0"}
    smaller = lines[3] | {"msgs_in": 9, "bytes_in": 1, "mono": 0}
    again = [lines[1], lines[1], larger, smaller]
    write_file(directory_of(tmp_path, lines[0]) / "0010-0-again.jsonl", again)
    rows = _samples(spark, tmp_path)["b"]
    assert [(row.seq, row.conflict) for row in rows] == [
        (1, False), (2, False), (3, True), (4, True),
    ]  # fmt: skip
    assert rows[2].msgs_in == 0  # "msgs_in":0 is smaller than "msgs_in":7
    assert rows[3].mono_ms == -1_000_000 - (W0 + 15_000 - T0)  # "mono":0 is smaller than "mono":1…
    assert [row.seq for row in _samples(spark, tmp_path, stream=DUPLICATES)["b"]] == [2, 2, 3, 4]


def test_the_day_before_lends_predecessors(spark: SparkSession, tmp_path: Path) -> None:
    """Of its last two hours; a line after midnight in its directory is the new day's."""
    life = Life(start_ms=T0 - 10_000_000)
    old, last, late = (life.line(T0 + ms) for ms in (-7_200_001, -2_000, 1_000))
    write_file(directory_of(tmp_path, last) / "2200-0-x.jsonl", [old, last, late])
    write_dump(tmp_path, [life.line(T0 + 6_000)])
    rows = _samples(spark, tmp_path, Day.whole(DATE))["b"]
    assert [(row.seq, row.in_window) for row in rows] == [(2, False), (3, True), (4, True)]
    assert [row.start_ms - T0 for row in rows[1:]] == [0, 1_000]


def test_differences(spark: SparkSession, tmp_path: Path) -> None:
    """Within a boot, over holes; a boot's first line counts from 0, an unknown past not at all."""
    unknown = Life(broker="unknown")
    hourly = Life(broker="hourly", start_ms=W0 - 4_000_000, interval_ms=3_600_000)
    life = Life()
    after = life.restarted(W0 + 40_000)
    lines = [
        unknown.line(W0 + 5_000, skip=3, msgs_in=100),
        unknown.line(W0 + 10_000, skip=3, msgs_in=103),
        hourly.line(W0 - 3_500_000, msgs_in=20),
        hourly.line(W0 + 100_000, msgs_in=26),
        life.line(W0 - 5_000, msgs_in=10, max_offset=50),
        life.line(W0 + 5_000, msgs_in=14, max_offset=60, sync=sync(1, 2, 3, 4)),
        life.line(W0 + 10_000, msgs_in=15, max_offset=60, sync=sync(2, 4, 6, 8)),
        after.line(W0 + 41_000, msgs_in=5, max_offset=70, sync=sync(1, 0, 0, 0)),
    ]
    write_dump(tmp_path, lines)
    found = _samples(spark, tmp_path)
    assert [row.msgs_in for row in found["unknown"]] == [0, 3]
    assert [row.msgs_in for row in found["hourly"][1:]] == [6]
    assert [row.msgs_in for row in found["b"][1:]] == [4, 1, 5]
    assert [row.written for row in found["b"][1:]] == [True, False, False]
    assert [row.sync_ok for row in found["b"][1:]] == [1, 1, 1]
    assert [row.sync_flush_disk_timeout for row in found["b"][1:]] == [4, 4, 0]


def test_a_boot_whose_first_lines_are_lost_counts_since_it_began(
    spark: SparkSession, tmp_path: Path
) -> None:
    """In the window, as far as is known. One that the import does not know the start of has a
    number that does not fit its time."""
    lost = Life(broker="lost", start_ms=W0 + 40_000)
    before = Life(broker="before", start_ms=W0 - 1)
    imported = Life(broker="imported", start_ms=W0 + 5_000, seq=354_000_000)
    counts = {"msgs_in": 50, "sync": sync(1, 100)}
    lines = [
        lost.line(W0 + 100_000, skip=12) | counts,
        before.line(W0 + 10_000, skip=1) | counts,
        imported.line(W0 + 5_000) | counts,
        imported.line(W0 + 10_000) | counts | {"msgs_in": 57},
    ]
    write_dump(tmp_path, lines)
    found = _samples(spark, tmp_path)
    assert [row.msgs_in for row in found["lost"]] == [50]
    assert found["lost"][0].sync_flush_slave_timeout == 100
    assert found["lost"][0].ack_base is None
    assert [row.msgs_in for row in found["before"]] == [0]
    assert [row.msgs_in for row in found["imported"]] == [0, 7]


def test_a_counter_that_goes_back_counts_nothing(spark: SparkSession, tmp_path: Path) -> None:
    life = Life()
    write_dump(
        tmp_path, [life.line(W0 + 5_000 * n, msgs_in=c) for n, c in ((1, 9), (2, 4), (3, 6))]
    )
    assert [row.msgs_in for row in _samples(spark, tmp_path)["b"]] == [9, 0, 2]


def test_process_ha(spark: SparkSession, tmp_path: Path) -> None:
    life = Life()
    lines = [
        life.line(W0 + 5_000, processes=processes(ha_restarts=1)),
        life.line(W0 + 10_000, processes=processes(ha_restarts=2)),
        life.line(W0 + 15_000, processes=processes(ha_up=False, ha_restarts=2)),
        life.line(W0 + 20_000, processes=[]),
    ]
    write_dump(tmp_path, lines)
    rows = _samples(spark, tmp_path)["b"]
    assert [row.ha_up for row in rows] == [True, True, False, None]
    assert [bool(row.ha_restarted) for row in rows] == [False, True, False, False]


def _names(spark: SparkSession, root: Path, day: Day = DAY) -> dict[str, Any]:
    """Replicas and the ms of the window since which they are there; `renamed` ones: None."""
    read = read_lines(spark, [str(root)], day)
    ordered = samples(read, day)
    gone = renamed(ordered, day).collect()
    seen = replica_names(ordered, day).orderBy(desc("since_ms")).collect()
    read.release()
    found: dict[str, Any] = {row.replica: None for row in gone}
    return found | {row.replica: row.since_ms - day.w0_ms for row in seen}


def test_replica_names(spark: SparkSession, tmp_path: Path) -> None:
    """Of masters' samples of the window, and of slaves that have some themselves."""
    life = Life()
    slaves = [Life(broker_id=n, role="SLAVE", boot=f"{n:08x}" * 2) for n in (1, 4, 5)]
    lines = [
        life.line(W0 - 5_000, replicas=[replica("b:9")]),
        life.line(W0 + 5_000, replicas=[replica("b:1"), replica("10.0.0.7")]),
        life.line(W0 + 10_000, replicas=[replica("b:2"), replica("b:1"), replica("10.0.0.7")]),
        life.line(W1, replicas=[replica("b:8")]),
        *(slaves[0].line(W0 + 5_000 * n, replicas=[replica("b:7")]) for n in (1, 2)),
        slaves[1].line(W0 + 7_000),
        slaves[2].line(W0 - 7_000),
    ]
    write_dump(tmp_path, lines)
    whole = W1 - W0
    assert _names(spark, tmp_path) == {"10.0.0.7": 5_000, "b:1": 5_000, "b:2": 10_000, "b:4": whole}


def test_a_connection_that_got_its_name(spark: SparkSession, tmp_path: Path) -> None:
    """Its row goes by the ip until then: no replica, unless the row returns. A row that goes while
    nobody comes, or that was not connected, has gone for another reason."""
    nameless, gone = replica("10.0.0.7"), replica("b:3", "disconnected")
    lists = [
        [replica("10.0.0.8"), replica("b:2")],  # before the window
        [replica("b:2"), replica("b:1"), nameless, replica("10.0.0.9"), replica("10.0.0.6"), gone],
        [replica("b:1"), replica("b:2"), replica("b:3"), replica("10.0.0.6")],
        [replica("b:1"), replica("b:3"), replica("10.0.0.9")],
        [replica("b:1"), replica("b:3")],
    ]
    life = Life()
    write_dump(
        tmp_path, [life.line(W0 + 5_000 * (n - 1) + 1, replicas=r) for n, r in enumerate(lists)]
    )
    assert _names(spark, tmp_path, Day(DATE, W0, W1)) == {
        "10.0.0.8": None, "10.0.0.7": None, "10.0.0.6": None,
        "b:1": 1, "b:2": 1, "b:3": 1, "10.0.0.9": 1,
    }  # fmt: skip
