"""The report against the truth: random days whose events are known at 1 ms (day_events.py, and
day_objectives.py for what is promised beside availability).

Whatever clocks, crashes, operators and disks do to the lines, a verdict is never better than the
truth and known bad time never less than what the counters prove. What the report may miss is
what docs/sla_report.md says that it may: 200 ms at each change of a state, and nothing else. Of
sends, data at risk, lag and metadata the truth lies between what the report says at least and at
most.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.sql import SparkSession

from tests.spark.both_ways import Question, plain_tables, spark_tables
from tests.spark.day_events import (
    CATCHING_UP,
    DATE,
    DISCONNECTED,
    LOOK_MS,
    MIDNIGHT,
    MINUTE,
    Story,
    clip,
    total,
    truth,
)
from tests.spark.day_generator import Day, proved_ms, random_day, whole_story
from tests.spark.day_groups import CONSUMER_LAG
from tests.spark.day_groups import LOOK_MS as GROUP_LOOK_MS
from tests.spark.day_objectives import CRITERIA, above, exposure, overlap_seen_ms, sent
from tests.spark.plain_lag import PlainLag
from tests.spark.plain_samples import Json, Tables, Window
from tests.spark.plain_verdicts import BREACHED, INSUFFICIENT, MET, PlainObjective

ALL_DAYS: Final = 1_080
MORE_DAYS: Final = 80
QUICK_DAYS: Final = 40
SPARK_DAYS: Final = 10
ALL_SPARK_DAYS: Final = 100
CLOCKS_MS: Final = 1_000
"""So much may the clocks of two hosts differ before lines of both are two masters."""
ROUNDING_MS: Final = 1.0
"""Of figures in seconds, and of budgets with 3 decimals."""


def question_of(days: list[Day], dumps: Path, window: Window) -> Question:
    """The report that a day (or several, as groups of one report) asks for."""
    objectives = [
        PlainObjective(
            day.story.name,
            broker=day.story.name,
            availability_percent=day.story.availability_percent,
            lag_seconds=day.story.limit_ms / 1000,
            min_coverage_percent=day.story.min_coverage_percent,
            **_further_criteria(day.story),
        )
        for day in days
    ]
    expect = [
        ("c", day.story.name, replica)
        for day in days
        if day.story.expects
        for replica in day.story.replicas
    ]
    return Question([dumps], window, [*objectives, PlainObjective()], expect)


def _further_criteria(story: Story) -> dict[str, Any]:
    """Of its objective, beside availability; sends of an ASYNC_MASTER are judged if it says so."""
    every = {
        "lag p99": {"lag_p99_seconds": story.lag_p99_ms / 1000},
        "sync ok": {"sync_ok_percent": story.sync_ok_percent},
        "rpo": {"rpo_bytes": story.rpo_bytes},
        "sends ok": {"sends_ok_percent": story.sends_ok_percent},
        "metadata age": {"metadata_age_seconds": story.metadata_age_ms / 1000},
        CONSUMER_LAG: {"consumer_lag": _promises(story)},
    }
    return {name: value for kind in story.asks for name, value in every[kind].items()}


def _promises(story: Story) -> tuple[PlainLag, ...]:
    """Of each of its consumer groups."""
    limits = story.lag_seconds, story.lag_messages, story.lag_percent
    return tuple(PlainLag(each.name, "T", *limits) for each in story.consumers)


def plainly(day: Day, root: Path) -> Tables:
    """The plain program's report of a day."""
    day.write(root)
    window = Window(DATE, day.story.w0, day.story.w1)
    return plain_tables(question_of([day], root, window))


# -- what holds on every day -----------------------------------------------------------------


def wrong(day: Day, tables: Tables) -> list[str]:
    """What the report says that cannot be, one line each."""
    story = day.story
    rows = {row["replica"]: row for row in tables["replica_days"] if row["broker"] == story.name}
    found = []
    for replica in story.replicas:
        if replica in rows:
            found += [f"{replica}: {text}" for text in _wrong_row(day, replica, rows[replica])]
        elif story.expects or _is_in_window(day, replica):
            found.append(f"{replica}: is not in the report")
    groups = [row for row in tables["group_days"] if row["broker"] == story.name]
    if story.is_shifted:  # what was sent, and when, is another day's by that clock
        return found
    if groups and groups[0]["samples"]:
        found += _wrong_group(day, groups[0])
    for row in tables["consumer_lag"]:
        if row["broker"] == story.name:
            found += [f"{row['consumer_group']}: {text}" for text in _wrong_lag(day, row)]
    if any(row["verdict"] == MET for row in rows.values()):
        found += _wrongly_met(day, rows)
    return found


def _wrong_group(day: Day, group: Json) -> Iterator[str]:
    """What is said to be proved of sends and of data at risk, against the events."""
    story = day.story
    for name, true in zip(("ok", "failed"), sent(story), strict=True):
        least, most = group[f"sync_{name}_least"], group[f"sync_{name}_most"]
        if not (least <= true or story.clock) or true > most:
            yield f"between {least} and {most} sends {name}, and {true} are true"
    if group["sends_ok_most"] is not None:
        for name, true in zip(("ok", "failed"), sent(story, with_refused=True), strict=True):
            least, most = group[f"sends_{name}_least"], group[f"sends_{name}_most"]
            if not (least <= true or story.clock) or true > most:
                yield f"between {least} and {most} of all sends {name}, and {true} are true"
    if story.rivals:
        return
    at_risk, at_most = exposure(story), group["exposure_at_most"]
    if (group["exposure_at_least"] or 0) > at_risk and not story.clock:
        yield f"{group['exposure_at_least']} bytes at risk, and {at_risk} are true"
    is_bounded = at_most is not None and not group["exposure_unbounded_s"]
    if is_bounded and at_most < at_risk:
        yield f"at most {at_most} bytes at risk, and {at_risk} are true"


def _wrong_lag(day: Day, row: Json) -> Iterator[str]:
    """What is said to be proved of a consumer group. Who is right where two masters wrote nobody
    knows, and then nothing is met."""
    story = day.story
    if story.rivals or story.clock:
        return
    (consumer,) = (each for each in story.consumers if each.name == row["consumer_group"])
    there_ms = total(clip([(consumer.since, consumer.until)], story.w0, story.w1))
    gone_ms = story.w1 - story.w0 - there_ms
    if row["absent_s"] * 1000 > gone_ms + 2 * _skew_ms(story) + GROUP_LOOK_MS + ROUNDING_MS:
        yield f"absent for {row['absent_s']} s, and {gone_ms} ms are true"
    for kind, name in (("age", "age"), ("messages", "messages")):
        for place, bound in enumerate(row[f"{kind}_le"]):
            within, beyond, unknown = (
                row[f"{kind}_{side}_ms"][place] for side in ("within", "beyond", "unknown")
            )
            late_ms = consumer.above(story, **{name: bound})
            skew_ms = 2 * _skew_ms(story)
            if beyond > late_ms + skew_ms:
                yield f"{kind} above {bound} for {beyond} ms, and {late_ms} are true"
            if within > there_ms - late_ms + skew_ms:
                yield f"{kind} within {bound} for {within} ms, and {there_ms - late_ms} are true"
            if beyond + unknown + skew_ms < late_ms:
                yield f"{kind} above {bound} for {beyond + unknown} ms at most: {late_ms} are true"


def _skew_ms(story: Story) -> int:
    """How far the window of a machine may be from the true one."""
    return max(map(abs, story.skew.values()), default=0)


def _wrongly_met(day: Day, rows: dict[str, Json]) -> Iterator[str]:
    """The promises of a day that is met for one of its replicas."""
    story = day.story
    ok, failed = sent(story)
    if "sync ok" in story.asks and ok < story.sync_ok_percent / 100 * (ok + failed) - 1e-6:
        yield f"met, and {failed} of {ok + failed} sends failed"
    ok, failed = sent(story, with_refused=True)
    if "sends ok" in story.asks and ok < story.sends_ok_percent / 100 * (ok + failed) - 1e-6:
        yield f"met, and {failed} of {ok + failed} of all sends failed"
    for each in story.consumers if CONSUMER_LAG in story.asks else ():
        there_ms = total(clip([(each.since, each.until)], story.w0, story.w1))
        allowed_ms = there_ms * (100 - story.lag_percent) / 100 + 2 * _skew_ms(story) + ROUNDING_MS
        late_ms = each.above(story, age=story.lag_seconds * 1000)
        if late_ms > allowed_ms:
            yield f"met, and {each.name} was late for {late_ms} ms"
        if story.lag_messages is not None:
            late_ms = each.above(story, messages=story.lag_messages)
            if late_ms > allowed_ms:
                yield f"met, and {each.name} had too many messages for {late_ms} ms"
    if "rpo" in story.asks and not story.rivals and exposure(story) > story.rpo_bytes:
        yield f"met, and {exposure(story)} bytes were at risk of {story.rpo_bytes}"
    seen_ms = overlap_seen_ms(
        (line["boot"], line["ts"], "rival" if line["boot"].endswith("ffffffff") else "own")
        for line in day.lines
        if line["role"] != "SLAVE" and story.w0 <= line["ts"] < story.w1
    )
    if seen_ms > CLOCKS_MS:
        yield f"met, and two masters wrote at once for {seen_ms} ms"
    for replica, row in rows.items():
        if row["verdict"] == MET and replica in story.replicas:
            yield from (f"{replica}: {text}" for text in _met_row(day, replica, row))


def _met_row(day: Day, replica: str, row: Json) -> Iterator[str]:
    story, known_from = day.story, day.known_from(replica)
    if "lag p99" in story.asks:
        spans = clip(above(story, replica, story.lag_p99_ms), known_from, story.w1)
        late_ms = total(spans) - row["excluded_s"] * 1000
        allowed_ms = truth(story, replica, known_from).tolerance_ms + ROUNDING_MS
        if late_ms > (story.w1 - story.w0) / 100 + allowed_ms:
            yield f"met, and the lag was above {story.lag_p99_ms} ms for {late_ms} ms"
    if "metadata age" in story.asks and row["metadata"]:
        oldest_ms = story.copies.most(story.w0, story.w1 - 1) or 0
        if oldest_ms > story.metadata_age_ms:
            yield f"met, and metadata was {oldest_ms} ms old"


def _is_in_window(day: Day, replica: str) -> bool:
    """Whether a line of the window has a row of it."""
    return any(
        row["id"] == replica
        for line in day.lines
        if day.story.w0 <= line["ts"] < day.story.w1
        for row in line["replicas"]
    )


def _wrong_row(day: Day, replica: str, row: Json) -> Iterator[str]:
    story, known_from = day.story, day.known_from(replica)
    true = truth(story, replica, known_from)
    verdict, bad_ms = row["verdict"], row["bad_s"] * 1000
    allowed_ms = true.tolerance_ms + ROUNDING_MS + 4 * story.skew_ms * (1 + len(story.lives))
    if verdict == MET and true.charged_ms > story.budget_ms + allowed_ms:
        yield f"met, and {true.charged_ms} ms were bad of {story.budget_ms} allowed"
    is_new = known_from >= story.w0 - story.skew_ms
    states = [DISCONNECTED] if is_new else [DISCONNECTED, CATCHING_UP]
    proved = proved_ms(day, replica, states)
    if not _is_told_twice(story) and not story.rivals and bad_ms < proved - ROUNDING_MS:
        yield f"{bad_ms} ms bad, and the counters prove {proved}"
    if not story.clock and not story.rivals and bad_ms > true.bad_ms + _silent_ms(day) + allowed_ms:
        yield f"{bad_ms} ms bad, and {true.bad_ms} are true"
    if not story.clock and not story.rivals and row["lag_p99_above_s"] is not None:
        spans = above(story, replica, story.lag_p99_ms)
        late_ms, edges_ms = total(spans), 2 * LOOK_MS * len(spans)
        if row["lag_p99_above_s"] * 1000 > late_ms + edges_ms + allowed_ms:
            yield f"lag above for {row['lag_p99_above_s']} s, and {late_ms} ms are true"
    for kind in row["metadata"] if story.copies is not None and not story.clock else []:
        oldest_ms = story.copies.most(story.w0, story.w1 - 1) or 0
        if (kind["at_least_ms"] or 0) > oldest_ms + 1:
            yield f"metadata {kind['at_least_ms']} ms old, and {oldest_ms} are true"
        if not kind["unbounded_s"] and kind["at_most_ms"] < oldest_ms - 1:
            yield f"metadata at most {kind['at_most_ms']} ms old, and {oldest_ms} are true"
    parts_s = sum(row[f"{kind}_s"] for kind in ("good", "bad", "unknown", "excluded"))
    if abs(parts_s * 1000 - (story.w1 - story.w0)) > ROUNDING_MS:
        yield f"good, bad, unknown and excluded are {parts_s} s"
    out_s = sum(row[f"state_{state}_s"] for state in ("disconnected", "catching_up", "down"))
    window_s = (story.w1 - story.w0) / 1000 - row["excluded_s"]
    if bad_ms < min(out_s, window_s) * 1000 - ROUNDING_MS:  # bad_s is at most the window
        yield f"{bad_ms} ms bad, and {out_s} s out of sync"


def _is_told_twice(story: Story) -> bool:
    """Whether a boot began while the wall clock was wrong, or at a time that the boot before it had
    told of with such a clock: who is right nobody knows, so that time may be unknown."""
    if not story.clock:
        return False
    until = story.clock[-1][0] + max(ahead for _, ahead in story.clock)
    since = story.clock[0][0] + min(ahead for _, ahead in story.clock)
    return any(since <= life.start <= until for life in story.lives)


def _silent_ms(day: Day) -> int:
    """Time between the last line of a boot that was killed and its death. Nobody can tell it from
    being dead: the next boot proves that this line was the last one, and no more."""
    last = {line["boot"]: day.moment_of(line) for line in day.lines if line["role"] != "SLAVE"}
    return sum(
        life.end - last[life.boot]
        for life in day.story.lives
        if life.boot in last and life.end > day.story.w0
    )


def verdict_of(day: Day, tables: Tables) -> str:
    """Of the day's group; a group that nobody has heard of is insufficient data."""
    found = [row["verdict"] for row in tables["group_days"] if row["broker"] == day.story.name]
    return str(found[0]) if found else INSUFFICIENT


# -- the rule of before, which has to fail ---------------------------------------------------


def is_met_by_samples(day: Day, replica: str) -> bool:
    """The rule that this one replaced: a segment is what its sample shows, `met` needs min_coverage
    and bad time within the budget."""
    story, good, bad = day.story, 0, 0
    before: Json | None = None
    for line in day.lines:
        row = next((row for row in line["replicas"] if row["id"] == replica), None)
        covered = line["ts"] - line["boot_ts"]
        if before is not None and before["boot"] == line["boot"]:
            covered = line["mono"] - before["mono"]
        covered = min(covered, story.interval_ms * 3)
        if story.w0 <= line["ts"] < story.w1:
            covered = min(covered, line["ts"] - story.w0)
            is_good = row is not None and row["in_sync"] and row["lag_ms"] <= story.limit_ms
            good, bad = good + covered * is_good, bad + covered * (not is_good)
        before = line
    coverage = (good + bad) / (story.w1 - story.w0)
    return bad <= story.budget_ms and coverage >= story.min_coverage_percent / 100


def is_breached(day: Day, replica: str) -> bool:
    """In truth, by more than what may be missed."""
    true = truth(day.story, replica, day.known_from(replica))
    return true.charged_ms > day.story.budget_ms + true.tolerance_ms


# -- the days --------------------------------------------------------------------------------


@dataclass
class Outcome:
    """Of many days."""

    verdicts: Counter[str]
    better_by_samples: int
    problems: list[str]


def outcome_of(seeds: range, root: Path) -> Outcome:
    """Runs the plain program on these days."""
    outcome = Outcome(Counter(), 0, [])
    for seed in seeds:
        day = random_day(seed)
        tables = plainly(day, root / str(seed))
        outcome.verdicts[verdict_of(day, tables)] += 1
        outcome.better_by_samples += any(
            is_breached(day, replica) and is_met_by_samples(day, replica)
            for replica in day.story.replicas
        )
        problems = [f"day {seed}: {text}" for text in wrong(day, tables)]
        if problems and not outcome.problems:
            problems += day.story.events()
        outcome.problems += problems
    return outcome


def check(outcome: Outcome, days: int) -> None:
    """No problems, and days that could have had some."""
    assert not outcome.problems, "\n".join(outcome.problems[:200])
    for verdict, share in ((MET, 25), (BREACHED, 10), (INSUFFICIENT, 10)):
        assert outcome.verdicts[verdict] >= days / share, outcome.verdicts
    assert outcome.better_by_samples >= days / 40, "the old rule was right on nearly all days"


def test_some_days(tmp_path: Path) -> None:
    """The quick run's."""
    check(outcome_of(range(QUICK_DAYS), tmp_path), QUICK_DAYS)


@pytest.mark.slow
def test_more_days(tmp_path: Path) -> None:
    """By the plain program, some twenty in a second."""
    check(outcome_of(range(QUICK_DAYS, QUICK_DAYS + MORE_DAYS), tmp_path), MORE_DAYS)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_thousand_days(tmp_path: Path, proved: Callable[[str], None]) -> None:
    days = range(QUICK_DAYS + MORE_DAYS, QUICK_DAYS + MORE_DAYS + ALL_DAYS)
    outcome = outcome_of(days, tmp_path)
    check(outcome, ALL_DAYS)
    verdicts = ", ".join(f"{count} {name}" for name, count in outcome.verdicts.most_common())
    proved(f"{ALL_DAYS} random days: no verdict better than the truth ({verdicts})")


def through_spark(spark: SparkSession, root: Path, seeds: range) -> Counter[str]:
    """Groups of one report, each with a day of its own, all in one window: their verdicts."""
    window = Window(DATE, MIDNIGHT + 600 * MINUTE, MIDNIGHT + 660 * MINUTE)
    days = [random_day(seed, f"day-{seed}", window=(window.w0, window.w1)) for seed in seeds]
    for day in days:
        day.write(root / "dumps")
    question = question_of(days, root / "dumps", window)
    tables = spark_tables(spark, question, root / "out")
    problems = [f"{day.story.name}: {text}" for day in days for text in wrong(day, tables)]
    assert not problems, "\n".join(problems)
    return Counter(verdict_of(day, tables) for day in days)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_days_through_spark(spark: SparkSession, tmp_path: Path) -> None:
    verdicts = through_spark(spark, tmp_path, range(SPARK_DAYS))
    assert verdicts[MET] + verdicts[BREACHED] + verdicts[INSUFFICIENT] == SPARK_DAYS


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_hundred_days_through_spark(
    spark: SparkSession, tmp_path: Path, proved: Callable[[str], None]
) -> None:
    verdicts = through_spark(spark, tmp_path, range(SPARK_DAYS, SPARK_DAYS + ALL_SPARK_DAYS))
    assert all(verdicts[verdict] >= 2 for verdict in (MET, BREACHED, INSUFFICIENT)), verdicts
    proved(f"{ALL_SPARK_DAYS} random days through Spark: no verdict better than the truth")


# -- the generator itself --------------------------------------------------------------------


def test_a_seed_makes_the_same_day_again() -> None:
    one, other = random_day(17), random_day(17)
    assert one.story.events() == other.story.events()
    assert one.files == other.files


def test_counters_never_prove_more_than_the_truth() -> None:
    """Written lines and events are made apart from each other: here they meet."""
    compared = 0
    for seed in range(QUICK_DAYS):
        day = random_day(seed)
        if day.story.clock:
            continue
        for replica in day.story.replicas:
            true = truth(day.story, replica, known_from=0)
            proved = proved_ms(day, replica, [DISCONNECTED, CATCHING_UP])
            compared += proved > 0
            assert proved <= true.bad_ms + true.tolerance_ms, (seed, replica)
    assert compared >= QUICK_DAYS // 4


def test_lines_are_those_of_brokers() -> None:
    """docs/metrics_dump.md: what a life finds on its disk is the life before it, of the same
    machine, whose end it tells; no clock of a machine is negative, and what one life wrote is over
    when the next one names it."""
    named = ended = 0
    for seed in range(QUICK_DAYS // 2):
        lines = [line for line in random_day(seed).lines if not line["boot"].endswith("c0de")]
        begun: dict[str, int] = {}
        last: dict[str, int] = {}
        for line in lines:
            begun.setdefault(line["boot"], line["seq"])
            last[line["boot"]] = line["seq"]
            assert line["mono"] >= 0
            if line.get("ended"):
                ended += 1
                assert line["ended"]["boot"] == line["prev_boot"], seed
        for line in lines:
            if line["prev_boot"] in last:
                named += 1
                assert last[line["prev_boot"]] <= line["prev_seq"], seed
    assert named >= QUICK_DAYS
    assert ended


def test_every_kind_of_event_happens() -> None:
    stories = [whole_story(seed) for seed in range(150)]
    kinds = Counter(one.kind for story in stories for life in story.lives for one in life.blind)
    assert kinds.keys() >= {"ha dead", "ha hangs", "asleep"}
    assert {life.clean for story in stories for life in story.lives} == {True, False}
    assert any(story.clock for story in stories)
    assert any(total(story.unwritten) for story in stories)
    assert any(life.broker_id for story in stories for life in story.lives)
    assert any(life.machine and not life.broker_id for story in stories for life in story.lives)
    assert any(life.start < MIDNIGHT < life.end for story in stories for life in story.lives)
    assert any(story.skew for story in stories)
    assert any(story.is_shifted for story in stories)
    assert any(story.returns for story in stories)
    assert any(story.rivals for story in stories)
    assert any(story.copies for story in stories)
    assert {life.version for story in stories for life in story.lives} == {1, 2}
    assert any(len(each.pauses) > 3 for story in stories for each in story.consumers)
    assert any(each.since > 0 for story in stories for each in story.consumers)
    assert {kind for story in stories for kind in story.asks} == {*CRITERIA, CONSUMER_LAG}
    failed = [each for story in stories for each in story.sends if each.result != "ok"]
    assert len({each.result for each in failed}) == 4
    assert any(
        link.lags for story in stories for life in story.lives for link in life.links.values()
    )
