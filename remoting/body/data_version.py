"""DataVersion: which edition of a table somebody holds. Pure data, any thread."""

from __future__ import annotations

from dataclasses import dataclass, replace

from remoting.body.json_bean import JsonBean
from remoting.command_custom_header import Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class DataVersion(JsonBean):
    """Edition of a table; equal only when every field is (Java: DataVersion)."""

    counter: Int64 = 0
    timestamp: Int64 = 0
    state_version: Int64 | None = None

    def next_version(self, now_ms: int) -> DataVersion:
        """The edition after a local change made at `now_ms` (milliseconds, wall clock)."""
        return replace(self, counter=self.counter + 1, timestamp=now_ms)
