"""Time of each replica: good, bad, unknown, and what a row tells, computed by hand.

One dump holds a broker group for each case; the window is 00:10 to 00:20.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark.dump_lines import read_lines
from spark.samples import replica_names, samples
from spark.schema import Day
from spark.segments import segments
from spark.sla_config import Objective
from tests.spark.dump_lines_builder import (
    DATE,
    T0,
    Cases,
    Life,
    Line,
    processes,
    replica,
)

pytestmark = pytest.mark.slow
W0 = T0 + 600_000
W1 = W0 + 600_000
DAY = Day(DATE, W0, W1)
OBJECTIVES = (
    Objective("slow", broker="lenient|other", lag_seconds=60.0),
    Objective("of one", broker="mixed", replica="b:2", lag_seconds=0.5),
    Objective("rest", lag_seconds=10.0),
)
_case = Cases()


def _rows(life: Life, *replicas: dict[str, Any] | None, **fields: Any) -> list[Line]:
    """A line every 5 s from 00:10:05, each with one row of b:1, or without."""
    return [
        life.line(W0 + 5_000 * i, replicas=[row] if row else [], **fields)
        for i, row in enumerate(replicas, 1)
    ]


@_case
def _quality(life: Life) -> list[Line]:
    return _rows(
        life,
        replica("b:1", lag_ms=10_000),
        replica("b:1", lag_ms=10_001),
        replica("b:1", "catching_up"),
        replica("b:1", "disconnected"),
        None,
        replica("b:1", lag_ms=0, in_sync=False),
    )


@_case
def _lenient(life: Life) -> list[Line]:
    return _rows(life, replica("b:1", lag_ms=60_000), replica("b:1", lag_ms=60_001))


@_case
def _mixed(life: Life) -> list[Line]:
    rows = [replica("b:1", lag_ms=600), replica("b:2", lag_ms=600)]
    return [life.line(W0 + 5_000, replicas=rows)]


@_case
def _late_row(life: Life) -> list[Line]:
    """The replica is not there in the first two samples."""
    return _rows(life, None, None, replica("b:1", transferred=70))


@_case
def _missed(life: Life) -> list[Line]:
    """The same of one that was there before."""
    return _late_row(life)


@_case
def _late_down(life: Life) -> list[Line]:
    """The master stops, and has the replica since it is back."""
    lines = _rows(life, None)
    return [*lines, life.restarted(W0 + 30_000).line(W0 + 32_000, replicas=[replica("b:1")])]


@_case
def _vague(life: Life) -> list[Line]:
    return _rows(
        life,
        replica("b:1", lag_ms=10, lag_bytes=5, lag_exact=False),
        replica("b:1", lag_ms=10_001, lag_bytes=5, lag_exact=False),
        replica("b:1", lag_ms=0, lag_bytes=0, lag_exact=False),
        replica("b:1", "disconnected", lag_bytes=5, lag_exact=False),
        replica("b:1", lag_ms=10, lag_bytes=5),
    )


@_case
def _two_masters(life: Life) -> list[Line]:
    """The second master has b:1 from 00:10:15 to 00:10:20; it writes until 00:10:40. b:2 stays."""
    other = Life(start_ms=W0 + 12_000, broker=life.broker, boot="000000ff" * 2)
    stays, gone = replica("b:2"), replica("b:1", "disconnected")
    lines = [life.line(W0 + 5_000, replicas=[stays, replica("b:1")])]
    lines += [life.line(W0 + ms, replicas=[stays, gone]) for ms in (10_000, 15_000)]
    lines += [life.line(W0 + ms, replicas=[stays]) for ms in (20_000, 25_000, 30_000)]
    lines += [other.line(W0 + ms, replicas=[replica("b:1")]) for ms in (15_000, 20_000)]
    return lines + [other.line(W0 + ms, replicas=[gone, stays]) for ms in (30_000, 40_000)]


@_case
def _twice(life: Life) -> list[Line]:
    return [life.line(W0 + 5_000, replicas=[replica("b:1", lag_ms=1), replica("b:1", lag_ms=2)])]


@_case
def _restart(life: Life) -> list[Line]:
    lines = _rows(life, replica("b:1"))
    return [*lines, life.restarted(W0 + 30_000).line(W0 + 40_000, replicas=[replica("b:1")])]


@_case
def _lost(life: Life) -> list[Line]:
    lines = _rows(life, replica("b:1"))
    after = life.restarted(W0 + 30_000, proved=False)
    return [*lines, after.line(W0 + 40_000, replicas=[replica("b:1", "disconnected")])]


@_case
def _stuck(life: Life) -> list[Line]:
    return _rows(
        life,
        replica("b:1", ack_offset=5, lag_bytes=0),
        replica("b:1", ack_offset=5, lag_bytes=9),
        replica("b:1", ack_offset=5, lag_bytes=9),
        replica("b:1", ack_offset=6, lag_bytes=9),
    )


@_case
def _ha(life: Life) -> list[Line]:
    return [
        life.line(W0 + 5_000, replicas=[replica("b:1")]),
        life.line(W0 + 10_000, replicas=[replica("b:1")], processes=processes(ha_up=False)),
        life.line(W0 + 15_000, replicas=[replica("b:1")], processes=processes(ha_restarts=1)),
        life.line(W0 + 20_000, replicas=[replica("b:1")], processes=processes(ha_restarts=1)),
    ]


@_case
def _end(life: Life) -> list[Line]:
    return [life.line(W1 - 4_000, replicas=[replica("b:1", transferred=9)], msgs_in=3)]


@_case
def _back(life: Life) -> list[Line]:
    """The clock is set back: the third sample has no time, as it comes right behind the second;
    its differences count."""
    return [
        life.line(W0 + ts, mono=10_000_000 + (0, 5_000, 5_000, 10_000)[i], msgs_in=i, max_offset=i,
                  replicas=[replica("b:1", transferred=10 * i)])
        for i, ts in enumerate((5_000, 10_000, 7_000, 12_000))
    ]  # fmt: skip


@_case
def _from_before(life: Life) -> list[Line]:
    """4 s of 10 s of mono lie before w0: so does that share of the differences of times."""
    before = replica("b:1", state_ms={"in_sync": 1_000}, transferred=5)
    after = replica("b:1", state_ms={"in_sync": 9_000, "catching_up": 2_000}, transferred=8)
    return [life.line(W0 - 4_000, replicas=[before]), life.line(W0 + 6_000, replicas=[after])]


@_case
def _catching_up(life: Life) -> list[Line]:
    lines = _rows(
        life,
        replica("b:1", "catching_up", ack_offset=100),
        replica("b:1", "catching_up", ack_offset=300),
        replica("b:1", "in_sync", ack_offset=900),
        replica("b:1", "catching_up", ack_offset=1_000),
    )
    after = life.restarted(W0 + 21_000)
    row = replica("b:1", "catching_up", ack_offset=1_500)
    return [*lines, after.line(W0 + 25_000, replicas=[row])]


@pytest.fixture(scope="module")
def found(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[str, str], list[Any]]:
    """Rows by (case, replica), in time."""
    root = tmp_path_factory.mktemp("dump")
    _case.write(root)
    lines = read_lines(spark, [str(root)], DAY)
    ordered = samples(lines, DAY)
    expected = [("nobody", "b:1"), ("restart", "b:9"), ("restart", "b:1"), ("missed", "b:1")]
    names = "cluster string, broker string, replica string, since_ms bigint"
    wanted = replica_names(ordered, DAY).unionAll(
        spark.createDataFrame([("c", *key, 0) for key in expected], names)
    )
    rows = defaultdict(list)
    parts = segments(ordered, wanted, OBJECTIVES, DAY)
    for row in parts.orderBy("start_ms", "end_ms", "seq").collect():
        rows[row.broker, row.replica].append(row)
    lines.release()
    return rows


def _told(rows: list[Any], *names: str) -> list[Any]:
    return [tuple(row[name] for name in names) for row in rows]


def _spans(rows: list[Any]) -> list[tuple[float, float, str, str]]:
    return [((r.start_ms - W0) / 1000, (r.end_ms - W0) / 1000, r.kind, r.quality) for r in rows]


def test_every_ms_once(found: dict[tuple[str, str], list[Any]]) -> None:
    for key, rows in found.items():
        at = W0
        for row in rows:
            if row.end_ms > row.start_ms:
                assert row.start_ms == at, (key, row)
                at = row.end_ms
        assert at == W1, key


def test_quality(found: dict[tuple[str, str], list[Any]]) -> None:
    rows = found["quality", "b:1"][:6]
    assert _told(rows, "quality", "state", "lag_ms") == [
        ("good", "in_sync", 10_000),
        ("bad", "in_sync", 10_001),
        ("bad", "catching_up", 0),
        ("bad", "disconnected", 0),
        ("bad", "disconnected", None),
        ("good", "in_sync", 0),
    ]
    assert all(row.objective == 2 for row in rows)


def test_the_first_objective_that_matches(found: dict[tuple[str, str], list[Any]]) -> None:
    assert _told(found["lenient", "b:1"][:2], "objective", "quality") == [(0, "good"), (0, "bad")]
    assert _told(found["mixed", "b:1"][:1], "objective", "quality") == [(2, "good")]
    assert _told(found["mixed", "b:2"][:1], "objective", "quality") == [(1, "bad")]


def test_replicas_without_rows(found: dict[tuple[str, str], list[Any]]) -> None:
    """In a group without samples: unknown; where the samples lack it: disconnected."""
    [row] = found["nobody", "b:1"]
    assert (row.start_ms, row.end_ms, row.kind, row.quality) == (W0, W1, "unknown", "unknown")
    assert (row.state, row.transferred, row.in_head, row.objective) == (None, 0, False, 2)
    rows = [row for row in found["restart", "b:9"] if row.kind == "sample"]
    assert _told(rows, "quality", "state") == [("bad", "disconnected")] * 2


def test_a_row_that_comes_late_counts_from_zero(
    found: dict[tuple[str, str], list[Any]],
) -> None:
    rows = found["missed", "b:1"][:3]
    assert _told(rows, "quality", "transferred") == [("bad", 0), ("bad", 0), ("good", 70)]
    assert _told(rows, "state_in_sync_ms", "state_disconnected_ms") == [
        (0, 5_000), (0, 5_000), (5_000, 0),
    ]  # fmt: skip


def test_nobody_misses_a_replica_before_its_first_row(
    found: dict[tuple[str, str], list[Any]],
) -> None:
    """Unless it is remembered or expected."""
    rows = found["late_row", "b:1"][:3]
    assert _told(rows, "quality", "state") == [
        ("unknown", None), ("unknown", None), ("good", "in_sync"),
    ]  # fmt: skip
    assert _told(rows, "state_disconnected_ms", "transferred") == [(0, 0), (0, 0), (0, 70)]
    rows = found["late_down", "b:1"][:3]
    assert _told(rows, "kind", "quality") == [
        ("sample", "unknown"), ("down", "unknown"), ("sample", "good"),
    ]  # fmt: skip


def test_a_lag_that_may_be_larger_is_not_known_to_be_good(
    found: dict[tuple[str, str], list[Any]],
) -> None:
    qualities = [row.quality for row in found["vague", "b:1"][:5]]
    assert qualities == ["unknown", "bad", "good", "bad", "good"]


def test_a_replica_of_another_master_is_not_known_to_be_gone(
    found: dict[tuple[str, str], list[Any]],
) -> None:
    rows = [r for r in found["two_masters", "b:1"] if r.kind == "sample" and r.end_ms > r.start_ms]
    assert _told(rows, "quality", "state") == [
        ("good", "in_sync"),
        ("bad", "disconnected"),
        ("unknown", "disconnected"),
        ("unknown", None),
        ("bad", "disconnected"),
        ("bad", "disconnected"),
        ("bad", "disconnected"),
    ]
    rows = [r for r in found["two_masters", "b:2"] if r.kind == "sample" and r.end_ms > r.start_ms]
    assert {row.quality for row in rows} == {"good"}


def test_the_first_of_two_rows_counts(found: dict[tuple[str, str], list[Any]]) -> None:
    assert _told(found["twice", "b:1"], "kind", "lag_ms")[0] == ("sample", 1)


def test_down(found: dict[tuple[str, str], list[Any]]) -> None:
    assert _spans(found["restart", "b:1"]) == [
        (0, 5, "sample", "good"),
        (5, 30, "down", "bad"),
        (30, 40, "sample", "good"),
        (40, 600, "unknown", "unknown"),
    ]
    assert not any(row.boot_unproved for row in found["restart", "b:1"][1:])


def test_unproved(found: dict[tuple[str, str], list[Any]]) -> None:
    rows = found["lost", "b:1"]
    assert _spans(rows) == [
        (0, 5, "sample", "good"),
        (5, 35, "unknown", "unknown"),
        (35, 40, "sample", "bad"),
        (40, 600, "unknown", "unknown"),
    ]
    assert [row.boot_unproved for row in rows[1:]] == [False, True, False]


def test_stuck(found: dict[tuple[str, str], list[Any]]) -> None:
    assert [row.stuck for row in found["stuck", "b:1"]] == [False, False, True, False, False]


def test_ha(found: dict[tuple[str, str], list[Any]]) -> None:
    assert [row.ha_restarted for row in found["ha", "b:1"]] == [False, True, True, False, False]


def test_the_rest_of_the_window(found: dict[tuple[str, str], list[Any]]) -> None:
    *_, own, rest = found["end", "b:1"]
    assert _told([own, rest], "kind", "quality", "in_head") == [
        ("sample", "good", False),
        ("sample", "good", True),
    ]
    assert (rest.start_ms, rest.end_ms) == (W1 - 4_000, W1)
    assert (rest.msgs_in, rest.transferred, rest.written) == (0, 0, False)
    assert _told([own, rest], "state_in_sync_ms") == [(5_000,), (4_000,)]


def test_a_sample_without_time_tells_its_differences(
    found: dict[tuple[str, str], list[Any]],
) -> None:
    rows = [row for row in found["back", "b:1"] if row.kind == "sample"]
    by_seq = sorted(rows, key=lambda row: row.seq)
    assert [row.end_ms - row.start_ms for row in by_seq] == [5_000, 3_000, 0, 2_000]
    assert _told(by_seq, "transferred", "msgs_in", "written") == [
        (0, 0, False), (10, 1, True), (10, 1, True), (10, 1, True),
    ]  # fmt: skip


def test_times_in_states_before_the_window(found: dict[tuple[str, str], list[Any]]) -> None:
    rows = [row for row in found["from_before", "b:1"] if row.kind == "sample"]
    [(in_sync, catching_up, transferred)] = _told(
        rows, "state_in_sync_ms", "state_catching_up_ms", "transferred"
    )
    assert (in_sync, catching_up) == (4_800, 1_200)
    assert transferred == 3


def test_catching_up(found: dict[tuple[str, str], list[Any]]) -> None:
    rows = [row for row in found["catching_up", "b:1"] if row.kind == "sample"]
    assert _told(rows, "catch_up_begins", "catch_up_ms", "catch_up_bytes") == [
        (True, 0, 0), (False, 5_000, 200), (False, 0, 0), (True, 0, 0), (True, 0, 0),
    ]  # fmt: skip
