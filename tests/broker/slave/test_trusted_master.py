"""broker.slave.trusted_master: from which broker address a slave takes anything."""

from __future__ import annotations

import pytest

from broker.slave.trusted_master import TrustedMaster
from ha.ha_config import HaConfig

MASTER, STRANGER = "10.0.0.1:10911", "192.0.2.66:10911"


def accepts(trust: TrustedMaster, *addresses: str) -> list[bool]:
    return [trust.find_objection(address) is None for address in addresses]


def test_this_machine_without_any_setting() -> None:
    trust = TrustedMaster(HaConfig())
    assert accepts(trust, "127.0.0.1:1", "localhost:1", MASTER, "no.such.host.invalid:1") == [
        *(True, True, False, False)
    ]


@pytest.mark.parametrize("secret", [None, "/secret"])
def test_the_masters_own_word(secret: str | None) -> None:
    """The address that the link's master named, port and all."""
    trust = TrustedMaster(HaConfig(ha_shared_secret_file=secret))
    assert accepts(trust, MASTER) == [False]
    assert not trust.is_peer("10.0.0.1")
    trust.master_said(MASTER)
    trust.master_said(None)
    assert accepts(trust, MASTER, "10.0.0.1:20911", STRANGER) == [True, False, False]
    assert trust.is_peer("10.0.0.1")
    assert not trust.is_peer("192.0.2.66")
    text = trust.find_objection(STRANGER) or ""
    assert f"(the master of our HA link is {MASTER})" in text
    assert "haSharedSecretFile" in text


def test_the_operators_word() -> None:
    trust = TrustedMaster(HaConfig(ha_trusted_addresses="10.0.0.0/24"))
    assert accepts(trust, MASTER, "127.0.0.1:1") == [True, False]
    trust = TrustedMaster(HaConfig(ha_master_address="10.0.0.1:10912"))
    assert accepts(trust, MASTER, STRANGER) == [True, False]


def test_with_a_secret_an_address_of_the_operators_proves_nothing() -> None:
    settings = {"ha_master_address": "10.0.0.1:10912", "ha_shared_secret_file": "/secret"}
    assert accepts(TrustedMaster(HaConfig(**settings)), MASTER, "127.0.0.1:1") == [False, False]


def test_which_links_can_be_had_at_all() -> None:
    for config, expected in (
        (HaConfig(), False),
        (HaConfig(ha_trusted_addresses="10.0.0.1"), True),
        (HaConfig(ha_shared_secret_file="/secret"), True),
        (HaConfig(ha_tls_enable=True), True),
        (HaConfig(ha_allow_any_peer=True), True),
    ):
        assert TrustedMaster(config).may_become("10.0.0.1:10912") is expected
