"""remoting.metrics.http_accept: Accept headers, those that nobody should send included."""

from __future__ import annotations

import pytest

from remoting.metrics.http_accept import parse_accepted

CASES = [
    ("", []),
    ("gzip", [("gzip", {}, 1)]),
    ("GZip;q=0, *", [("gzip", {}, 0), ("*", {}, 1)]),
    ("a/b ; Q=0.25", [("a/b", {}, 0.25)]),
    ("a/b;version=1.0.0;q=0.5", [("a/b", {"version": "1.0.0"}, 0.5)]),
    ('a/b;Version="1.0.0"', [("a/b", {"version": "1.0.0"}, 1)]),
    ('a/b;x="1,2;q=0";q=0.1,c/d', [("a/b", {"x": "1,2;q=0"}, 0.1), ("c/d", {}, 1)]),
    ('a/b;x="1,c/d;q=0', [("a/b", {"x": "1,c/d;q=0"}, 1)]),
    ("a/b;q=1.000,c/d;q=0.", [("a/b", {}, 1), ("c/d", {}, 0)]),
    *((f"a/b;q={q}", [("a/b", {}, 1)]) for q in ("", "x", "-1", "2", "nan", "1e-3", "0.0001")),
    ("a/b;q", [("a/b", {}, 1)]),
    (",;, ,;;=,;version=", [("=", {}, 1), ("version=", {}, 1)]),
    ("a/b;=;x", [("a/b", {"": "", "x": ""}, 1)]),
]


@pytest.mark.parametrize(("header", "expected"), CASES)
def test_elements(header: str, expected: list[tuple[str, dict[str, str], float]]) -> None:
    assert [tuple(found) for found in parse_accepted(header)] == expected


@pytest.mark.parametrize("piece", ['"', ",", ";", '",', 'a;"', "\\", '"\\"'])
def test_a_hostile_header_is_read(piece: str) -> None:
    """In one pass: whatever goes back at each piece would not end."""
    assert len(parse_accepted(piece * 300_000)) <= 300_000
