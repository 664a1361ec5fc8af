"""A cluster's calendar periods: sums over its replicas, and the verdict of all of them together.

Plain functions on the driver over rows of table `calendar_windows`. The counts by verdict are those
of a cluster's day and windows, too (spark/figures/windows.py). Knows no dump and no path.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from spark.figures.distributions import sum_of_seconds, whole_ms
from spark.figures.report_data import BREACHED, INSUFFICIENT, MET
from spark.figures.verdicts import worst_of

Row = Mapping[str, Any]
_KINDS: Final = {"met": MET, "breached": BREACHED, "insufficient": INSUFFICIENT}
_SECONDS: Final = ("window_s", "open_s", "good_s", "bad_s", "unknown_s", "excluded_s")


def verdict_counts(replicas: Sequence[Row], *, is_waiting: bool) -> dict[str, Any]:
    """The worst verdict, and how many replicas have which. `is_waiting`: the cluster has a group
    that waits for slaves and has none, so nothing could be met."""
    verdict = worst_of(row["verdict"] for row in replicas)
    if verdict == MET and is_waiting:
        verdict = INSUFFICIENT
    return {"verdict": verdict} | {
        f"replicas_{name}": sum(row["verdict"] == word for row in replicas)
        for name, word in _KINDS.items()
    }


def cluster_calendar(
    cluster: str, rows: Sequence[Row], waiting: Collection[str]
) -> list[dict[str, Any]]:
    """Of one cluster, the shortest period first. `rows`: all of D's calendar_windows; a cluster
    without a replica has their periods, too. `waiting`: clusters as for `verdict_counts`."""
    members: dict[tuple[str, str], list[Row]] = {}
    for row in sorted(rows, key=lambda row: (row["to_ms"] - row["from_ms"], row["name"])):
        of_period = members.setdefault((row["period"], row["name"]), [])
        if row["cluster"] == cluster:
            of_period.append(row)
    finals = {(row["period"], row["name"]): row["final"] for row in rows}
    return [
        {"period": key[0], "name": key[1], "final": finals[key]}
        | verdict_counts(replicas, is_waiting=cluster in waiting)
        | _sums(replicas)
        for key, replicas in members.items()
    ]


def without_left_out(
    row: Row, date: datetime.date, left_out: Sequence[str], begins: Mapping[str, str]
) -> dict[str, Any]:
    """A row of table `clusters` of which nothing is met that has a date of which a file was left
    out: nobody knows of whom it told. `left_out`: such dates up to `date`, YYYY-MM-DD; `begins`:
    name of each calendar period -> its first date."""
    latest = max(left_out, default="")

    def lowered(one: Row, since: str) -> dict[str, Any]:
        is_doubted = one["verdict"] == MET and since <= latest
        return {**one, "verdict": INSUFFICIENT} if is_doubted else dict(one)

    calendar = [lowered(one, begins[one["name"]]) for one in row["calendar"] or ()]
    since = str(date - datetime.timedelta(days=row["days"] - 1))
    return {**lowered(row, since), "calendar": row["calendar"] and calendar}


def _sums(replicas: Sequence[Row]) -> dict[str, Any]:
    row: dict[str, Any] = {
        name: sum_of_seconds(each[name] for each in replicas) for name in _SECONDS
    }
    known_ms = whole_ms(row["good_s"]) + whole_ms(row["bad_s"])
    asked_ms = known_ms + whole_ms(row["unknown_s"])
    row["coverage"] = known_ms / asked_ms if asked_ms else None
    row["availability"] = whole_ms(row["good_s"]) / known_ms if known_ms else None
    return row
