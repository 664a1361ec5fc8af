"""Every criterion: breached, met, not judged, and what happens to figures that are null."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from spark.config.objectives import Objective
from spark.figures.result_tables import TABLES
from spark.figures.verdicts import budget_s, burn_rates, judged, waiting_groups, worst_of
from tests.support.every_row import every_row

B, I, M = "breached", "insufficient data", "met"  # noqa: E741 - as in the table below
GOOD: dict[str, Any] = {
    "window_s": 86_400.0,
    "excluded_s": 0.0,
    "bad_s": 0.0,
    "unknown_s": 0.0,
    "coverage": 1.0,
    "availability": 1.0,
    "samples": 17_280,
    "ready_samples": 17_280,
    "interval_s": 5.0,
    "state_down_s": 0.0,
}
LITTLE = {"coverage": 0.5, "unknown_s": 43_200.0}
COPIED = {"excluded_s": 86_400.0, "coverage": None, "exclusions": [{"reason": "first copy"}]}
NOTHING = {"coverage": 0.0, "unknown_s": 86_400.0, "availability": None, "samples": 0}


def sends(ok: int, failed: int, more: int = 0) -> dict[str, int]:
    """`more`: so many of which nothing is known."""
    return {
        "sync_ok_least": ok,
        "sync_ok_most": ok + more,
        "sync_failed_least": failed,
        "sync_failed_most": failed + more,
    }


def answers(ok: int, failed: int, more: int = 0) -> dict[str, int]:
    """Of all sends."""
    found = {
        f"sends_{name.removeprefix('sync_')}": n for name, n in sends(ok, failed, more).items()
    }
    return found | {"sends_uncounted": 0}


def risk(at_least: int, at_most: int | None, unbounded_s: float = 0.0) -> dict[str, Any]:
    return {
        "exposure_at_least": at_least,
        "exposure_at_most": at_most,
        "exposure_unbounded_s": unbounded_s,
        "exposure_unmarked": 0,
    }


def lag(above_s: float, unknown_s: float, **more: Any) -> dict[str, Any]:
    """Of lag p99 within 2 s; 1 % of the day are 864 s."""
    row = {"lag_p99_seconds": 2.0, "lag_p99_above_s": above_s, "lag_p99_unknown_s": unknown_s}
    return row | more


def kind(at_least_ms: int, at_most_ms: int | None, unbounded_s: float = 0.0) -> dict[str, Any]:
    return {
        "kind": "topics",
        "at_least_ms": at_least_ms,
        "at_most_ms": at_most_ms,
        "unbounded_s": unbounded_s,
    }


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
    # Those who send did not ask whether a replica is copied for the first time.
    (
        COPIED | {"sends_ok_percent": 99.0} | answers(ok=980, failed=20),
        B,
        ["sends ok 98 % < 99 %: 20 of 1000 sends were not answered well"],
    ),
    (
        COPIED | {"sends_ok_percent": 99.0} | answers(ok=990, failed=0, more=11),
        I,
        ["sends ok not proved, objective 99 %"],
    ),
    (
        LITTLE | {"bad_s": 100.0, "availability": 0.99768},
        B,
        ["availability 99.768 % < 99.9 %: 100 s bad of 86.4 s allowed"],
    ),
    (NOTHING, I, ["availability not proved: 0 s bad and 1 d unknown"]),
    # Of the time in sync it is the lag between two lines that nobody saw.
    (
        {"unknown_s": 40_000.0, "lag_unproved_s": 39_000.0, "interval_s": 60.0},
        I,
        [
            "availability not proved: 0 s bad and 11 h 06 min unknown of 86.4 s allowed; in 10 h 50"
            " min of it the replica was in sync, but that its lag stayed within 10 s between the"
            " lines cannot be proved at this interval (60 s)"
        ],
    ),
    # lag p99: what is unknown counts as above it
    (lag(0.0, 864.0), M, ["availability", "lag p99, objective 2 s: above it for at most 864 s"]),
    (lag(464.0, 400.0), M, ["availability", "lag p99"]),
    (lag(464.001, 400.0), I, ["lag p99, objective 2 s: not proved, 464.001 s above it and 6 min"]),
    (lag(864.0, 80_000.0), I, ["lag p99, objective 2 s: not proved"]),
    (lag(864.001, 0.0), B, ["lag p99, objective 2 s: above it for 864.001 s of 864 s allowed"]),
    (lag(864.001, 80_000.0), B, ["lag p99, objective 2 s: above it"]),
    (lag(8.0, 0.0, state_down_s=86_000.0, bad_s=86.0), B, ["lag p99, objective 2 s: above it"]),
    (
        lag(0.0, 900.0, interval_s=15.0, exposure_unmarked=17_280),
        I,
        [
            "lag p99, objective 2 s: not proved, 0 s above it and 15 min unknown of 864 s allowed;"
            " cannot be proved at this interval (15 s)"
        ],
    ),
    (lag(0.0, 900.0, interval_s=15.0, exposure_unmarked=1), I, ["lag p99, objective 2 s: not pro"]),
    (
        lag(0.0, 900.0, lag_p99_bounds_ms=[1_500, 3_000]),
        I,
        [
            "lag p99, objective 2 s: not proved, 0 s above it and 15 min unknown of 864 s allowed;"
            " the lines count lags by other bounds (1.5 s and 3 s)"
        ],
    ),
    ({"lag_p99_seconds": 2.0}, I, ["lag p99 not known, objective 2 s"]),
    # sync ok: unknown sends failed for met, and were answered well for breached
    ({"sync_ok_percent": 99.9} | sends(999, 1), M, ["availability", "sync ok 99.9 %, objective"]),
    (
        {"sync_ok_percent": 99.95} | sends(999, 1),
        B,
        ["sync ok 99.9 % < 99.95 %: 1 of 1000 sends failed"],
    ),
    (
        {"sync_ok_percent": 99.9} | sends(9_990, 1, more=10),
        I,
        [
            "sync ok not proved, objective 99.9 %: 1 of 9991 sends failed, and 10 more may have",
        ],
    ),
    ({"sync_ok_percent": 99.95} | sends(999, 1, more=1_000), I, ["sync ok not proved"]),
    ({"sync_ok_percent": 99.95} | sends(999, 1, more=999), B, ["sync ok 99.9 % < 99.95 %"]),
    ({"sync_ok_percent": 99.9} | sends(0, 0, more=5), I, ["sync ok not proved"]),
    ({"sync_ok_percent": 99.9} | sends(0, 0), M, ["availability"]),  # nobody sent synchronously
    (
        NOTHING | {"sync_ok_percent": 99.9},
        I,
        ["availability not proved", "sync ok not known, objective 99.9 %"],
    ),
    # RPO
    (
        {"rpo_bytes": 100} | risk(100, 100),
        M,
        ["availability", "unreplicated at worst 100 bytes, objective 100 bytes"],
    ),
    ({"rpo_bytes": 100} | risk(0, 99), M, ["availability", "unreplicated at worst at most 99 b"]),
    ({"rpo_bytes": 100} | risk(101, None), B, ["unreplicated at worst 101 bytes > 100 bytes"]),
    (
        {"rpo_bytes": 100} | risk(100, 101),
        I,
        ["unreplicated at worst between 100 and 101 bytes, objective 100 bytes"],
    ),
    (
        {"rpo_bytes": 100} | risk(0, 101) | {"exposure_unmarked": 7},
        I,
        [
            "unreplicated at worst between 0 and 101 bytes, objective 100 bytes; less cannot be"
            " proved at this interval (5 s)"
        ],
    ),
    (
        {"rpo_bytes": 100} | risk(0, 1, unbounded_s=0.001),
        I,
        ["unreplicated bytes not known for 0.001 s, objective 100 bytes"],
    ),
    ({"rpo_bytes": 0} | risk(0, 0), M, ["availability", "unreplicated at worst 0"]),
    ({"rpo_bytes": 100}, I, ["unreplicated bytes not known, objective 100 bytes"]),
    # One moment above the limit is proof enough.
    (LITTLE | {"rpo_bytes": 0} | risk(1, 1), B, ["unreplicated", "availability not proved"]),
    # A SYNC_MASTER's sends have an objective unless the file says otherwise.
    (sends(900, 100) | {"role": "SYNC_MASTER"}, B, ["sync ok 90 % < 99.9 %"]),
    (
        sends(900, 100) | {"role": "SYNC_MASTER", "sync_ok_given": True},
        M,
        ["availability"],
    ),
    # metadata age
    (
        {"metadata_age_seconds": 60.0, "metadata": [kind(9, 60_000), kind(5, 5)]},
        M,
        ["availability", "metadata age at most 60 s, objective 60 s"],
    ),
    (
        {"metadata_age_seconds": 60.0, "metadata": [kind(5, 5), kind(60_001, 60_001)]},
        B,
        ["metadata age 60.001 s > 60 s"],
    ),
    (
        {"metadata_age_seconds": 60.0, "metadata": [kind(5, 5), kind(6, 60_001)]},
        I,
        ["metadata age at worst between 0.006 and 60.001 s, objective 60 s: less cannot be proved"],
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
    (
        {"metadata_age_seconds": 60.0, "metadata": [kind(5, 5), kind(0, None, 86_400.0)]},
        I,
        ["metadata age not"],
    ),
    ({"metadata_age_seconds": 60.0, "metadata": [kind(5, 5, 1.0)]}, I, ["metadata age not"]),
    # What puts the whole day in doubt stands first, whatever else there is.
    (
        {"two_masters": "broker id 0 (boot a) and broker id 0 (boot b), from 10:00:00 to 10:05:00"},
        I,
        ["two masters at once: broker id 0 (boot a) and", "availability 100 %"],
    ),
    (
        {"two_masters": "one and another", "bad_s": 100.0, "availability": 0.99768},
        B,
        ["two masters at once", "availability 99.768 %"],
    ),
    ({"ready_samples": 0}, I, ["no write was accepted: the broker was not ready in any", "avail"]),
    # the worst counts, breaches are told first
    (
        LITTLE | {"rpo_bytes": 1} | risk(2, 2) | {"lag_p99_seconds": 1.0},
        B,
        ["unreplicated", "availability not proved", "lag p99 not known"],
    ),
]


OF_OBJECTIVE = {field.name for field in dataclasses.fields(Objective)}


@every_row(("fields", "verdict", "reasons"), CASES)
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
