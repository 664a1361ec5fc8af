"""All sends, slow sends and a group's availability, each from events that a person can read.

Sends are a list of moments, results and latencies; lines count them, and the truth is counted from
the list. A group's time is what its replicas' pieces say of each second.
"""

from __future__ import annotations

import bisect
import datetime
import json
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from spark.config.objectives import GroupAvailability, Objective, SlaConfig, SlowSends
from spark.dumps.dump_line import FileLines
from spark.figures.answer_bounds import answer_bounds
from spark.figures.contract_criteria import contract_criteria
from spark.figures.criteria import Criterion
from spark.figures.group_availability import group_availability
from spark.figures.group_day import GroupFigures, group_columns
from spark.figures.report_data import BREACHED, INSUFFICIENT, MET
from spark.figures.result_tables import TABLES
from spark.figures.sample_stream import read_samples
from spark.figures.time_pieces import (
    BAD,
    EXCLUDED,
    GOOD,
    UNKNOWN,
    Extra,
    Piece,
    ReplicaTime,
)
from spark.figures.two_masters import Ancestry
from spark.reported_day import Day
from spark.vocabulary import FIRST_COPY, NOT_YET
from tests.spark.core_tables import core_tables
from tests.spark.dump_lines_builder import DATE, T0, Life, Line, replica, sends, sync, write_dump

W0 = T0 + 36_000_000
DAY = Day(DATE, W0, W0 + 600_000)
LE_MS = (1, 3, 5, 7, 10, 100, 1000, 2000, 3000)
RESULTS = ("ok", "flush_slave_timeout", "slave_not_available", "flush_disk_timeout", "refused")


class Send(NamedTuple):
    """Answered at `ms` of the window, `late` ms after the request."""

    ms: int
    result: str = "ok"
    late: float = 2.0


def counted(events: Iterable[Send], since_ms: int, until_ms: int) -> Any:
    """The counters of a life that began at `since_ms`, as its line at `until_ms` shows them."""
    some = [each for each in events if since_ms <= each.ms < until_ms]
    counts = [0] * (len(LE_MS) + 1)
    for each in some:
        counts[bisect.bisect_left(LE_MS, each.late)] += 1
    results = [each.result for each in some]
    latency = {"le": [bound / 1000 for bound in LE_MS], "counts": counts, "sum": 0.0}
    return sends(latency=latency, **{name: results.count(name) for name in RESULTS})


def group_row(lines: Iterable[Line]) -> dict[str, Any]:
    """Columns of group_days."""
    by_date: dict[datetime.date, list[bytes]] = {}
    for line in lines:
        date = datetime.datetime.fromtimestamp(line["ts"] / 1000, datetime.UTC).date()
        by_date.setdefault(date, []).append(json.dumps(line).encode())
    samples = read_samples([FileLines("f", *one) for one in by_date.items()], DAY)
    assert not samples.bad
    return dict.fromkeys(TABLES["group_days"]) | group_columns(GroupFigures(samples, DAY))


def life_lines(
    events: Sequence[Send], *, first_ms: int = -60_000, last_ms: int = 605_000, **life: Any
) -> list[Line]:
    """One life with a line every 5 s."""
    one = Life(**({"start_ms": W0 + first_ms, "marks": True} | life))
    return [
        one.line(W0 + ms, sends=counted(events, first_ms, ms))
        for ms in range(first_ms + 5_000, last_ms + 1, 5_000)
    ]


def judge(lines: Iterable[Line], **asked: Any) -> Criterion:
    (found,) = contract_criteria(Objective("o", **asked), group_row(lines), None)
    return found


def spread(count: int, **fields: Any) -> list[Send]:
    """So many sends, evenly in the window but for its last lines, none at the moment of one."""
    return [Send(1_001 + n * 593_000 // count, **fields) for n in range(count)]


@pytest.mark.parametrize(
    ("failed", "result", "verdict", "words"),
    [
        (0, "refused", MET, "sends ok 100 %, objective 99 %: 0 of 1000 sends"),
        (10, "refused", MET, "sends ok 99 %, objective 99 %: 10 of 1000 sends"),
        (11, "refused", BREACHED, "sends ok 98.9 % < 99 %: 11 of 1000 sends were not answered"),
        (11, "flush_slave_timeout", BREACHED, "sends ok 98.9 % < 99 %: 11 of 1000"),
    ],
)
def test_the_share_of_sends_that_are_answered_well(
    failed: int, result: str, verdict: str, words: str
) -> None:
    events = spread(1_000 - failed) + spread(failed, result=result)
    found = judge(life_lines(events), sends_ok_percent=99.0)
    assert found.verdict == verdict
    assert (found.told if verdict == MET else found.breach).startswith(words)


@pytest.mark.parametrize(
    ("ms", "slow", "late", "verdict"),
    [
        (100, 10, 150.0, MET),
        (100, 11, 150.0, BREACHED),
        (100, 11, 100.0, MET),  # at the bound is not slower than it
        (3000, 11, 9000.0, BREACHED),
        # No bound: those between 10 and 100 ms may be on either side.
        (50, 11, 150.0, BREACHED),
        (50, 11, 20.0, INSUFFICIENT),
        (50, 10, 20.0, MET),
        (50, 11, 8.0, MET),
        (9000, 11, 4000.0, INSUFFICIENT),
        (9000, 11, 2500.0, MET),
        (0.5, 1000, 2.0, BREACHED),
        (0.5, 1000, 0.2, INSUFFICIENT),
    ],
)
def test_the_share_of_slow_sends(ms: float, slow: int, late: float, verdict: str) -> None:
    events = spread(1_000 - slow) + spread(slow, late=late)
    found = judge(life_lines(events), sends_slower_than=SlowSends(ms, 1.0))
    assert found.verdict == verdict, found


def test_a_limit_that_is_no_bound_names_its_neighbours() -> None:
    found = judge(life_lines(spread(100, late=20.0)), sends_slower_than=SlowSends(50, 1.0))
    assert found.gap == (
        "sends slower than 50 ms not proved, objective 1 %: 0 of 0, and 100 more may have been;"
        " the lines count by other bounds (10 ms and 100 ms)"
    )


def test_lines_that_do_not_count_sends_prove_nothing() -> None:
    old = [line | {"v": 1} for line in life_lines(spread(1_000))]
    found = judge(old, sends_ok_percent=99.0)
    assert (found.verdict, found.gap) == (INSUFFICIENT, "sends ok not known, objective 99 %")
    upgraded = [line | {"v": 1} for line in life_lines(spread(500), last_ms=300_000)]
    end = upgraded[-1] | {"final": True}
    after = life_lines(
        [each for each in spread(1_000) if each.ms > 300_000],
        first_ms=301_000,
        boot="ab" * 8,
        prev_boot=end["boot"],
        prev_seq=end["seq"],
    )
    found = judge([*upgraded[:-1], end, *after], sends_ok_percent=99.0)
    assert found.verdict == INSUFFICIENT
    assert found.gap.endswith("lines are of a version that does not count sends")


def test_nobody_sent() -> None:
    row = group_row(life_lines([]))
    asked = Objective("o", sends_ok_percent=99.0, sends_slower_than=SlowSends(100, 1.0))
    assert list(contract_criteria(asked, row, None)) == []


def test_without_a_sample_nothing_is_known() -> None:
    asked = Objective("o", sends_ok_percent=99.0, sends_slower_than=SlowSends(100, 1.0))
    verdicts = [each.verdict for each in contract_criteria(asked, None, None)]
    assert verdicts == [INSUFFICIENT, INSUFFICIENT]


def test_lost_lines_hide_no_send() -> None:
    """The counters go on: what was between two lines is counted by the second."""
    events = spread(989) + [Send(300_100 + n, "refused") for n in range(11)]
    lines = [line for line in life_lines(events) if not 290_000 < line["ts"] - W0 < 320_000]
    assert judge(lines, sends_ok_percent=99.0).verdict == BREACHED


def test_a_kill_hides_what_was_refused_and_the_log_bounds_the_rest() -> None:
    """After the last line 2 s of refusals; the log shows that nothing was stored."""
    first = Life(start_ms=W0 - 60_000, marks=True)
    lines = [
        first.line(W0 + ms, sends=counted(spread(1_000), -60_000, ms), max_offset=5_000)
        for ms in range(-55_000, 300_001, 5_000)
    ]
    after = first.restarted(W0 + 310_000)
    lines += [
        after.line(W0 + ms, sends=counted([], 310_000, ms), max_offset=5_000)
        for ms in range(310_000, 605_001, 5_000)
    ]
    row = group_row(lines)
    assert row["sends_ok_least"] == row["sends_ok_most"] > 490
    assert row["sends_failed_least"] == 0
    assert row["sends_failed_most"] >= 2_000_000
    assert judge(lines, sends_ok_percent=99.0).verdict == INSUFFICIENT


def killed_lines(refused: int, *, uncounted: int = 0, **changes: Any) -> list[Line]:
    """A master is killed 4 s after its last line, in which it refused so many; its next life tells
    what it had counted, but for `uncounted` of its last good answers. 2,000 sends in all."""
    some = spread(2_000, late=0.5)
    events = [*some, *(Send(300_500 + n, "refused") for n in range(refused))]
    machine = {"machine_boot": "ab" * 8, "uptime": 1}
    first = Life(start_ms=W0 - 60_000, marks=True, fields=machine)
    stored = 91 * 20
    lines = [
        first.line(W0 + ms, sends=counted(events, -60_000, ms), max_offset=5_000)
        for ms in range(-55_000, 300_001, 5_000)
    ]
    good = [each for each in events if each.ms < 304_000 and each.result == "ok"]
    lost = good[len(good) - uncounted :]
    end = {"boot": first.boot, "uncounted_ms": 64, "sync": sync()}
    end["sends"] = counted([e for e in events if e not in lost], -60_000, 304_000)
    after = first.restarted(W0 + 305_000)
    more = [
        after.line(W0 + ms, sends=counted(events, 305_000, ms), max_offset=5_000 + stored)
        for ms in range(305_010, 605_011, 5_000)
    ]
    more[0] |= {"ended": end | changes}
    return lines + more


def test_a_killed_master_had_counted_what_it_refused() -> None:
    row = group_row(killed_lines(7))
    assert row["sends_failed_least"] == row["sends_failed_most"] == 7
    assert judge(killed_lines(7), sends_ok_percent=99.0).verdict == MET
    assert judge(killed_lines(40), sends_ok_percent=99.0).verdict == BREACHED


def test_what_a_killed_master_had_not_counted_yet_it_had_stored() -> None:
    row = group_row(killed_lines(7, uncounted=9))
    exact = group_row(killed_lines(7))["sends_ok_least"]
    assert row["sends_ok_least"] == exact - 9
    assert row["sends_ok_most"] == exact - 9 + 20, "the log grew by 20 records"
    assert row["sends_failed_most"] == 7


def test_remoting_that_was_killed_alone_had_not_counted_its_last_answers() -> None:
    """11 of 1,000 sends failed, which is too many; but 900 good ones may be in no counter."""
    events = spread(989) + spread(11, result="refused")
    lines = life_lines(events)
    for place, line in enumerate(lines):
        deaths = int(line["ts"] > W0 + 300_000)
        line["processes"] = [{"name": "remoting", "up": True, "restarts": deaths}]
        line["max_offset"] = 1_000 + 91 * 450 * min(max(place - 70, 0), 9)
    row = group_row(lines)
    assert row["sends_ok_least"] == 989
    assert row["sends_ok_most"] == 989 + 900
    assert judge(lines, sends_ok_percent=99.0).verdict == INSUFFICIENT
    assert judge(lines, sends_ok_percent=98.0).verdict == MET


@pytest.mark.parametrize(
    "changes", [{"boot": "cd" * 8}, {"sync": sync() | {"ok": 1}, "sends": sends()}]
)
def test_an_end_that_cannot_be_is_not_believed(changes: dict[str, Any]) -> None:
    assert judge(killed_lines(7, **changes), sends_ok_percent=99.0).verdict == INSUFFICIENT


def test_an_end_whose_latencies_fell_is_not_believed() -> None:
    """It would count answers of which no bucket says how late they were."""
    lines = killed_lines(7)
    assert judge(lines, sends_slower_than=SlowSends(100, 60.0)).verdict == MET
    after = next(place for place, line in enumerate(lines) if "ended" in line)
    end, told = lines[after]["ended"], lines[after - 1]["sends"]["latency"]["counts"]
    there = [place for place, count in enumerate(told) if count]
    assert there
    for place in there:
        counts = list(end["sends"]["latency"]["counts"])
        counts[place] = told[place] - 1
        latency = end["sends"]["latency"] | {"counts": counts}
        forged = killed_lines(7, sends=end["sends"] | {"latency": latency})
        assert judge(forged, sends_slower_than=SlowSends(100, 60.0)).verdict == INSUFFICIENT


def test_an_end_on_another_boot_of_the_machine_is_not_believed() -> None:
    lines = killed_lines(7)
    others = [line | {"machine_boot": "cd" * 8} if "ended" in line else line for line in lines]
    assert judge(others, sends_ok_percent=99.0).verdict == INSUFFICIENT


# -- random days -----------------------------------------------------------------------------------


def random_lines(rng: random.Random) -> tuple[list[Send], list[Line]]:
    """Lives that end by a stop or a kill, lines that are lost, some lives of version 1."""
    share, slow = rng.choice([0, 0.005, 0.02]), rng.choice([0, 0.005, 0.02])
    events, lines, at_ms = [], [], -60_000
    machine = {"machine_boot": "ab" * 8, "uptime": 1}
    life, end = Life(start_ms=W0 + at_ms, marks=True, fields=machine), 1_000
    ended: dict[str, Any] = {}
    while at_ms < 610_000:
        last_ms = rng.choice([610_000, rng.randrange(at_ms + 1, max(at_ms + 2, 610_000))])
        is_killed = rng.random() < 0.3
        life_events = [
            Send(
                rng.randrange(at_ms, last_ms),
                rng.choice(RESULTS[1:]) if rng.random() < share else "ok",
                rng.choice([20.0, 150.0]) if rng.random() < slow else 2.0,
            )
            for _ in range(rng.randrange(800))
        ]
        moments = list(range(at_ms + 5_000, last_ms, 5_000))
        moments += [last_ms] if last_ms < 610_000 and not is_killed else []
        for place, ms in enumerate(moments):
            stored = sum(each.ms < ms and each.result != "refused" for each in life_events)
            line = life.line(
                W0 + ms,
                sends=counted(life_events, at_ms, ms),
                final=ms == last_ms,
                max_offset=end + 91 * stored,
                bytes_in=91 * stored,
                **(ended if place == 0 else {}),
            )
            if rng.random() > 0.02:
                lines.append(line)
        events += life_events
        ended = ended_of(life.boot, life_events, at_ms, last_ms, rng) if rng.random() < 0.7 else {}
        end += 91 * sum(each.result != "refused" for each in life_events)
        at_ms = last_ms + rng.randrange(1, 20_000)
        life = life.restarted(W0 + at_ms, marks=rng.random() < 0.9)
    return [each for each in events if 0 <= each.ms < 600_000], lines


def ended_of(
    boot: str, events: Sequence[Send], at_ms: int, last_ms: int, rng: random.Random
) -> dict[str, Any]:
    """The counters at the end of a life, but for some good answers of its last quick turns."""
    good = sorted(each for each in events if each.result == "ok")
    lost = good[len(good) - rng.choice([0, 1, 5]) :] if good else []
    known = counted([each for each in events if each not in lost], at_ms, last_ms)
    return {"ended": {"boot": boot, "uncounted_ms": 64, "sync": sync(), "sends": known}}


@pytest.mark.parametrize("seed", range(200))
def test_the_truth_is_within_the_bounds_of_random_days(seed: int) -> None:
    rng = random.Random(seed)
    events, lines = random_lines(rng)
    if not lines:
        return
    by_date = [FileLines("f", DATE, [json.dumps(line).encode() for line in lines])]
    samples = read_samples(by_date, DAY)
    found = answer_bounds(samples.masters, Ancestry(samples), DAY)
    if not found.le:
        return
    ok = sum(each.result == "ok" for each in events)
    assert found.ok_least <= ok <= found.ok_most
    assert found.failed_least <= len(events) - ok <= found.failed_most
    buckets = [0] * (len(LE_MS) + 1)
    for each in events:
        buckets[bisect.bisect_left(LE_MS, each.late)] += 1
    for least, true, most in zip(found.least, buckets, found.most, strict=True):
        assert least <= true <= most + found.unmeasured
    row = dict.fromkeys(TABLES["group_days"]) | group_columns(GroupFigures(samples, DAY))
    slow = sum(each.late > 100 for each in events)
    truths = {
        "sends ok": ok >= 0.99 * len(events),
        "sends slower": slow <= 0.01 * len(events),
    }
    asked = Objective("o", sends_ok_percent=99.0, sends_slower_than=SlowSends(100, 1.0))
    for criterion in contract_criteria(asked, row, None):
        name = next(each for each in truths if criterion.told.startswith(each))
        assert criterion.verdict != (BREACHED if truths[name] else MET), (criterion, len(events))


# -- a group's availability ------------------------------------------------------------------------


WORDS = {"g": GOOD, "b": BAD, "u": UNKNOWN, "e": EXCLUDED, "n": EXCLUDED, "c": EXCLUDED}
REASONS = {"e": "CHG-1", "n": NOT_YET, "c": FIRST_COPY}


def time_of(text: str, *extras: Extra) -> ReplicaTime:
    """A letter for each minute of the window, joined to pieces."""
    pieces: list[Piece] = []
    for place, letter in enumerate(text):
        start, reason = W0 + place * 60_000, REASONS.get(letter, "")
        if pieces and (pieces[-1].quality, pieces[-1].reason) == (WORDS[letter], reason):
            pieces[-1].end_ms += 60_000
        else:
            pieces.append(Piece(start, start + 60_000, WORDS[letter], reason=reason))
    return ReplicaTime(pieces, list(extras))


def minutes(copies: int, *texts: str, **asked: Any) -> tuple[dict[str, float], str]:
    times = {f"b:{n}": time_of(text) for n, text in enumerate(texts, 1)}
    objective = Objective("o", group_availability=GroupAvailability(copies, **asked))
    row = group_availability(objective, times, DAY)
    assert row is not None
    found = {q: row[f"{q}_s"] / 60 for q in ("good", "bad", "unknown", "excluded")}
    assert sum(found.values()) == 10
    return {name: count for name, count in found.items() if count}, row["verdict"]


@pytest.mark.parametrize(
    ("copies", "texts", "expected", "verdict"),
    [
        # One replica is enough: each was out for a while, never both at once.
        (2, ["gggbbggggg", "ggggggbbgg"], {"good": 10}, MET),
        (2, ["gggbbggggg", "gggggbbbgg"], {"good": 10}, MET),
        (2, ["gggbbbgggg", "gggggbbbgg"], {"good": 9, "bad": 1}, BREACHED),
        # Both have to be there.
        (3, ["gggbbggggg", "ggggggbbgg"], {"good": 6, "bad": 4}, BREACHED),
        # Unknown of one, bad of the other: not proved.
        (2, ["gggbbggggg", "gggguugggg"], {"good": 9, "unknown": 1}, INSUFFICIENT),
        # One is proved bad: the other cannot make two.
        (3, ["gggbbggggg", "gggguugggg"], {"good": 7, "bad": 2, "unknown": 1}, BREACHED),
        # A replica is missing for good; where nobody saw anything it may have been there.
        (3, ["gggggggguu"], {"bad": 8, "unknown": 2}, BREACHED),
        # Maintenance of one: only where it decides.
        (2, ["eeeggggggg", "gbgggggggg"], {"good": 9, "excluded": 1}, MET),
        (2, ["eeeggggggg", "eeeggggggg"], {"good": 7, "excluded": 3}, MET),
        (3, ["eeegggbggg", "gbgggggggg"], {"good": 6, "bad": 2, "excluded": 2}, BREACHED),
        # What is copied for the first time, or did not exist yet, saves nothing.
        (2, ["nnnccggggg", "ggbgbggggg"], {"good": 8, "bad": 2}, BREACHED),
        (2, ["nnnccggggg"], {"good": 5, "excluded": 5}, MET),
    ],
)
def test_minutes_of_a_group(
    copies: int, texts: list[str], expected: dict[str, float], verdict: str
) -> None:
    assert minutes(copies, *texts) == (expected, verdict)


@pytest.mark.parametrize("seed", range(30))
def test_no_truth_of_the_replicas_contradicts_the_group(seed: int) -> None:
    """Whatever the unknown minutes were: never met where that was wrong."""
    rng = random.Random(seed)
    count, copies = rng.randrange(1, 5), rng.randrange(2, 5)
    true = ["".join(rng.choices("gb", [9, 1], k=10)) for _ in range(count)]
    seen = ["".join(c if rng.random() < 0.8 else "u" for c in text) for text in true]
    bad = sum(column.count("g") < copies - 1 for column in zip(*true, strict=True))
    found, verdict = minutes(copies, *seen, percent=90.0)
    assert found.get("bad", 0) <= bad <= found.get("bad", 0) + found.get("unknown", 0)
    assert verdict != (MET if bad > 1 else BREACHED)


def test_bad_time_that_the_clock_has_no_room_for_is_not_good() -> None:
    extra = Extra(W0 + 60_000, 60_000, "disconnected")
    times = {"b:1": time_of("gggggggggg", extra), "b:2": time_of("gggggggggg")}
    row = group_availability(Objective("o", group_availability=GroupAvailability()), times, DAY)
    assert row is not None
    assert (row["good_s"], row["unknown_s"], row["verdict"]) == (540, 60, INSUFFICIENT)


def test_a_group_has_a_row_and_its_replicas_the_reason(tmp_path: Path) -> None:
    """From dumps: b:1 out from 10:01 to 10:03, b:2 from 10:02 to 10:04: 60 s without a copy."""

    def rows(ms: int) -> list[Any]:
        out = {"b:1": (60_000, 180_000), "b:2": (120_000, 240_000)}
        return [
            replica(name, "disconnected" if begin < ms <= end else "in_sync")
            for name, (begin, end) in out.items()
        ]

    life = Life(start_ms=W0 - 60_000)
    moments = range(-5_000, 605_001, 5_000)
    write_dump(tmp_path, [life.line(W0 + ms, replicas=rows(ms)) for ms in moments])
    asked = Objective("o", availability_percent=50.0, group_availability=GroupAvailability(2, 95.0))
    tables = core_tables([tmp_path], DAY, SlaConfig((asked,)))
    (row,) = tables["group_availability"]
    assert (row["good_s"], row["bad_s"], row["replicas"]) == (540, 60, 2)
    assert (row["verdict"], row["budget_s"]) == (BREACHED, 30)
    text = "group availability 90 % < 95 %: 60 s bad of 30 s allowed".replace("60 s", "1 min")
    assert row["reason"] == text
    for day in tables["replica_days"]:
        assert (day["bad_s"], day["verdict"]) == (120, BREACHED)
        assert day["reasons"] == [text]
    assert tables["group_days"][0]["verdict"] == BREACHED
