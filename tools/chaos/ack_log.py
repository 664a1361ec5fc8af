"""AckLog: what the clients know: every message they sent, and every answer, in memory and on disk.

The truth that a run is judged by. It is the clients' own: nothing in it was asked of a broker. The
file `acks.log` has a line for each answer, `producer sequence queue_id queue_offset code`, and is
synced by its own thread at most 0.1 s later, so that it is there when this program is killed, too.
"""

from __future__ import annotations

import os
import threading
import zlib
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SEND_OK: Final = 0
STORED: Final = frozenset((SEND_OK, 10, 11, 12))
"""SEND_OK, FLUSH_DISK_TIMEOUT, SLAVE_NOT_AVAILABLE, FLUSH_SLAVE_TIMEOUT: the master has it."""
_SYNC_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Ack:
    """One answer that says "stored"."""

    producer: int
    sequence: int
    queue_id: int
    queue_offset: int
    code: int
    sent_s: float = 0.0
    """When its message was sent (time.monotonic)."""
    answered_s: float = 0.0
    phy_offset: int = -1
    """Where in the log it is, by its offset id; -1: not known."""


def make_body(producer: int, sequence: int, size: int) -> bytes:
    """`producer:sequence:crc:padding`; the CRC-32 covers all but itself."""
    head = f"{producer}:{sequence:010d}:".encode()
    padding = bytes((producer + sequence + n) % 251 for n in range(max(size - len(head) - 9, 0)))
    return head + f"{zlib.crc32(head + padding):08x}:".encode() + padding


def read_body(body: bytes) -> tuple[int, int] | None:
    """(producer, sequence) of a body that make_body made; None: it is none, or not whole."""
    parts = body.split(b":", 3)
    if len(parts) != 4:
        return None
    producer, sequence, crc, padding = parts
    if f"{zlib.crc32(producer + b':' + sequence + b':' + padding):08x}".encode() != crc:
        return None
    return int(producer), int(sequence)


class AckLog:
    """See the module. Any thread; guarded by its lock."""

    def __init__(self, path: Path) -> None:
        """`path` is created. Raises OSError."""
        self._lock = threading.Lock()
        self._file = path.open("ab", buffering=1 << 16)
        self._end = threading.Event()
        self.sent: Counter[int] = Counter()
        """How many messages each producer has sent: sequences 0 to n - 1."""
        self.acks: list[Ack] = []
        self.codes: Counter[int] = Counter()
        self.broken: Counter[str] = Counter()
        """Errors that clients saw, by kind; a connection that breaks is no defect."""
        self._thread = threading.Thread(target=self._sync, name="AckLog", daemon=True)
        self._thread.start()

    def began(self, producer: int, sequence: int) -> None:
        """A message is about to be sent: it may be stored from now on."""
        with self._lock:
            self.sent[producer] = max(self.sent[producer], sequence + 1)

    def answered(self, ack: Ack) -> None:
        """Its answer came."""
        line = f"{ack.producer} {ack.sequence} {ack.queue_id} {ack.queue_offset} {ack.code}\n"
        with self._lock:
            self.codes[ack.code] += 1
            if ack.code in STORED:
                self.acks.append(ack)
            self._file.write(line.encode())

    def forget(self, acks: Collection[Ack]) -> None:
        """Their messages are lost, and may be."""
        gone = frozenset(acks)
        with self._lock:
            self.acks[:] = [ack for ack in self.acks if ack not in gone]

    def broke(self, error: OSError) -> None:
        """A connection ended, or an answer did not come."""
        with self._lock:
            self.broken[type(error).__name__] += 1

    def close(self) -> None:
        """Write the rest."""
        self._end.set()
        self._thread.join()
        with self._lock:
            self._file.close()

    def _sync(self) -> None:
        while not self._end.wait(_SYNC_S):
            with self._lock:
                self._file.flush()
            os.fdatasync(self._file.fileno())
