"""Elections, and what a group without a master answered, against days whose events are known."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.spark.election_days import (
    ElectionDay,
    Term,
    day_of,
    random_election_day,
    tables_of,
    wrong,
)

QUICK = range(12)


@pytest.mark.parametrize("seed", QUICK)
def test_nothing_is_said_that_is_not_so(tmp_path: Path, seed: int) -> None:
    day = random_election_day(seed)
    assert list(wrong(day, tables_of(day, tmp_path))) == []


@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_nothing_is_said_of_many_days_that_is_not_so(tmp_path: Path) -> None:
    promises: Counter[str] = Counter()
    for seed in range(QUICK.stop, 300):
        day = random_election_day(seed)
        tables = tables_of(day, tmp_path / str(seed))
        assert list(wrong(day, tables)) == [], seed
        promises.update(row["promise"] for row in tables["elections"])
    assert {"held", "lost", "not known"} <= promises.keys()


def day_with(kind: str) -> tuple[ElectionDay, Term, Term]:
    """A day with one election."""
    day = day_of(kind)
    before, after = day.terms
    return day, before, after


def found(day: ElectionDay, root: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    tables = tables_of(day, root)
    (election,) = (row for row in tables["elections"] if row["epoch"] > 1)
    return election, tables


def test_a_master_that_is_moved(tmp_path: Path) -> None:
    day, before, after = day_with("move")
    election, _ = found(day, tmp_path)
    assert (election["old_master"], election["broker_id"]) == (before.id, after.id)
    assert election["why"] == "the old master was replaced while it ran"
    assert election["promise"] == "held"
    assert election["without_master_s"] == pytest.approx((after.start - before.end) / 1000, abs=0.7)


def test_a_master_that_is_killed_or_stopped(tmp_path: Path) -> None:
    for kind, why in (("kill", "fell silent"), ("stop", "was stopped in order")):
        day, *_ = day_with(kind)
        election, _ = found(day, tmp_path / kind)
        assert election["why"] == f"the old master {why}"
        assert election["promise"] != "held"


def test_what_was_answered_and_is_lost_breaks_the_day(tmp_path: Path) -> None:
    day, before, after = day_with("kill")
    after.log_start -= 1_000_000
    before.lost += 1_000_000
    election, tables = found(day, tmp_path)
    assert election["promise"] == "lost"
    assert 0 < election["lost_bytes"] <= before.lost
    assert {row["verdict"] for row in tables["replica_days"]} == {"breached"}
    assert "that were answered SEND_OK are lost" in tables["replica_days"][0]["reasons"][-1]


def test_sends_that_nobody_took_count(tmp_path: Path) -> None:
    """Refused by a fenced master, and by a follower when the master was dead."""
    for kind in ("move", "kill", "isolate"):
        day, before, after = day_with(kind)
        for rate in day.rates:
            if rate.kind != "ok":
                rate.per_s = 1_000
        _, tables = found(day, tmp_path / kind)
        (group,) = tables["group_days"]
        true = day.answered("refused") + day.answered("flush_slave_timeout")
        assert true >= after.start - before.end - 1
        assert group["sends_failed_least"] <= true + 2_000
        assert group["sends_failed_least"] >= true * 0.9
