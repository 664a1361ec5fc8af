"""Tables in one test: each row is checked, with the test's fixtures; each wrong one is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.every_row import every_row

SEEN: list[tuple[str, int, bool]] = []


@pytest.mark.parametrize("is_late", [False, True])
@every_row(("word", "number"), [("a", 1), ("b", 2), ("c", 3)])
def test_rows_share_fixtures(word: str, number: int, is_late: bool, tmp_path: Path) -> None:
    assert tmp_path.is_dir()
    SEEN.append((word, number, is_late))
    assert len(SEEN) == number + 3 * is_late


class TestOfAClass:
    """As a method."""

    @every_row("word", {"a": 1, "b": 2})
    def test_rows_of_one_name(self, word: str) -> None:
        assert word in ("a", "b")


def test_every_wrong_row_is_named() -> None:
    @every_row("number", range(1, 6))
    def check(number: int) -> None:
        assert number % 2

    with pytest.raises(AssertionError, match=r"2 of 5 rows:\n(.|\n)*2: (.|\n)*4: "):
        check()


def test_a_table_without_rows_is_an_error() -> None:
    @every_row("number", [])
    def check(number: int) -> None:
        assert number

    with pytest.raises(AssertionError, match="no rows"):
        check()


def test_a_row_of_another_length_is_an_error() -> None:
    @every_row(("one", "other"), [(1, 2, 3)])
    def check(one: int, other: int) -> None:
        assert one != other

    with pytest.raises(ValueError, match="longer"):
        check()
