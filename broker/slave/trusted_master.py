"""TrustedMaster: from which broker address a slave takes tables and the facts about its master.

Name servers only say who is registered as the master, and anybody may register. An address is good
when the master of the HA link named it (its hello; that peer was proved or named by the operator,
see ha/master_connector.py), when haTrustedAddresses has it (unset: this machine, where there is
neither a secret nor TLS), or when it is the host of haMasterAddress and nothing there proves
itself. Process `remoting` of a slave, any thread but the loop's: a host name may be looked up.
"""

from __future__ import annotations

import socket
from typing import Final

from conf.ip_addresses import addresses_of
from ha.ha_config import HaConfig
from ha.own_end import own_end
from ha.trusted_peers import TrustedPeers

_WAY_OUT: Final = (
    "set haSharedSecretFile to the same secret on both sides, or name the address in "
    "haTrustedAddresses"
)


class TrustedMaster:
    """See the module. The master's own word is replaced atomically."""

    def __init__(self, config: HaConfig) -> None:
        """Raises ValueError naming the key."""
        self._trusted = TrustedPeers.of(config)
        self._proves: Final = bool(config.ha_shared_secret_file) or config.ha_tls_enable
        """Masters prove themselves: an address of the operator's is no proof then."""
        self._named_host = _host(config.ha_master_address or "")
        self._told: str | None = None

    def master_said(self, broker_address: str | None) -> None:
        """The master of an HA link named its remoting port "ip:port"; None: it said nothing, or
        there is none: the last word stands."""
        if broker_address is not None:
            self._told = broker_address

    def find_objection(self, address: str) -> str | None:
        """Why nothing is taken from the broker at "ip:port"; None: it may be."""
        if address == self._told or self._is_named(_host(address)):
            return None
        told = "" if self._told is None else f" (the master of our HA link is {self._told})"
        return (
            f"{address} is registered as the master, which anybody may be, and has not proved that "
            f"it is ours{told}: nothing is taken from it; {_WAY_OUT}"
        )

    def may_become(self, ha_address: str) -> bool:
        """Whether a link to this HA port can be had at all: it may prove itself there, or it is
        named."""
        return self._proves or self._is_named(_host(ha_address))

    def is_peer(self, ip: str) -> bool:
        """Whether a peer with this IP speaks for the group."""
        return self._is_named(ip) or (self._told is not None and _resolve(_host(self._told)) == ip)

    def _is_named(self, host: str) -> bool:
        ip = _resolve(host)
        if ip is None:
            return False
        family = socket.AF_INET6 if ":" in ip else socket.AF_INET
        if self._trusted.is_trusted(ip, own_end(family, (ip, 9))):
            return True
        return not self._proves and bool(self._named_host) and ip == _resolve(self._named_host)


def _host(address: str) -> str:
    return address.rpartition(":")[0].removeprefix("[").removesuffix("]")


def _resolve(host: str) -> str | None:
    """The IP of a host; an IP needs no look-up."""
    try:
        return addresses_of(host)[0]
    except (OSError, UnicodeError):
        return None
