"""RefusalLog: counts each refused or closed link and logs it, at a limited rate.

Any thread of process `ha`. After a line, the same reason and address are not logged for 10 s; the
next line says how many were suppressed. It knows no sockets; RefusalCounters keeps the counters.
"""

from __future__ import annotations

import collections
import logging
import threading
from collections import OrderedDict
from typing import Final

from ha.refusals import RefusalCounters, RefusalReason
from ipc.clock import Clock

log = logging.getLogger(__name__)

QUIET_MS: Final = 10_000
_MAX_KEYS: Final = 1024


class RefusalLog:
    """See the module. Guarded by: its lock."""

    def __init__(self, counters: RefusalCounters, clock: Clock) -> None:
        self._counters = counters
        self._clock = clock
        self._lock: Final = threading.Lock()
        self._said: OrderedDict[tuple[RefusalReason, str], tuple[int, int]] = OrderedDict()
        """(reason, ip) to (when it was last logged, how many were suppressed since)."""
        self._at_the_door: collections.Counter[RefusalReason] = collections.Counter()

    def refused(
        self, remote: str, reason: RefusalReason, text: str, *, at_the_door: bool = False
    ) -> None:
        """The link with `remote` ("ip:port") was refused or closed; `text`: cause and remedy.
        `at_the_door`: it was refused before it was served."""
        self._counters.count(reason)
        if at_the_door:
            with self._lock:
                self._at_the_door[reason] += 1
        left_out = self._take_turn((reason, remote.rpartition(":")[0]))
        if left_out is None:
            return
        more = f" ({left_out} more of this address since the last line)" if left_out else ""
        log.warning("%s: %s: %s%s", remote, reason.name.lower(), text, more)

    def rejected_handshakes(self) -> dict[RefusalReason, int]:
        """How many links this process refused before serving them, by reason."""
        with self._lock:
            return dict(self._at_the_door)

    def _take_turn(self, key: tuple[RefusalReason, str]) -> int | None:
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            said_at_ms, left_out = self._said.pop(key, (None, 0))
            if said_at_ms is not None and now_ms - said_at_ms < QUIET_MS:
                self._said[key] = (said_at_ms, left_out + 1)
                return None
            self._said[key] = (now_ms, 0)
            while len(self._said) > _MAX_KEYS:
                self._said.popitem(last=False)
        return left_out
