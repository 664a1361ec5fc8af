"""GroupMembersService: asks who the registered brokers of this group are, for TrustedPeers.

A thread of process `ha`. Asks every 30 s, and immediately when an unknown peer waits (`request`),
but at most once a second, so that unknown peers cannot flood the name server. `fetch` gets the
answer (through process `remoting` from a name server); KnownMembers decides who is a member after
it, and after a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ha.blocking_call_service import BlockingCallService
from ha.known_members import KnownMembers, Members
from ipc.clock import Clock
from ipc.service_thread import FailureHandler

ASK_EVERY_MS: Final = 30_000
ASK_PAUSE_MS: Final = 1_000


class GroupMembersService(BlockingCallService):
    """See the module."""

    def __init__(
        self,
        fetch: Callable[[], Mapping[int, str] | None],
        known: KnownMembers,
        use: Callable[[Members], None],
        clock: Clock,
        *,
        on_failure: FailureHandler | None = None,
    ) -> None:
        """`fetch` returns the members' addresses by id, or None if unknown; it must not raise and
        may block for seconds. `use` is called with the members after each answer."""
        super().__init__("GroupMembersService", on_failure=on_failure)
        self._fetch = fetch
        self._known = known
        self._use = use
        self._clock = clock
        self._asked_at_ms: int | None = None

    def begin(self) -> None:
        """Use the saved members. Before the start, and before any slave connects."""
        self._use(self._known.load())

    def request(self) -> None:
        """Ask soon. Any thread."""
        self.wakeup()

    def step(self) -> None:
        """Ask once; then sleep until it is time or somebody requests."""
        self._pause()
        if self.stopped:
            return
        self._asked_at_ms = self._clock.monotonic_ms()
        self._use(self._known.update(self._fetch()))
        self._known.save()
        self.wait_for_running(ASK_EVERY_MS)

    def _pause(self) -> None:
        """Ask at most once a second; the next answer serves all requests made meanwhile."""
        if self._asked_at_ms is None:
            return
        until_ms = self._asked_at_ms + ASK_PAUSE_MS
        while not self.stopped and (left_ms := until_ms - self._clock.monotonic_ms()) > 0:
            self.wait_for_running(left_ms)
