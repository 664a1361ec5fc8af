"""The dates that --catch-up reports, and the earlier verdicts that its exit code must include.

Runs on the driver. Asks the results for what is stored and the dumps for their first date;
must not know Spark.

A run that ends before all of its dates are done (an error, a kill) has reported no verdict by its
exit code. So it first writes a mark, the dates that it is going to compute; the run that completes
them counts them all and removes the mark: each verdict is in the exit code of one completed run.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from spark.job.results import summary_path
from spark.vocabulary import DAY_MS

if TYPE_CHECKING:
    from spark.job.hadoop_files import HadoopFiles

_PARTITION: Final = re.compile(r"dt=(\d{4}-\d\d-\d\d)")


class CatchUp:
    """Of `count` dates up to `last` (both main thread only, oldest first):

    - `missing`: those without a result for the whole date. Dates before the first dump are left
      out: nothing was recorded then. Without any dump it is `last` alone, so that a lost
      directory is noticed.
    - `untold`: date -> exit code of those that an earlier run made which did not end well.
    """

    def __init__(
        self, files: HadoopFiles, dumps: Sequence[str], out: str, last: datetime.date, count: int
    ) -> None:
        self._files = files
        self._mark = f"{out.rstrip('/')}/report/_untold.json"
        self._last = last
        first = first_dump(files, dumps)
        dates = [last - datetime.timedelta(days=back) for back in reversed(range(count))]
        codes = {date: _exit_code(files, out, date) for date in dates}
        watched = [date for date in dates if first is not None and date >= first] or [last]
        self.missing = [date for date in watched if codes[date] is None]
        marked = self._marked()
        self.untold = {
            date: code for date, code in codes.items() if code is not None and date in marked
        }

    def begin(self) -> None:
        """Before the first date is made."""
        self._write_mark({*self.missing, *self.untold, *self._later()})

    def end(self) -> None:
        """After all are made: the exit code tells them."""
        self._write_mark(self._later())

    def _later(self) -> set[datetime.date]:
        """Marked dates that are after ours; earlier ones are beyond the reach of --catch-up."""
        return {date for date in self._marked() if date > self._last}

    def _marked(self) -> set[datetime.date]:
        if not self._files.exists(self._mark):
            return set()
        try:
            texts = json.loads(self._files.read_text(self._mark))
            return set(map(datetime.date.fromisoformat, texts))
        except (ValueError, TypeError):
            return set()

    def _write_mark(self, dates: Iterable[datetime.date]) -> None:
        texts = sorted(map(str, dates))
        if texts:
            self._files.write(self._mark, json.dumps(texts).encode())
        else:
            self._files.delete(self._mark)


def first_dump(files: HadoopFiles, dumps: Sequence[str]) -> datetime.date | None:
    """The oldest date for which there is a directory of dumps."""
    dates = [partition_date(name) for path in dumps for name in files.names(path)]
    return min((date for date in dates if date is not None), default=None)


def partition_date(name: str) -> datetime.date | None:
    """The date of a directory `dt=YYYY-MM-DD`; None of anything else."""
    match = _PARTITION.fullmatch(name)
    try:
        return datetime.date.fromisoformat(match[1]) if match else None
    except ValueError:
        return None


def _exit_code(files: HadoopFiles, out: str, date: datetime.date) -> int | None:
    """Of the result of the whole date; None without one."""
    path = summary_path(out, date)
    if not files.exists(path):
        return None
    try:
        summary = json.loads(files.read_text(path))
        # A part of a date (--date today, --between) is not that date's result.
        is_whole = float(summary["window"]["seconds"]) * 1000 >= DAY_MS
        return int(summary["exit_code"]) if is_whole else None
    except (ValueError, TypeError, KeyError):
        return None
