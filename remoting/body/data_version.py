"""DataVersion: the version of a table. Pure data, any thread."""

from __future__ import annotations

from dataclasses import dataclass, replace

from remoting.body.json_bean import JsonBean
from remoting.command_custom_header import Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class DataVersion(JsonBean):
    """Version of a table; equal only if all fields are equal (Java: DataVersion)."""

    counter: Int64 = 0
    timestamp: Int64 = 0
    state_version: Int64 | None = None

    def next_version(self, now_ms: int, state_version: int | None = None) -> DataVersion:
        """The version after a local change made at `now_ms` (milliseconds, wall clock).

        state_version: the epoch in which this broker leads from now on; None: the same as before.
        """
        state = self.state_version if state_version is None else state_version
        return replace(self, counter=self.counter + 1, timestamp=now_ms, state_version=state)
