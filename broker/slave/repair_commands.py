"""RepairCommands: what process `store` is asked to do with a damaged log.

Bytes travel in a file, not in the command. Owned by the repairing thread of process `remoting`. It
decides nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from ipc.command_channel import CommandClient

_COMMAND_MS: Final = 30_000
_STATUS_MS: Final = 3_000


class RepairCommands:
    """Each raises CommandError: process `store` refuses or does not answer; OSError."""

    def __init__(self, store: CommandClient, scratch: Path) -> None:
        """scratch: the file in which bytes are handed over."""
        self._store = store
        self._scratch = scratch

    def put_back(self, start: int, end: int, data: bytes) -> None:
        """These are the bytes of the fence [start, end)."""
        self._hand_over(data, start=start, end=end)

    def replace(self, start: int, end: int, data: bytes, reason: str) -> None:
        """These records belong in [start, end), which is not fenced. reason: what is wrong there,
        for people."""
        self._hand_over(data, start=start, end=end, reason=reason)

    def write_again(self, start: int, end: int) -> None:
        """The page cache has the right bytes of [start, end), the disk has not."""
        self._store.call("write_log_again", _COMMAND_MS, start=start, end=end)

    def accept_digest(self, start: int, chunk: int, digest: str) -> None:
        """What a chunk of the file at `start` is expected to hold from now on."""
        self._store.call("accept_digest", _COMMAND_MS, start=start, chunk=chunk, digest=digest)

    def request_scrub(self, bytes_per_second: float) -> None:
        """Begin a pass over all closed files."""
        self._store.call("request_scrub", _STATUS_MS, bytes_per_second=bytes_per_second)

    def scrub_status(self) -> dict[str, Any]:
        """ScrubService.status."""
        return self._store.call("scrub_status", _STATUS_MS)

    def _hand_over(self, data: bytes, **arguments: Any) -> None:
        try:
            self._scratch.write_bytes(data)
            source = str(self._scratch)
            self._store.call("repair_log", _COMMAND_MS, source=source, **arguments)
        finally:
            self._scratch.unlink(missing_ok=True)
