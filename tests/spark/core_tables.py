"""The report's core without Spark: what executors do with a directory of dumps, in one process.

For tests of the rules, which need no JVM. The driver's part (which files, which stored rows) is
spelled out here; the product's is spark/job/sla_report.py and spark/job/report_job.py.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from spark.config.calendar_periods import periods_of
from spark.config.objectives import SlaConfig
from spark.config.sla_config import default_sla
from spark.dumps.dump_files import Group, split_by_group
from spark.dumps.dump_line import FileLines
from spark.figures.calendar_windows import first_dates
from spark.figures.group_report import OF_GROUPS, row_tuple
from spark.figures.report_context import Context
from spark.figures.result_tables import TABLES
from spark.figures.windows import clusters
from spark.job.report_tasks import (
    STORED,
    Item,
    item_of_expected,
    items_of_file,
    items_of_rows,
    rows_of_part,
)
from spark.reported_day import Day

Tables = dict[str, list[dict[str, Any]]]


def files_of_groups(roots: Iterable[Path], day: Day) -> dict[Group, list[FileLines]]:
    """The lines of every file below some dump directories, by their group."""
    found: dict[Group, list[FileLines]] = {}
    for path in _files(roots, day):
        packed, _ = split_by_group(path.name, _date(path), path.read_bytes(), day)
        for group, lines in packed.items():
            found.setdefault(group, []).append(lines.unpacked())
    return found


def core_tables(
    roots: Sequence[Path],
    day: Day,
    sla: SlaConfig | None = None,
    history: Sequence[Tables] = (),
) -> Tables:
    """The tables of one date, as dictionaries with `dt`. `history`: what this function gave for
    dates before, or for the date itself."""
    asked, date = sla or default_sla(), str(day.date)
    dates = [tables["dt"][0]["dt"] for tables in history]
    before = tuple(sorted({each for each in dates if each < date}))
    periods = periods_of(day.date, asked.calendars, asked.timezone)
    context = Context(day, asked, date in dates, before, periods)
    items = [*_stored(history, date, first_dates(periods)), *_of_files(roots, day)]
    items += [item_of_expected((each.cluster, each.broker)) for each in asked.expect]
    found: Tables = {name: [] for name in OF_GROUPS}
    of_tables = (rows for rows in rows_of_part(items, context) if rows.table in TABLES)
    for rows in of_tables:
        columns = TABLES[rows.table]
        found[rows.table] += [
            dict(zip(columns, row, strict=True)) | {"dt": date} for row in rows.unpacked()
        ]
    names = ("replica_days", "windows", "group_days", "group_windows", "calendar_windows")
    found["clusters"] = [
        dict(zip(TABLES["clusters"], row_tuple("clusters", row), strict=True)) | {"dt": date}
        for row in clusters(*(found[name] for name in names))
    ]
    found["dt"] = [{"dt": date}]
    return found


def _stored(history: Sequence[Tables], date: str, begins: Sequence[str]) -> Iterator[Item]:
    for tables in history:
        for table in STORED:
            rows = tables[table]
            if table == "minutes":
                rows = [row for row in rows if row["bad_ms"] and row["dt"] < date]
            elif table == "hours":
                rows = [row for row in rows if row["dt"] in begins]
            yield from items_of_rows(table, rows)


def _of_files(roots: Iterable[Path], day: Day) -> Iterator[Item]:
    for path in _files(roots, day):
        yield from items_of_file(f"file:{path}", path.read_bytes(), day)


def _files(roots: Iterable[Path], day: Day) -> list[Path]:
    """Those of the date and of the days beside it."""
    dates = [day.date + datetime.timedelta(days=days) for days in (-1, 0, 1)]
    return [
        path
        for root in roots
        for date in dates
        for path in sorted((root / f"dt={date}").glob("**/*.jsonl*"))
        if path.is_file() and not path.name.startswith((".", "_"))
    ]


def _date(path: Path) -> datetime.date:
    return datetime.date.fromisoformat(
        next(part for part in path.parts if part.startswith("dt="))[3:]
    )
