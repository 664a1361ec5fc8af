"""TrustedPeers: networks, members, addresses in all their spellings."""

from __future__ import annotations

import pytest

from ha.trusted_peers import TrustedPeers


def test_networks_and_single_addresses() -> None:
    trusted = TrustedPeers("127.0.0.1/32, 10.0.0.0/8;192.168.1.7 fd00::/8", False)
    for ip in ("127.0.0.1", "10.9.8.7", "192.168.1.7", "fd00::1", "::ffff:10.0.0.1"):
        assert trusted.is_trusted(ip), ip
    for ip in ("127.0.0.2", "11.0.0.1", "192.168.1.8", "::1", "::ffff:11.0.0.1", "", "localhost"):
        assert not trusted.is_trusted(ip), ip


def test_members_are_trusted_while_they_are_members() -> None:
    trusted = TrustedPeers("", False)
    assert not trusted.is_trusted("10.0.0.1")
    trusted.set_members(["10.0.0.1", "nonsense"])
    assert trusted.is_trusted("10.0.0.1")
    trusted.set_members(["10.0.0.2"])
    assert not trusted.is_trusted("10.0.0.1")
    assert trusted.is_trusted("10.0.0.2")
    trusted.set_members([])
    assert not trusted.is_trusted("10.0.0.2")


def test_allow_any() -> None:
    assert TrustedPeers("", True).is_trusted("8.8.8.8")


@pytest.mark.parametrize("text", ["127.0.0.1/33", "10.0.0.0/8,host", "1.2.3"])
def test_a_wrong_setting_is_named(text: str) -> None:
    with pytest.raises(ValueError, match=r"haTrustedAddresses: '.*' is not an address or network"):
        TrustedPeers(text, False)
