"""How figures and names are written."""

from __future__ import annotations

import math

import pytest

from spark.figures import wording


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (math.nan, "–"),
        (0, "0 s"),
        (0.004, "0.004 s"),
        (1e-5, "0 s"),
        (-1e-14, "0 s"),
        (12.5, "12.5 s"),
        (59.96, "1 min"),
        (250, "4 min 10 s"),
        (3599.7, "1 h"),
        (11_100, "3 h 05 min"),
        (187_200, "2 d 04 h"),
        (-188.6, "−3 min 09 s"),
    ],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert wording.duration(seconds).replace("\u00a0", " ") == text


def test_lag_and_sizes() -> None:
    assert wording.lag(12.4) == "12\u00a0ms"
    assert wording.lag(0.5) == "0.5\u00a0ms"
    assert (wording.lag(0), wording.lag(4.12)) == ("0\u00a0ms", "4.12\u00a0ms")
    assert wording.lag(999.4) == "999\u00a0ms"
    assert wording.lag(999.6) == "1\u00a0s"
    assert wording.lag(1250) == "1.25\u00a0s"
    assert wording.lag(125_000) == "2\u00a0min\u00a005\u00a0s"
    assert wording.size(999) == "999\u00a0B"
    assert wording.size(999_600) == "1\u00a0MB"
    assert wording.size(61_300_000) == "61.3\u00a0MB"
    assert wording.brief(-188.6) == "−3.14\u00a0min"


def test_a_share_is_never_rounded_up() -> None:
    assert wording.share(1.0) == "100\u00a0%"
    assert wording.share(0.9999999) == "99.999\u00a0%"
    assert wording.share(0.999) == "99.9\u00a0%"
    assert wording.share(0.29) == "29\u00a0%"


def test_budgets_far_beyond_are_multiples() -> None:
    assert wording.used(3.183) == "318\u00a0%"
    assert wording.used(57.4) == "57\u00a0×"
    assert wording.used(0) == "0\u00a0%"
    assert wording.used(9.994) == "999\u00a0%"
    assert wording.used(9.999) == "10\u00a0×"


def test_what_is_almost_nothing_is_not_written_as_a_power() -> None:
    assert wording.used(1e-7) == "< 0.001\u00a0%"
    assert wording.rate(2e-5) == "< 0.001\u00a0×"
    assert wording.brief(-1e-14) == "0\u00a0s"


def test_names_show_what_cannot_be_seen_and_stay_short() -> None:
    assert wording.name("a\u202eb\x1b[31m\n") == "a\\u202eb\\u001b[31m\\u000a"
    assert wording.name("x" * 5000 + "end") == "x" * 60 + "…" + "x" * 16 + "end"
    assert wording.name("Grüße 北京") == "Grüße 北京"


def test_a_reason_becomes_a_sentence() -> None:
    said = wording.sentence("coverage 63.3 % < 99 %: 8 h 48 min unknown")
    assert said == "Coverage 63.3\u00a0% < 99\u00a0%: 8\u00a0h 48\u00a0min unknown."


def test_seconds_of_a_reason_are_told_as_people_count_them() -> None:
    def said(reason: str) -> str:
        return wording.spoken(reason).replace("\u00a0", " ")

    assert said("availability 99.681 % < 99.9 %: 275 s bad of 86.4 s allowed") == (
        "availability 99.681 % < 99.9 %: 4 min 35 s bad of 1 min 26.4 s allowed"
    )
    assert said("lag p99 0.128 s, objective 2 s") == "lag p99 0.128 s, objective 2 s"
    # What is just above a limit does not read as the limit.
    assert said("60.001 s > 60 s") == "1 min 00.001 s > 1 min"
    assert said("86400 s of 3599.9996 s") == "1 d of 1 h"
    assert said("8 h 48 min 5 s, 10 sends, broker-1:3600 s") == (
        "8 h 48 min 5 s, 10 sends, broker-1:3600 s"
    )


def test_moments() -> None:
    assert wording.moment(1_773_454_205_000, "2026-03-14") == "02:10:05"
    assert wording.moment(1_773_454_205_000, "2026-03-15") == "2026-03-14 02:10:05"
