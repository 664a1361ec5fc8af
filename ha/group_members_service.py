"""GroupMembersService: asks who the registered brokers of this group are, for ReplicaRegistry.

A thread of process `ha`. Asks every 30 s, and soon after `request` (a connected replica has no name
yet), but at most once a second, so that peers cannot flood the name server. `fetch` gets the answer
(through process `remoting` from a name server). The members name the connections of slaves that do
not say who they are, and nobody is served for being one: anybody may register. A restarted name
server knows nobody at first, so that a member stays for KEEP_MS after an answer that named it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ha.blocking_call_service import BlockingCallService
from ipc.clock import Clock
from ipc.service_thread import FailureHandler

ASK_EVERY_MS: Final = 30_000
ASK_PAUSE_MS: Final = 1_000
KEEP_MS: Final = 120_000
"""As long as a name server itself takes a silent broker for alive."""


class GroupMembersService(BlockingCallService):
    """See the module."""

    def __init__(
        self,
        fetch: Callable[[], Mapping[int, str] | None],
        use: Callable[[Mapping[int, str]], None],
        clock: Clock,
        *,
        on_failure: FailureHandler | None = None,
    ) -> None:
        """`fetch` returns the members' addresses by id, or None if unknown; it must not raise and
        may block for seconds. `use` is called with the members after each
        answer."""
        super().__init__("GroupMembersService", on_failure=on_failure)
        self._fetch = fetch
        self._use = use
        self._clock = clock
        self._named: dict[int, tuple[str, int]] = {}
        """Broker id to its ip, and when an answer named it last."""
        self._asked_at_ms: int | None = None

    def request(self) -> None:
        """Ask soon. Any thread."""
        self.wakeup()

    def step(self) -> None:
        """Ask once; then sleep until it is time or somebody requests."""
        self._pause()
        if self.stopped:
            return
        self._asked_at_ms = self._clock.monotonic_ms()
        answer = self._fetch()
        if answer is not None:
            self._use(self._take(answer))
        self.wait_for_running(ASK_EVERY_MS)

    def _take(self, answer: Mapping[int, str]) -> dict[int, str]:
        """The members after `answer`."""
        now_ms = self._clock.monotonic_ms()
        self._named.update({broker_id: (ip, now_ms) for broker_id, ip in answer.items()})
        self._named = {
            broker_id: (ip, named_ms)
            for broker_id, (ip, named_ms) in self._named.items()
            if now_ms - named_ms < KEEP_MS
        }
        return {broker_id: ip for broker_id, (ip, _) in self._named.items()}

    def _pause(self) -> None:
        """Ask at most once a second; the next answer serves all requests made meanwhile."""
        if self._asked_at_ms is None:
            return
        until_ms = self._asked_at_ms + ASK_PAUSE_MS
        while not self.stopped and (left_ms := until_ms - self._clock.monotonic_ms()) > 0:
            self.wait_for_running(left_ms)
