"""LinkBorrower: process `remoting`'s end of link_loan.py: takes a lent connection, gives it back.

On the loop's thread, which it asks to watch the channel to process `ha` and the lent connection. It
tells its owner when reports have come. It knows no sends.

Tested by tests/ha/test_link_borrower.py.
"""

from __future__ import annotations

import array
import logging
import os
import socket
from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from ha.control_slots import LENT_NUMBER, LOAN
from ha.lent_link import LentLink
from ha.link_loan import MAX_PACKET, Lent, Recall, Returned
from ha.selector_factory import EVENT_READ
from ha.source_files import LogSource
from ipc.clock import Clock

log = logging.getLogger(__name__)

MOST_UNAWAITED: Final = 8
_read_lent: Final = msgspec.json.Decoder(Lent).decode
_read_recall: Final = msgspec.json.Decoder(Recall).decode


class Watcher(Protocol):
    """The loop, as far as it is needed here."""

    def register(
        self, sock: socket.socket | int, events: int, callback: Callable[[int], None]
    ) -> None: ...

    def unregister(self, sock: socket.socket | int) -> None: ...
    def add_turn_end(self, function: Callable[[], None]) -> None: ...


class LinkBorrower:
    """See the module. Owned by: the loop thread."""

    def __init__(
        self,
        channel: socket.socket,
        source: LogSource,
        clock: Clock,
        loop: Watcher,
        *,
        acknowledged: Callable[[], None],
    ) -> None:
        """channel: to process `ha`. acknowledged: more than before is acknowledged."""
        channel.setblocking(False)
        self._channel = channel
        self._source = source
        self._counters = source.page.counters
        self._clock = clock
        self._loop = loop
        self._acknowledged = acknowledged
        self.link: LentLink | None = None
        self._is_stopped = False
        self._unawaited = 0
        """Frames in a row that no send waited for."""
        self._counters[LENT_NUMBER] = 0  # A predecessor's: its descriptors are closed.

    def start(self) -> None:
        """Watch the channel; the ends of turns, too, after whoever answers there."""
        self._loop.add_turn_end(self.send_rest)
        self._loop.register(self._channel, EVENT_READ, self._receive)

    def send_awaited(self) -> None:
        """Send the slave what was published, if its connection is here: a send waits for it."""
        if self.link is not None:
            self._unawaited = 0
            self.link.send_new()

    def send_rest(self) -> None:
        """Likewise at the end of a turn, after the answers: what nobody waits for. If that is all
        there is, the loop has better things to do."""
        link = self.link
        if link is None or not link.has_new:
            return
        self._unawaited += 1
        if self._unawaited > MOST_UNAWAITED:
            self._give_back()
        else:
            link.send_new()

    def stop(self) -> None:
        """Give back what is here, and take nothing more: the log's writer has stopped."""
        self._is_stopped = True
        self._give_back()

    def _receive(self, _events: int) -> None:
        try:
            packet, ancillary, flags, _address = self._channel.recvmsg(
                MAX_PACKET, socket.CMSG_SPACE(4), socket.MSG_CMSG_CLOEXEC
            )
        except BlockingIOError:
            return
        fds = _descriptors(ancillary)
        try:
            if fds:
                self._take(_read_lent(packet), fds.pop())
            elif flags & socket.MSG_CTRUNC:
                # No descriptor is left here.
                self._return(_read_lent(packet).unused())
            elif packet:
                self._recalled(_read_recall(packet))
        finally:
            for fd in fds:
                os.close(fd)

    def _take(self, lent: Lent, fd: int) -> None:
        sock = socket.socket(fileno=fd)
        # Of a process `ha` that has ended: the slave notices only when nobody has it any more.
        self._let_go()
        self._unawaited = 0
        self.link = link = LentLink(sock, lent, self._source, self._clock, self._give_back)
        self._loop.register(sock, EVENT_READ, self._read)
        if self._is_stopped or self._counters[LOAN] != lent.number:
            self._give_back()
        else:
            link.send_new()

    def _recalled(self, recall: Recall) -> None:
        if self.link is None:
            return
        if recall.number == self.link.number:
            self._give_back()
        elif not recall.number:
            self._let_go()

    def _read(self, _events: int) -> None:
        if self.link is not None and self.link.read():
            self._acknowledged()

    def _give_back(self) -> None:
        returned = self._let_go()
        if returned is not None:
            self._return(returned)

    def _return(self, returned: Returned) -> None:
        try:
            self._channel.send(msgspec.json.encode(returned))
        except OSError as error:
            # It ends the connection when it hears nothing.
            log.error("giving the link to the slave back to process ha failed: %s", error)

    def _let_go(self) -> Returned | None:
        """Close what is here, if anything is; its state."""
        link, self.link = self.link, None
        if link is None:
            return None
        self._loop.unregister(link.fileno())
        return link.close()


def _descriptors(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    """As socket.recv_fds finds them, which passes no flag on to recvmsg."""
    found: array.array[int] = array.array("i")
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            found.frombytes(data[: len(data) - len(data) % found.itemsize])
    return found.tolist()
