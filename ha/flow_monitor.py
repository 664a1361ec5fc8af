"""FlowMonitor: haFlowControl, the most bytes a second that leave for all slaves together.

Each frame books its place on one time line before it leaves and waits until its turn: frames of
several connections follow each other in the order of booking, none starves, nobody polls. Any
thread (one lock). Corresponds to FlowMonitor of RocketMQ, which counts only headers and spins. It
knows neither sockets nor clocks.
"""

from __future__ import annotations

import math
import threading
from typing import Final

_FRAMES_A_SECOND: Final = 10
_LEAST_FRAME: Final = 1024


class FlowMonitor:
    """See the module. Guarded by: its lock."""

    def __init__(self, limit: int) -> None:
        """`limit`: bytes per second, 0 = none."""
        self.is_limited: Final = limit > 0
        self.frame_limit: Final = max(limit // _FRAMES_A_SECOND, _LEAST_FRAME)
        """Most bytes to book at once, so that the flow is even and connections take turns."""
        self._bytes_per_ms: Final = limit / 1000
        self._lock: Final = threading.Lock()
        self._free_at_ms = 0.0

    def book(self, size: int, now_ms: int) -> int:
        """The monotonic ms at which `size` bytes (header and body) may leave; now or later.

        What was not used in the past is gone: after an idle time there is no burst.
        """
        if not self.is_limited:
            return now_ms
        with self._lock:
            start_ms = max(self._free_at_ms, float(now_ms))
            self._free_at_ms = start_ms + size / self._bytes_per_ms
            return math.ceil(start_ms)
