"""OperatorAddresses: where operators may change something from (setting adminAllowedAddresses).

Pure, any thread. Broker and name server ask it before the requests of operators; which requests
those are, and what a refusal says, is theirs to know.
"""

from __future__ import annotations

from typing import Final

from remoting.address_patterns import AddressPatterns, ip_of
from remoting.request_processor import ConnectionLike

_LOOPBACK: Final = ("127.0.0.1", "::1")


class OperatorAddresses:
    """Who is an operator, by address; never changes."""

    def __init__(self, patterns: AddressPatterns, setting: str) -> None:
        """`setting`: the text that `patterns` were read from."""
        self._patterns = patterns
        self._setting = setting

    def include(self, connection: ConnectionLike) -> bool:
        """Whether the peer is one. Whoever asks this machine by its own name does so by way of
        loopback."""
        matches = self._patterns.matches
        return matches(ip_of(connection.remote_address)) or (
            connection.is_from_this_machine and any(map(matches, _LOOPBACK))
        )

    def __str__(self) -> str:
        return self._setting or "nobody"
