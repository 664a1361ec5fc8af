"""RepairProof: whether the word on which a slave would change its log is its master's.

A comparison of logs is answered by whoever is registered as the master: remoting is open, and
anybody may register somewhere. So before a log starts over or is cut off, the slave opens a link to
the HA port, whose peer is proved or named by the operator (master_connector.py), and asks whether
the broker that answered the comparison is that master. Runs on HAClient's thread. It changes
nothing and knows no frames.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ha.divergence import Divergence, LogEnds
from ha.inspection import Inspection
from ha.link_errors import LinkClosedError
from ha.master_connector import MasterConnector
from ha.master_hello import MasterHello
from ha.refusals import RefusalReason
from ha.trusted_peers import TrustedPeers

_WAY_OUT: Final = (
    "set haSharedSecretFile to the same secret on both sides and brokerIP1 of the master to the "
    "address that name servers report, or name that address in haTrustedAddresses"
)


class UnprovedError(Exception):
    """The word is nobody's that counts; the text says why, and the way out."""

    def __init__(self, reason: RefusalReason, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class RepairProof:
    """See the module. Owned by: HAClient's thread."""

    def __init__(self, connector: MasterConnector, trusted: TrustedPeers) -> None:
        self._connector = connector
        self._trusted = trusted

    def prove(
        self,
        divergence: Divergence,
        found: Inspection,
        address: str,
        hello: MasterHello,
        own: LogEnds,
    ) -> Divergence:
        """The divergence as the master at HA address "ip:port" states it, with its own min offset
        if it says that. Raises UnprovedError."""
        objection = self.find_objection(found, address, hello)
        if objection is not None:
            raise UnprovedError(RefusalReason.UNKNOWN_PEER, objection)
        if divergence.loses_data or hello.min_phy_offset < 0:
            return divergence
        if hello.min_phy_offset <= own.max_phy_offset:
            raise UnprovedError(
                RefusalReason.UNKNOWN_PEER,
                f"the master at {address} says that its log starts at {hello.min_phy_offset}, "
                "where ours continues",
            )
        return replace(divergence, repair=replace(divergence.repair, offset=hello.min_phy_offset))

    def fetch_hello(self, address: str, found: Inspection) -> MasterHello:
        """What the master at HA address "ip:port" says of itself. Raises UnprovedError;
        LinkClosedError: a stop, or the address changed."""
        try:
            connected = self._connector.connect(address, speaks_handshake=found.ha_protocol > 0)
        except LinkClosedError as error:
            if error.reason is None:
                raise
            raise UnprovedError(error.reason, f"the master at {address}: {error}") from error
        connected.transport.close()
        return connected.hello

    def find_objection(self, found: Inspection, address: str, hello: MasterHello) -> str | None:
        """Why the broker that answered the comparison is not known to be the master of a link to
        `address`; None: it is."""
        asked = found.master_address
        if asked is None:
            return f"no master is registered whose log could be compared; {_WAY_OUT}"
        if asked == hello.broker_address or self._trusted.is_trusted(_host(asked)):
            return None
        if not hello.is_proved and _host(asked) == _host(address):
            return None  # The operator named this host; nothing there proves itself.
        who = hello.broker_address or "another one, perhaps"
        return (
            f"the comparison was answered by {asked}, but the master at {address} is {who}; "
            f"{_WAY_OUT}"
        )


def _host(address: str) -> str:
    return address.rpartition(":")[0].removeprefix("[").removesuffix("]")
