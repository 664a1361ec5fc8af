"""MasterFrames: what comes on a slave's link in controller mode, from the socket to whole frames.

Never blocks. Bytes go through one buffer; at most one frame and what one recv brought are kept.
Checksums are looked at (checked_carriage.py), and the order of frames (AutoSwitchSlave). It knows
no log. Corresponds to AutoSwitchHAClient.HAClientReader of RocketMQ.

Tested by tests/ha/test_autoswitch_wire.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ha.autoswitch_frame import MasterFrame
from ha.autoswitch_slave import AutoSwitchSlave
from ha.checked_carriage import MasterBytes
from ha.link_io import receive_into, silence_left_ms
from ha.master_connector import Connected
from ha.transport import PlainTransport
from ipc.clock import Clock

_BUFFER_SIZE: Final = 256 << 10
_NO_ANSWER: Final = (
    " without an answer to the handshake; its log says why (does it lead its group? is this broker "
    "in its haTrustedAddresses, or haSharedSecretFile set here, too?)"
)


class MasterFrames:
    """See the module. Owned by: AutoSwitchClient's thread; `last_read_ms` may be read by any."""

    def __init__(
        self, connected: Connected, slave: AutoSwitchSlave, clock: Clock, silence_ms: int
    ) -> None:
        """silence_ms: haHousekeepingInterval."""
        self._transport = connected.transport
        self._slave = slave
        self._clock = clock
        self._silence_ms = silence_ms
        self._incoming = MasterBytes(is_checked=connected.is_checked)
        # A short read from a plain socket says that it is empty; TLS gives a record at a time.
        self._short_is_empty: Final = isinstance(connected.transport, PlainTransport)
        self._buffer: Final = memoryview(bytearray(_BUFFER_SIZE))
        self._has_greeted = False
        self.there: Iterator[MasterFrame] = iter(())
        """The frames that came and were not taken yet. Raises AutoSwitchFrameError."""
        self.may_have_more = False
        """The socket, after what came last."""
        self.read_at_ms = clock.monotonic_ms()
        self.last_read_ms = clock.now_ms()
        """Wall clock."""

    def receive(self) -> bool:
        """One recv, after all that is `there` was taken; whether something came. Raises
        LinkClosedError: the link has ended."""
        at_end = "" if self._has_greeted else _NO_ANSWER
        count = receive_into(self._transport, self._buffer, at_end)
        self.may_have_more = bool(count) and (count == _BUFFER_SIZE or not self._short_is_empty)
        if not count:
            return False
        self._has_greeted = True
        self.note_progress()
        self.last_read_ms = self._clock.now_ms()
        self.there = self._frames_of(self._buffer[:count])
        return True

    def note_progress(self) -> None:
        """From now on silence counts."""
        self.read_at_ms = self._clock.monotonic_ms()

    def silence_left_ms(self, now_ms: int) -> int:
        """Until silence is too long. Raises LinkClosedError: it is."""
        return silence_left_ms(now_ms - self.read_at_ms, self._silence_ms)

    def _frames_of(self, data: memoryview) -> Iterator[MasterFrame]:
        for carried in self._incoming.receive(data):
            yield from self._slave.receive(carried)
