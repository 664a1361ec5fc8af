"""LinkRecord: what a slave's client tells of its links, the open one and those that have ended.

Written by the client's thread; any thread asks for the snapshot. Both clients have one, that of
controller mode (autoswitch_client.py) and the other (ha_client.py). It knows no protocol.

Tested by tests/ha/test_ha_client.py.
"""

from __future__ import annotations

import logging
from typing import Final, Protocol

from ha.client_selector import ClientSelector
from ha.frame_room import FrameRoom
from ha.ha_client_info import HAClientInfo, HAClientState
from ha.last_error import LastError
from ha.link_errors import LinkClosedError
from ha.master_hello import MasterHello
from ha.refusal_log import RefusalLog
from ha.transport import Transport
from ipc.clock import Clock
from store.replica_log import ReplicaLog

log = logging.getLogger(__name__)


class OpenLink(Protocol):
    """A link of either protocol (MasterLink, AutoSwitchLink), as far as it is told of."""

    received: int

    @property
    def transport(self) -> Transport:
        """Its socket."""

    @property
    def room(self) -> FrameRoom:
        """Where its frames go."""

    @property
    def connected_since_ms(self) -> int:
        """Wall clock."""

    @property
    def last_read_ms(self) -> int:
        """Wall clock ms of the last bytes."""

    @property
    def last_write_ms(self) -> int:
        """Wall clock ms of the last report; 0: none."""

    def bytes_per_second(self) -> int:
        """Log bytes received lately."""


class LinkRecord:
    """See the module."""

    def __init__(self, replica_log: ReplicaLog, refusals: RefusalLog, clock: Clock) -> None:
        self.state = HAClientState.WAITING_FOR_ADDRESS
        self.link: OpenLink | None = None
        """The open one."""
        self.hello: MasterHello | None = None
        """Of the last master that has said one."""
        self.last_error: Final = LastError(clock)
        self._log = replica_log
        self._refusals = refusals
        self._last_read_ms = self._last_write_ms = 0
        self._received = 0
        """Over the links that have ended."""
        self._is_stalled = False

    def opened(self, link: OpenLink) -> None:
        """This one is followed now."""
        link.received = self._received
        self.link = link
        self._is_stalled = False

    def end(self, selector: ClientSelector, transport: Transport) -> None:
        """Close the socket of a link, which may not have been opened."""
        link = self.link
        if link is not None:
            self._last_read_ms, self._last_write_ms = link.last_read_ms, link.last_write_ms
            self._received = link.received
        self.link = None
        selector.watch(transport.fileno(), 0)
        transport.close()

    def note_closed(self, error: LinkClosedError, address: str | None) -> None:
        """Why a round with the master at "ip:port" ended: counted, and said when it is new."""
        text = str(error)
        is_new = self.last_error.note(text)
        if error.reason is not None:
            self._refusals.refused(address or "?", error.reason, text)
        elif is_new:
            log.warning("master %s: %s", address or "?", text)

    def note_progress(self, link: OpenLink) -> None:
        """Before a sleep: what had stalled may go on."""
        if self._is_stalled and not link.room.is_awaited:
            self._is_stalled = False
            self.last_error.end()
            log.warning("replication resumed")

    def note_stall(self, link: OpenLink) -> None:
        """After a sleep: frames may have waited for their file for long."""
        if self._is_stalled or (stall := link.room.find_stall()) is None:
            return
        self._is_stalled = True
        self.last_error.note(stall)
        log.error("replication stalled: %s", stall)

    def snapshot(
        self,
        master_address: str | None,
        last_inspection: str | None = None,
        last_inspection_ms: int | None = None,
    ) -> HAClientInfo:
        """What the client is doing now; see HAClientInfo. Any thread."""
        link = self.link
        return HAClientInfo(
            state=self.state,
            master_address=master_address,
            local_address=None if link is None else link.transport.local,
            master_hello=None if link is None else self.hello,
            max_offset=self._log.max_phy_offset,
            last_read_ms=self._last_read_ms if link is None else link.last_read_ms,
            last_write_ms=self._last_write_ms if link is None else link.last_write_ms,
            bytes_per_second=0 if link is None else link.bytes_per_second(),
            received=self._received if link is None else link.received,
            connected_since_ms=None if link is None else link.connected_since_ms,
            last_error=self.last_error.seen,
            last_inspection=last_inspection,
            last_inspection_ms=last_inspection_ms,
        )
