"""What every broker group's report needs to know beside its own lines and stored rows.

Plain values, sent once to every executor; must not know Spark.
"""

from __future__ import annotations

from dataclasses import dataclass

from spark.config.calendar_periods import Period
from spark.config.objectives import SlaConfig
from spark.reported_day import Day


@dataclass(frozen=True, slots=True)
class Context:
    """The date D and its window, the objectives, and what earlier runs left.

    `is_reported`: D has a result of the same window. `result_dates`: the dates before D that have
    a result, ascending, YYYY-MM-DD. `periods`: the calendar periods in which D begins.
    """

    day: Day
    sla: SlaConfig
    is_reported: bool
    result_dates: tuple[str, ...]
    periods: tuple[Period, ...] = ()
