"""index.html and the history that it is made of, below --out: updated by each date's report.

Called on the driver by spark/job/sla_report.py. A run reads one small file, however many dates
there are; only dates that it does not have (an earlier version's, copied ones) have their
summary.json read, once. Knows no figure and no HTML.
"""

from __future__ import annotations

import datetime
import json
import logging
from collections.abc import Mapping
from typing import Any, Final

from spark.job.hadoop_files import FilesError, HadoopFiles
from spark.job.results import summary_path
from spark.page.calendar_page import calendar_html
from spark.page.history import DayResult, HistoryError, from_json, result_of, to_json

HISTORY: Final = "report/_calendar.json"
PAGE: Final = "index.html"
_PREFIX: Final = "dt="
_log = logging.getLogger(__name__)


def update_calendar(files: HadoopFiles, out: str, summary: Mapping[str, Any]) -> None:
    """Enters a date, whose summary this is, and writes the page. Raises FilesError."""
    root = out.rstrip("/")
    today = result_of(summary)
    known = _history(files, f"{root}/{HISTORY}")
    found = {today.date: today}
    for date in _dates(files, f"{root}/report"):
        if date not in found:
            result = known.get(date) or _read(files, summary_path(out, date))
            if result is not None:
                found[date] = result
    files.replace(f"{root}/{HISTORY}", to_json(found.values()))
    files.replace(f"{root}/{PAGE}", calendar_html(found.values()))


def _dates(files: HadoopFiles, directory: str) -> list[datetime.date]:
    found = []
    for name in files.names(directory):
        try:
            if name.startswith(_PREFIX):
                found.append(datetime.date.fromisoformat(name.removeprefix(_PREFIX)))
        except ValueError:
            continue
    return found


def _history(files: HadoopFiles, path: str) -> dict[datetime.date, DayResult]:
    try:
        if files.exists(path):
            return {day.date: day for day in from_json(files.read_text(path))}
    except (FilesError, HistoryError) as error:
        _log.warning("%s: rebuilding it from every summary.json: %s", path, error)
    return {}


def _read(files: HadoopFiles, path: str) -> DayResult | None:
    """None for a date that was not finished, or whose summary is another version's."""
    try:
        return result_of(json.loads(files.read_text(path))) if files.exists(path) else None
    except (FilesError, HistoryError, ValueError) as error:
        _log.warning("%s: is left out of the calendar: %s", path, error)
        return None
