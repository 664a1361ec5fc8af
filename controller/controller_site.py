"""ControllerSite: what a controller serves over HTTP: /metrics, /healthz, /readyz.

Called on the threads of the HTTP server (remoting/metrics/metrics_server.py). What it shows is
asked for on the loop at each request, a quarter of a second old at most: a loop that hangs answers
nothing, and that is what is said.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Mapping
from typing import Final

from controller.controller_metrics import ControllerMetrics
from controller.controller_seen import ControllerSeen
from remoting.metrics.metrics_server import Said
from remoting.metrics.metrics_text import MetricsText

_PATIENCE_S: Final = 3.0
_LOOK_AGAIN_S: Final = 0.25
"""A look goes through all groups, on the loop: clients that ask more often see the same one."""


class LoopHangsError(Exception):
    """The controller's loop has not answered in time."""


class ControllerSite:
    """A Site."""

    def __init__(
        self,
        metrics: ControllerMetrics,
        base: Mapping[str, str],
        look: Callable[[], ControllerSeen],
        on_loop: Callable[[Callable[[], None]], None],
    ) -> None:
        """base: labels of all metrics. look: the controller now; called on the loop. on_loop: runs
        a function on the loop's thread, soon."""
        self._metrics = metrics
        self._text = MetricsText(base)
        self._look = look
        self._on_loop = on_loop
        # The loop's own.
        self._last = ControllerSeen()
        self._again_s = 0.0

    def text(self, accept: str) -> tuple[bytes, str]:
        """All metrics, and the content type. Raises LoopHangsError."""
        return self._text.encode(self._metrics.collect(self._seen()), accept)

    def health(self) -> Said:
        """Whether the loop turns."""
        try:
            self._seen()
        except LoopHangsError as error:
            return Said(False, str(error))
        return Said(True, "ok")

    def readiness(self) -> Said:
        """Whether brokers get from it what a controller is for."""
        try:
            seen = self._seen()
        except LoopHangsError as error:
            return Said(False, str(error))
        reason = seen.why_not_ready
        return Said(not reason, reason or f"ready; {seen.detail}")

    def _seen(self) -> ControllerSeen:
        """As it is now. Raises LoopHangsError."""
        answer: queue.SimpleQueue[ControllerSeen] = queue.SimpleQueue()
        self._on_loop(lambda: answer.put(self._looked()))
        try:
            return answer.get(timeout=_PATIENCE_S)
        except queue.Empty:
            text = f"the controller's loop has not answered for {_PATIENCE_S:g} s"
            raise LoopHangsError(text) from None

    def _looked(self) -> ControllerSeen:
        if time.monotonic() >= self._again_s:
            self._last = self._look()
            self._again_s = time.monotonic() + _LOOK_AGAIN_S
        return self._last
