"""docs/faults.md: 46 rows, each with the tests that say by a marker that they prove it."""

from __future__ import annotations

from tests.faults.faults_document import (
    COMMAND,
    DOCUMENT,
    MARKER,
    NO_TEST,
    NUMBERS,
    document,
    marked_by_number,
    marked_tests,
)

WITHOUT: frozenset[int] = frozenset()
"""Numbers that no test proves as a whole."""


def test_there_are_46_numbers() -> None:
    assert list(range(1, 47)) == NUMBERS


def test_every_marker_is_a_number_of_the_table() -> None:
    wrong = [test for test in marked_tests() if not set(test.numbers) <= set(NUMBERS)]
    assert wrong == []


def test_every_number_has_a_test_in_every_run() -> None:
    proved = {
        number
        for number, tests in marked_by_number().items()
        if any(not test.is_long for test in tests)
    }
    assert set(NUMBERS) - proved == WITHOUT


def test_the_page_says_what_the_markers_say() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    by_hand, found, _ = text.partition(MARKER)
    assert found
    assert text == document(by_hand), f"not up to date: {COMMAND}"
    assert text.count(NO_TEST) == len(WITHOUT)
