"""`bin/bench report --past`: what the days that are stored already cost the report of one more.

A day of --groups groups is reported once; its stored tables are then put in place of those of the
days before it (dates are names of directories, so hard links will do), and the same day is reported
again, with as many days before it as --past says. The windows read 30 days and the remembered
results 7 more dates at most, by the names of directories: beyond 30 days the cost has to be flat.
"""

from __future__ import annotations

import datetime
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

Report = Callable[[int], float]
"""Reports the day with so many days before it in place; returns its processor seconds."""


def with_past_days(out: Path, date: datetime.date, days: int) -> None:
    """Leaves below `out` the tables of `date` and of exactly so many days before it."""
    for table in sorted((out / "parquet").iterdir()):
        own = table / f"dt={date}"
        for other in table.glob("dt=*"):
            if other != own:
                shutil.rmtree(other)
        if own.is_dir():
            for back in range(1, days + 1):
                past = table / f"dt={date - datetime.timedelta(days=back)}"
                shutil.copytree(own, past, copy_function=os.link)


def growth(report: Report, past: Sequence[int]) -> list[str]:
    """Reports with each number of days; lines of a table."""
    measured = [(days, report(days)) for days in past]
    base = max(measured[0][1], 0.01)
    return [
        f"    {days:5d} days before: {cpu_s:.1f} processor seconds, {cpu_s / base:.2f} x"
        for days, cpu_s in measured
    ]
