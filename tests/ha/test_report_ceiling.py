"""ha.report_ceiling: what a slave can hold, and that a restart of process ha forgets none of it."""

from __future__ import annotations

import pytest

from ha import report_ceiling
from ha.control_slots import HIGHEST_SENT, LENT_SENT
from ha.report_ceiling import ReportCeiling
from store.control_slots import LOG_OPENED, MAX_PHY_OFFSET
from tests.support.shared_memory import fresh_page


def test_what_was_there_when_the_store_was_opened() -> None:
    page = fresh_page()
    page.counters[LOG_OPENED] = 1001
    page.counters[MAX_PHY_OFFSET] = 1000
    honest = ReportCeiling(page)
    page.counters[MAX_PHY_OFFSET] = 1500
    assert honest.of("10.0.0.1") == 1000
    assert ReportCeiling(page).of("10.0.0.1") == 1000, "a restarted process asks the page"


def test_a_log_that_was_opened_empty() -> None:
    page = fresh_page()
    page.counters[LOG_OPENED] = 1
    page.counters[MAX_PHY_OFFSET] = 1500
    assert ReportCeiling(page).of("10.0.0.1") == 1, "byte 0 is the same in every log"


def test_what_was_sent_to_one_says_nothing_of_another() -> None:
    page = fresh_page()
    page.counters[LOG_OPENED] = 1001
    page.counters[MAX_PHY_OFFSET] = 1000
    honest = ReportCeiling(page)
    honest.sent("10.0.0.1", 1300)
    honest.sent("10.0.0.1", 1200)
    honest.sent("10.0.0.2", 1100)
    assert [honest.of(f"10.0.0.{n}") for n in (1, 2, 3)] == [1300, 1100, 1000]
    assert (page.counters[LOG_OPENED], page.counters[HIGHEST_SENT]) == (1001, 1300)
    assert ReportCeiling(page).of("10.0.0.1") == 1300


def test_addresses_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_ceiling, "_MAX_ADDRESSES", 2)
    honest = ReportCeiling(fresh_page())
    for number in (1, 2, 3):
        honest.sent(f"10.0.0.{number}", 100)
    assert [honest.of(f"10.0.0.{n}") for n in (1, 2, 3)] == [1, 100, 100]


def test_what_was_sent_while_process_ha_was_dead_counts() -> None:
    page = fresh_page()
    page.counters[LOG_OPENED] = 1001
    page.counters[LENT_SENT] = 1200
    assert ReportCeiling(page).of("10.0.0.1") == 1200
