"""GroupMembersService: asks who the registered brokers of this group are, for TrustedPeers.

A thread of process `ha`. Asks every 30 s, and at once when the lobby holds an unknown peer
(`request`), but not more than once a second: unknown peers shall not hammer the name server. How
the answer is got (through process `remoting` from a name server) is the affair of `fetch`; who is
a member after it, and after a restart, that of KnownMembers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ha.asking_service import AskingService
from ha.known_members import KnownMembers, Members
from ipc.clock import Clock
from ipc.service_thread import FailureHandler

ASK_EVERY_MS: Final = 30_000
ASK_PAUSE_MS: Final = 1_000


class GroupMembersService(AskingService):
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
        """`fetch` gives the members' addresses by id, or None when nobody knows; it must not raise
        and may block for seconds. `use` gets the members after each answer."""
        super().__init__("GroupMembersService", on_failure=on_failure)
        self._fetch = fetch
        self._known = known
        self._use = use
        self._clock = clock
        self._asked_at_ms: int | None = None

    def begin(self) -> None:
        """Use those that are remembered. Before the start, and before anybody connects."""
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
        """A second from question to question; requests meanwhile are answered by the next."""
        if self._asked_at_ms is None:
            return
        until_ms = self._asked_at_ms + ASK_PAUSE_MS
        while not self.stopped and (left_ms := until_ms - self._clock.monotonic_ms()) > 0:
            self.wait_for_running(left_ms)
