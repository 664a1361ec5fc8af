"""What a reader of the page must know before its figures: parts, revisions, and time that is
excluded, as agreed or as expected of a new replica.

Called on the driver by spark/page/report_page.py. It must not know Spark or HTML.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from spark.figures import wording
from spark.figures.report_data import ReportData, Row, key_of
from spark.page import budget_steps
from spark.page.headlines import left_out_text
from spark.page.reasons import NAMED_IN_WHY
from spark.page.summary import counts
from spark.vocabulary import FIRST_COPY, IS_MASTER, NOT_YET

_OF_NEW: Final = {FIRST_COPY: "first copy", NOT_YET: "not there yet"}
_KINDS: Final = {**_OF_NEW, IS_MASTER: "the master"}
"""Reasons that nobody agreed upon: a new replica has them, and who led its group. Other ones are
people's."""
_NEITHER: Final = "It counts neither as good nor as bad."


def notices(data: ReportData, window: str) -> list[str]:
    """What a reader must know before the figures."""
    found = []
    if data.w1_ms - data.w0_ms != 86_400_000:
        found.append(f"Part of a day: {window}.")
    if data.revision > 1:
        late = sum(int(row["late"] or 0) for row in data.replica_days)
        why = f"{wording.plural(late, 'sample', 'samples')} arrived after the first"
        if not late:
            why = "the next day's first line showed how this day ended, or the objectives or"
            why += " exclusions changed"
        found.append(f"Revised: this is revision {data.revision} of this day's result; {why}.")
    if text := _added_later(data):
        found.append(text)
    if planned := excluded(data.replica_days, lambda reason: reason not in _KINDS):
        found.append(f"Excluded, as agreed: {planned}. {_NEITHER}")
    if expected := excluded(data.replica_days, lambda reason: reason in _OF_NEW):
        found.append(f"Expected of new replicas: {expected}. {_NEITHER}")
    if led := excluded(data.replica_days, lambda reason: reason == IS_MASTER):
        found.append(f"Led their groups, and were no replicas meanwhile: {led}. {_NEITHER}")
    if copying := [row for row in data.replica_days if row.get("first_copy_since_ms") is not None]:
        names = ", ".join(
            f"{wording.isolated(row['replica'])} (since "
            f"{wording.moment(row['first_copy_since_ms'], data.date)})"
            for row in copying[:NAMED_IN_WHY]
        )
        rest = len(copying) - NAMED_IN_WHY
        more = f" and {rest:,} more" if rest > 0 else ""
        found.append(f"A first copy is still running: {names}{more}.")
    found += budget_steps.notices(data)
    if waiting := data.waiting_groups:
        names = ", ".join(
            f"{wording.name(row['broker'])} of {wording.name(row['cluster'])}"
            for row in waiting[:NAMED_IN_WHY]
        )
        rest = len(waiting) - NAMED_IN_WHY
        more = f" and {rest:,} more" if rest > 0 else ""
        found.append(
            f"Insufficient data: {names}{more} waits for its slaves as a SYNC_MASTER, but no "
            "replica of it is known."
        )
    found += [
        f"Insufficient data: {left_out_text(row)}. Nothing is met while nobody knows what it says."
        for row in data.left_out
    ]
    if dates := data.past_left_out:
        more = f" and {len(dates) - 1:,} more dates" if len(dates) > 1 else ""
        found.append(
            f"Files or replicas of {dates[-1]}{more} were left out. No window with such a date is "
            "met until it is reported again without that."
        )
    if bad := counts(data)["bad_lines"]:
        lines = wording.plural(bad, "line", "lines")
        was = "was" if bad == 1 else "were"
        found.append(
            f"{lines} could not be read and {was} set aside; what only such a line recorded is "
            "unknown."
        )
    return found


def _added_later(data: ReportData) -> str:
    """Exclusions that somebody added when the window was over: what they excluded had happened."""
    later = [
        row for row in data.remarks if row["kind"] == "exclusion" and row["at_ms"] >= data.w1_ms
    ]
    if not later:
        return ""
    named = [
        f"number {row['number']} ({wording.isolated(row['ticket'])}, by"
        f" {wording.isolated(row['who'])})"
        for row in later[:NAMED_IN_WHY]
    ]
    more = len(later) - len(named)
    named += [f"and {more:,} more"] if more else []
    were = wording.plural(len(later), "exclusion was", "exclusions were")
    return f"When this time was over, {were} added: {', '.join(named)}."


def excluded(rows: Sequence[Row], is_asked: Callable[[str], bool] = lambda _: True) -> str:
    """`2 h of 3 replicas: new disks (2 h)`; nothing where no time is excluded. `is_asked`: of
    reasons."""
    seconds: dict[str, float] = {}
    replicas = set()
    for row in rows:
        for one in row.get("exclusions") or ():
            if is_asked(one["reason"]):
                seconds[one["reason"]] = seconds.get(one["reason"], 0.0) + one["seconds"]
                replicas.add(key_of(row))
    longest_first = sorted(seconds, key=lambda reason: (-seconds[reason], reason))
    texts = [
        f"{wording.excerpt(reason)} ({wording.duration(seconds[reason])})"
        for reason in longest_first[:NAMED_IN_WHY]
    ]
    if not texts:
        return ""
    more = len(seconds) - len(texts)
    texts += [f"and {wording.plural(more, 'more reason', 'more reasons')}"] if more else []
    whose = wording.plural(len(replicas), "replica", "replicas")
    total = wording.duration(sum(seconds.values()))
    return f"{total} of {whose}: {', '.join(texts)}"


def excluded_kinds(row: Row) -> str:
    """Which kinds of excluded time a replica had."""
    words = (_KINDS.get(one["reason"], "agreed") for one in row.get("exclusions") or ())
    return ", ".join(sorted(set(words)))
