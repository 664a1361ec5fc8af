"""A table that one test checks row by row: a thousand rows as tests of their own cost each worker a
second to collect, and xdist a message each. A failure names every row that failed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import pytest

Row = TypeVar("Row")


def check_every_row(
    rows: Iterable[Row], check: Callable[[Row], object], name: Callable[[Row], str] = str
) -> None:
    """`check` asserts. Raises AssertionError with the names of all rows that are wrong, or if there
    are no rows; another error that `check` raises ends it, with a note of the row's name."""
    failed: list[tuple[str, BaseException]] = []
    count = 0
    for row in rows:
        count += 1
        try:
            check(row)
        except (AssertionError, pytest.fail.Exception) as error:
            failed.append((name(row), error))
        except Exception as error:
            error.add_note(f"row: {name(row)}")
            raise
    assert count, "no rows"
    if failed:
        told = "\n".join(f"{named}: {error}" for named, error in failed)
        raise AssertionError(f"{len(failed)} of {count} rows:\n{told}") from failed[0][1]
