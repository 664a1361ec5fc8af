"""A table that one test checks row by row: a thousand rows as tests of their own cost each worker a
second to collect, and five more around what they check. A failure names every row that failed.
`every_row` is in the place of pytest.mark.parametrize, for rows that share the test's fixtures.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import pytest

Row = TypeVar("Row")
_MOST_NAMED = 200
"""Characters of a row."""


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


def every_row(
    names: str | Sequence[str], rows: Iterable[Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Has one test check all `rows`: tuples of values of its parameters `names`, or, of one name,
    its values."""
    table = list(rows)
    each_name = (names,) if isinstance(names, str) else tuple(names)

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(test)
        others = [each for name, each in signature.parameters.items() if name not in each_name]
        assert len(others) == len(signature.parameters) - len(each_name), each_name

        @functools.wraps(test)
        def whole_table(*own: Any, **fixtures: Any) -> None:
            def check(row: Any) -> None:
                values = (row,) if isinstance(names, str) else row
                test(*own, **fixtures, **dict(zip(each_name, values, strict=True)))

            check_every_row(table, check, lambda row: repr(row)[:_MOST_NAMED])

        whole_table.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return whole_table

    return decorate
