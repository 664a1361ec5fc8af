"""A master and what becomes of its slave, told as states at moments; lines are derived from it.

The counters of a line are the true times in each state since the boot, to the ms: what a test
expects can be read off the story, and never off the program.

    story = Story(W0).goes("in_sync", W0).goes("disconnected", W0 + 61_000)
    lines = [story.line(ts) for ts in range(W0, W0 + 120_001, 5_000)]
"""

from __future__ import annotations

from typing import Any, Self

from tests.spark.dump_lines_builder import Life, Line, replica


class Story:
    """One boot. Before its first state the slave has no row; `set_back_ms` moves the wall clock."""

    def __init__(self, start_ms: int, life: Life | None = None, name: str = "b:1") -> None:
        self.life = life or Life(start_ms=start_ms)
        self.name = name
        self.changes: list[tuple[int, str]] = []
        self.max_offset = 1_000

    def goes(self, state: str, at_ms: int) -> Self:
        """The slave is in this state from then on (by the true clock)."""
        self.changes.append((at_ms, state))
        return self

    def state_ms(self, now_ms: int) -> dict[str, int]:
        """What its counters show at a moment."""
        spent = {"in_sync": 0, "catching_up": 0, "disconnected": 0}
        ends = [at_ms for at_ms, _ in self.changes[1:]] + [now_ms]
        for (at_ms, state), end_ms in zip(self.changes, ends, strict=True):
            begin_ms = max(at_ms, self.life.start_ms)
            spent[state] += max(0, min(end_ms, now_ms) - begin_ms)
        return spent

    def state(self, now_ms: int) -> str | None:
        """Its state at a moment; None before the first."""
        told = [state for at_ms, state in self.changes if at_ms <= now_ms]
        return told[-1] if told else None

    def line(
        self, now_ms: int, *, shift_ms: int = 0, skip: int = 0, lag_ms: int = 0, **row: Any
    ) -> Line:
        """The next line; the wall clock is `shift_ms` ahead of the true one."""
        state = self.state(now_ms)
        rows = []
        if state is not None:
            told = {"lag_ms": lag_ms, "state_ms": self.state_ms(now_ms)} | row
            rows = [replica(self.name, state, **told)]
        mono = 1_000_000 + now_ms - (self.life.machine_ms or 0)
        return self.life.line(now_ms + shift_ms, skip=skip, mono=mono, replicas=rows)

    def lines(self, first_ms: int, last_ms: int, step_ms: int = 5_000) -> list[Line]:
        """Lines from one moment to another, both included."""
        return [self.line(ts) for ts in range(first_ms, last_ms + 1, step_ms)]
