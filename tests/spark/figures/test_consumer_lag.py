"""Consumer lag of a day: what runs of lines prove, and what is made of it.

Ten minutes with a line each 5.3 s, none of them at an edge, written by what day_groups.py says that
a broker counts of pauses that a person can read.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from spark.config.objectives import ConsumerLag, Objective, SlaConfig
from spark.dumps.dump_line import BadLineError, FileLines, decode_groups, decode_line
from spark.figures import consumer_lag
from spark.figures.consumer_lag import Lags, consumer_lags
from spark.figures.criteria import Criterion
from spark.figures.lag_criteria import lag_criteria
from spark.figures.report_data import BREACHED, INSUFFICIENT, MET
from spark.figures.sample_stream import read_samples
from spark.figures.verdicts import judged
from spark.reported_day import Day
from tests.spark.core_tables import core_tables
from tests.spark.day_events import Life as TrueLife
from tests.spark.day_events import Span, Story
from tests.spark.day_groups import AGE_LE, MESSAGES_LE, Consumer, Counted
from tests.spark.dump_lines_builder import DATE, T0, Life, Line, write_dump

W0 = T0 + 36_000_000
DAY = Day(DATE, W0, W0 + 600_000)
S = 1_000


def counted(consumers: list[Consumer], since_ms: int) -> Counted:
    """By a life that began at `since_ms` of the window."""
    story = Story(0, "b", W0, DAY.w1_ms, 5_000, 0, 0, 0, False, consumers=consumers)
    return Counted(story, TrueLife(W0 + since_ms, 1 << 60, True, 0, 0, "", 0, 0))


def lines_of(
    *consumers: Consumer,
    change: Callable[[Line], None] = lambda _: None,
    since_ms: int = -60_000,
    until_ms: int = 605_000,
) -> list[Line]:
    """One life with a line every 5.3 s."""
    life, counter = Life(start_ms=W0 + since_ms, marks=True), counted(list(consumers), since_ms)
    found = []
    for ms in range(since_ms + 7_100, until_ms + 1, 5_300):
        line = life.line(W0 + ms, groups=counter.groups(W0 + ms))
        change(line)
        found.append(line)
    return found


def pausing(*pauses: Span, name: str = "g", every_ms: int = 10, **ends: int) -> Consumer:
    """Pauses and ends in seconds of the window."""
    spans = [(W0 + a * S, W0 + b * S) for a, b in pauses]
    return Consumer(name, every_ms, spans, **{key: W0 + at * S for key, at in ends.items()})


def lags_of(lines: Iterable[Line], untold: int | None = None) -> Lags:
    """`untold`: the place of a sample that nobody wrote."""
    by_date: dict[datetime.date, list[bytes]] = {}
    for line in lines:
        date = datetime.datetime.fromtimestamp(line["ts"] / 1000, datetime.UTC).date()
        by_date.setdefault(date, []).append(json.dumps(line).encode())
    samples = read_samples([FileLines("f", *one) for one in by_date.items()], DAY)
    assert not samples.bad
    if untold is not None:
        samples.masters.samples[untold].is_line = False
    return consumer_lags(samples.masters, DAY)


def ages(row: dict[str, Any], bound_ms: int) -> tuple[int, int, int]:
    """Within, beyond, unknown."""
    place = AGE_LE.index(bound_ms)
    return tuple(row[f"age_{side}_ms"][place] for side in ("within", "beyond", "unknown"))


def messages(row: dict[str, Any], bound: int) -> tuple[int, int, int]:
    place = MESSAGES_LE.index(bound)
    return tuple(row[f"messages_{side}_ms"][place] for side in ("within", "beyond", "unknown"))


def test_a_day_without_a_pause_is_known_whole() -> None:
    (row,) = lags_of(lines_of(pausing())).rows
    assert (row["consumer_group"], row["topic"], row["lines"]) == ("g", "T", 114)
    assert (row["messages_max"], row["age_max_ms"], row["absent_s"]) == (0, 0, 0)
    assert [ages(row, bound) for bound in AGE_LE] == [(600_000, 0, 0)] * len(AGE_LE)
    assert [messages(row, bound) for bound in MESSAGES_LE] == [(600_000, 0, 0)] * len(MESSAGES_LE)


def test_a_pause_of_two_minutes() -> None:
    (row,) = lags_of(lines_of(pausing((100, 220)))).rows
    within, beyond, unknown = ages(row, 60_000)
    assert (within + beyond + unknown, unknown <= 1_000) == (600_000, True)
    assert 59_000 <= beyond <= 60_000
    # It had 1,000 messages after 10 s.
    within, beyond, unknown = messages(row, 1_000)
    assert 108_000 <= beyond <= 110_000 <= beyond + unknown
    assert row["messages_max"] > 11_000


@pytest.mark.parametrize("share", [2, 7])
def test_lost_lines_lose_nothing(share: int) -> None:
    lines = lines_of(pausing((100, 220)))
    whole, some = (lags_of(some).rows[0] for some in (lines, lines[::share]))
    assert ages(some, 60_000)[1] == ages(whole, 60_000)[1]
    is_told = lines[::share][-1]["ts"] >= DAY.w1_ms
    assert ages(some, 60_000)[2] - ages(whole, 60_000)[2] <= (0 if is_told else 5_000 * share)


def test_over_an_edge_of_the_window_only_what_is_sure_counts() -> None:
    """A pause began long before the window, and one goes on behind it."""
    (row,) = lags_of(lines_of(pausing((-50, 2), (500, 700)))).rows
    assert row["age_max_ms"] > 90_000
    within, beyond, unknown = ages(row, 10_000)
    assert within + beyond + unknown == 600_000
    assert 90_000 <= beyond <= 92_000
    assert beyond + unknown >= 92_000


def test_time_before_the_first_look_and_behind_the_last_line_is_unknown() -> None:
    (row,) = lags_of(lines_of(pausing(), since_ms=100_000, until_ms=400_000)).rows
    assert ages(row, 10_000) == (292_000, 0, 308_000)


def test_a_restart_is_unknown_and_no_more() -> None:
    first = lines_of(pausing(), until_ms=300_000)
    life = Life(start_ms=W0 + 301_000, marks=True, boot="2" * 16, machine_ms=W0 - 60_000)
    life.prev_boot, life.prev_seq = first[-1]["boot"], first[-1]["seq"]
    counter = counted([pausing()], 301_000)
    second = [
        life.line(W0 + ms, groups=counter.groups(W0 + ms)) for ms in range(305_000, 605_001, 5_000)
    ]
    (row,) = lags_of(first + second).rows
    within, beyond, unknown = ages(row, 10_000)
    assert (within + unknown, beyond) == (600_000, 0)
    assert 8_000 <= unknown <= 9_000


def test_a_group_that_came_and_one_that_went() -> None:
    found = lags_of(
        lines_of(pausing((0, 900), name="new", since=200), pausing(name="old", until=300))
    )
    new, old = found.rows
    assert 195 <= new["absent_s"] <= 201
    assert 295 <= old["absent_s"] <= 301
    assert ages(new, 3_600_000)[2] <= 6_000, "the time in which it came"
    assert ages(old, 10_000)[1] == 0
    assert sum(ages(old, 10_000)) == 600_000 - old["absent_s"] * 1_000


def test_what_lines_leave_out_is_not_absent() -> None:
    def leave_out(line: Line) -> None:
        line["groups"]["left_out"] = 3

    found = lags_of(lines_of(pausing(name="new", since=200), change=leave_out))
    assert (found.left_out, found.lines, found.rows[0]["absent_s"]) == (3, 114, 0)
    assert ages(found.rows[0], 10_000)[2] >= 199_000


def test_a_clock_that_was_set_proves_nothing_of_that_moment() -> None:
    def set_back(line: Line) -> None:
        if line["ts"] >= W0 + 300_000:
            line["ts"] -= 100_000

    (row,) = lags_of(lines_of(pausing(), change=set_back)).rows
    # Twice 100 s have been shown as one, and what was hidden may have been anything.
    assert ages(row, 10_000)[2] >= 100_000


def test_a_clock_that_was_set_forward_leaves_a_hole() -> None:
    def set_forward(line: Line) -> None:
        if line["ts"] >= W0 + 300_000:
            line["ts"] += 100_000

    (row,) = lags_of(lines_of(pausing(), change=set_forward)).rows
    assert 100_000 <= ages(row, 10_000)[2] <= 106_000


def test_a_row_that_is_away_for_a_while() -> None:
    def take_away(line: Line) -> None:
        if W0 + 200_000 <= line["ts"] < W0 + 300_000:
            line["groups"]["rows"] = []

    (row,) = lags_of(lines_of(pausing(), change=take_away)).rows
    assert 85 <= row["absent_s"] <= 100
    assert sum(ages(row, 10_000)) + row["absent_s"] * 1_000 == 600_000


@pytest.mark.parametrize("rest", [0, 1])
def test_two_lines_have_to_tell_all_groups(rest: int) -> None:
    def leave_out(line: Line) -> None:
        line["groups"]["left_out"] = int(line["seq"] % 2 == rest)

    (row,) = lags_of(lines_of(pausing(since=200), change=leave_out)).rows
    assert row["absent_s"] == 0


def test_a_machine_that_slept_while_its_clock_was_set_back() -> None:
    def sleep(line: Line) -> None:
        asleep_ms = 100_000 if line["ts"] >= W0 + 300_000 else 0
        line |= {"machine_boot": "m", "uptime": line["mono"] + asleep_ms}

    (row,) = lags_of(lines_of(pausing(), change=sleep)).rows
    assert 105_000 <= ages(row, 10_000)[2] <= 107_000


def test_two_masters_tell_of_no_more_than_the_window() -> None:
    def other(line: Line) -> None:
        line |= {"boot": "f" * 16, "broker_id": 3, "host": "10.0.0.9:10911"}

    lines = lines_of(pausing()) + lines_of(pausing(), since_ms=200_000, change=other)
    (row,) = lags_of(lines).rows
    assert ages(row, 10_000)[0] <= 600_000


def test_counters_of_a_fast_clock_count_no_more_than_the_window() -> None:
    def hurry(line: Line) -> None:
        line["mono"] = 1_000_000 + (line["mono"] - 1_000_000) * 201 // 200
        for row in line["groups"]["rows"]:
            row["age_within"] = [n * 201 // 200 for n in row["age_within"]]

    (row,) = lags_of(lines_of(pausing(), change=hurry)).rows
    assert 595_000 <= ages(row, 10_000)[0] <= 600_000


def test_before_a_life_of_which_nothing_is_known_a_day_is_hidden() -> None:
    def name_another(line: Line) -> None:
        line |= {"prev_boot": "e" * 16, "prev_seq": 7}

    (row,) = lags_of(lines_of(pausing(), since_ms=100_000, change=name_another)).rows
    assert ages(row, 10_000)[2] >= 86_400_000


def test_what_nobody_wrote_tells_nothing() -> None:
    lines = lines_of(pausing())
    whole, some = lags_of(lines).rows[0], lags_of(lines, untold=50).rows[0]
    assert some["lines"] == whole["lines"] - 1
    assert ages(some, 10_000)[2] >= 10_000


def test_counters_that_fall_begin_anew() -> None:
    def lose(line: Line) -> None:
        if line["ts"] >= W0 + 300_000:
            for row in line["groups"]["rows"]:
                row["age_within"] = [max(0, n - 300_000) for n in row["age_within"]]

    (row,) = lags_of(lines_of(pausing(), change=lose)).rows
    assert 594_000 <= ages(row, 10_000)[0] < 600_000
    assert sum(ages(row, 10_000)) == 600_000


@pytest.mark.parametrize("kind", ["age", "messages"])
@pytest.mark.parametrize("side", ["within", "beyond"])
@pytest.mark.parametrize("more", [1 << 60, 5_000])
def test_counters_of_more_time_than_passed_prove_nothing(kind: str, side: str, more: int) -> None:
    def forge(line: Line) -> None:
        if line["ts"] >= W0 + 300_000:
            for row in line["groups"]["rows"]:
                row[f"{kind}_{side}"] = [n + more for n in row[f"{kind}_{side}"]]

    (row,) = lags_of(lines_of(pausing(), change=forge)).rows
    for within, beyond, unknown in (ages(row, 10_000), messages(row, 1_000)):
        assert within < 12_000, "over the edges of the window runs are their own"
        assert (beyond, within + unknown) == (0, 600_000)


def test_lines_of_two_brokers_and_in_another_order() -> None:
    """Two lives wrote as master at once: the first one told of the time, what the other one says
    of it does not count twice, nor does it hide anything."""
    one = lines_of(pausing())
    other = Life(start_ms=W0 + 100_050, marks=True, boot="2" * 16)
    counter = counted([pausing((0, 900))], 100_050)
    second = [
        other.line(W0 + ms, groups=counter.groups(W0 + ms)) for ms in range(105_050, 500_000, 5_000)
    ]
    mixed = sorted(one + second, key=lambda line: line["ts"], reverse=True)
    (row,) = lags_of(mixed).rows
    within, beyond, unknown = ages(row, 10_000)
    assert within + beyond + unknown >= 600_000
    assert (within, beyond) == (600_000, 0), "the day is in doubt for two masters"


def test_other_bounds_are_unknown() -> None:
    def update(line: Line) -> None:
        if line["ts"] < W0 + 300_000:
            line["groups"]["age_le"] = [7] * len(AGE_LE)

    (row,) = lags_of(lines_of(pausing(), change=update)).rows
    assert 295_000 <= ages(row, 10_000)[0] <= 300_000
    assert ages(row, 10_000)[1] == 0


def test_more_names_than_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_lag, "MOST_NAMES", 1)
    found = lags_of(lines_of(pausing(name="a"), pausing(name="b")))
    assert (len(found.rows), found.left_out) == (1, 1)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"groups": 7}, "groups: Expected"),
        ({"left_out": -1}, "groups: Expected"),
        ({"rows": [{}]}, "groups: Object missing"),
        ({"age_le": [1]}, "groups: needs as many counters of ages as bounds"),
        ({"messages_le": [1]}, "groups: needs as many counters of messages as bounds"),
    ],
)
def test_bad_lines(change: dict[str, Any], words: str) -> None:
    (line,) = lines_of(pausing(), until_ms=-52_000)
    if "groups" in change:
        line |= change
    else:
        line["groups"] |= change
    with pytest.raises(BadLineError, match=f"^{words}"):
        decode_line(json.dumps(line).encode(), T0)


def test_lines_of_version_1_tell_of_no_groups() -> None:
    (line,) = lines_of(pausing(), until_ms=-52_000)
    line["v"] = 1
    assert decode_groups(decode_line(json.dumps(line).encode(), T0)) is None


# -- verdicts --------------------------------------------------------------------------------


def judge(lags: Lags, percent: float | None = None, **promise: Any) -> list[Criterion]:
    wanted = ConsumerLag(**({"group": "g", "percent": percent} | promise))
    asked = Objective("o", availability_percent=90.0, consumer_lag=(wanted,))
    return list(lag_criteria(asked, lags))


@pytest.mark.parametrize(
    ("percent", "verdict", "words"),
    [
        (90.0, MET, "above 1 min for 59.4 s of 1 min allowed, objective 90 % of the time"),
        (None, MET, "above 1 min for 59.4 s of 1 min allowed, objective 90 % of the time"),
        (90.06, INSUFFICIENT, "above 1 min: not proved, 59.4 s and 0.6 s unknown of 59.6 s all"),
        (91.0, BREACHED, "above 1 min for 59.4 s of 54 s allowed, objective 91 % of the time"),
        (100.0, BREACHED, "above 1 min for 59.4 s of 0 s allowed"),
    ],
)
def test_a_promise_of_an_age(percent: float | None, verdict: str, words: str) -> None:
    lags = lags_of(lines_of(pausing((100, 220))))
    row = lags.rows[0]
    place = AGE_LE.index(60_000)
    row["age_beyond_ms"][place], row["age_unknown_ms"][place] = 59_400, 600
    (found,) = judge(lags, percent, seconds=60)
    assert found.verdict == verdict
    assert found.text.startswith(f"consumer lag of g in T {words}")


def test_a_promise_of_messages_and_of_an_age() -> None:
    lags = lags_of(lines_of(pausing((100, 115))))
    age, some = judge(lags, seconds=10, messages=1_000, percent=99.5)
    assert (age.verdict, some.verdict) == (BREACHED, BREACHED)
    assert "above 1,000 messages for" in some.text
    assert {each.verdict for each in judge(lags, seconds=60, messages=100_000, percent=100)} == {
        MET
    }


def test_names_of_clients_do_no_harm() -> None:
    lags = lags_of(lines_of(pausing(name="a\nb\x1b[31m")))
    (found,) = judge(lags, seconds=10, group="*", topic="T", percent=50)
    assert found.text.startswith("consumer lag of a\\u000ab\\u001b[31m in T above 10 s")


def test_time_in_which_it_was_not_there_is_not_asked() -> None:
    lags = lags_of(lines_of(pausing((0, 900), since=500)))
    (found,) = judge(lags, seconds=600)
    assert "of 10.2 s allowed" in found.text


def test_nobody_is_meant() -> None:
    (found,) = judge(Lags(), seconds=10)
    assert found.verdict == INSUFFICIENT
    assert "no line tells of consumer groups (metricsDumpGroups" in found.text
    lags = lags_of(lines_of(pausing()))
    for promise in ({"group": "h"}, {"topic": "U"}, {"group": "G"}):
        (found,) = judge(lags, seconds=10, **promise)
        assert (found.verdict, "no line has such" in found.text) == (INSUFFICIENT, True)
    lags.left_out = 2
    (found,) = judge(lags, seconds=10, group="h")
    assert "2 consumer groups in topics have no row" in found.text


@pytest.mark.parametrize(
    ("promise", "verdicts"),
    [({}, [MET]), ({"group": "g*"}, [MET, INSUFFICIENT]), ({"topic": "T|U"}, [MET, INSUFFICIENT])],
)
def test_those_without_a_row_may_be_meant_by_a_pattern(
    promise: dict[str, str], verdicts: list[str]
) -> None:
    lags = lags_of(lines_of(pausing()))
    lags.left_out = 2
    found = judge(lags, seconds=10, **({"topic": "T"} | promise))
    assert [each.verdict for each in found] == verdicts


@pytest.mark.parametrize(
    ("promise", "words"),
    [
        ({"group": "g|h"}, "consumer lag of g|h in * not known of all: no line tells of h"),
        ({"topic": "T|U"}, "consumer lag of g in T|U not known of all: no line tells of U"),
        ({"group": "g|h*", "topic": "T|?"}, None),
    ],
)
def test_each_one_that_is_named_needs_a_row(promise: dict[str, str], words: str | None) -> None:
    found = judge(lags_of(lines_of(pausing())), seconds=10, **promise)
    assert [each.verdict for each in found] == [MET, *([INSUFFICIENT] if words else [])]
    assert [each.text for each in found[1:]] == [words][: len(found) - 1]


def test_bounds_that_lines_do_not_have() -> None:
    lags = lags_of(lines_of(pausing()))
    (found,) = judge(lags, seconds=30)
    assert found.verdict == INSUFFICIENT
    assert found.text.endswith("the lines count by other bounds (10 s, 1 min)")
    (found,) = judge(lags, messages=10_000_000)
    assert found.text.endswith("the lines count by other bounds (100,000 messages)")


def test_of_many_groups_some_are_named() -> None:
    lags = lags_of(lines_of(*(pausing((100, 300), name=f"g{n}") for n in range(5))))
    found = judge(lags, seconds=10, group="g?", percent=99)
    assert len(found) == 4
    assert {each.verdict for each in found} == {BREACHED}
    assert found[-1].text == "consumer lag of g? in *: 2 promises more breached"


def test_clients_ask_for_it_while_a_replica_is_copied() -> None:
    asked = Objective("o", consumer_lag=(ConsumerLag("g", seconds=10),), sync_ok_given=True)
    row = {"excluded_s": 600, "window_s": 600, "exclusions": [{"reason": "first copy"}]}
    lags = lags_of(lines_of(pausing((100, 300))))
    assert judged(row, asked, None, lags=lags)[0] == BREACHED
    row["exclusions"] = [{"reason": "new disks"}]
    assert judged(row, asked, None, lags=lags)[0] == MET


def test_the_table_and_the_replicas_verdict(tmp_path: Path) -> None:
    write_dump(tmp_path, lines_of(pausing((100, 300)), pausing(name="h")))
    promise = ConsumerLag("g", seconds=60, percent=99)
    tables = core_tables([tmp_path], DAY, SlaConfig((Objective("o", consumer_lag=(promise,)),)))
    late, other = tables["consumer_lag"]
    assert (late["cluster"], late["broker"], late["verdict"]) == ("c", "b", BREACHED)
    assert (other["verdict"], other["reasons"]) == (None, [])
    (replica,) = tables["replica_days"]
    assert replica["verdict"] == BREACHED
    assert replica["reasons"] == late["reasons"]
    assert tables["group_days"][0]["verdict"] == BREACHED
