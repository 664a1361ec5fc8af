"""MemberRegistrar: has process `remoting` register this broker, until every name server has taken
it.

A thread of process `ha`. The member asks at each tick until NameServersAnswered; here only the last
wish counts, and one registration is under way at a time. A follower's registration is also how the
master's HA port is found, as no controller knows it: `remoting` tells that of the master whom the
controller names, and no other. Where no name server knows that one yet, as it registers at the same
moment, it is asked again after 50 ms, 100 ms and so on, and then with the next tick.

Tested by tests/broker/failover/test_member_registrar.py.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

from broker.failover.messages import Event, NameServersAnswered, RegisterAtNameServers
from ipc.command_channel import CommandError
from ipc.service_thread import FailureHandler, ServiceThread

log = logging.getLogger(__name__)

_TIMEOUT_MS: Final = 10_000
"""Beyond registerBrokerTimeoutMills (24 s by default) nobody waits: the next tick asks again."""
_LONGEST_SLEEP_MS: Final = 10_000
_AGAIN_MS: Final = (50, 100, 200, 400)
"""Pauses before a follower's registration is repeated."""


class Commands(Protocol):
    """The part of the CommandClient to process `remoting` used here."""

    def call(self, command: str, timeout_ms: int, **arguments: Any) -> dict[str, Any]:
        """Call and wait. Raises CommandError."""
        ...


class _Wish(NamedTuple):
    registration: RegisterAtNameServers
    follows: str | None


class MemberRegistrar(ServiceThread):
    """See the module. Guarded by: `_lock`."""

    def __init__(
        self,
        remoting: Commands,
        deliver: Callable[[Event], None],
        update_master_address: Callable[[str], None],
        *,
        on_failure: FailureHandler | None = None,
    ) -> None:
        super().__init__("MemberRegistrar", on_failure=on_failure)
        self._remoting = remoting
        self._deliver = deliver
        self._update_master_address = update_master_address
        self._lock = threading.Lock()
        self._wish: _Wish | None = None
        self._last: _Wish | None = None
        self._repeats = 0
        """Of the last wish that was not met."""
        self._failure = ""
        """As logged last."""

    def register(self, registration: RegisterAtNameServers, follows: str | None) -> None:
        """Register soon. follows: the service address of the master, on a follower. Any thread;
        does not block."""
        with self._lock:
            self._wish = _Wish(registration, follows)
        self.wakeup()

    def step(self) -> None:
        """One registration, or the wait for a wish."""
        with self._lock:
            wish, self._wish = self._wish, None
        if wish is None:
            self.wait_for_running(_LONGEST_SLEEP_MS)
            return
        if not self._is_registered(wish) and wish.follows is not None:
            self._repeat(wish)

    def _repeat(self, wish: _Wish) -> None:
        """Soon, unless there is another wish by then."""
        if wish != self._last:
            self._last, self._repeats = wish, 0
        if self._repeats >= len(_AGAIN_MS):
            return
        self.wait_for_running(_AGAIN_MS[self._repeats])
        self._repeats += 1
        with self._lock:
            self._wish = self._wish or wish

    def _is_registered(self, wish: _Wish) -> bool:
        try:
            answer = self._remoting.call(
                "register_member",
                _TIMEOUT_MS,
                broker_id=wish.registration.broker_id,
                state_version=wish.registration.state_version,
                master_address=wish.follows,
            )
        except CommandError as error:
            return self._failed(f"not registered yet: {error}")
        if wish.follows is not None:
            ha_address = answer.get("ha_address")
            if ha_address is None:
                return self._failed(f"no name server knows the HA port of {wish.follows} yet")
            self._update_master_address(ha_address)
        if not answer["taken"]:
            return self._failed("not registered yet: not every name server has taken it")
        self._failure = ""
        self._deliver(NameServersAnswered(wish.registration.state_version))
        return True

    def _failed(self, text: str) -> bool:
        """False, for the caller to return."""
        if text != self._failure:
            self._failure = text
            log.warning("member of the group: %s", text)
        return False
