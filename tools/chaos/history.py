"""History: what the clients of a run did and saw, each operation with its begin and its end.

The clients' own list, kept in memory and written as lines of JSON, one an operation, in the form
that tests/linearizability reads: a queue is a log with two operations, append(value) -> offset and
read(offset) -> values.

    {"op":"append","client":3,"queue":0,"call":17,"return":19,"value":"3:42","offset":7}
    {"op":"append","client":3,"queue":0,"call":20,"return":null,"value":"3:46","offset":null}
    {"op":"read","client":12,"queue":0,"call":21,"return":22,"offset":7,"values":["3:42"]}
    {"op":"final","client":0,"queue":0,"call":90,"return":91,"offset":0,"values":["0:0","3:42"]}

Times are microseconds of one monotonic clock. An append without a return may happen at any time
from its call on, or never; "final" is a read of the whole queue after everything else.

Tested by tests/tools/chaos/test_history.py.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from tools.chaos.ack_log import SEND_OK, Ack, read_body

_MICROSECONDS: Final = 1_000_000
_RECENT: Final = 20_000
"""Messages: more than there are under way, and in a fault's time."""
FIRST_READER: Final = 100
"""Clients from this number on are consumers."""


@dataclass(slots=True)
class Append:
    """A message that was sent; owned by the thread that sends it until `return_s` is set."""

    client: int
    sequence: int
    queue_id: int
    call_s: float
    peer: tuple[str, int]
    """Who was asked to store it."""
    return_s: float | None = None
    """When its answer came; None: none came."""
    code: int = -1
    queue_offset: int = -1
    phy_offset: int = -1

    @property
    def is_acknowledged(self) -> bool:
        """Whether it was answered SEND_OK."""
        return self.return_s is not None and self.code == SEND_OK

    def as_ack(self) -> Ack:
        """For the checks of single answers."""
        place = (self.queue_id, self.queue_offset, self.code)
        answered_s = self.return_s or 0.0
        return Ack(self.client, self.sequence, *place, self.call_s, answered_s, self.phy_offset)


@dataclass(frozen=True, slots=True)
class Read:
    """What a consumer saw from `queue_offset` on, one offset after the other."""

    client: int
    queue_id: int
    call_s: float
    return_s: float
    queue_offset: int
    bodies: Sequence[bytes]
    peer: tuple[str, int]


class History:
    """See the module. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.appends: list[Append] = []
        self.reads: list[Read] = []

    def sends(self, append: Append) -> None:
        """It is about to be sent."""
        with self._lock:
            self.appends.append(append)

    def saw(self, read: Read) -> None:
        """Messages came."""
        with self._lock:
            self.reads.append(read)

    def codes(self) -> dict[int, int]:
        """How many answers of each code there were; -1: no answer."""
        counts: dict[int, int] = {}
        for append in list(self.appends):
            code = append.code if append.return_s is not None else -1
            counts[code] = counts.get(code, 0) + 1
        return counts

    def sent(self) -> dict[int, int]:
        """How many messages each producer has sent: sequences 0 to n - 1."""
        counts: dict[int, int] = {}
        for append in list(self.appends):
            counts[append.client] = max(counts.get(append.client, 0), append.sequence + 1)
        return counts

    def acknowledged(self) -> list[Append]:
        """Those that were answered SEND_OK."""
        return [append for append in list(self.appends) if append.is_acknowledged]

    def has_answer_since(self, since_s: float) -> bool:
        """Whether something that was sent since then was answered SEND_OK."""
        for append in reversed(self.appends[-_RECENT:]):
            if append.call_s < since_s:
                return False
            if append.is_acknowledged:
                return True
        return False

    def longest_gap(self, since_s: float) -> float:
        """The longest time without a SEND_OK since then, from the last one before on."""
        recent = self.appends[-3 * _RECENT :]
        times = sorted(a.return_s for a in recent if a.is_acknowledged and a.return_s is not None)
        before = [at for at in times if at <= since_s][-1:]
        points = [*before, *(at for at in times if at > since_s)]
        return max((b - a for a, b in pairwise(points)), default=0.0)

    def write(self, path: Path, queues: Mapping[int, Sequence[bytes]]) -> None:
        """All of it, with the queues as they are in the end. Raises OSError."""
        with path.open("w") as file:
            for line in self._lines(queues):
                file.write(json.dumps(line, separators=(",", ":")) + "\n")

    def _lines(self, queues: Mapping[int, Sequence[bytes]]) -> Iterator[dict[str, object]]:
        for append in self.appends:
            yield _append_line(append)
        for read in self.reads:
            line = _read_line("read", read.client, read.queue_id, read.queue_offset, read.bodies)
            yield {**line, "call": _us(read.call_s), "return": _us(read.return_s)}
        now = _us(time.monotonic())
        for queue_id, bodies in queues.items():
            line = _read_line("final", 0, queue_id, 0, bodies)
            yield {**line, "call": now, "return": now + 1}


def value_of(body: bytes) -> str:
    """A body's name in a history; a body that nobody sent has one of its own."""
    message = read_body(body)
    return f"?{body[:24].hex()}" if message is None else f"{message[0]}:{message[1]}"


def _append_line(append: Append) -> dict[str, object]:
    # What is answered but not SEND_OK may be stored, now or never: so nothing is known of its end.
    is_known = append.is_acknowledged
    return {
        "op": "append",
        "client": append.client,
        "queue": append.queue_id,
        "call": _us(append.call_s),
        "return": _us(append.return_s or 0.0) if is_known else None,
        "value": f"{append.client}:{append.sequence}",
        "offset": append.queue_offset if is_known else None,
    }


def _read_line(
    kind: str, client: int, queue_id: int, offset: int, bodies: Sequence[bytes]
) -> dict[str, object]:
    values = [value_of(body) for body in bodies]
    return {"op": kind, "client": client, "queue": queue_id, "offset": offset, "values": values}


def _us(seconds: float) -> int:
    return int(seconds * _MICROSECONDS)
