"""Every criterion: breached, met, not judged, and what happens to figures that are null."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from spark.config.objectives import Objective
from spark.figures.result_tables import TABLES
from spark.figures.verdicts import budget_s, burn_rates, judged, waiting_groups, worst_of

B, I, M = "breached", "insufficient data", "met"  # noqa: E741 - as in the table below
GOOD: dict[str, Any] = {
    "window_s": 86_400.0,
    "excluded_s": 0.0,
    "bad_s": 0.0,
    "unknown_s": 0.0,
    "coverage": 1.0,
    "availability": 1.0,
    "samples": 17_280,
    "exposure_covered_s": 86_400.0,
}
LITTLE = {"coverage": 0.5, "unknown_s": 43_200.0}
NOTHING = {"coverage": 0.0, "unknown_s": 86_400.0, "availability": None, "samples": 0}
THOUSAND = {"sync_flush_slave_timeout": 1, "sync_slave_not_available": 0}
THOUSAND |= {"sync_flush_disk_timeout": 0, "sync_ok": 999}


def kind(max_age_ms: int | None, covered_s: float = 86_400.0) -> dict[str, Any]:
    return {"kind": "topics", "max_age_ms": max_age_ms, "failures": 0, "covered_s": covered_s}


CASES: list[tuple[dict[str, Any], str, list[str]]] = [
    ({}, M, ["availability 100 %, objective 99.9 %: 0 s bad of 86.4 s allowed"]),
    (
        {"bad_s": 86.4, "availability": 0.999},
        M,
        ["availability 99.9 %, objective 99.9 %: 86.4 s bad of 86.4 s allowed"],
    ),
    (
        {"bad_s": 86.401, "availability": 0.99899999},
        B,
        ["availability 99.899 % < 99.9 %: 86.401 s bad of 86.4 s allowed"],
    ),
    (LITTLE, I, ["availability not proved: 0 s bad and 12 h unknown of 86.4 s allowed"]),
    # Unknown time has to fit into what is left of the budget.
    ({"coverage": 0.999, "unknown_s": 86.4}, M, ["availability 100 %"]),
    (
        {"coverage": 0.999, "unknown_s": 86.4, "bad_s": 0.001},
        I,
        ["availability not proved: 0.001 s bad and 1 min 26 s unknown of 86.4 s allowed"],
    ),
    ({"coverage": 0.99, "unknown_s": 864.0}, I, ["availability not proved"]),
    (
        {"coverage": 0.98999, "unknown_s": 864.9, "availability_percent": 90.0},
        I,
        ["coverage 98.999 % < 99 %: 14 min 25 s unknown"],
    ),
    # All of it is excluded: nothing was promised.
    (
        {"excluded_s": 86_400.0, "coverage": None, "exclusions": [{"reason": "move"}]},
        M,
        ["nothing was promised: all of it is excluded (move)"],
    ),
    (
        LITTLE | {"bad_s": 100.0, "availability": 0.99768},
        B,
        ["availability 99.768 % < 99.9 %: 100 s bad of 86.4 s allowed"],
    ),
    (NOTHING, I, ["availability not proved: 0 s bad and 1 d unknown"]),
    # lag p99
    ({"lag_p99_seconds": 2.0, "lag_ms_p99": 2_000}, M, ["availability", "lag p99 2 s, objective"]),
    ({"lag_p99_seconds": 2.0, "lag_ms_p99": 2_001}, B, ["lag p99 2.001 s > 2 s"]),
    (
        LITTLE | {"lag_p99_seconds": 2.0, "lag_ms_p99": 0},
        I,
        ["availability not proved", "coverage 50 %"],
    ),
    # A share of the little that is known proves nothing.
    (
        LITTLE | {"lag_p99_seconds": 2.0, "lag_ms_p99": 2_001},
        I,
        ["availability not proved", "coverage 50 %"],
    ),
    (
        {"coverage": 0.0007, "unknown_s": 86_340.0, "lag_p99_seconds": 2.0, "lag_ms_p99": 20_000},
        I,
        ["availability not proved", "coverage 0.07 %"],
    ),
    ({"lag_p99_seconds": 2.0}, I, ["lag p99 not known, objective 2 s"]),
    # sync ok
    (THOUSAND | {"sync_ok_percent": 99.9, "sync_ok_ratio": 0.999}, M, ["availability", "sync ok"]),
    (
        THOUSAND | {"sync_ok_percent": 99.95, "sync_ok_ratio": 0.999},
        B,
        ["sync ok 99.9 % < 99.95 %: 1 of 1000 sends failed"],
    ),
    ({"sync_ok_percent": 99.9}, M, ["availability"]),  # nobody sent synchronously
    (LITTLE | {"sync_ok_percent": 99.9}, I, ["availability not proved"]),
    (
        NOTHING | {"sync_ok_percent": 99.9},
        I,
        ["availability not proved", "sync ok not known, objective 99.9 %"],
    ),
    (
        LITTLE | THOUSAND | {"sync_ok_percent": 99.9, "sync_ok_ratio": 0.999},
        I,
        ["availability not proved", "coverage"],
    ),
    (
        LITTLE | THOUSAND | {"sync_ok_percent": 99.95, "sync_ok_ratio": 0.999},
        I,
        ["availability not proved", "coverage"],
    ),
    # RPO
    ({"rpo_bytes": 100, "unreplicated_bytes_max": 100}, M, ["availability", "unreplicated"]),
    (
        {"rpo_bytes": 100, "unreplicated_bytes_max": 101},
        B,
        ["unreplicated at worst 101 bytes > 100 bytes"],
    ),
    ({"rpo_bytes": 0, "unreplicated_bytes_max": 0}, M, ["availability", "unreplicated at worst 0"]),
    ({"rpo_bytes": 100}, I, ["unreplicated bytes not known, objective 100 bytes"]),
    (
        LITTLE | {"rpo_bytes": 100, "unreplicated_bytes_max": 1},
        I,
        ["availability not proved", "coverage"],
    ),
    # One moment above the limit is proof enough.
    (
        LITTLE | {"rpo_bytes": 0, "unreplicated_bytes_max": 1},
        B,
        ["unreplicated", "availability not proved"],
    ),
    # The exposure has a coverage of its own: a master that says null says nothing.
    (
        {"rpo_bytes": 100, "unreplicated_bytes_max": 1, "exposure_covered_s": 43_200.0},
        I,
        ["unreplicated bytes known for 50 % < 99 % of the time"],
    ),
    # A SYNC_MASTER's sends have an objective unless the file says otherwise.
    (
        THOUSAND | {"sync_ok": 900, "sync_ok_ratio": 0.9, "role": "SYNC_MASTER"},
        B,
        ["sync ok 90 % < 99.9 %"],
    ),
    (
        THOUSAND
        | {"sync_ok": 900, "sync_ok_ratio": 0.9, "role": "SYNC_MASTER", "sync_ok_given": True},
        M,
        ["availability"],
    ),
    # metadata age
    (
        {"metadata_age_seconds": 60.0, "metadata": [kind(60_000), kind(5)]},
        M,
        ["availability", "metadata age 60 s, objective 60 s"],
    ),
    (
        {"metadata_age_seconds": 60.0, "metadata": [kind(5), kind(60_001)]},
        B,
        ["metadata age 60.001 s > 60 s"],
    ),
    ({"metadata_age_seconds": 60.0}, M, ["availability"]),  # no dump of the slave, none asked for
    ({"metadata_age_seconds": 60.0, "metadata": []}, M, ["availability"]),
    (
        {"metadata_age_seconds": 60.0, "metadata_required": True},
        I,
        ["metadata age not known for the whole day, objective 60 s"],
    ),
    ({"metadata_age_seconds": 60.0, "metadata_required": True, "metadata": []}, I, ["metadata"]),
    ({"metadata_required": True}, M, ["availability"]),  # the criterion is not set
    ({"metadata_age_seconds": 60.0, "metadata": [kind(5), kind(None)]}, I, ["metadata age not"]),
    ({"metadata_age_seconds": 60.0, "metadata": [kind(70_000), kind(None)]}, B, ["metadata age"]),
    ({"metadata_age_seconds": 60.0, "metadata": [kind(5, 43_200.0)]}, I, ["metadata age not"]),
    (
        LITTLE | {"metadata_age_seconds": 60.0, "metadata": [kind(5)]},
        I,
        ["availability not proved", "coverage"],
    ),
    # the worst counts, breaches are told first
    (
        LITTLE | {"rpo_bytes": 1, "unreplicated_bytes_max": 2, "lag_p99_seconds": 1.0},
        B,
        ["unreplicated", "availability not proved", "lag p99 not known"],
    ),
]


OF_OBJECTIVE = {field.name for field in dataclasses.fields(Objective)}


@pytest.mark.parametrize(("fields", "verdict", "reasons"), CASES, ids=str)
def test_every_criterion(fields: dict[str, Any], verdict: str, reasons: list[str]) -> None:
    asked = {name: value for name, value in fields.items() if name in OF_OBJECTIVE}
    objective = Objective("default", **asked)
    row = dict.fromkeys((*TABLES["group_days"], *TABLES["replica_days"])) | GOOD | fields
    row["budget_s"] = budget_s(objective.availability_percent, row["window_s"])
    found, texts = judged(row, objective, row)
    assert found == verdict, texts
    assert len(texts) == len(reasons), texts
    for text, begin in zip(texts, reasons, strict=True):
        assert text.startswith(begin), texts


@pytest.mark.parametrize(
    ("verdicts", "verdict"), [([M, I, B], B), ([M, I], I), ([M, M], M), ([], I)]
)
def test_the_worst_of_collected_verdicts(verdicts: list[str], verdict: str) -> None:
    assert worst_of(verdicts) == verdict


def test_a_budget_is_not_a_fraction_of_a_millisecond_off() -> None:
    percents = (99.9, 99.99, 99.95, 99.0, 97.5)
    found = [budget_s(percent, 86_400.0) for percent in percents]
    assert found == [86.4, 8.64, 43.2, 864.0, 2160.0]


def test_groups_that_wait_for_nobody() -> None:
    def group(broker: str, role: str) -> dict[str, str]:
        return {"cluster": "c", "broker": broker, "role": role}

    groups = [group("a", "SYNC_MASTER"), group("b", "SYNC_MASTER"), group("d", "ASYNC_MASTER")]
    assert waiting_groups(groups, [group("b", "")]) == [groups[0]]


MINUTE = 60_000


def test_burn_rates() -> None:
    """30 s bad in each of two minutes 59 minutes apart, 12 s an hour and a minute before D."""
    day_ms = 86_400_000
    today = [(day_ms + n * MINUTE, 30_000 if n in (10, 69) else 0) for n in range(1_440)]
    found = burn_rates(today, [(day_ms - 51 * MINUTE, 12_000), (day_ms - 2 * day_ms, 7)], 99.0)
    assert found["burn_1h"] == pytest.approx(60_000 / 36_000)
    assert found["burn_6h"] == pytest.approx(72_000 / 216_000)
    assert found["burn_3d"] == pytest.approx(72_007 / 2_592_000)
    assert burn_rates(today, [], 100.0)["burn_1h"] is None


def test_a_span_that_ends_with_the_first_minute() -> None:
    day_ms = 86_400_000
    found = burn_rates([(day_ms, 0), (day_ms + MINUTE, 0)], [(day_ms - MINUTE, 36_000)], 99.0)
    assert found["burn_1h"] == pytest.approx(1.0)
