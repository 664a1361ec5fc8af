"""Elections, and what a group without a master answered, against days whose events are known."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from spark.config.objectives import Objective
from spark.figures.group_report import row_tuple
from spark.figures.result_tables import TABLES
from spark.figures.verdicts import judged
from tests.spark.election_days import (
    ElectionDay,
    Term,
    day_of,
    random_election_day,
    tables_of,
    tables_of_lines,
    wrong_of,
)

QUICK = (*range(4), 11, 30, 39, 63)
"""11, 30: who led is away when another one leads; 39: a clock set back; 63: a new member
is copied, and leads later."""


@pytest.mark.parametrize("seed", QUICK)
def test_nothing_is_said_that_is_not_so(tmp_path: Path, seed: int) -> None:
    """Nor what the plain program does not say, in any column."""
    _, found = wrong_of(random_election_day(seed, eventful=seed % 2 > 0), tmp_path)
    assert found == []


@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_nothing_is_said_of_many_days_that_is_not_so(tmp_path: Path) -> None:
    promises: Counter[str] = Counter()
    for seed in range(4, 300):
        day = random_election_day(seed, eventful=seed % 2 > 0)
        tables, problems = wrong_of(day, tmp_path / str(seed))
        assert problems == [], seed
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


# -- what an auditor would try -----------------------------------------------------------------


Lines = list[dict[str, Any]]


def records(lines: Lines) -> Lines:
    """Of all roles that are told."""
    return [role for line in lines for role in line.get("roles", ())]


def led(lines: Lines, epoch: int) -> Lines:
    return [line for line in lines if line["member"]["leads"] and line["member"]["epoch"] == epoch]


def lead_of(lines: Lines, epoch: int) -> dict[str, Any]:
    (role,) = (r for r in records(lines) if (r["role"], r["epoch"]) == ("LEAD", epoch))
    return role


def judged_lines(lines: Lines, epoch: int, root: Path) -> tuple[dict[str, Any], set[str]]:
    """The election of an epoch, and the verdicts of the day."""
    tables = tables_of_lines(lines, root)
    (election,) = (row for row in tables["elections"] if row["epoch"] == epoch)
    return election, {row["verdict"] for row in tables["replica_days"]}


def two_moves() -> tuple[Lines, list[int]]:
    """A master is moved twice; the epochs."""
    day = day_of("move", "move")
    return day.lines(), [term.epoch for term in day.terms]


def test_nothing_is_held_behind_a_leader_without_lines(tmp_path: Path) -> None:
    lines, (_, between, last) = two_moves()
    for line in led(lines, between):
        lines.remove(line)
    for line in lines:
        line["roles"] = [
            r for r in line.get("roles", ()) if between not in (r["epoch"], r["old_epoch"])
        ]
    election, _ = judged_lines(lines, last, tmp_path)
    assert election["promise"] == "not known"


def test_an_epoch_without_a_master_is_no_gap_in_the_evidence(tmp_path: Path) -> None:
    """As a real controller gives it: the members keep that they were fenced in it."""
    lines, (first, second, _) = two_moves()
    assert second == first + 2
    (fenced,) = (r for r in records(lines) if (r["role"], r["old_epoch"]) == ("FENCED", first))
    assert (fenced["epoch"], fenced["master"]) == (first + 1, None)
    election, _ = judged_lines(lines, second, tmp_path / "told")
    assert (election["promise"], election["old_epoch"]) == ("held", first)
    fenced |= {"cause": "cut refused"}
    election, _ = judged_lines(lines, second, tmp_path / "not told by a controller")
    assert election["promise"] == "not known"


def test_two_that_tell_that_they_lead_in_one_epoch(tmp_path: Path) -> None:
    day, _, after = day_with("move")
    lines = day.lines()
    role = next(r for r in records(lines) if (r["role"], r["epoch"]) == ("FOLLOW", after.epoch))
    role |= {"role": "LEAD", "master": role["id"]}
    election, verdicts = judged_lines(lines, after.epoch, tmp_path)
    assert election["promise"] == "not known"
    assert "met" not in verdicts


def lossy_day(kind: str = "kill") -> tuple[Lines, int, int]:
    """A master is killed, and 1,000,000 bytes that were answered SEND_OK are lost; the epochs."""
    day, before, after = day_with(kind)
    after.log_start -= 1_000_000
    return day.lines(), before.epoch, after.epoch


def test_what_a_leader_took_in_a_second_time_in_its_epoch_counts(tmp_path: Path) -> None:
    lines, old, new = lossy_day()
    line = led(lines, old)[30]
    line |= {"role": "SLAVE", "replicas": [], "member": line["member"] | {"leads": False}}
    election, verdicts = judged_lines(lines, new, tmp_path)
    assert (election["promise"], verdicts) == ("lost", {"breached"})


def test_a_role_whose_clock_was_wrong_is_no_way_out(tmp_path: Path) -> None:
    for days in (-3, 3):
        lines, _, new = lossy_day()
        true_ms = lead_of(lines, new)["ts"]
        lead_of(lines, new)["ts"] += days * 86_400_000
        election, verdicts = judged_lines(lines, new, tmp_path / str(days))
        assert (election["promise"], verdicts) == ("lost", {"breached"})
        assert abs(election["ts"] - true_ms) < 5_500


def test_a_store_that_counts_its_roles_from_1_again_is_no_way_out(tmp_path: Path) -> None:
    lines, old, new = lossy_day("same")
    assert lead_of(lines, old)["number"] == 1
    lead_of(lines, new)["number"] = 1
    election, verdicts = judged_lines(lines, new, tmp_path)
    assert (election["promise"], verdicts) == ("lost", {"breached"})


def test_a_leader_between_that_acknowledged_nothing_hides_no_loss(tmp_path: Path) -> None:
    lines, (first, second, third) = two_moves()
    for line in led(lines, second):
        line["replicated_offset"] = 0
    acknowledged = max(line["replicated_offset"] for line in led(lines, first))
    lead_of(lines, third)["log_end"] = acknowledged - 1_000
    election, verdicts = judged_lines(lines, third, tmp_path)
    assert (election["promise"], election["lost_bytes"]) == ("lost", 1_000)
    assert verdicts == {"breached"}


def test_a_loss_is_counted_once(tmp_path: Path) -> None:
    lines, (first, second, third) = two_moves()
    acknowledged = max(line["replicated_offset"] for line in led(lines, first))
    lead_of(lines, second)["log_end"] = acknowledged - 1_000
    for line in led(lines, second):
        line["replicated_offset"] = acknowledged - 500
    lead_of(lines, third)["log_end"] = acknowledged - 500
    tables = tables_of_lines(lines, tmp_path)
    assert {row["epoch"]: row["lost_bytes"] for row in tables["elections"]}.items() >= {
        second: 1_000,
        third: 0,
    }.items()


@pytest.mark.parametrize("reason", ["is the master", "maintenance"])
def test_a_day_that_is_excluded_is_no_way_out(reason: str) -> None:
    row = {"excluded_s": 60.0, "window_s": 60.0, "exclusions": [{"reason": reason}]}
    lost = {"promise": "lost", "lost_bytes": 7, "epoch": 3, "why": ""}
    verdict, reasons = judged(row, Objective(name="all"), None, None, [lost])
    assert verdict == "breached"
    assert "7 bytes" in reasons[0]
    asked = Objective(name="all", sends_ok_percent=99.0)
    verdict, _ = judged(row, asked, None)
    assert verdict == ("insufficient data" if reason == "is the master" else "met")


def test_an_id_that_no_column_holds_ends_no_report() -> None:
    columns = list(TABLES["elections"])
    row: dict[str, Any] = dict.fromkeys(columns) | {"broker_id": 2**40, "old_master": -(2**40)}
    found = dict(zip(columns, row_tuple("elections", row), strict=True))
    assert (found["broker_id"], found["old_master"]) == (2**31 - 1, 1 - 2**31)
