"""How often the processes of a broker ask for data to be on disk: fsync, fdatasync, msync(MS_SYNC).

Counted in the C library by sync_counts.c, which is loaded before a broker of either world; read by
the process of the benchmark.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final

from tests.bench.measuring import build_library

_COUNT: Final = struct.Struct("=Q")


class SyncCounter:
    """The counts of one broker, whose environment has to be `environment`."""

    def __init__(self, path: Path) -> None:
        """path: a file of this counter's own."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(_COUNT.size))
        self._path = path
        self.environment: Final = {
            "LD_PRELOAD": str(build_library("sync_counts")),
            "SYNC_COUNTS": str(path),
        }

    def read(self) -> int:
        """Calls so far."""
        return int(_COUNT.unpack(self._path.read_bytes())[0])
