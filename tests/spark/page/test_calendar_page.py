"""The calendar without a browser: days, weeks, months, trend and worst week, as their days have
them; what the history keeps, and what it refuses."""

from __future__ import annotations

import dataclasses
import datetime
import json
import re

import pytest

from spark.figures.report_data import BREACHED, INSUFFICIENT, MET
from spark.page.calendar_page import MAX_GROUPS, calendar_html
from spark.page.history import DayResult, HistoryError, PeriodResult, from_json, result_of, to_json
from spark.page.summary import summary_json
from tests.spark.calendar_days import GROUP, days_of, with_periods
from tests.spark.demo_report import demo_report, large_report
from tests.spark.page_reader import Element, access_problems, read_page
from tests.spark.told_reports import calendar_row, told_report

# 2026-02-23 is a Monday: weeks 9 to 11.
THREE_WEEKS = days_of("2026-02-23", "mmmmmmmbbmimmmmmm-mm")


def page_of(letters: str, first: str = "2026-02-23", **others: object) -> Element:
    return read_page(calendar_html(days_of(first, letters)))


def by_id(page: Element, name: str) -> Element:
    return next(e for e in page.walk() if e.attributes.get("id") == name)


def test_each_day_leads_to_its_report_with_its_verdict() -> None:
    page = read_page(calendar_html(THREE_WEEKS))
    found = {
        a.attributes["href"]: a.text()
        for table in page.all("table")
        if "month" in table.classes
        for a in table.all("a")
    }
    assert len(found) == len(THREE_WEEKS) == 19
    assert found["report/dt=2026-03-02/report.html"] == "2 ✕Breached"
    assert found["report/dt=2026-03-05/report.html"] == "5 ?Insufficient data"
    assert found["report/dt=2026-02-23/report.html"] == "23 ✓Met"
    assert "report/dt=2026-03-12/report.html" not in found
    march = by_id(page, "m-2026-03")
    assert "12 no report" in march.text()


def test_a_day_stands_below_its_weekday_and_beside_its_week() -> None:
    table = by_id(read_page(calendar_html(THREE_WEEKS)), "m-2026-03").all("table")[0]
    rows = [[cell.text() for cell in row.all("th", "td")] for row in table.all("tr")]
    assert rows[0] == ["Week", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun", "Whole week"]
    assert rows[1][:2] == ["W09", ""], "the first of March 2026 is a Sunday"
    assert rows[1][7] == "1 ✓Met"
    assert rows[2][:3] == ["W10", "2 ✕Breached", "3 ✕Breached"]
    assert rows[2][8] == "✕ Breached, 10 min 40 s bad", "2 x 300 s and 4 x 10 s"
    # A week that lies in two months has the same sum in both.
    february = by_id(read_page(calendar_html(THREE_WEEKS)), "m-2026-02").all("table")[0]
    last = [cell.text() for cell in february.all("tr")[-1].all("th", "td")]
    assert (last[0], last[8]) == (rows[1][0], rows[1][8])


def test_one_goes_from_month_to_month() -> None:
    page = page_of("m" * 70, "2026-01-10")
    steps = {
        name: [a.attributes["href"] for a in by_id(page, name).all("ul")[0].all("a")]
        for name in ("m-2026-01", "m-2026-02", "m-2026-03")
    }
    assert steps == {
        "m-2026-03": ["#m-2026-02"],
        "m-2026-02": ["#m-2026-01", "#m-2026-03"],
        "m-2026-01": ["#m-2026-02"],
    }
    months = [s.attributes["id"] for s in page.all("section") if "id" in s.attributes]
    assert months == ["m-2026-03", "m-2026-02", "m-2026-01"], "the last one first"
    assert access_problems(page) == []


def test_the_worst_week_and_the_trend() -> None:
    header = read_page(calendar_html(THREE_WEEKS)).all("header")[0].text()
    assert (
        "The worst week of all: 2026-W10 (2 March 2026 to 8 March 2026): 2 days breached, 1 with "
        "insufficient data, 10 min 40 s bad."
    ) in header
    assert "The last 28 days: 16 of 19 reported days met, 12 min 40 s bad" in header
    assert "6 sends refused, late or unproved" in header
    assert "There are no earlier days to compare them with." in header
    for letters, word in (("b" * 28 + "m" * 28, "better"), ("m" * 28 + "b" * 28, "worse")):
        assert f"Trend: {word}." in page_of(letters).all("header")[0].text()
    assert "Trend: unchanged." in page_of("m" * 56).all("header")[0].text()
    assert "No week had a day that was not met." in page_of("mmm").all("header")[0].text()


def test_the_last_day_stands_first() -> None:
    header = page_of("mmb").all("header")[0]
    day, window = (e for e in header.walk() if "verdict" in e.classes)
    assert "breached" in day.classes
    assert day.text().startswith(
        "✕ Breached The last day: 25 February 2026. 5 min bad, 0 s unknown"
    )
    assert "met" in window.classes
    assert window.text() == "✓ Met, 30 days The 30 days that end with it."
    html = calendar_html([]).decode()
    assert "No day has a report yet." in html
    assert access_problems(read_page(html.encode())) == []


def tables_of(page: Element, period: str) -> list[list[str]]:
    table = next(
        t for t in page.all("table")
        if t.all("caption")[0].attributes.get("id") == f"contract-{period}"
    )  # fmt: skip
    return [[cell.text() for cell in row.all("th", "td")] for row in table.all("tr")]


def test_calendar_periods_stand_with_their_budget() -> None:
    """Bad are 10 s a day, and 300 s on a breached one; a week may have 500 s, a month 1,000."""
    days = with_periods(days_of("2026-02-23", "mmmmmmmbbmbmmmmbmmm"))
    page = read_page(calendar_html(days))
    header = page.all("header")[0]
    boxes = [e.text() for e in header.walk() if "verdict" in e.classes]
    assert len(boxes) == 5
    assert boxes[2].startswith("✓ Met, week 2026-W11 So far, of the week 2026-W11 (Europe/Berlin):")
    assert "68 % of the budget used, 2 min 40 s left" in boxes[2]
    assert boxes[3].startswith("✕ Breached, month 2026-03 So far")
    assert "129 % of the budget used, 4 min 50 s more than allowed" in boxes[3]
    assert boxes[4].startswith("✓ Met, quarter 2026-Q1 So far")
    weeks = tables_of(page, "week")
    assert [row[0] for row in weeks[1:]] == [f"2026-W{n:02d} Europe/Berlin" for n in (11, 10, 9)]
    assert weeks[2][1:] == ["✕ Breached", "its end", "188 %", "−7 min 20 s", "15 min 40 s", "0 s"]
    months = tables_of(page, "month")
    assert [row[2] for row in months[1:]] == ["13 March 2026", "its end"]
    texts = [p.text() for p in page.all("p")]
    assert (
        "The worst week of all: 2026-W10, breached: 188 % of the budget used, 7 min 20 s more than"
        " allowed, 15 min 40 s bad, 0 s unknown."
    ) in texts
    assert "Every quarter was met so far." in texts
    assert access_problems(page) == []


def excluding(day: DayResult, excluded_s: float) -> DayResult:
    """The same with so much excluded time: each period twice, its window three times as much."""
    periods = [dataclasses.replace(one, excluded_s=2 * excluded_s) for one in day.periods]
    return dataclasses.replace(
        day,
        excluded_s=excluded_s,
        window_excluded_s=3 * excluded_s,
        periods=tuple(periods),
    )


def test_excluded_time_stands_beside_each_verdict() -> None:
    days = with_periods(days_of("2026-02-23", "mmmmmmmbbmbmmmmbmmm"))
    assert "xcluded" not in read_page(calendar_html(days)).all("body")[0].text()
    page = read_page(calendar_html([*days[:-1], excluding(days[-1], 3_600.0)]))
    day, window, *periods = (
        e.text().replace("\u00a0", " ")
        for e in page.all("header")[0].walk()
        if "verdict" in e.classes
    )
    assert "0 s unknown, 1 h excluded, of all replicas together." in day
    assert "3 h excluded, of all replicas together." in window
    assert [text.endswith("; 2 h excluded, of all replicas together.") for text in periods] == [
        True
    ] * 3
    for kind in ("week", "month", "quarter"):
        table = tables_of(page, kind)
        assert table[0][-1] == "Excluded"
        assert [row[-1] for row in table[1:]] == ["2 h", *["0 s"] * (len(table) - 2)]
    march = by_id(page, "m-2026-03").text().replace("\u00a0", " ")
    assert "bad, 1 h excluded, availability" in march
    assert "bad, 1 h excluded" in march.partition("Whole week")[2]
    assert access_problems(page) == []


def test_of_many_periods_the_last_ones_are_shown_and_the_worst_of_all_is_named() -> None:
    days = with_periods(days_of("2025-01-01", "bbbb" + "m" * 440))
    page = read_page(calendar_html(days))
    assert [row[0][:7] for row in tables_of(page, "month")[1:]][::12] == ["2026-03", "2025-03"]
    assert "2 earlier ones are left out." in page.text()
    assert "The worst month of all: 2025-01, breached" in page.text()


def test_without_calendar_periods_nothing_is_said_of_them() -> None:
    assert "Calendar periods" not in page_of("mmb").text()


def test_a_budget_of_nothing() -> None:
    (day,) = with_periods(days_of("2026-03-01", "b"))
    none = dataclasses.replace(day.periods[1], used=None, left_s=-300.0, verdict=BREACHED)
    days = [dataclasses.replace(day, periods=(none,))]
    assert from_json(to_json(days).decode()) == days
    assert tables_of(read_page(calendar_html(days)), "month")[1][3:5] == ["–", "−5 min"]
    unknown = dataclasses.replace(none, left_s=None, verdict=INSUFFICIENT)
    html = calendar_html([dataclasses.replace(day, periods=(unknown,))])
    assert "nothing is known of its budget" in html.decode()


def test_groups_stand_by_day_the_worst_first() -> None:
    groups = [(GROUP[0], f"broker-{n:02d}") for n in range(MAX_GROUPS + 5)]
    page = read_page(calendar_html(days_of("2026-03-01", "bim", groups)))
    (matrix,) = (t for t in page.all("table") if "matrix" in t.classes)
    rows = [[c.text() for c in row.all("th", "td")] for row in matrix.all("tr")]
    assert rows[1][:6] == ["broker-00 DefaultCluster", "✕ Breached", "✕", "?", "✓", "–"]
    assert rows[2][:6] == ["broker-01 DefaultCluster", "✓ Met", "✓", "✓", "✓", "–"]
    assert len(rows) == MAX_GROUPS + 1
    assert "The 30 worst groups are shown, 5 more have" in page.text()


def test_years_stay_a_small_page() -> None:
    groups = [(GROUP[0], f"broker-{n:04d}") for n in range(1000)]
    days = days_of("2023-01-01", "m" * 1200, groups)
    assert len(calendar_html(days)) < 1_500_000
    assert len(to_json(days)) < 2_500_000


def test_nothing_comes_from_outside_and_names_stay_text() -> None:
    evil = ("<script>alert(1)</script>", "\u202e</style><img src=x>")
    html = calendar_html(days_of("2026-03-01", "bm", [evil])).decode()
    assert not re.search(r"https?://|@import|src=x>|<script|<link|<img|\sstyle=|\son\w+=", html)
    assert [e.tag for e in read_page(html.encode()).walk()] == [
        e.tag for e in read_page(calendar_html(days_of("2026-03-01", "bm"))).walk()
    ]


def test_what_is_kept_of_a_summary() -> None:
    result = result_of(json.loads(summary_json(demo_report())))
    assert (str(result.date), result.verdict, result.length_s) == ("2026-03-14", BREACHED, 86_400)
    assert (result.window_days, result.window_verdict) == (30, INSUFFICIENT)
    assert (result.bad_s, result.unknown_s) == (275 + 40, 31_680)
    assert (result.incidents, result.sends, result.sends_failed) == (5, 273_880_570, 257)
    assert result.periods == ()
    assert result.groups == {
        ("DefaultCluster", "broker-a"): BREACHED,
        ("DefaultCluster", "broker-b"): INSUFFICIENT,
    }


def test_what_is_kept_of_a_summarys_calendar_periods() -> None:
    """Sums over the replicas, and the budget of the one that has used the most of its own."""
    report = told_report(
        calendar_windows=[
            calendar_row("2026-03", "breached", 1.5) | {"budget_left_s": -1_296.0},
            calendar_row("2026-03", "met", 0.9, replica="b:9")
            | {"budget_left_s": 4.0, "excluded_s": 3_600.0},
        ]
    )
    (month,) = result_of(json.loads(summary_json(report))).periods
    assert month == PeriodResult(
        "month", "2026-03", "Europe/Berlin", False, BREACHED, 2.0, 0.0, 1.5, -1_296.0, 3_600.0
    )
    of_before = json.loads(summary_json(report))
    del of_before["calendar"]
    assert result_of(of_before).periods == ()


def test_a_history_is_what_was_entered() -> None:
    groups = [GROUP, ("c", "b\ud800"), ("c", "later")]
    days = [*days_of("2026-03-01", "bim", groups[:2]), *days_of("2026-03-08", "m", groups)]
    days[1:] = with_periods(days[1:])
    days[1:] = [excluding(day, 60.0) for day in days[1:]]
    assert from_json(to_json(days[::-1]).decode()) == days
    assert to_json(days) == to_json(days[::-1])
    large = result_of(json.loads(summary_json(large_report(500))))
    assert from_json(to_json([large]).decode()) == [large]
    assert large.groups[("DefaultCluster", "broker-0000")] in (MET, BREACHED, INSUFFICIENT)


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{}", '{"version": 1, "groups": [], "days": {}}'),
        '{"version": 2, "groups": [], "days": {}}',
        '{"version": 3, "groups": [], "days": {"x": {}}}',
        to_json(with_periods(days_of("2026-03-01", "b"))).decode().replace('"month"', "7, 8"),
        to_json(days_of("2026-03-01", "b")).decode().replace('"b"', '"bb"'),
        to_json(days_of("2026-03-01", "b")).decode().replace('"b"', '"x"'),
        to_json(days_of("2026-03-01", "b")).decode().replace('"breached"', '"good"'),
    ],
)
def test_what_is_no_history_is_refused(text: str) -> None:
    with pytest.raises(HistoryError):
        from_json(text)


def test_a_date_reported_in_part_says_so() -> None:
    (day,) = days_of("2026-03-01", "m")
    part = dataclasses.replace(day, length_s=600.0)
    assert "reported in part" in read_page(calendar_html([part])).all("header")[0].text()


def test_dates_are_those_of_the_days() -> None:
    assert [day.date for day in days_of("2026-02-27", "m-b")] == [
        datetime.date(2026, 2, 27),
        datetime.date(2026, 3, 1),
    ]
