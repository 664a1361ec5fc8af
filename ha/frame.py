"""The HA wire format: 12-byte frame headers from the master, 8-byte reports from the slave.

Pure; any thread. There is no handshake, version or checksum: a peer is judged by its numbers
(slave_progress.py). Layout of HAConnection / HAClient of RocketMQ, the same in 4.9 and 5.3.

    master -> slave   int64 offset, int32 size, then `size` bytes of the log from `offset` on;
                      size 0 is a heartbeat, its offset is the next one that will be sent
    slave -> master   int64 offset: the first is where to start, later ones acknowledge
"""

from __future__ import annotations

from struct import Struct
from typing import Final

FRAME_HEADER: Final = Struct(">qi")
REPORT: Final = Struct(">q")
assert (FRAME_HEADER.size, REPORT.size) == (12, 8)

MAX_FRAME_BODY: Final = (4 << 20) - FRAME_HEADER.size
"""A Java slave's buffer holds 4 MiB: a larger frame would never be taken."""


def last_report(data: bytes | bytearray) -> tuple[int | None, int]:
    """The last complete report in `data` and the bytes used up; older ones are skipped."""
    used = len(data) - len(data) % REPORT.size
    if not used:
        return None, 0
    (offset,) = REPORT.unpack_from(data, used - REPORT.size)
    return offset, used
