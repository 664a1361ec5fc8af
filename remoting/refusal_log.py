"""RefusalLog: says in the log what a gate refused, once in a while for each peer and reason.

Any thread; gates of broker and name server use it. A peer that asks again and again must not fill
the disk, and its words must not look like lines of ours.
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
"""Between two lines about one refusal of one peer."""
_MAX_SAID: Final = 1024
_SHOWN: Final = 500


class RefusalLog:
    """What the log has heard of refusals. Owned by: its lock."""

    def __init__(self, log: logging.Logger, now_ms: Callable[[], int]) -> None:
        """`now_ms` is monotonic."""
        self._log = log
        self._now_ms = now_ms
        self._lock = threading.Lock()
        self._said: OrderedDict[tuple[str, str], int] = OrderedDict()
        """(ip, remark) to when it was last said, in ms."""

    def say(self, remote: str, code: int, error: RequestError) -> None:
        """A remark may hold words of the peer: one line, and not too much of it."""
        remark = " ".join(error.remark[:_SHOWN].splitlines())
        key = (ip_of(remote), remark)
        now_ms = self._now_ms()
        with self._lock:
            said_ms = self._said.get(key)
            if said_ms is not None and now_ms - said_ms < QUIET_MS:
                return
            self._said[key] = now_ms
            self._said.move_to_end(key)
            if len(self._said) > _MAX_SAID:
                self._said.popitem(last=False)
        self._log.warning("%s: %s refused: %s", remote, request_code_name(code), remark)
