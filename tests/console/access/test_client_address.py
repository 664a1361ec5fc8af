"""Whence a request comes: proxies, liars, and names that are not ours."""

from __future__ import annotations

import pytest

from console.access.client_address import Origin, Ways
from remoting.address_patterns import NOBODY, parse_patterns

PROXIES = parse_patterns("10.0.0.0/8, 2001:db8::1")
WAYS = Ways(PROXIES, frozenset({"console.example"}))
BARE = Ways(NOBODY, frozenset())


def address(peer: str, forwarded: str, ways: Ways = WAYS) -> str:
    return ways.origin(peer, {"x-forwarded-for": forwarded}, "http").address


@pytest.mark.parametrize(
    ("forwarded", "client"),
    [
        ("", "10.0.0.1"),
        ("192.0.2.7", "192.0.2.7"),
        ("1.1.1.1, 192.0.2.7", "192.0.2.7"),
        ("1.1.1.1, 192.0.2.7, 10.9.9.9", "192.0.2.7"),
        ("1.1.1.1,192.0.2.7:4711", "192.0.2.7"),
        ("[2001:db8::9]:4711", "2001:db8::9"),
        ("2001:db8::9", "2001:db8::9"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("10.1.1.1, 10.2.2.2", "10.1.1.1"),
        ("192.0.2.7, unknown, 10.2.2.2", "10.2.2.2"),
        ("<b>", "10.0.0.1"),
        ("192.0.2.7\r\nX: y", "10.0.0.1"),
        (",", "10.0.0.1"),
        (", " * 100_000 + "192.0.2.7", "192.0.2.7"),
    ],
)
def test_behind_proxies_the_last_stranger_is_the_client(forwarded: str, client: str) -> None:
    assert address("10.0.0.1", forwarded) == client


def test_a_stranger_says_nothing_of_himself() -> None:
    headers = {
        "host": "console.example",
        "x-forwarded-for": "127.0.0.1",
        "x-forwarded-proto": "https",
        "x-forwarded-host": "other.example",
    }
    told = Origin("192.0.2.9", "console.example", is_tls=False)
    assert WAYS.origin("192.0.2.9", headers, "http") == told
    assert BARE.origin("127.0.0.1", headers, "http").address == "127.0.0.1"
    assert WAYS.origin("10.0.0.1", headers, "http") == Origin("127.0.0.1", "other.example", True)


def test_the_nearest_proxy_tells_the_scheme() -> None:
    for proto, is_tls in (("https", True), ("http", False), ("https, http", False), ("x", False)):
        assert WAYS.origin("10.0.0.1", {"x-forwarded-proto": proto}, "http").is_tls is is_tls
    assert BARE.origin("10.0.0.1", {"x-forwarded-proto": "http"}, "https").is_tls


def test_a_connection_without_an_address_has_one() -> None:
    assert address("", "") == "unknown"


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "localhost:8088",
        "LOCALHOST:1",
        "localhost.",
        "127.0.0.1:8088",
        "[::1]:8088",
        "192.0.2.1",
        "[2001:db8::1]",
        "console.example",
        "Console.Example:443",
    ],
)
def test_names_of_the_console(host: str) -> None:
    assert WAYS.knows(host)


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "console.example.evil.example",
        "evil.example:8088",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "console.example@evil.example",
        "evil.example#console.example",
        "console.example:8088:1",
        "console.example:port",
        "console.example/",
        "[::1",
        "[localhost]",
        "::1",
        "0x7f000001",
        "2130706433",
        "console.example\r\nX: y",
        "a" * 100_000,
        "<script>",
    ],
)
def test_other_names_are_refused(host: str) -> None:
    assert not WAYS.knows(host)
