"""broker.metrics.dump_history and dump_lines: files of a story that the test tells itself."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from broker.metrics import dump_history
from broker.metrics.dump_file_names import find_dump_files, place_of
from broker.metrics.dump_history import LEAD_MS, DumpHistory, step_ms
from broker.metrics.dump_lines import DumpLines, DumpOwner
from remoting.body.metrics_answer import DumpIncident, MetricsDumpAnswer
from tests.support.manual_clock import ManualClock

HOUR = 3_600_000
T0 = int(datetime(2026, 3, 1, 10, tzinfo=UTC).timestamp()) * 1000
BOOTS = ("a" * 16, "b" * 16, "c" * 16)
OURS, THEIRS = "10.0.0.1:10911", "10.0.0.2:10911"


def line(ts: int, seq: int, state: str | None = "in_sync", boot: int = 0, **changed: Any) -> Any:
    """Counters rise with seq; state None: no replica."""
    replica = {"id": "b:1", "state": state, "lag_bytes": seq, "lag_ms": 10, "lag_ms_max": 20 + seq}
    sends = {"ok": 10 * seq, "flush_slave_timeout": seq, "latency": {}}
    return {
        "ts": ts,
        "boot": BOOTS[boot],
        "seq": seq,
        "interval_ms": 5_000,
        "role": "SYNC_MASTER",
        "msgs_in": 100 * seq,
        "sends": sends,
        "ack_latency": {"le": [0.1], "counts": [seq, 2 * seq], "sum": 1.0},
        "exposure": {"bytes_at_most": 1000 - seq},
        "replicas": [] if state is None else [replica],
    } | changed


class Dumps:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.clock = ManualClock(T0 + 100 * HOUR)

    def write(self, *lines: Any, packed: bool = True, broker_id: int = 0, end: bytes = b"") -> Path:
        first = lines[0]
        moment = datetime.fromtimestamp(first["ts"] / 1000, UTC)
        parent = self.root / f"dt={moment:%Y-%m-%d}" / place_of("C", "b")
        parent.mkdir(parents=True, exist_ok=True)
        name = f"{moment:%H%M}-{broker_id}-{first['boot'][:8]}-{first['seq']:08}.jsonl"
        data = b"".join(json.dumps(each).encode() + b"\n" for each in lines) + end
        path = parent / (f"{name}.gz" if packed else name)
        path.write_bytes(gzip.compress(data) if packed else data)
        return path

    def ask(
        self, begin: int, end: int, points: int = 500, *, host: str = OURS, is_shared: bool = False
    ) -> MetricsDumpAnswer:
        files = find_dump_files(self.root, place_of("C", "b"), None)
        history = DumpHistory(begin, end, step_ms(begin, end, points, 5_000), self.clock)
        owner = DumpOwner(host=host, broker_id=0, is_shared=is_shared)
        return history.read(DumpLines(files, begin - LEAD_MS, end, owner))


@pytest.fixture
def dumps(tmp_path: Path) -> Dumps:
    return Dumps(tmp_path)


def steady(start: int, count: int, first_seq: int = 1, **more: Any) -> list[Any]:
    return [line(start + 5_000 * n, first_seq + n, **more) for n in range(count)]


def test_points_of_one_life(dumps: Dumps) -> None:
    dumps.write(*steady(T0 + 30_000, 24))
    answer = dumps.ask(T0 + 60_000, T0 + 120_000, 3)
    assert (answer.step, answer.bad_lines, answer.partial_up_to) == (20_000, 0, None)
    assert answer.incidents == []
    assert [point.ts - T0 for point in answer.points] == [60_000, 80_000, 100_000]
    assert [point.lines for point in answer.points] == [4, 4, 4]
    first = answer.points[0]  # seq 7 to 10, with the difference to 6.
    assert (first.msgs_in, first.role, first.exposure_bytes_at_most) == (400, "SYNC_MASTER", 993)
    assert first.sends["ok"] == 40
    assert first.sends["flush_slave_timeout"] == 4
    assert (first.ack_latency.le, first.ack_latency.counts) == ([0.1], [4, 8])
    replica = first.replicas["b:1"]
    assert (replica.lag_ms_max, replica.lag_bytes_max) == (30, 10)
    assert (replica.worst_state, replica.in_sync) == ("in_sync", True)


def test_no_count_crosses_a_boot_and_one_that_fell_begins_anew(dumps: Dumps) -> None:
    dumps.write(*steady(T0, 6, first_seq=50))
    later = steady(T0 + 30_000, 6, boot=1)
    later[3]["msgs_in"], later[4]["msgs_in"], later[5]["msgs_in"] = 30, 40, 50
    dumps.write(*later, packed=False)
    (point,) = dumps.ask(T0, T0 + 60_000, 1).points
    assert point.lines == 12
    assert point.msgs_in == 5 * 100 + 2 * 100 + 30 + 10 + 10
    assert point.sends["ok"] == 50 + 50


def test_lives_of_one_minute_in_their_order(dumps: Dumps) -> None:
    dumps.write(*steady(T0, 4, first_seq=700))
    dumps.write(*steady(T0 + 20_000, 4, boot=1))
    (point,) = dumps.ask(T0, T0 + 40_000, 1).points
    assert (point.lines, point.msgs_in) == (8, 600)
    assert point.replicas["b:1"].lag_bytes_max == 703
    assert dumps.ask(T0, T0 + 40_000, 1).incidents == []


def test_incidents_with_the_times_of_their_lines(dumps: Dumps) -> None:
    states = ["in_sync"] * 3 + ["catching_up"] * 2 + ["disconnected"] * 2 + ["in_sync"] * 3
    lines = [line(T0 + 5_000 * n, n + 1, state) for n, state in enumerate(states)]
    lines += [line(T0 + 95_000 + 5_000 * n, 20 + n, "disconnected") for n in range(3)]
    dumps.write(*lines)
    answer = dumps.ask(T0, T0 + 110_000, 11)
    assert answer.incidents == [
        DumpIncident(replica="b:1", from_=T0 + 15_000, to=T0 + 25_000, state="catching_up"),
        DumpIncident(replica="b:1", from_=T0 + 25_000, to=T0 + 35_000, state="disconnected"),
        DumpIncident(replica="", from_=T0 + 45_000, to=T0 + 95_000, state="unknown"),
        DumpIncident(replica="b:1", from_=T0 + 95_000, to=None, state="disconnected"),
    ]
    assert [point.lines for point in answer.points] == [2, 2, 2, 2, 2, 0, 0, 0, 0, 1, 2]
    worst = [point.replicas["b:1"].worst_state for point in answer.points[:4]]
    assert worst == ["in_sync", "catching_up", "disconnected", "disconnected"]
    assert not answer.points[1].replicas["b:1"].in_sync


def test_three_missing_intervals_are_late_more_are_unknown(dumps: Dumps) -> None:
    dumps.write(line(T0, 1), line(T0 + 15_000, 2), line(T0 + 30_001, 3))
    unknown = [(each.from_ - T0, each.to) for each in dumps.ask(T0, T0 + 45_001).incidents]
    assert unknown == [(15_000, T0 + 30_001)]
    assert dumps.ask(T0, T0 + 45_002).incidents[-1] == DumpIncident(
        replica="", from_=T0 + 30_001, to=None, state="unknown"
    )


def test_where_nothing_is_known(dumps: Dumps) -> None:
    answer = dumps.ask(T0, T0 + HOUR, 2)
    assert [point.lines for point in answer.points] == [0, 0]
    unknown = DumpIncident(replica="", from_=T0, to=None, state="unknown")
    assert answer.incidents == [unknown]
    dumps.clock.jump_to(T0 - HOUR)
    assert dumps.ask(T0, T0 + HOUR, 2).incidents == []  # It has not come yet.


def test_only_files_that_can_overlap_are_opened(dumps: Dumps) -> None:
    for hours in (-2, 2):
        dumps.write(line(T0 + hours * HOUR, 1)).write_bytes(b"no gzip")
    dumps.write(line(T0, 1), broker_id=1).write_bytes(b"no gzip")
    dumps.write(*steady(T0, 3))
    answer = dumps.ask(T0, T0 + HOUR)
    assert answer.bad_lines == 0
    assert sum(point.lines for point in answer.points) == 3


def test_damage_is_counted_and_the_rest_is_read(dumps: Dumps) -> None:
    dumps.write(*steady(T0, 3), end=b'{"ts":1}\n\xff\xfe\n[]\n')
    broken = dumps.write(*steady(T0 + 60_000, 2, first_seq=9))
    broken.write_bytes(broken.read_bytes()[:-9])
    dumps.write(*steady(T0 + 120_000, 2, first_seq=30), packed=False, end=b'{"ts": 12')
    answer = dumps.ask(T0, T0 + HOUR)
    assert answer.bad_lines == 4  # A line without its end is still being written.
    assert sum(point.lines for point in answer.points) == 3 + 2 + 2


def test_a_file_that_is_there_compressed_too_counts_once(dumps: Dumps) -> None:
    for packed in (False, True):
        dumps.write(*steady(T0, 5), packed=packed)
    assert sum(point.lines for point in dumps.ask(T0, T0 + HOUR).points) == 5


def test_no_time_for_all(dumps: Dumps, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second a line: two lines in each answer, and nothing is lost or counted twice."""
    dumps.write(*steady(T0, 10))
    begin, end, taken, told = T0, T0 + 60_000, 0, []
    take = DumpHistory._take

    def slow(self: DumpHistory, each: Any) -> None:
        if each.ts >= begin:
            dumps.clock.advance(1_000)
        take(self, each)

    monkeypatch.setattr(DumpHistory, "_take", slow)
    while True:
        answer = dumps.ask(begin, end, 2)
        taken += sum(point.msgs_in for point in answer.points)
        told.append(sum(point.lines for point in answer.points))
        if answer.partial_up_to is None:
            break
        assert all(point.ts < answer.partial_up_to for point in answer.points)
        begin = answer.partial_up_to
    assert told == [2, 2, 2, 2, 2]
    assert taken == 900


def test_an_answer_has_room_for_so_many_incidents(
    dumps: Dumps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dump_history, "MAX_INCIDENTS", 3)
    states = ["in_sync", "disconnected"] * 10
    dumps.write(*(line(T0 + 5_000 * n, n + 1, state) for n, state in enumerate(states)))
    answer = dumps.ask(T0, T0 + 100_000)
    assert answer.partial_up_to == T0 + 35_000
    assert [each.from_ - T0 for each in answer.incidents] == [5_000, 15_000, 25_000]


def test_an_interval_has_room_for_a_late_line(dumps: Dumps) -> None:
    assert dumps.ask(T0, T0 + 60_000).step == 10_000
    assert dumps.ask(T0, T0 + 60_001, 2).step == 30_001


def test_the_worst_of_an_interval_stays(dumps: Dumps) -> None:
    dumps.write(line(T0, 1, "disconnected"), line(T0 + 5_000, 2))
    (point,) = dumps.ask(T0, T0 + 10_000).points
    assert not point.replicas["b:1"].in_sync


def test_incidents_of_before_are_not_told_and_gaps_end_them(dumps: Dumps) -> None:
    early = [line(T0 + 5_000 * n, n + 1, "disconnected" if n == 1 else "in_sync") for n in range(8)]
    away = [line(T0 + 40_000, 9, "disconnected"), line(T0 + 80_000, 10, "disconnected")]
    dumps.write(*early, *away)
    assert dumps.ask(T0 + 30_000, T0 + 120_000).incidents == [
        DumpIncident(replica="", from_=T0 + 40_000, to=T0 + 80_000, state="unknown"),
        DumpIncident(replica="b:1", from_=T0 + 40_000, to=T0 + 40_000, state="disconnected"),
        DumpIncident(replica="", from_=T0 + 80_000, to=None, state="unknown"),
        DumpIncident(replica="b:1", from_=T0 + 80_000, to=T0 + 80_000, state="disconnected"),
    ]


def test_other_buckets_are_no_difference(dumps: Dumps) -> None:
    other = {"ack_latency": {"le": [0.2], "counts": [9, 9], "sum": 0.0}}
    dumps.write(line(T0, 1), line(T0 + 5_000, 2, **other))
    (point,) = dumps.ask(T0, T0 + 10_000).points
    assert point.ack_latency.counts == []


def test_a_bad_line_counts_once_though_its_minute_has_two_lives(dumps: Dumps) -> None:
    first = dumps.write(*steady(T0, 2), packed=False)
    first.write_bytes(b"?\n" + first.read_bytes())
    dumps.write(*steady(T0 + 20_000, 2, boot=1))
    assert dumps.ask(T0, T0 + 60_000).bad_lines == 1


def failover(dumps: Dumps) -> None:
    """They led until T0 + 40 s, and we followed; then we lead."""
    dumps.write(*steady(T0, 8, boot=0, host=THEIRS, broker_id=0))
    dumps.write(*steady(T0, 6, boot=1, host=OURS, broker_id=1, role="SLAVE"), broker_id=1)
    dumps.write(*steady(T0 + 40_000, 4, boot=2, host=OURS, broker_id=0))


def test_lines_under_a_former_broker_id_are_told_and_those_of_others_are_not(dumps: Dumps) -> None:
    failover(dumps)
    answer = dumps.ask(T0, T0 + 60_000, 6, is_shared=True)
    assert [point.broker_id for point in answer.points] == [1, 1, 1, None, 0, 0]
    assert [point.role for point in answer.points[:5:2]] == ["SLAVE", "SLAVE", "SYNC_MASTER"]
    assert sum(point.lines for point in answer.points) == 6 + 4
    assert [(one.brokerId, one.from_ - T0, one.to - T0, one.end) for one in answer.lives] == [
        (1, 0, 25_000, "killed"),
        (0, 40_000, 55_000, None),
    ]


def test_in_a_directory_of_its_own_an_address_may_have_changed(dumps: Dumps) -> None:
    dumps.write(*steady(T0, 2, host=THEIRS))
    dumps.write(*steady(T0 + 10_000, 2, boot=1, host=THEIRS, broker_id=7), broker_id=7)
    ours = dumps.ask(T0, T0 + 20_000)
    assert [one.boot for one in ours.lives] == [BOOTS[0]]
    assert dumps.ask(T0, T0 + 20_000, is_shared=True).lives == []


def test_lines_without_a_host_are_those_of_the_id(dumps: Dumps) -> None:
    dumps.write(*steady(T0, 2))
    dumps.write(*steady(T0 + 10_000, 2, boot=1, broker_id=1), broker_id=1)
    answer = dumps.ask(T0, T0 + 20_000, is_shared=True)
    assert [one.boot for one in answer.lives] == [BOOTS[0]]


def test_a_life_that_is_not_ours_is_opened_once(
    dumps: Dumps, monkeypatch: pytest.MonkeyPatch
) -> None:
    for hour in range(3):
        first_seq = 1 + hour * 720
        lines = steady(T0 + hour * HOUR, 2, first_seq=first_seq, host=THEIRS, broker_id=1)
        dumps.write(*lines, broker_id=1)
    opened = []
    read = DumpLines._lines_of

    def noting(self: DumpLines, file: Any) -> Any:
        opened.append(file.path.name)
        return read(self, file)

    monkeypatch.setattr(DumpLines, "_lines_of", noting)
    assert dumps.ask(T0, T0 + 3 * HOUR).lives == []
    assert len(opened) == 1


@pytest.mark.parametrize("final", [True, False])
def test_how_a_life_ended_and_what_a_killed_one_had_answered(dumps: Dumps, final: bool) -> None:
    first = steady(T0, 3)
    first[-1] |= {"final": final}
    dumps.write(*first)
    ended = {"boot": BOOTS[0], "uncounted_ms": 3, "sync": {}, "sends": {"ok": 37, "refused": 2}}
    later = steady(T0 + 30_000, 2, boot=1)
    later[0] |= {} if final else {"ended": ended}
    dumps.write(*later)
    answer = dumps.ask(T0, T0 + 40_000, 4)
    assert [one.end for one in answer.lives] == ["in order" if final else "killed", None]
    assert [one.started for one in answer.lives] == [True, True]
    sends = [point.sends.get("ok", 0) for point in answer.points]
    # Each line counts ten more: two steps of the first life, and one of the second.
    assert sends == [10, 10, 0, 10 if final else 17]
    assert answer.points[3].sends.get("refused", 0) == (0 if final else 2)


def test_the_end_of_another_life_is_not_this_ones(dumps: Dumps) -> None:
    dumps.write(*steady(T0, 3))
    ended = {"boot": BOOTS[2], "sync": {}, "sends": {"ok": 1_000}}
    dumps.write(*steady(T0 + 30_000, 2, boot=1, ended=ended))
    assert sum(point.sends.get("ok", 0) for point in dumps.ask(T0, T0 + 40_000).points) == 30


def test_an_answer_has_room_for_so_many_lives(
    dumps: Dumps, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dump_history, "MAX_LIVES", 2)
    for number, boot in enumerate(BOOTS):
        dumps.write(line(T0 + 60_000 * number, 5, boot=number, boot_ts=boot))
    lives = dumps.ask(T0, T0 + 300_000).lives
    assert [one.boot for one in lives] == list(BOOTS[1:])
    assert not any(one.started for one in lives)
