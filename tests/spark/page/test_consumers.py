"""Consumer groups on the page, in summary.json and in consumer_lag.csv."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from typing import Any

from spark.figures.report_data import CONSUMER_LAG_COLUMNS
from spark.page.consumers import shown_lags
from spark.page.report_page import report_html
from spark.page.summary import consumer_lag_csv, summary_json
from tests.spark.demo_report import demo_report


def lag(group: str, **changes: Any) -> dict[str, Any]:
    """A row of table consumer_lag."""
    row: dict[str, Any] = dict.fromkeys(CONSUMER_LAG_COLUMNS)
    row |= {"cluster": "prod-1", "broker": "broker-a", "consumer_group": group, "topic": "T"}
    row |= {"reasons": [], "window_s": 86_400.0, "absent_s": 0.0, "lines": 17_280}
    row |= {"messages_max": 1_234, "age_max_ms": 61_000}
    row |= {"age_le": [10_000, 60_000, 600_000], "messages_le": [1_000, 100_000]}
    row |= {"age_within_ms": [85_000_000, 86_300_000, 86_390_000]}
    row |= {"age_beyond_ms": [1_300_000, 50_000, 0], "age_unknown_ms": [100_000, 50_000, 10_000]}
    row |= {"messages_within_ms": [86_390_000] * 2, "messages_beyond_ms": [0, 0]}
    row |= {"messages_unknown_ms": [10_000, 10_000]}
    return row | changes


ROWS = [
    lag("quiet"),
    lag("<late>", verdict="breached", reasons=["consumer lag of it above 10 s for 1300 s"]),
    lag("none", age_within_ms=[0] * 3, age_beyond_ms=[1] * 3, verdict="met"),
]
DATA = dataclasses.replace(demo_report(), consumer_lag=ROWS)


def test_the_worst_first_with_the_bounds_that_hold() -> None:
    found = shown_lags(DATA)
    assert [row["consumer_group"] for row, *_ in found] == ["<late>", "none", "quiet"]
    assert [age for _, age, _, _ in found] == [(60_000, 600_000), (None, None), (60_000, 600_000)]
    assert [messages for _, _, messages, _ in found] == [(1_000, 1_000)] * 3
    assert [unknown_s for *_, unknown_s in found] == [10.0] * 3


def test_the_page_has_a_table() -> None:
    page = report_html(DATA).decode()
    assert '<h2 id="consumers">' in page
    assert "&lt;late&gt;" in page
    assert "Consumer lag of it above 10\u00a0s for 21\u00a0min\u00a040\u00a0s." in page


def test_programs_get_all_of_it() -> None:
    found = json.loads(summary_json(DATA))["consumer_lag"]
    assert [row["consumer_group"] for row in found] == ["<late>", "none", "quiet"]
    assert found[0].keys() == set(CONSUMER_LAG_COLUMNS)
    rows = list(csv.DictReader(io.StringIO(consumer_lag_csv(DATA).decode())))
    assert len(rows) == 3 * 5
    late = [row for row in rows if (row["consumer_group"], row["of"]) == ("<late>", "age")]
    assert [(row["bound"], row["beyond_s"]) for row in late] == [
        ("10000", "1300.0"),
        ("60000", "50.0"),
        ("600000", "0.0"),
    ]


def test_without_consumer_groups_nothing_is_said_of_them() -> None:
    data = demo_report()
    assert "onsumer group" not in report_html(data).decode()
    assert "consumer_lag" not in json.loads(summary_json(data))
