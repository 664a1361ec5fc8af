"""OperatorAddresses: the addresses from which operators may make changes (adminAllowedAddresses).

Pure, any thread. Broker and name server check it before operators' requests; they define which
requests those are, and the text of a rejection.
"""

from __future__ import annotations

from typing import Final

from remoting.address_patterns import AddressPatterns, ip_of
from remoting.request_processor import ConnectionLike

_LOOPBACK: Final = ("127.0.0.1", "::1")


class OperatorAddresses:
    """The operators' addresses; immutable."""

    def __init__(self, patterns: AddressPatterns, setting: str) -> None:
        """`setting`: the text that `patterns` were read from."""
        self._patterns = patterns
        self._setting = setting

    def include(self, connection: ConnectionLike) -> bool:
        """Whether the peer is an operator. A connection from this machine to its own name counts as
        loopback."""
        matches = self._patterns.matches
        return matches(ip_of(connection.remote_address)) or (
            connection.is_from_this_machine and any(map(matches, _LOOPBACK))
        )

    def __str__(self) -> str:
        return self._setting or "nobody"
