"""The page without a browser: its words, hostile names, access, size, what it must not contain."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from spark.figures import wording
from spark.figures.report_data import ELECTION_COLUMNS, MET, ReportData, Row
from spark.page import report_page
from spark.page.group_plots import CAUSES
from spark.page.headlines import one_line
from spark.page.report_page import report_html
from spark.page.runbook import RUNBOOK
from spark.page.sends import sends_of
from spark.vocabulary import FIRST_COPY, IS_MASTER, NOT_YET
from tests.spark.browser import digest_of_page
from tests.spark.demo_report import demo_report, empty_report, large_report, one_replica_report
from tests.spark.page_reader import Element, access_problems, contrast, palettes, read_page

TEMPLATES = Path(report_page.__file__).parent / "templates"
CSS = (TEMPLATES / "report.css").read_text(encoding="utf-8")
PICTURE_DIRECTORY = Path(__file__).parents[3] / "docs" / "images"
PICTURES = ("sla_report", "sla_report_replica")
HOSTILE = [
    "<script>alert(1)</script>",
    "\"'><img src=x onerror=alert(1)>",
    "\u202ereversed\u2067",
    "x" * 10_000,
    "{{ 7 * 7 }}{% raw %}",
    "</style></title><svg/onload=alert(1)>",
    "a\x00b\x1b[31m\r\n",
    "שלום",
    "half \ud800",
]
TEXT_PAIRS = [
    *(
        (ink, ground)
        for ink in ("ink", "muted", "accent", "bad", "warn")
        for ground in ("bg", "panel")
    ),
    *((name, f"{name}-bg") for name in ("bad", "warn", "good")),
    *(("ink", f"{name}-bg") for name in ("bad", "warn", "good")),
]
SHAPE_PAIRS = [
    *(
        (shape, "bg")
        for shape in ("accent", "bad", "good", "hatch", "catching-up", "disconnected", "down")
    ),
    ("ink", "bg"),
    # Of a heat map: bad hours are told by strokes, whatever becomes of the colours.
    ("mark4", "heat4"),
    ("mark5", "heat5"),
]
HEAT_STEP = 1.4
"""Contrast of one level within the objective with the next: theirs are shades of one colour."""


def page_of(data: ReportData) -> Element:
    return read_page(report_html(data))


def section(page: Element, name: str) -> Element:
    return next(e for e in page.all("section") if e.attributes["aria-labelledby"] == name)


def rows_of(page: Element, caption: str) -> list[list[str]]:
    """The body of the table with that caption, as texts."""
    tables = [t for t in page.all("table") if t.all("caption")[0].text().startswith(caption)]
    body = tables[0].all("tbody")[0]
    return [[cell.text() for cell in row.all("th", "td")] for row in body.all("tr")]


def test_a_master_without_its_slaves_is_named_below_the_verdict() -> None:
    demo = demo_report()
    alone = {**demo.group_days[0], "broker": "<b2>", "role": "SYNC_MASTER"}
    async_master = {**alone, "broker": "b3", "role": "ASYNC_MASTER"}
    data = dataclasses.replace(demo, group_days=[*demo.group_days, alone, async_master])
    notices = [e.text() for e in page_of(data).walk() if "notice" in e.classes]
    assert notices[0] == (
        "Insufficient data: <b2> of DefaultCluster waits for its slaves as a SYNC_MASTER, but no "
        "replica of it is known."
    )


def test_the_verdict_comes_first_in_colour_word_and_sign() -> None:
    page = page_of(demo_report())
    day, window = (e for e in page.walk() if "verdict" in e.classes)
    assert "breached" in day.classes
    assert day.text() == (
        "✕ Breached Of 3 replicas, 1 breached, 1 with insufficient data, 1 met. 257 of 273,880,570 "
        "sends went wrong: 12 refused, 214 late at the replicas, 31 unproved (too few replicas)."
    )
    assert "insufficient" in window.classes
    assert window.text() == (
        "? Insufficient data, 30 days Of 3 replicas, 3 with insufficient data. 3,598 of "
        "3,834,327,980 sends went wrong: 168 refused, 2,996 late at the replicas, 434 unproved "
        "(too few replicas)."
    )
    assert page.all("title")[0].text() == "Breached: replication report 2026-03-14"
    body = page.all("body")[0].text()
    assert (
        body.index("✕ Breached") < body.index("Why") < body.index("Every replica, the worst first")
    )


def test_why_in_sentences() -> None:
    why = next(e for e in page_of(demo_report()).walk() if "why" in e.classes)
    assert [item.text() for item in why.all("li")] == [
        "✕ Breached: broker-a:1 (DefaultCluster / broker-a). Availability 99.681 % < 99.9 %: "
        "4 min 35 s bad of 1 min 26.4 s allowed. "
        "3 incidents, the longest lasted 3 min 20 s from 02:10:05: disconnected. The connection to "
        "\u2068192.0.2.3:58200\u2069 ended at 02:10:04: Connection reset by peer.",
        "? Insufficient data: broker-b:1 (DefaultCluster / broker-b). "
        "Availability not proved: 0 s bad and 8 h 48 min unknown of 1 min 26.4 s allowed. "
        "Lag p99, objective 2 s: not proved, 0 s above it and 8 h 48 min unknown of 14 min 24 s "
        "allowed.",
    ]


def test_why_of_the_longest_window() -> None:
    day, window = (e for e in page_of(demo_report()).walk() if "why" in e.classes)
    assert len(day.all("li")) == 2
    assert window.all("li")[0].text() == (
        "? Insufficient data: broker-a:1 (DefaultCluster / broker-a). Availability not proved: "
        "6 min 02 s bad and 16 d unknown of 43 min 12 s allowed; 14 of 30 days have data."
    )


def test_why_says_how_many_more_there_are() -> None:
    day, window = (e for e in page_of(large_report(12)).walk() if "why" in e.classes)
    items = [item.text() for item in day.all("li")]
    assert len(items) == 12
    assert items[5] == "✕ Breached: And 3 more replicas."
    assert items[11] == "? Insufficient data: And 3 more replicas."
    assert window.all("li")[5].text() == "? Insufficient data: And 19 more replicas."


def test_a_window_that_is_met_needs_no_reason() -> None:
    demo = demo_report()
    met = [{**row, "verdict": MET} for row in demo.windows]
    page = page_of(dataclasses.replace(demo, windows=met))
    assert len([e for e in page.walk() if "why" in e.classes]) == 1
    _, window = (e for e in page.walk() if "verdict" in e.classes)
    assert window.text().startswith("✓ Met, 30 days Of 3 replicas, 3 met. 3,598 of 3,834,327,980")


def test_excluded_time_is_shown_with_its_reasons() -> None:
    demo = demo_report()
    first, second, third = demo.replica_days
    disks = {"reason": "new <disks>", "seconds": 3600.0}
    weekly = {"reason": "weekly", "seconds": 5400.0}
    rows = [
        {**first, "excluded_s": 3600.0, "exclusions": [disks]},
        {**second, "excluded_s": 9000.0, "exclusions": [disks, weekly]},
        third,
    ]
    page = page_of(dataclasses.replace(demo, replica_days=rows))
    assert (
        "Excluded, as agreed: 3 h 30 min of 2 replicas: new <disks> (2 h), weekly (1 h 30 min). "
        "It counts neither as good nor as bad."
    ) in page.all("header")[0].text()
    assert "Excluded: 1 h of 1 replica: new <disks> (1 h)." in section(page, "replica-1").text()
    assert "Excluded:" not in section(page, "replica-2").text()
    many = [{"reason": f"reason {n}", "seconds": 60.0} for n in range(7)]
    rows[0] = {**first, "excluded_s": 420.0, "exclusions": many}
    header = page_of(dataclasses.replace(demo, replica_days=rows[:1])).all("header")[0].text()
    assert "reason 4 (1 min), and 2 more reasons." in header


def opened(demo: ReportData, *open_at_ms: int) -> list[Row]:
    """The demo's last incidents, left open: bad until these moments."""
    kept = len(demo.incidents) - len(open_at_ms)
    return [
        *demo.incidents[:kept],
        *(
            {**row, "open": True, "end_ms": end_ms, "duration_s": (end_ms - row["start_ms"]) / 1000}
            for row, end_ms in zip(demo.incidents[kept:], open_at_ms, strict=True)
        ),
    ]


def test_what_is_still_going_on_stands_above_everything_else() -> None:
    demo = demo_report()
    data = dataclasses.replace(demo, incidents=opened(demo, demo.w1_ms - 3_600_000, demo.w1_ms))
    header = page_of(data).all("header")[0]
    box = section(header, "open")
    assert box.all("h2")[0].text() == "Still going on"
    going_on, not_seen = (item.text() for item in box.all("li"))
    who, other = (f"{row['replica']} (DefaultCluster / broker-a)" for row in data.incidents[:-3:-1])
    assert going_on == f"{who} {data.incidents[-1]['cause'].replace('_', ' ')} since " + (
        f"{moment(data.incidents[-1])} ({lasted(data.incidents[-1])} so far)."
    )
    assert not_seen.startswith(f"Not seen to end: {other} ")
    assert not_seen.endswith("; nothing good was seen since.")
    assert header.text().index("Still going on") < header.text().index("✕ Breached")
    only = dataclasses.replace(demo, incidents=opened(demo, demo.w1_ms - 3_600_000))
    assert section(page_of(only), "open").all("h2")[0].text() == "Not seen to end"
    assert "Still going on" not in page_of(demo).all("header")[0].text()
    assert rows_of(page_of(data), "Every incident")[-1][2] == "still going on"
    assert "still open" in " ".join(row[4] for row in rows_of(page_of(data), "Every replica"))


def moment(row: Row) -> str:
    return wording.moment(row["start_ms"], "2026-03-14")


def lasted(row: Row) -> str:
    return " ".join(wording.duration(row["duration_s"]).split())


def test_a_new_installation_says_since_when_it_is_judged() -> None:
    demo = demo_report()
    begun = [{**row, "begun": "2026-03-12", "verdict": MET} for row in demo.windows]
    page = page_of(dataclasses.replace(demo, windows=begun))
    _, window = (e for e in page.walk() if "verdict" in e.classes)
    assert window.text().startswith(
        "✓ Met, 30 days begun 3 days ago Of 3 replicas, 3 met. Judged over the time since the first"
        " result of 2026-03-12, not over 30 days."
    )


def test_a_first_copy_is_expected_and_told_apart_from_what_was_agreed() -> None:
    demo = demo_report()
    first, second, third = demo.replica_days
    copy = [{"reason": FIRST_COPY, "seconds": 600.0}, {"reason": NOT_YET, "seconds": 30.0}]
    rows = [
        {**first, "excluded_s": 630.0, "exclusions": copy, "first_copy_since_ms": demo.w0_ms},
        {**second, "excluded_s": 60.0, "exclusions": [{"reason": "disk", "seconds": 60.0}]},
        third,
    ]
    page = page_of(dataclasses.replace(demo, replica_days=rows))
    header = page.all("header")[0].text()
    assert "Excluded, as agreed: 1 min of 1 replica: disk (1 min)." in header
    assert (
        "Expected of new replicas: 10 min 30 s of 1 replica: first copy (10 min), did not exist "
        "yet (30 s)."
    ) in header
    name = f"\u2068{first['replica']}\u2069"
    assert f"A first copy is still running: {name} (since 00:00:00)." in header
    cells = {row[0].split()[0]: row[7] for row in rows_of(page, "Every replica")}
    assert cells[first["replica"]] == "10 min 30 s first copy, not there yet"
    assert cells[second["replica"]] == "1 min agreed"


def test_each_cause_leads_to_what_to_do_about_it() -> None:
    demo = demo_report()
    page = page_of(demo)
    ids = {e.attributes["id"] for e in page.walk() if "id" in e.attributes}
    table = next(t for t in page.all("table") if "Every incident" in t.text())
    found = {
        a.text(): a.attributes["href"] for a in table.all("a") if "runbook" in str(a.attributes)
    }
    assert found == {
        name: f"#runbook-{name.replace(' ', '_')}"
        for name in ("disconnected", "slow", "master restart")
    }
    assert {href[1:] for href in found.values()} <= ids, "a link that leads nowhere"
    why = next(e for e in page.walk() if "why" in e.classes)
    assert "#runbook-disconnected" in {a.attributes["href"] for a in why.all("a")}
    (objective,) = demo.objectives
    own = "https://wiki.example.com/x"
    data = dataclasses.replace(demo, objectives=[{**objective, "runbook_url": own}])
    links = {a.attributes["href"] for a in page_of(data).all("a")}
    assert f"{own}#disconnected" in links


def test_the_runbook_has_every_cause_and_names_headings_that_are_there() -> None:
    assert RUNBOOK.keys() == set(CAUSES)
    for entry in RUNBOOK.values():
        text = (PICTURE_DIRECTORY.parent / entry.heading[0]).read_text(encoding="utf-8")
        headings = [line.lstrip("# ") for line in text.splitlines() if line.startswith("#")]
        assert entry.heading[1] in headings


def test_sends_refused_late_or_unproved_are_told_with_the_verdict() -> None:
    rows = demo_report().group_days
    unknown = {name: None for name in rows[0] if name.startswith("sends_")}
    # Of a dump of version 1: only those that had to wait.
    row, other = ({**each, **unknown} for each in rows)
    none = {**row, "sync_flush_slave_timeout": 0, "sync_slave_not_available": 0}

    def said(*groups: Row) -> str:
        told = sends_of(groups)
        assert told is not None
        return told.sentence

    assert said(none, other) == (
        "None of 476,375 sends that waited for replicas or the disk was late or unproved. "
        "The dumps do not count refused ones."
    )
    assert said(row) == (
        "245 of 476,620 sends that waited for replicas or the disk went wrong: 214 late at the "
        "replicas, 31 unproved (too few replicas). The dumps do not count refused ones."
    )
    assert said(other).startswith("There was no send that waited for replicas or the disk.")
    counted = {f"sends_{name}": 0 for name in ("flush_slave_timeout", "flush_disk_timeout")}
    counted |= {"sends_ok": 90, "sends_refused": 9, "sends_slave_not_available": 1}
    assert said({**row, **counted}) == (
        "10 of 100 sends went wrong: 9 refused, 1 unproved (too few replicas)."
    )
    # One group that counts all of them and one that does not: only what both count is promised.
    both = sends_of([{**row, **counted}, none])
    assert both is not None
    assert not both.are_all
    assert both.brief == "10 of 476,475 sends late or unproved"
    assert sends_of([dict.fromkeys(row)]) is None


def test_the_runbook_is_a_link() -> None:
    demo = demo_report()
    (objective,) = demo.objectives
    url = "https://wiki.example.com/x?a=1&b=2"
    data = dataclasses.replace(demo, objectives=[{**objective, "runbook_url": url}])
    links = [a for a in section(page_of(data), "replica-1").all("a") if a.text() == "Runbook"]
    assert [a.attributes["href"] for a in links] == [url]
    assert "Runbook" not in page_of(demo).text()


def test_a_day_that_was_met_says_how_near_it_was() -> None:
    demo = demo_report()
    data = dataclasses.replace(
        demo,
        verdict=MET,
        replica_days=[row for row in demo.replica_days if row["verdict"] == MET],
    )
    text = page_of(data).all("header")[0].text()
    assert "✓ Met Of 1 replica, 1 met." in text
    assert (
        "No replica had a lower availability. Availability 99.953 %, objective 99.9 %: 40 s bad of "
        "1 min 26.4 s allowed. Lag p99, objective 2 s: above it for at most 25 s of 14 min 23.85 s "
        "allowed. 2 incidents"
    ) in text


def test_tables_have_the_figures() -> None:
    page = page_of(demo_report())
    worst, unknown, _ = rows_of(page, "Every replica")
    assert worst == [
        "broker-a:1 DefaultCluster / broker-a",
        "✕ Breached",
        "99.681 %",
        "99.9 %, ≤ 10 s",
        "4 min 35 s",
        "318 %",
        "0 s",
        "29 ms",
        "394 ms",
        "2 min 05 s",
        "3",
    ]
    assert unknown[6] == "8 h 48 min"
    assert len(rows_of(page, "Every incident")) == 5
    sends = rows_of(page, "Sends that waited")
    assert [row[1] for row in sends] == ["1", "7", "30"] * 2
    assert sends[0][3:8] == ["476,620", "476,375", "214", "31", "0"]
    assert sends[2][3:8] == ["6,672,680", "6,669,250", "2,996", "434", "0"]
    risk = rows_of(page, "Data at risk")
    assert [row[1:3] for row in risk[:2]] == [["1", "SYNC_MASTER"], ["7", "SYNC_MASTER"]]
    assert [row[7] for row in risk[:3]] == ["710 MB × s", "4.97 GB × s", "9.94 GB × s"]
    assert rows_of(page, "How much of the window")[1][4:6] == ["17,280", "10,944"]
    assert rows_of(page, "Replicas that had to catch up")[0][4] == "61 MB/s"
    ages = rows_of(page, "Age of the metadata")
    assert len(ages) == 8
    assert ages[0][2:] == [
        "41.8 s",
        "10.4 s",
        "3",
        "1 d",
        "41.8 s",
        "3",
        "7 d",
        "41.8 s",
        "3",
        "14 d",
    ]
    assert [row[-1] for row in rows_of(page, "The days that end")][:2] == ["–", "2026-05-01"]
    assert len(rows_of(page, "Restarts, changes")) == 3
    assert rows_of(page, "Lines that could not be read")[0][:3] == [
        "not one JSON object",
        "1",
        "1",
    ]


def test_clusters_come_before_replicas() -> None:
    page = page_of(demo_report())
    assert rows_of(page, "Every cluster") == [
        [
            *("DefaultCluster", "✕ Breached", "2", "3", "1", "1", "1"),
            *("99.861 %", "99.97 %", "99.982 %", "394 ms", "99.948 %", "5", "61.3 MB"),
        ]
    ]
    headings = [heading.text() for heading in page.all("h2")]
    assert headings.index("Clusters") < headings.index("Replicas")
    demo = demo_report()
    single = dataclasses.replace(demo, group_days=demo.group_days[:1])
    assert "Clusters" not in [heading.text() for heading in page_of(single).all("h2")]
    others = [{**row, "cluster": "Other", "verdict": MET} for row in demo.clusters]
    two = dataclasses.replace(single, clusters=[*others, *demo.clusters])
    rows = rows_of(page_of(two), "Every cluster")
    assert [row[0] for row in rows] == ["DefaultCluster", "Other"], "the worst first"
    assert rows[1][10] == "–", "it has no replica of this day"


def test_a_replica_has_its_windows_beside_its_day() -> None:
    detail = section(page_of(demo_report()), "replica-1")
    columns = [cell.text() for cell in detail.all("thead")[0].all("th")]
    assert columns == ["Figure", "Day", "7 days", "30 days"]
    level, lag = (rows_of(detail, title) for title in ("Service level and", "Lag and catch-up"))
    assert level[0] == ["Verdict", "Breached", "Met", "Insufficient data"]
    assert level[3] == ["Bad", "4 min 35 s", "5 min 20 s", "6 min 02 s"]
    assert level[5] == ["Excluded", "0 s", "0 s", "0 s"]
    assert level[13:15] == [
        ["Budget ends", "–", "–", "2026-05-01"],
        ["Incidents", "3", "5", "6"],
    ]
    assert lag[0] == ["Lag p50", "29 ms", "29 ms", "29 ms"]
    states = rows_of(detail, "States, minutes")
    assert states[4] == ["Not recorded", "0 s", "0 s", "16 d"]


def test_windows_are_those_of_sla_yaml() -> None:
    demo = demo_report()
    longer = {7: 3, 30: 14}

    def of(rows: Sequence[Row]) -> list[Row]:
        return [{**row, "days": longer.get(row["days"], 1)} for row in rows]

    data = dataclasses.replace(
        demo,
        window_days=(3, 14),
        windows=of(demo.windows),
        group_windows=of(demo.group_windows),
        clusters=of(demo.clusters),
    )
    page = page_of(data)
    assert "3 and 14 days" in [heading.text() for heading in page.all("h2")]
    assert not re.search(r"\b(7|30) (and|days)", page.all("body")[0].text())
    assert "Error budget of 14 days: the last 14" in section(page, "replica-1").text()
    assert [row[1] for row in rows_of(page, "The days that end")][:2] == ["3", "14"]


def test_what_a_window_has_no_row_for_is_unknown() -> None:
    data = dataclasses.replace(demo_report(), windows=[], group_windows=[], clusters=[])
    page = page_of(data)
    assert rows_of(section(page, "replica-1"), "Lag and")[0] == ["Lag p50", "29 ms", "–", "–"]
    assert rows_of(page, "Age of the metadata")[0][6:] == ["–"] * 6
    assert access_problems(page) == []


def test_every_plot_is_there_with_its_data() -> None:
    page = page_of(demo_report())
    for number in (1, 2, 3):
        figures = section(page, f"replica-{number}").all("figure")
        assert [figure.all("b")[0].text() for figure in figures] == [
            "Lag over time",
            "Time in each state",
            "Lag percentiles",
            "Throughput against lag",
            "Error budget of the window",
            "Error budget of 30 days: the last 14",
            "Lag p99 by hour and day",
        ]
        assert [len(figure.all("table")) for figure in figures] == [1, 0, 1, 1, 1, 1, 1]
    assert len(section(page, "incidents").all("figure")) == 1
    assert len(section(page, "durability").all("figure")) == 1


def test_notices_of_a_part_of_a_day_and_of_a_revision() -> None:
    demo = demo_report()
    first, *others = demo.replica_days
    data = dataclasses.replace(
        demo,
        w1_ms=demo.w1_ms - 3_600_000,
        replica_days=[{**first, "revision": 3, "late": 17}, *others],
    )
    header = page_of(data).all("header")[0].text()
    assert "Part of a day: 00:00:00 to 23:00:00 UTC." in header
    assert "revision 3 of this day's result; 17 samples arrived after the first." in header
    assert "1 line could not be read and was set aside" in header
    revised = dataclasses.replace(demo, replica_days=[{**first, "revision": 2}, *others])
    assert (
        "revision 2 of this day's result; the next day's first line showed how this day ended, or"
        " the objectives or exclusions changed."
    ) in page_of(revised).all("header")[0].text()


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: ascii(name[:12]))
def test_hostile_names_stay_text(name: str) -> None:
    harmless, hostile = page_of(one_replica_report()), page_of(one_replica_report(name, name))
    assert [e.tag for e in hostile.walk()] == [e.tag for e in harmless.walk()]
    html = report_html(one_replica_report(name, name)).decode()
    assert not re.search("[\u202a-\u202e\u2066\u2067\x00\x1b]", html)
    assert len(html) < len(report_html(one_replica_report())) + 100 * 600
    assert access_problems(hostile) == []


@pytest.mark.parametrize(
    "report",
    [demo_report, empty_report, one_replica_report],
    ids=["demo", "empty", "one replica"],
)
def test_everybody_can_read_it(report: Callable[[], ReportData]) -> None:
    assert access_problems(page_of(report())) == []


def test_the_reader_sees_what_is_wrong() -> None:
    html = report_html(demo_report()).decode()
    for good, bad in (
        ('lang="en"', ""),
        ('scope="row"', ""),
        ('role="img"', ""),
        ("caption", "div"),
        ("h2", "h4"),
        ('tabindex="0"', ""),
        ('id="coverage"', 'id="metadata"'),
    ):
        broken = html.replace(good, bad)
        assert access_problems(read_page(broken.encode())), f"{good} is missed"


def test_contrasts_suffice_in_both_schemes() -> None:
    for scheme, colours in palettes(CSS).items():
        for ink, ground in TEXT_PAIRS:
            ratio = contrast(colours[ink], colours[ground])
            assert ratio >= 4.5, f"{scheme}: {ink} on {ground} has {ratio:.2f}"
        for shape, ground in SHAPE_PAIRS:
            ratio = contrast(colours[shape], colours[ground])
            assert ratio >= 3, f"{scheme}: {shape} on {ground} has {ratio:.2f}"
        for level, other in (("heat1", "heat2"), ("heat2", "heat3")):
            ratio = contrast(colours[level], colours[other])
            assert ratio >= HEAT_STEP, f"{scheme}: {level} and {other} have {ratio:.2f}"


def test_bad_hours_are_told_without_colour() -> None:
    figures = section(page_of(demo_report()), "replica-1").all("figure")
    heat = next(f for f in figures if f.all("b")[0].text() == "Lag p99 by hour and day")
    legend = heat.all("ul")[0]
    for style in ("heat4", "heat5"):
        cells, strokes = (
            next(e for e in heat.all("svg")[0].all("path") if name in e.classes).attributes["d"]
            for name in (style, f"{style}-mark")
        )
        assert cells.count("M") == strokes.count("M") > 0, "each has its stroke"
        assert any(f"{style}-mark" in e.classes for e in legend.all("path"))
        assert f".{style}-mark {{ stroke: var(--mark{style[-1]}); }}" in CSS


def test_contrast_as_the_guideline_has_it() -> None:
    assert round(contrast("#000000", "#ffffff"), 2) == 21
    assert round(contrast("#777777", "#ffffff"), 2) == 4.48


def test_text_has_only_the_colours_that_are_checked() -> None:
    used = set(re.findall(r"(?<![-\w])color: var\(--([\w-]+)\)", CSS))
    assert used <= {ink for ink, _ in TEXT_PAIRS}
    assert "outline: 3px solid var(--accent)" in CSS, "focus is seen"


def test_nothing_comes_from_outside() -> None:
    html = report_html(demo_report()).decode()
    assert not re.search(
        r"https?://|//[a-z]|@import|src=|<script|<link|<img|<iframe|\son\w+=", html
    )
    assert not re.search(r"\sstyle=", html)
    assert set(re.findall(r"url\(([^)]*)\)", html)) == {"#hatch", "#dots"}
    targets = {link.attributes["href"] for link in read_page(html.encode()).all("a")}
    files = {target for target in targets if not target.startswith("#")}
    assert files == {"replicas.csv", "incidents.csv", "summary.json"}


def test_only_its_own_style_counts() -> None:
    page = page_of(demo_report())
    style = "".join(child for child in page.all("style")[0].children if isinstance(child, str))
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = next(
        meta.attributes["content"] for meta in page.all("meta") if "http-equiv" in meta.attributes
    )
    assert policy == (
        f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )


def test_an_empty_day_is_insufficient_data() -> None:
    page = page_of(empty_report())
    verdict = next(e for e in page.walk() if "verdict" in e.classes)
    assert verdict.text() == "? Insufficient data No replica is known for this day."
    assert page.all("table", "figure") == []


def test_a_single_day_has_no_plots_of_several() -> None:
    figures = section(page_of(one_replica_report()), "replica-1").all("figure")
    assert len(figures) == 5


def test_equal_data_give_equal_bytes() -> None:
    demo = demo_report()
    backwards = dataclasses.replace(
        demo,
        replica_days=demo.replica_days[::-1],
        incidents=demo.incidents[::-1],
        minutes=demo.minutes[::-1],
        windows=demo.windows[::-1],
        group_days=demo.group_days[::-1],
        group_windows=demo.group_windows[::-1],
        clusters=demo.clusters[::-1],
    )
    assert report_html(backwards) == report_html(demo)


def test_a_thousand_replicas_are_a_page_of_bounded_size() -> None:
    html = report_html(large_report(500))
    assert len(html) < 5_000_000
    page = read_page(html)
    assert access_problems(page) == []
    assert len(rows_of(page, "Every replica")) == 200
    text = section(page, "replicas").text()
    assert "200 rows are shown, 800 more are in replicas.csv." in text
    assert "The 30 worst of 1,000 replicas are plotted." in section(page, "details").text()
    assert len([e for e in page.walk() if e.attributes.get("id", "").startswith("replica-")]) == 30


def test_what_the_report_left_out_is_counted() -> None:
    data = dataclasses.replace(demo_report(), totals={"incidents": 300_000, "events": 7})
    page = page_of(data)
    assert "5 rows are shown, 299,995 more are in incidents.csv." in page.text()
    assert "3 rows are shown, 4 more are in summary.json." in page.text()
    assert "Incidents300,000" in page.all("header")[0].text()


@pytest.mark.parametrize("name", PICTURES)
def test_the_pictures_in_the_documentation_show_this_page(name: str) -> None:
    png = (PICTURE_DIRECTORY / f"{name}.png").read_bytes()
    assert digest_of_page(png) == hashlib.sha256(report_html(demo_report())).hexdigest(), (
        "another page; draw it anew: UPDATE_PICTURES=1 .venv/bin/python -m pytest "
        "tests/spark/page/test_page_in_browser.py -k pictures"
    )


def month_row(demo: ReportData) -> dict[str, Any]:
    """A month of the demo's first replica, so far."""
    return {
        **{name: demo.replica_days[0][name] for name in ("cluster", "broker", "replica")},
        "period": "month",
        "name": "2026-11",
        "timezone": "Europe/Berlin",
        "verdict": "met",
        "from_ms": 0,
        "to_ms": 1,
        "until_ms": 1,
        "final": False,
        "days_with_data": 10,
        "reason": "",
        "window_s": 2_592_000.0,
        "open_s": 1_728_000.0,
        "excluded_s": 0.0,
        "good_s": 863_400.0,
        "bad_s": 600.0,
        "unknown_s": 0.0,
        "coverage": 1.0,
        "availability": 0.9993,
        "budget_s": 2_592.0,
        "budget_left_s": 1_992.0,
        "budget_used_ratio": 0.23,
    }


PERIODS = (
    "Weeks, months and quarters as far as they have come, in the days of Europe/Berlin;"
    " the budget is that of the whole period"
)


def test_calendar_periods_are_shown_as_far_as_they_have_come() -> None:
    demo = demo_report()
    page = page_of(dataclasses.replace(demo, calendar_windows=[month_row(demo)]))
    (found,) = rows_of(page, PERIODS)
    assert found[1] == "2026-11, so far"
    assert "Met" in found[2]
    assert [text.replace("\u00a0", " ") for text in found[3:]] == [
        *("99.93 %", "10 min", "0 s", "43 min 12 s", "33 min 12 s", "20 d"),
    ]
    assert access_problems(page) == []


def test_a_period_or_window_that_excludes_time_says_so_wherever_its_verdict_is() -> None:
    """What makes a breached month green is seen beside the month, not only on the day's page."""
    demo = demo_report()
    month = month_row(demo) | {"excluded_s": 7_200.0}
    windows = [row | {"excluded_s": 3_600.0} for row in map(dict, demo.windows)]
    clusters = [
        {**row, "calendar": [{**month, "replicas_met": 1, "replicas_breached": 0}]}
        | ({"days": 1} if row["days"] == 1 else {})
        for row in demo.clusters
    ]
    for row in clusters:
        row["calendar"][0]["replicas_insufficient"] = 0
    data = dataclasses.replace(demo, calendar_windows=[month], windows=windows, clusters=clusters)
    page = page_of(data)
    assert rows_of(page, PERIODS)[0][6].replace("\u00a0", " ") == "2 h"
    of_clusters = rows_of(page, "Every cluster's calendar periods, as far as they have come")
    assert of_clusters[0][-1].replace("\u00a0", " ") == "2 h"
    (caption,) = {
        caption.text() for caption in page.all("caption") if "days that end with" in caption.text()
    }
    assert {row[7].replace("\u00a0", " ") for row in rows_of(page, caption)} == {"1 h"}
    boxes = [e.text().replace("\u00a0", " ") for e in page.walk() if "verdict" in e.classes]
    assert "excluded" not in boxes[0], "the day has its exclusions by reason"
    assert "3 h excluded" in boxes[1], "of three replicas"
    assert "2 h excluded" in boxes[2]
    line = one_line(data).replace("\u00a0", " ")
    assert "2026-11 (so far) met: 2 h excluded" in line
    assert "allowed, 1 h excluded" in line
    assert access_problems(page) == []


def remark(demo: ReportData, number: int, at_ms: int, kind: str = "exclusion") -> Row:
    return {
        "number": number,
        "kind": kind,
        "from_ms": demo.w0_ms,
        "to_ms": demo.w1_ms,
        "patterns": "* / * / *",
        "why": "storage <moved>",
        "ticket": f"OPS-{number}",
        "who": "Ann\u202e",
        "at_ms": at_ms,
        "after_the_event": True,
    }


def test_exclusions_of_earlier_days_stand_below_the_windows_that_have_them() -> None:
    demo = demo_report()
    assert "Exclusions and annotations" not in page_of(demo).text()
    page = page_of(dataclasses.replace(demo, past_remarks=[remark(demo, 7, demo.w1_ms)]))
    text = section(page, "remarks").text()
    assert "Exclusions of earlier days in the windows and calendar periods above" in text
    assert "Made by people about this time" not in text
    assert "OPS-7" in text
    assert "storage <moved>" in text
    assert "When this time was over" not in page.text(), "it is about another day"
    assert access_problems(page) == []


def test_an_exclusion_that_was_added_when_the_day_was_over_is_told_first() -> None:
    demo = demo_report()
    rows = [{**row, "revision": 2, "late": 0} for row in demo.replica_days]
    remarks = [
        remark(demo, 1, demo.w1_ms - 1),
        remark(demo, 2, demo.w1_ms),
        remark(demo, 3, demo.w1_ms, "annotation"),
    ]
    page = page_of(dataclasses.replace(demo, replica_days=rows, remarks=remarks))
    header = page.all("header")[0].text()
    assert "or the objectives or exclusions changed." in header
    assert "When this time was over, 1 exclusion was added: number 2 (" in header
    assert "OPS-2" in header
    assert "\u202e" not in header
    many = [remark(demo, number, demo.w1_ms) for number in range(1, 1_001)]
    page = page_of(dataclasses.replace(demo, remarks=many))
    assert "and 995 more." in page.all("header")[0].text()
    assert len(section(page, "remarks").all("tr")) == 201
    assert "800 more are in summary.json" in section(page, "remarks").text()


def test_time_as_a_master_counts_as_neither_known_nor_unknown() -> None:
    demo = demo_report()
    day = {"window_s": 100.0, "good_s": 60.0, "bad_s": 10.0, "excluded_s": 25.0}
    page = page_of(dataclasses.replace(demo, replica_days=[demo.replica_days[0] | day]))
    (tiles,) = [each for each in page.all("dl") if "tiles" in each.classes]
    assert "93.333" in tiles.text()


def test_elections_are_told_with_what_they_cost() -> None:
    demo = demo_report()
    assert "elections" not in {e.attributes.get("aria-labelledby") for e in page_of(demo).walk()}
    (group, first) = demo.group_days[0], demo.replica_days[0]
    row: Row = dict.fromkeys(ELECTION_COLUMNS) | {
        **{name: group[name] for name in ("cluster", "broker")},
        "epoch": 5,
        "ts": demo.w0_ms + 60_000,
        "broker_id": 2,
        "old_epoch": 4,
        "old_master": 1,
        "why": "the old master fell silent",
        "cause": "notified",
        "without_master_s": 1.5,
        "at_risk_bytes": 700,
        "lost_bytes": 300,
        "promise": "lost",
    }
    unknown = row | {"epoch": 6, "ts": demo.w0_ms + 120_000, "cause": None, "promise": "not known"}
    unknown |= dict.fromkeys(("without_master_s", "at_risk_bytes", "lost_bytes"))
    led = [{"reason": IS_MASTER, "seconds": 90.0}]
    days = [first | {"excluded_s": 90.0, "exclusions": led}, *demo.replica_days[1:]]
    page = page_of(dataclasses.replace(demo, elections=[unknown, row], replica_days=days))
    assert [cells[2:] for cells in rows_of(page, "Who became master")] == [
        [
            *("5", "2", "1", "the old master fell silent (notified)", "1.5 s", "700 B", "300 B"),
            "lost",
        ],
        ["6", "2", "1", "the old master fell silent", "–", "–", "–", "not known"],
    ]
    text = section(page, "elections").text()
    assert "2 elections, 1.5 s without a master in all (of 1 nobody knows how long)." in text
    assert "#elections" in {a.attributes["href"] for a in page.all("a")}
    notices = [e.text() for e in page.walk() if "notice" in e.classes]
    told = (
        "Led their groups, and were no replicas meanwhile: 1 min 30 s of 1 replica: is the master"
    )
    assert any(text.startswith(told) for text in notices), notices
    assert not any("Expected of new replicas" in text for text in notices)
    assert "elections.csv" in page.all("footer")[0].text()
