"""TrustedPeers: networks, defaults, addresses in all their spellings."""

from __future__ import annotations

import pytest

from ha.ha_config import HaConfig
from ha.trusted_peers import TrustedPeers, describe_proof


def test_networks_and_single_addresses() -> None:
    trusted = TrustedPeers("127.0.0.1/32, 10.0.0.0/8;192.168.1.7 fd00::/8", False)
    for ip in ("127.0.0.1", "10.9.8.7", "192.168.1.7", "fd00::1", "::ffff:10.0.0.1"):
        assert trusted.is_trusted(ip), ip
    for ip in ("127.0.0.2", "11.0.0.1", "192.168.1.8", "::1", "::ffff:11.0.0.1", "", "localhost"):
        assert not trusted.is_trusted(ip), ip


def test_by_default_this_machine_where_nothing_else_could_prove_anything() -> None:
    alone = TrustedPeers.of(HaConfig())
    for ip in ("127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"):
        assert alone.is_trusted(ip), ip
    assert not alone.is_trusted("10.0.0.1", "10.0.0.2")
    assert not alone.is_trusted("10.0.0.1")
    assert alone.is_trusted("10.0.0.1", "10.0.0.1"), "from this machine to its own name"
    for proof in (HaConfig(ha_shared_secret_file="/s"), HaConfig(ha_tls_enable=True)):
        with_proof = TrustedPeers.of(proof)
        assert not with_proof.is_trusted("127.0.0.1", "127.0.0.1")


def test_an_operators_list_is_all_there_is() -> None:
    named = TrustedPeers.of(HaConfig(ha_trusted_addresses="10.0.0.1", ha_shared_secret_file="/s"))
    assert named.is_trusted("10.0.0.1")
    assert not named.is_trusted("127.0.0.1")
    assert not TrustedPeers("", False).is_trusted("127.0.0.1", "127.0.0.1")


@pytest.mark.parametrize(
    ("config", "words", "is_warning"),
    [
        (HaConfig(), ("prove nothing", "this machine", "haSharedSecretFile"), False),
        (
            HaConfig(ha_shared_secret_file="/s"),
            ("secret of haSharedSecretFile /s", "nobody"),
            False,
        ),
        (HaConfig(ha_tls_enable=True), ("certificates", "nobody"), False),
        (HaConfig(ha_trusted_addresses="10.0.0.0/8"), ("prove nothing", "10.0.0.0/8"), False),
        (HaConfig(ha_allow_any_peer=True), ("ANYBODY", "haAllowAnyPeer"), True),
    ],
)
def test_the_line_at_the_start(config: HaConfig, words: tuple[str, ...], is_warning: bool) -> None:
    text, warns = describe_proof(config)
    assert all(word in text for word in words), text
    assert warns is is_warning


def test_allow_any() -> None:
    assert TrustedPeers("", True).is_trusted("8.8.8.8")


@pytest.mark.parametrize("text", ["127.0.0.1/33", "10.0.0.0/8,host", "1.2.3"])
def test_a_wrong_setting_is_named(text: str) -> None:
    with pytest.raises(ValueError, match=r"haTrustedAddresses: '.*' is not an address or network"):
        TrustedPeers(text, False)
