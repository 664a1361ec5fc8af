"""TrustedPeers: which addresses need no proof: they get the log, and a slave follows them.

Any thread may ask. Pure: addresses in, yes or no out; no I/O. Being registered with a name server
is no reason: anybody may register. The same rule holds for both ends of a link, and for those who
name a slave's master (906). RocketMQ sends the log to anyone who connects (haAllowAnyPeer).
"""

from __future__ import annotations

import ipaddress
import logging
from typing import Final, Self

from conf.ip_addresses import parse_ip
from ha.ha_config import HaConfig

log = logging.getLogger(__name__)

THIS_MACHINE: Final = "127.0.0.0/8,::1"

_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class TrustedPeers:
    """See the module. Immutable."""

    def __init__(self, networks: str | None, allow_any: bool, *, has_proof: bool = False) -> None:
        """`networks`: haTrustedAddresses, addresses or networks between commas (semicolons and
        spaces do as well); empty: none; None: this machine unless peers can prove themselves
        (`has_proof`: by secret or certificates). Raises ValueError naming the key."""
        self._only_this_machine: Final = networks is None and not has_proof
        self._text: Final = THIS_MACHINE if self._only_this_machine else networks or ""
        self._networks = parse_networks(self._text)
        self._allow_any = allow_any

    @classmethod
    def of(cls, config: HaConfig) -> Self:
        """Those of a configuration. Raises ValueError naming the key."""
        return cls(
            config.ha_trusted_addresses,
            config.ha_allow_any_peer,
            has_proof=bool(config.ha_shared_secret_file) or config.ha_tls_enable,
        )

    def is_trusted(self, ip: str, own_ip: str | None = None) -> bool:
        """Whether a peer with this address needs no proof. `own_ip`: our end of its connection; by
        default one from this machine to its own name counts as loopback."""
        if self._allow_any:
            return True
        address = parse_ip(ip)
        if address is None:
            return False
        if self._only_this_machine and own_ip is not None and address == parse_ip(own_ip):
            return True
        return any(address in network for network in self._networks)

    def __str__(self) -> str:
        if self._allow_any:
            return "anybody"
        if self._only_this_machine:
            return "this machine"
        return self._text or "nobody"


def describe_proof(config: HaConfig) -> tuple[str, bool]:
    """One line for the log that says how HA peers prove themselves; and whether it is a warning."""
    trusted = str(TrustedPeers.of(config))
    if config.ha_allow_any_peer:
        return (
            "HA peers: ANYBODY who reaches this port gets the whole log and acknowledges for "
            "SYNC_MASTER (haAllowAnyPeer=true); set haSharedSecretFile and unset haAllowAnyPeer",
            True,
        )
    proofs = []
    if config.ha_shared_secret_file:
        proofs.append(f"the secret of haSharedSecretFile {config.ha_shared_secret_file}")
    if config.ha_tls_enable:
        proofs.append("certificates (haTlsEnable)")
    if proofs:
        return f"HA peers prove themselves by {' and '.join(proofs)}; without: {trusted}", False
    return (
        f"HA peers prove nothing, their addresses are all that counts: {trusted}; for peers on "
        "other machines set haSharedSecretFile",
        False,
    )


def log_proof(config: HaConfig) -> None:
    """The line of `describe_proof`."""
    text, is_warning = describe_proof(config)
    log.log(logging.WARNING if is_warning else logging.INFO, "%s", text)


def parse_networks(text: str) -> list[_Network]:
    """The networks of haTrustedAddresses. Raises ValueError naming the key and the wrong part."""
    networks: list[_Network] = []
    for part in text.replace(",", " ").replace(";", " ").split():
        try:
            networks.append(ipaddress.ip_network(part, strict=False))
        except ValueError as error:
            raise ValueError(
                f"haTrustedAddresses: {part!r} is not an address or network; use, for example, "
                "127.0.0.0/8,10.1.2.3"
            ) from error
    return networks
