"""remoting.address_patterns: what an access list means, and what it does not."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting.address_patterns import (
    NOBODY,
    AddressPatterns,
    ip_of,
    parse_pattern,
    parse_patterns,
    split_list,
    union,
)
from tests.support.every_row import every_row

IN, OUT = True, False


@every_row(
    ("pattern", "ip", "meant"),
    [
        ("", "127.0.0.1", OUT),
        ("   ", "127.0.0.1", OUT),
        ("*", "10.0.0.1", IN),
        ("*.*.*.*", "2001:db8::1", IN),
        ("*:*:*:*:*:*:*:*", "10.0.0.1", IN),
        ("10.1.2.3", "10.1.2.3", IN),
        ("10.1.2.3", "10.1.2.4", OUT),
        ("10.1.2.3", "::ffff:10.1.2.3", IN),
        ("10.1.2.3", "[::ffff:10.1.2.3]", IN),
        ("10.1.2.3", "no address", OUT),
        ("10.1.2.3", "", OUT),
        ("10.1.2.3,10.1.2.5", "10.1.2.5", IN),
        ("10.1.2.3, 10.1.2.5", "10.1.2.5", IN),
        ("10.1.2.3,10.1.2.5", "10.1.2.4", OUT),
        ("10.1.2.{3, 5}", "10.1.2.5", IN),
        ("10.1.2.{3,5}", "10.1.2.4", OUT),
        ("10.1.2.*", "10.1.2.0", IN),
        ("10.1.2.*", "10.1.3.0", OUT),
        ("10.1.2.*", "110.1.2.0", OUT),
        ("10.*.*.*", "10.255.0.1", IN),
        ("10.1.2.20-30", "10.1.2.20", IN),
        ("10.1.2.20-30", "10.1.2.30", IN),
        ("10.1.2.20-30", "10.1.2.19", OUT),
        ("10.1.2.20-30", "10.1.2.31", OUT),
        ("10.1.2-3.*", "10.1.3.77", IN),
        ("10.1.2-3.*", "10.1.4.77", OUT),
        ("10.*.5.6", "10.1.5.6", IN),
        ("10.*.5.6", "10.1.5.7", OUT),
        ("10.1.2.*", "2001:db8::1", OUT),
        ("::1", "0:0:0:0:0:0:0:1", IN),
        ("2001:DB8::A", "2001:db8:0:0::a", IN),
        ("1050::5:600:300c:3261,1050::5:600:300c:3262", "1050::5:600:300c:3262", IN),
        ("1050::5:600:300c:{1,2}", "1050::5:600:300c:2", IN),
        ("1050::5:600:300c:{1,2}", "1050::5:600:300c:3", OUT),
        ("1050::5:600:300c:1-200", "1050::5:600:300c:200", IN),
        ("1050::5:600:300c:1-200", "1050::5:600:300c:201", OUT),
        ("1050::5:600:300c:1-20:*", "1050::5:600:300c:20:abcd", IN),
        ("1050::5:600:300c:1-20:*", "1050::5:600:300c:21:abcd", OUT),
        ("fe80::*", "fe80::ffff", IN),
        ("fe80::*", "fe80::1:ffff", OUT),
        ("::", "::", IN),
        ("1::", "1::", IN),
    ],
)
def test_one_entry(pattern: str, ip: str, meant: bool) -> None:
    assert parse_pattern(pattern).matches(ip) is meant


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("10.1.2", "has 3 parts instead of 4"),
        ("10.1.2.3.4", "has 5 parts instead of 4"),
        ("10.1.2.256", "has the part '256', which is not within 0..255"),
        ("10.1.2.30-20", "has the part '30-20', which is not within 0..255"),
        ("10.1.2.-20", "has the part ''"),
        ("10.1.2.x", "has the part 'x'"),
        ("10.1.2.1*", "has the part '1*'"),
        ("10.1.2.3,", "has 1 parts instead of 4"),
        ("10.1.2.{3,4", "has the part '{3'"),
        ("10.1.2.3,4}", "has braces in the wrong place"),
        ("10.1.2{3,4}", "has braces in the wrong place"),
        ("10.1.2.{3,}", "has the part ''"),
        ("localhost", "has 1 parts instead of 4"),
        ("10.1.0.0/16", "has the part '0/16'"),
        ("::1::", "has more than one ::"),
        (":::", "has more than one ::"),
        ("1:2:3", "has 3 parts instead of 8"),
        ("1:2:3:4:5:6:7:8::", "has 9 parts instead of 8"),
        ("::12345", "has the part '12345'"),
        ("::g", "has the part 'g'"),
    ],
)
def test_a_wrong_entry_says_why_and_what_to_write(pattern: str, why: str) -> None:
    with pytest.raises(ValueError, match="; use ") as caught:
        parse_pattern(pattern)
    assert str(caught.value) == (
        f"{pattern!r} {why}; use an address (10.1.2.3, 2001:db8::1), a list (10.1.2.{{3,4}}), or "
        "* and ranges in an address (10.1.*.*, 10.1.2.3-50)"
    )


def test_a_setting_takes_networks_too() -> None:
    patterns = parse_patterns("127.0.0.0/8, ::1,10.1.2.{3,4} ,10.2.*.*,2001:db8::/32,")
    inside = ["127.9.9.9", "::1", "10.1.2.4", "10.2.3.4", "2001:db8::7", "::ffff:127.0.0.1"]
    assert [ip for ip in inside if not patterns.matches(ip)] == []
    outside = ["128.0.0.1", "::2", "10.1.2.5", "10.3.0.0", "2001:db9::", "x"]
    assert [ip for ip in outside if patterns.matches(ip)] == []


def test_a_wrong_network() -> None:
    with pytest.raises(ValueError, match=r"'10\.0\.0\.0/33' is not a network; use an address"):
        parse_patterns("::1,10.0.0.0/33")


def test_an_empty_setting_means_nobody() -> None:
    assert parse_patterns("") == NOBODY
    assert parse_patterns(" , ") == NOBODY


def test_a_union_means_whoever_one_of_them_means() -> None:
    assert union([]) == NOBODY
    assert union([NOBODY, AddressPatterns(everybody=True)]).matches("1.2.3.4")


def test_commas_within_braces_do_not_split() -> None:
    assert split_list("a, b.{1,2},c.{3} ,, d") == ["a", "b.{1,2}", "c.{3}", "d"]


@pytest.mark.parametrize(
    ("remote", "ip"), [("10.0.0.1:4711", "10.0.0.1"), ("::1:4711", "::1"), ("odd", "")]
)
def test_the_ip_of_a_peer(remote: str, ip: str) -> None:
    assert ip_of(remote) == ip


@given(st.ip_addresses())
def test_an_address_means_itself_alone(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return
    other = type(address)(int(address) ^ 1)
    for text in (str(address), address.exploded):
        assert parse_pattern(text).matches(str(address))
        assert not parse_pattern(text).matches(str(other))
