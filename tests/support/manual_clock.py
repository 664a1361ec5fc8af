"""A ipc.clock.Clock that stands still until it is told to move."""

from __future__ import annotations


class ManualClock:
    """The clocks move together through `advance`; only the wall clock jumps."""

    def __init__(self, now_ms: int = 1_700_000_000_000, monotonic_ms: int = 0) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = monotonic_ms
        self._slept_ms = 0

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def monotonic_ns(self) -> int:
        return self._monotonic_ms * 1_000_000

    def since_boot_ms(self) -> int:
        return self._monotonic_ms + self._slept_ms

    def sleep(self, delta_ms: int) -> None:
        """The machine sleeps."""
        self._now_ms += delta_ms
        self._slept_ms += delta_ms

    def advance(self, delta_ms: int) -> None:
        """Time passes."""
        assert delta_ms >= 0
        self._now_ms += delta_ms
        self._monotonic_ms += delta_ms

    def jump_to(self, now_ms: int) -> None:
        """Somebody sets the wall clock."""
        self._now_ms = now_ms
