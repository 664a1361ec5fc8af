"""`--between first last` over several groups: the window ends where all that still write are known.

Each group's sends are counted by its lines, and once more by the test.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark.command.arguments import parse_arguments
from spark.command.days import window
from spark.command.first_and_last import resolved
from tests.spark.core_tables import core_tables
from tests.spark.dump_lines_builder import DATE, T0, Life, sends, write_dump

TEN = T0 + 36_000_000
LINES = 20


def groups_of(root: Path, lasts: dict[str, int]) -> tuple[int, int, dict[str, Any]]:
    """The window of two groups, in ms of ten o'clock, and their rows. `lasts`: when each wrote its
    last line; a send is answered in each interval of 5 s before."""
    for number, (name, last_ms) in enumerate(lasts.items()):
        first_ms = last_ms - LINES * 5_000
        life = Life(TEN + first_ms - 1_000, broker=name, boot=f"{number + 1:08x}" * 2, marks=True)
        write_dump(
            root, [life.line(TEN + first_ms + n * 5_000, sends=count(n)) for n in range(LINES + 1)]
        )
    asked = [
        "--dumps",
        str(root),
        "--out",
        "out",
        "--date",
        str(DATE),
        "--between",
        "first",
        "last",
    ]
    options = resolved(parse_arguments(asked, {}), DATE)
    day = window(DATE, options.between, TEN + 86_400_000)
    rows = core_tables([root], day, options.sla)["group_days"]
    return day.w0_ms - TEN, day.w1_ms - TEN, {row["broker"]: row for row in rows}


def count(ok: int) -> dict[str, Any]:
    return sends(ok=ok, latency={"le": [1.0], "counts": [ok, 0], "sum": 0.0})


@pytest.mark.parametrize("later_ms", [0, 1, 4_999])
def test_the_window_ends_where_both_groups_are_known(tmp_path: Path, later_ms: int) -> None:
    """Up to the last line of one, the other had written its own a moment before: what it answered
    since is in no line, and no part of the window."""
    begin_ms, end_ms, rows = groups_of(tmp_path, {"a": 100_000, "b": 100_000 + later_ms})
    assert (begin_ms, end_ms) == (later_ms - 1, 100_000)
    for row in rows.values():
        assert row["closed"]
        # One send at most was answered between the last line of the window and the one behind it,
        # and one between the two lines around the window's begin.
        assert row["sends_ok_most"] - row["sends_ok_least"] <= 2
        assert row["sends_failed_most"] == 0


def test_a_group_that_writes_no_more_ends_in_the_window(tmp_path: Path) -> None:
    """Its death is not cut off."""
    begin_ms, end_ms, rows = groups_of(tmp_path, {"a": 100_000, "b": 110_001})
    assert (begin_ms, end_ms) == (-1, 110_001)
    assert not rows["a"]["closed"]
    assert rows["a"]["sends_failed_most"] == 10_001 * 1_000
