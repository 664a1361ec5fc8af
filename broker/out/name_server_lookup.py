"""NameServerLookup: keeps the list of name servers as somebody else says it.

A task of the scheduled executor of process `remoting`: once before the first registration, then
periodically, and every ten seconds while no name server is known. A changed list is registered with
at once; a look-up that fails, or gives nothing, leaves the list as it is and says so. Where a
look-up asks is not its business (top_addressing.py). RocketMQ's counterpart: the tasks of
BrokerController around fetchNameServerAddr and updateNamesrvAddr.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from broker.out.top_addressing import LookupFailedError
from ipc.scheduled_executor import ScheduledExecutor

if TYPE_CHECKING:
    from broker.out.broker_outer_api import BrokerOuterAPI

log = logging.getLogger(__name__)

RETRY_MS: Final = 10_000

LookUp = Callable[[], list[str]]
"""The name servers. Raises LookupFailedError."""


def parse_name_servers(text: str | None) -> list[str]:
    """ "a:1;b:2" as a list, without blanks and doubles."""
    parts = (part.strip() for part in (text or "").split(";"))
    return list(dict.fromkeys(part for part in parts if part))


class NameServerLookup:
    """Owned by: `_lock`, held for a whole look-up."""

    def __init__(
        self,
        look_up: LookUp,
        servers: BrokerOuterAPI,
        monotonic_ms: Callable[[], int],
        *,
        period_ms: int,
    ) -> None:
        self._look_up = look_up
        self._servers = servers
        self._monotonic_ms = monotonic_ms
        self._period_ms = period_ms
        self._lock = threading.Lock()
        self._due_ms = 0
        self._failure = ""
        """Of the last look-up; the same one is not logged as an error again."""

    def start(self, executor: ScheduledExecutor, on_changed: Callable[[], None]) -> None:
        """Look from time to time from now on. on_changed(): there is another list."""

        def look() -> None:
            if self.look_if_due():
                on_changed()

        tick_ms = min(self._period_ms, RETRY_MS)
        executor.schedule("look-up-name-servers", look, first_delay_ms=tick_ms, period_ms=tick_ms)

    def look_if_due(self) -> bool:
        """Look up, if it is time; whether the list is another one now."""
        with self._lock:
            if self._servers.name_servers and self._monotonic_ms() < self._due_ms:
                return False
            self._due_ms = self._monotonic_ms() + self._period_ms
            return self._look()

    def _look(self) -> bool:
        before = self._servers.name_servers
        try:
            found = self._look_up()
        except LookupFailedError as error:
            kept = ", ".join(before) or "none"
            level = logging.ERROR if str(error) != self._failure else logging.DEBUG
            log.log(level, "name servers: %s; keeping those in use: %s", error, kept)
            self._failure = str(error)
            return False
        if self._failure:
            log.info("name servers: the lookup works again: %s", ", ".join(found))
        self._failure = ""
        if tuple(found) == before:
            return False
        self._servers.update_name_server_addresses(found)
        return True
