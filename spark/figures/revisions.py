"""How often a date's result changed, and how many samples came late.

Runs in the executors, over the rows of a group. Knows the stored result of the date, not how
figures are made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

_RESULT: Final = (
    *("objective", "verdict", "reasons", "window_s", "good_s", "bad_s", "unknown_s"),
    *("excluded_s", "input_digest"),
)


class Revision:
    """Of one group. `before`: the stored rows of the date; `is_reported`: whether the date was
    reported for the same window before. Another window begins anew."""

    def __init__(self, before: Sequence[Mapping[str, Any]], *, is_reported: bool) -> None:
        self._is_reported: Final = is_reported
        self._before: Final = {row["replica"]: row for row in before}
        firsts = [row["first_received"] for row in before if row["first_received"] is not None]
        self._first_of_group: Final = max(firsts, default=0)

    def columns(self, row: Mapping[str, Any]) -> dict[str, int]:
        """`revision`, `late` and `first_received` of a replica.

        The first report is revision 1. A replica's revision rises when its samples, its objective,
        its seconds or its verdict are others than before, or when it was not there. `late` counts
        samples beyond those of the first report; they are the group's, and so is a replica's first
        report that did not have it.
        """
        received = row["received"]
        if not self._is_reported:
            return {"revision": 1, "late": 0, "first_received": received}
        old = self._before.get(row["replica"])
        first = self._first_of_group
        if old is not None and old["first_received"] is not None:
            first = old["first_received"]
        revision = (old["revision"] or 1) if old is not None else 1
        is_same = old is not None and all(_same(old.get(name), row[name]) for name in _RESULT)
        return {
            "revision": revision if is_same else revision + 1,
            "late": max(0, received - first),
            "first_received": first,
        }


def _same(stored: Any, now: Any) -> bool:
    if isinstance(stored, float) or isinstance(now, float):
        # Earlier versions stored no excluded time.
        return float(stored or 0) == float(now or 0)
    return bool(stored == now)
