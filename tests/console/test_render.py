"""Rendering: moments, numbers, and live regions by themselves."""

from __future__ import annotations

import pytest

from console.render import count, seconds, when


def test_a_moment_is_a_time_element_in_utc() -> None:
    assert when(1_700_000_000_123) == (
        '<time datetime="2023-11-14T22:13:20.123Z">2023-11-14 22:13:20 UTC</time>'
    )


@pytest.mark.parametrize("ms", [None, 0, -5, 10**18, float("inf"), float("nan")])
def test_what_is_no_moment_is_a_dash(ms: float | None) -> None:
    assert when(ms) == "–"


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (0, "0"), (1.5, "1.50"), (1234567.0, "1\u202f234\u202f567"), (250.7, "251")],
)
def test_numbers(value: float | None, text: str) -> None:
    assert count(value) == text


@pytest.mark.parametrize("value", [float("inf"), float("nan"), -float("inf")])
def test_a_peers_number_that_is_none(value: float) -> None:
    assert count(value) == "–"
    assert seconds(value) == "–"


def test_seconds() -> None:
    assert seconds(None) == "–"
    assert seconds(1.26) == "1.3 s"
