"""What is an address, and which one."""

from __future__ import annotations

import ipaddress

import pytest

from conf.ip_addresses import addresses_of, parse_ip


@pytest.mark.parametrize(
    ("text", "packed"),
    [
        ("10.1.2.3", bytes((10, 1, 2, 3))),
        ("[10.1.2.3]", bytes((10, 1, 2, 3))),
        ("::ffff:10.1.2.3", bytes((10, 1, 2, 3))),
        ("[::FFFF:a01:203]", bytes((10, 1, 2, 3))),
        ("::1", bytes(15) + b"\1"),
        ("[2001:db8::1]", bytes.fromhex("20010db8000000000000000000000001")),
        ("::10.1.2.3", bytes(12) + bytes((10, 1, 2, 3))),
    ],
)
def test_an_address_however_it_is_written(text: str, packed: bytes) -> None:
    found = parse_ip(text)
    assert found is not None
    assert found.packed == packed
    assert found == ipaddress.ip_address(packed)


@pytest.mark.parametrize("text", ["", "localhost", "10.1.2", "10.1.2.3:80", "010.1.2.3", "::g"])
def test_what_is_no_address(text: str) -> None:
    assert parse_ip(text) is None


def test_an_address_is_its_own_address() -> None:
    assert addresses_of("127.0.0.1") == ["127.0.0.1"]
    assert addresses_of("::1") == ["::1"]


def test_a_name_that_nobody_has() -> None:
    with pytest.raises((OSError, UnicodeError)):
        addresses_of("a" * 64 + ".invalid")
