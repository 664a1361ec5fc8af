"""The report's core without Spark: dump files of a test to the rows of each group.

What spark/sla_report.py has executors do, in one process: for tests of the rules, which need no
JVM. Files are read the plain way; how the product reads them is spark/dump_files.py's matter.
"""

from __future__ import annotations

import datetime
import gzip
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from spark.group_report import OF_GROUPS, group_rows
from spark.objectives import SlaConfig
from spark.report_context import Context, FileLines
from spark.result_tables import TABLES
from spark.schema import Day
from spark.sla_config import default_sla

Tables = dict[str, list[dict[str, Any]]]
Group = tuple[str, str]


def files_of_groups(roots: Iterable[Path]) -> dict[Group, list[FileLines]]:
    """The lines of every file below some dump directories, by the group that they name."""
    found: dict[Group, list[FileLines]] = {}
    for root in roots:
        for path in sorted(root.glob("dt=*/**/*.jsonl*")):
            content = path.read_bytes()
            if path.suffix == ".gz":
                content = gzip.decompress(content)
            date = next(part for part in path.parts if part.startswith("dt="))[3:]
            by_group: dict[Group, list[bytes]] = {}
            for line in content.splitlines():
                try:
                    fields = json.loads(line)
                except ValueError:
                    fields = {}
                if not {"cluster", "broker"} <= fields.keys():
                    fields = {"cluster": "", "broker": ""}  # of no group
                by_group.setdefault((fields["cluster"], fields["broker"]), []).append(line)
            for group, lines in by_group.items():
                file = FileLines(path.name, datetime.date.fromisoformat(date), lines)
                found.setdefault(group, []).append(file)
    return found


def core_tables(
    roots: Sequence[Path],
    day: Day,
    sla: SlaConfig | None = None,
    history: Sequence[Tables] = (),
) -> Tables:
    """The tables of one date that are about groups, as dictionaries with `dt`. `history`: what
    this function gave for dates before, or for the date itself."""
    asked = sla or default_sla()
    before = [tables for tables in history if tables["dt"][0]["dt"] < str(day.date)]
    is_reported = any(tables["dt"][0]["dt"] == str(day.date) for tables in history)
    dates = tuple(sorted({tables["dt"][0]["dt"] for tables in before}))
    context = Context(day, asked, is_reported, dates)
    stored = {
        name: [row for tables in history for row in tables[name]]
        for name in ("replica_days", "group_days", "minutes")
    }
    stored["minutes"] = [row for tables in before for row in tables["minutes"] if row["bad_ms"]]
    files = files_of_groups(roots)
    groups = {*files, *((each.cluster, each.broker) for each in asked.expect)}
    groups |= {(row["cluster"], row["broker"]) for row in stored["replica_days"]}
    found: Tables = {name: [] for name in OF_GROUPS}
    for group in sorted(groups):
        own = {
            name: [row for row in rows if (row["cluster"], row["broker"]) == group]
            for name, rows in stored.items()
        }
        for name, rows in group_rows(group, files.get(group, []), own, context).items():
            columns = TABLES[name]
            found[name] += [
                dict(zip(columns, row, strict=True)) | {"dt": str(day.date)} for row in rows
            ]
    found["dt"] = [{"dt": str(day.date)}]
    return found
