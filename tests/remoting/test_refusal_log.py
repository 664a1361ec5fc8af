"""remoting.refusal_log: what is said, how often, and how much of it is remembered."""

from __future__ import annotations

import logging

import pytest

from remoting.errors import RequestError
from remoting.refusal_log import QUIET_MS, RefusalLog
from remoting.response_code import ResponseCode
from tests.broker.broker_fakes import FakeClock

log = logging.getLogger("refusing")


def refused(remark: str) -> RequestError:
    return RequestError(ResponseCode.NO_PERMISSION, remark)


def test_one_line_a_minute_for_each_peer_and_reason(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    refusals = RefusalLog(log, clock.monotonic_ms)
    for remote, remark in (
        ("10.0.0.9:1", "no"),
        ("10.0.0.9:2", "no"),
        ("10.0.0.9:1", "never"),
        ("10.0.0.8:1", "no"),
    ):
        refusals.record(remote, 17, refused(remark))
    clock.advance(QUIET_MS - 1)
    refusals.record("10.0.0.9:3", 17, refused("no"))
    clock.advance(1)
    refusals.record("10.0.0.9:4", 17, refused("no"))
    assert caplog.messages == [
        "10.0.0.9:1: UPDATE_AND_CREATE_TOPIC rejected: no",
        "10.0.0.9:1: UPDATE_AND_CREATE_TOPIC rejected: never",
        "10.0.0.8:1: UPDATE_AND_CREATE_TOPIC rejected: no",
        "10.0.0.9:4: UPDATE_AND_CREATE_TOPIC rejected: no",
    ]
    assert {record.name for record in caplog.records} == {"refusing"}


def test_words_of_the_peer_are_not_a_new_reason(caplog: pytest.LogCaptureFixture) -> None:
    refusals = RefusalLog(log, FakeClock().monotonic_ms)
    for number in range(3):
        refusals.record("10.0.0.9:1", 103, refused(f"not {number}"), "not its own")
    refusals.record("10.0.0.9:1", 103, refused("not 0"), "another")
    assert len(caplog.messages) == 2


def test_a_peers_words_stay_one_short_line(caplog: pytest.LogCaptureFixture) -> None:
    words = "no\n2026 operator: all is well\n" + "x" * 10_000
    RefusalLog(log, FakeClock().monotonic_ms).record("10.0.0.9:1", 9_999, refused(words))
    shown = words[:500].replace("\n", " ")
    assert caplog.messages == [f"10.0.0.9:1: 9999 rejected: {shown}"]


def test_what_is_remembered_is_bounded() -> None:
    refusals = RefusalLog(log, FakeClock().monotonic_ms)
    for number in range(2_000):
        refusals.record(f"10.{number // 250}.{number % 250}.1:1", 17, refused("no"))
    assert len(refusals._logged) == 1_024
    assert next(reversed(refusals._logged)) == ("10.7.249.1", "no")
