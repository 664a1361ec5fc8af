"""RefusalLog: everything is counted, the log says it once in a while."""

from __future__ import annotations

import pytest

from ha.refusal_log import QUIET_MS, RefusalLog
from ha.refusals import RefusalCounters, RefusalReason
from tests.support.manual_clock import ManualClock
from tests.support.shared_memory import fresh_page


def test_one_line_for_a_reason_and_address(caplog: pytest.LogCaptureFixture) -> None:
    clock, counters = ManualClock(), RefusalCounters(fresh_page())
    refusals = RefusalLog(counters, clock)
    for port in range(5):
        refusals.refused(f"10.0.0.1:{port}", RefusalReason.SILENT, "why")
    refusals.refused("10.0.0.2:1", RefusalReason.SILENT, "why")
    refusals.refused("10.0.0.1:1", RefusalReason.TLS, "why else")
    assert counters.snapshot() == {"silent": 6, "tls": 1}
    assert caplog.messages == [
        "10.0.0.1:0: silent: why",
        "10.0.0.2:1: silent: why",
        "10.0.0.1:1: tls: why else",
    ]
    clock.advance(QUIET_MS)
    refusals.refused("10.0.0.1:9", RefusalReason.SILENT, "why")
    assert caplog.messages[3:] == [
        "10.0.0.1:9: silent: why (4 more of this address since the last line)"
    ]


def test_it_remembers_a_bounded_number_of_addresses() -> None:
    refusals = RefusalLog(RefusalCounters(fresh_page()), ManualClock())
    for number in range(5000):
        refusals.refused(f"10.0.{number // 250}.{number % 250}:1", RefusalReason.SILENT, "why")
    assert len(refusals._said) == 1024
