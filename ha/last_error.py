"""LastError: what went wrong with a slave's link last, when, and whether it still does.

Written by the HAClient's thread; `seen` may be read by any. It judges no error.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ipc.clock import Clock


@dataclass(frozen=True, slots=True)
class SeenError:
    """One error; `at_ms` is the wall clock when it was seen last."""

    text: str
    at_ms: int
    is_over: bool = False
    """The link works again."""


class LastError:
    """See the module."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.seen: SeenError | None = None

    def note(self, text: str) -> bool:
        """It goes wrong now. Whether with other words than last time, which the log should have."""
        before, self.seen = self.seen, SeenError(text, self._clock.now_ms())
        return before is None or before.text != text

    def end(self) -> None:
        """Nothing goes wrong any more."""
        if self.seen is not None:
            self.seen = replace(self.seen, is_over=True)
