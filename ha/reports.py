"""A slave's reports as bytes, written and read: RocketMQ's form, and the sealed form between ours.

Pure; any thread. A report moves what clients are answered: a bit that flips in its offset would be
a SEND_OK for bytes that no slave has. RocketMQ's form cannot be checked; all that is known of it
is that it did not fall and is not beyond what was sent (slave_progress.py). Big-endian integers.

    RocketMQ's   int64 offset
    sealed       int64 offset, 16 bytes: the first ones of HMAC-SHA256(key, these 8 bytes)

The sealed form follows a handshake of version 2 (handshake.py), which makes the key: it is of this
one connection, and nobody without the secret knows it. Without a secret the key is no secret
either: then the seal is a checksum. 1.9 µs to write one, 2.8 to read it (Python 3.11 here).
"""

from __future__ import annotations

import hmac
from struct import Struct
from typing import Final

from ha.frame import REPORT

SEALED_REPORT: Final = Struct(">q16s")
assert SEALED_REPORT.size == 24
_SEAL_SIZE: Final = 16


class DamagedReportError(ValueError):
    """A report whose seal is not that of this connection's slave."""


class Reports:
    """The form of one connection's reports. Immutable; any thread."""

    def __init__(self, key: bytes | None) -> None:
        """key: what the handshake made; None: there was none, or one of version 1."""
        self._key = key
        self.size: Final = REPORT.size if key is None else SEALED_REPORT.size
        """Bytes of one report."""

    def pack(self, offset: int) -> bytes:
        """The bytes that report `offset`."""
        data = REPORT.pack(offset)
        return data if self._key is None else data + _seal(self._key, data)

    def take(self, data: bytes) -> tuple[list[int], bytes]:
        """All whole reports in `data`, in order, and the rest. Raises DamagedReportError."""
        used = len(data) - len(data) % self.size
        reports = [self._unpack(data[at : at + self.size]) for at in range(0, used, self.size)]
        return reports, data[used:]

    def _unpack(self, report: bytes) -> int:
        data = report[: REPORT.size]
        (offset,) = REPORT.unpack(data)
        key = self._key
        if key is not None and not hmac.compare_digest(_seal(key, data), report[REPORT.size :]):
            raise DamagedReportError(
                f"a report of {offset} came with a wrong seal: damaged in transit, or not that "
                "slave's; ignored. If it recurs, check the network (offloading, "
                "middleboxes) and both machines' memory"
            )
        return int(offset)


def _seal(key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, "sha256")[:_SEAL_SIZE]
