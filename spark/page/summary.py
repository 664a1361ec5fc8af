"""The report for programs: summary.json, replicas.csv, incidents.csv (docs/report_files.md).

Called on the driver by spark/job/sla_report.py with the finished ReportData; gives bytes and opens
no file. Equal data give equal bytes. It must not know Spark.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from spark.figures.report_data import (
    BREACHED,
    CALENDAR_WINDOW_COLUMNS,
    CLUSTER_COLUMNS,
    CONSUMER_LAG_COLUMNS,
    ELECTION_COLUMNS,
    EVENT_COLUMNS,
    GROUP_DAY_COLUMNS,
    GROUP_WINDOW_COLUMNS,
    INCIDENT_COLUMNS,
    INSUFFICIENT,
    KEY,
    MET,
    METADATA_COLUMNS,
    OBJECTIVE_COLUMNS,
    REPLICA_DAY_COLUMNS,
    WINDOW_COLUMNS,
    ReportData,
    Row,
    finite,
    key_of,
    worst_first,
)
from spark.page import budget_steps
from spark.page.headlines import window_headline
from spark.vocabulary import GROUP

VERSION = 1
"""Of summary.json: raised by a change that would mislead a reader; new fields do not raise it."""
METADATA_KINDS = ("topics", "consumer_offsets", "delay_offsets", "subscription_groups")
_WINDOW_FIGURES = tuple(name for name in WINDOW_COLUMNS if name not in {*KEY, "days"})
_CSV_WINDOW_FIGURES = tuple(name for name in _WINDOW_FIGURES if name != "metadata")
_GROUP_WINDOW_FIGURES = tuple(n for n in GROUP_WINDOW_COLUMNS if n not in {*KEY, "days"})
_CALENDAR_FIGURES = tuple(n for n in CALENDAR_WINDOW_COLUMNS if n not in {*KEY, "period"})
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""Also the wide forms of the first four, which some spreadsheets take for them."""


def summary_json(data: ReportData) -> bytes:
    """UTF-8, one JSON object, a final newline; what is not known or not finite is null."""
    windows = _windows_of(data.windows, KEY, _WINDOW_FIGURES)
    calendar = _calendar_of(data)
    of_groups = _windows_of(data.group_windows, GROUP, _GROUP_WINDOW_FIGURES)
    rolling = window_headline(data)
    summary = {
        "version": VERSION,
        "date": data.date,
        "window": {
            "start": _iso(data.w0_ms),
            "end": _iso(data.w1_ms),
            "seconds": (data.w1_ms - data.w0_ms) / 1000,
        },
        "verdict": data.verdict,
        "rolling": {
            "days": data.longest_window,
            "begun": rolling.begun,
            "verdict": rolling.verdict,
        },
        "calendar": calendar_verdicts(data),
        "exit_on": data.exit_on,
        "exit_code": data.exit_code,
        "budget_steps": budget_steps.for_programs(data),
        "revision": data.revision,
        "window_days": list(data.window_days),
        "counts": counts(data),
        "objectives": [
            _pick(row, OBJECTIVE_COLUMNS)
            for row in sorted(data.objectives, key=lambda row: str(row["name"]))
        ],
        "replicas": [
            _pick(row, REPLICA_DAY_COLUMNS)
            | {
                "windows": windows.get(key_of(row), {}),
                "calendar": calendar.get(key_of(row), {}),
            }
            for row in worst_first(data.replica_days)
        ],
        "groups": [
            _pick(row, GROUP_DAY_COLUMNS) | {"windows": of_groups.get(_group(row), {})}
            for row in sorted(data.group_days, key=_group)
        ],
        "clusters": [
            _pick(row, CLUSTER_COLUMNS)
            for row in sorted(data.clusters, key=lambda row: (row["cluster"], row["days"]))
        ],
        "incidents": [_pick(row, INCIDENT_COLUMNS) for row in ordered_incidents(data)],
        "events": [_pick(row, EVENT_COLUMNS) for row in ordered_events(data)],
        **_elections(data),
        **_consumer_lag(data),
        "remarks": [dict(row) for row in data.remarks],
        "past_remarks": [dict(row) for row in data.past_remarks],
        "bad_lines": [_pick(row, tuple(row)) for row in ordered_bad_lines(data)],
    }
    text = json.dumps(summary, ensure_ascii=False, allow_nan=False, indent=1)
    # A lone surrogate has no UTF-8 form; as `\udXXX` it is right JSON.
    return (text + "\n").encode("utf-8", errors="backslashreplace")


def replicas_csv(data: ReportData) -> bytes:
    """A row for each replica, worst first; windows as `d7_…` and `d30_…`, metadata by kind, and
    behind these calendar periods as `month_…`, where there are some."""
    plain = tuple(name for name in REPLICA_DAY_COLUMNS if name != "metadata")
    metadata = [f"{kind}_{name}" for kind in METADATA_KINDS for name in METADATA_COLUMNS[1:]]
    periods = [str(one.name.period) for one in data.judged_windows[1:]]
    header = [
        "date",
        *plain,
        *(f"metadata_{name}" for name in metadata),
        *(f"d{days}_{name}" for days in data.window_days for name in _CSV_WINDOW_FIGURES),
        *(f"{period}_{name}" for period in periods for name in _CALENDAR_FIGURES),
    ]
    windows = _windows_of(data.windows, KEY, _WINDOW_FIGURES)
    calendar = _calendar_of(data)
    rows = []
    for row in worst_first(data.replica_days):
        ages = {item["kind"]: item for item in row["metadata"] or ()}
        of_days, of_periods = windows.get(key_of(row), {}), calendar.get(key_of(row), {})
        rows.append(
            [
                data.date,
                *(row[name] for name in plain),
                *(
                    ages.get(kind, {}).get(name)
                    for kind in METADATA_KINDS
                    for name in METADATA_COLUMNS[1:]
                ),
                *(
                    of_days.get(str(days), {}).get(name)
                    for days in data.window_days
                    for name in _CSV_WINDOW_FIGURES
                ),
                *(
                    of_periods.get(period, {}).get(name)
                    for period in periods
                    for name in _CALENDAR_FIGURES
                ),
            ]
        )
    return _csv(header, rows)


def incidents_csv(data: ReportData) -> bytes:
    """A row for each incident, in the order of their beginnings, also with UTC texts."""
    return _csv(
        ["date", *INCIDENT_COLUMNS, "start", "end"],
        (
            [
                data.date,
                *(row[name] for name in INCIDENT_COLUMNS),
                _iso(row["start_ms"]),
                _iso(row["end_ms"]),
            ]
            for row in ordered_incidents(data)
        ),
    )


def elections_csv(data: ReportData) -> bytes:
    """A row for each election, in the order of groups and time, also with its time as UTC text."""
    return _csv(
        ["date", *ELECTION_COLUMNS, "at"],
        (
            [data.date, *(row[name] for name in ELECTION_COLUMNS), _iso(row["ts"])]
            for row in ordered_elections(data)
        ),
    )


def consumer_lag_csv(data: ReportData) -> bytes:
    """A row for each consumer group in a topic and each bound, of its age or its messages."""
    names = (*GROUP, "consumer_group", "topic", "verdict", "window_s", "absent_s", "lines")
    marks = ("messages_max", "age_max_ms")
    header = ["date", *names, *marks, "of", "bound", "within_s", "beyond_s", "unknown_s"]
    return _csv(
        header,
        (
            [data.date, *(row[name] for name in (*names, *marks)), kind, bound, *spent]
            for row in ordered_lags(data)
            for kind in ("age", "messages")
            for bound, *spent in _spent(row, kind)
        ),
    )


def _spent(row: Row, kind: str) -> Iterable[tuple[Any, ...]]:
    """(bound, seconds within, beyond, unknown); the bound of an age in ms."""
    columns = (row[f"{kind}_{name}_ms"] for name in ("within", "beyond", "unknown"))
    for bound, *spent in zip(row[f"{kind}_le"], *columns, strict=True):
        yield bound, *(ms / 1000 for ms in spent)


def _consumer_lag(data: ReportData) -> dict[str, Any]:
    """Only where lines tell of some: reports of other brokers stay what they were."""
    rows = [_pick(row, CONSUMER_LAG_COLUMNS) for row in ordered_lags(data)]
    return {"consumer_lag": rows} if rows else {}


def ordered_lags(data: ReportData) -> list[Row]:
    """By broker group, then consumer group and topic."""
    return sorted(
        data.consumer_lag, key=lambda row: (_group(row), row["consumer_group"], row["topic"])
    )


def _elections(data: ReportData) -> dict[str, Any]:
    """Only where there are some: results of groups without a controller stay what they were."""
    rows = [_pick(row, ELECTION_COLUMNS) for row in ordered_elections(data)]
    return {"elections": rows} if rows else {}


def ordered_elections(data: ReportData) -> list[Row]:
    """By group, then time."""
    return sorted(data.elections, key=lambda row: (_group(row), row["ts"], row["epoch"]))


def calendar_verdicts(data: ReportData) -> list[dict[str, Any]]:
    """Of each calendar period the verdict of all replicas, the shortest first."""
    return [
        {
            "period": one.name.period,
            "name": one.name.name,
            "timezone": one.rows[0]["timezone"],
            "final": one.is_final,
            "verdict": one.verdict,
        }
        for one in data.judged_windows[1:]
    ]


def counts(data: ReportData) -> dict[str, int]:
    """How many there are of what; `bad_lines` counts lines, not reasons."""
    verdicts = [row["verdict"] for row in data.replica_days]
    return {
        "replicas": len(verdicts),
        "met": verdicts.count(MET),
        "breached": verdicts.count(BREACHED),
        "insufficient_data": verdicts.count(INSUFFICIENT),
        "groups": len(data.group_days),
        "incidents": data.total("incidents"),
        "events": data.total("events"),
        "bad_lines": sum(int(row["lines"]) for row in data.bad_lines),
    }


def ordered_incidents(data: ReportData) -> list[Row]:
    """By beginning, then replica."""
    return sorted(data.incidents, key=lambda row: (row["start_ms"], key_of(row), row["number"]))


def ordered_events(data: ReportData) -> list[Row]:
    """By time, then broker."""
    return sorted(
        data.events,
        key=lambda row: (
            row["ts"],
            row["cluster"],
            row["broker"],
            -1 if row["broker_id"] is None else row["broker_id"],
            row["kind"],
            row["text"] or "",
        ),
    )


def ordered_bad_lines(data: ReportData) -> list[Row]:
    """The most frequent reason first."""
    return sorted(data.bad_lines, key=lambda row: (-int(row["lines"]), str(row["reason"])))


def _group(row: Row) -> tuple[str, str]:
    return row["cluster"], row["broker"]


def _windows_of(
    rows: Sequence[Row], key: Sequence[str], figures: Sequence[str]
) -> dict[tuple[str, ...], dict[str, dict[str, Any]]]:
    """Of each replica or group: days (as text) -> figures."""
    found: dict[tuple[str, ...], dict[str, dict[str, Any]]] = {}
    for row in sorted(rows, key=lambda row: (*(row[name] for name in key), int(row["days"]))):
        name = tuple(row[name] for name in key)
        found.setdefault(name, {})[str(row["days"])] = _pick(row, figures)
    return found


def _calendar_of(data: ReportData) -> dict[tuple[str, ...], dict[str, dict[str, Any]]]:
    """Of each replica: period -> figures."""
    found: dict[tuple[str, ...], dict[str, dict[str, Any]]] = {}
    for row in data.calendar_windows:
        found.setdefault(key_of(row), {})[row["period"]] = _pick(row, _CALENDAR_FIGURES)
    return found


def _pick(row: Row, names: Sequence[str]) -> dict[str, Any]:
    return {name: _plain(row[name]) for name in names}


def _plain(value: Any) -> Any:
    """A value as JSON has it; NaN and infinities are null, dates are texts."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "isoformat"):
        return value.isoformat()
    return finite(value)


def _csv(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> bytes:
    lines = [_csv_line(header), *(_csv_line([_cell(value) for value in row]) for row in rows)]
    return "".join(lines).encode("utf-8", errors="replace")


def _csv_line(cells: Sequence[str]) -> str:
    """csv quotes the signs of its line's end and no others; a bare carriage return, too, would end
    a row for whoever reads it."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\r\n").writerow(cells)
    return text.getvalue().removesuffix("\r\n") + "\n"


def _cell(value: Any) -> str:
    """Null is empty; a text that a spreadsheet would take for a formula gets an apostrophe, and a
    NUL, at which many a reader stops, becomes `\ufffd`."""
    plain = _plain(value)
    if plain is None:
        return ""
    if isinstance(plain, bool):
        return "true" if plain else "false"
    if isinstance(plain, list):
        plain = "; ".join(map(_item, plain))
    if isinstance(plain, str):
        plain = plain.replace("\0", "\ufffd")
        return f"'{plain}" if plain.startswith(_FORMULA_STARTS) else plain
    return repr(plain)


def _item(item: Any) -> str:
    """An excluded time is `its reason: its seconds`."""
    return ": ".join(map(str, item.values())) if isinstance(item, Mapping) else str(item)


def _iso(epoch_ms: int) -> str:
    return datetime.fromtimestamp(epoch_ms / 1000, UTC).isoformat(timespec="milliseconds")
