"""RefusalLog: logs rejected requests at a limited rate for each peer and reason.

Any thread; used by the request guards of broker and name server. A peer that repeats a request must
not fill the disk, and its text must not look like separate log lines.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from remoting.address_patterns import ip_of
from remoting.errors import RequestError
from remoting.request_code import request_code_name

QUIET_MS: Final = 60_000
"""Minimum interval between two lines about the same rejection of a peer."""
_MAX_SAID: Final = 1024
_SHOWN: Final = 500


class RefusalLog:
    """The recently logged rejections. Guarded by: its lock."""

    def __init__(self, log: logging.Logger, now_ms: Callable[[], int]) -> None:
        """`now_ms` is monotonic."""
        self._log = log
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._logged: OrderedDict[tuple[str, str], int] = OrderedDict()
        """(ip, subject) to the time of the last line, in ms."""

    def record(
        self, remote: str, code: int, error: RequestError, subject: str | None = None
    ) -> None:
        """Log a rejection. The remark may contain text of the peer, so it is truncated and made one
        line. `subject`: what counts as the same rejection where the remark quotes the peer, who
        could otherwise have a line for each text; by default the remark."""
        remark = " ".join(error.remark[:_SHOWN].splitlines())
        key = (ip_of(remote), subject or remark)
        now_ms = self._now_ms()
        with self._lock:
            said_ms = self._logged.get(key)
            if said_ms is not None and now_ms - said_ms < QUIET_MS:
                return
            self._logged[key] = now_ms
            self._logged.move_to_end(key)
            if len(self._logged) > _MAX_SAID:
                self._logged.popitem(last=False)
        self._log.warning("%s: %s rejected: %s", remote, request_code_name(code), remark)
