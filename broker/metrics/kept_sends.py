"""KeptSends: what remoting has answered to sends, in a file of the store that outlives processes.

The metric slots end with the last process; the metrics dump has a line every few seconds. So that
the next life can tell what was answered in between, remoting adds to this page, too, wherever it
counts answers to sends in its slots: once for a turn or a batch of turns, before the answers are
sent. The page is a mapped file that nobody flushes: it survives a kill of all processes, and counts
on the same boot of the machine only. The supervisor makes it anew at each start (another inode)
and reads its predecessor before.

    offset  content (native byte order)
    0       the boot id of the machine, 64 bytes; store/unflushed_map.py
    64      16 hexadecimal digits: `boot` of the life's dump lines; zeros until it has one
    512     float64 cells: sends that waited by answer; then twice, for what the loop counts alone
            and for what is counted under the lock: answers, buckets of their latency, its sum (ms)
"""

from __future__ import annotations

import logging
import math
import mmap
import os
from bisect import bisect_left
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from broker.metrics import metrics_table as table
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode
from store.unflushed_map import boot_mark, take_blocks

log = logging.getLogger(__name__)

Json = dict[str, Any]

FILE_NAME: Final = "metricsSends.kept"
"""In the store's directory."""
SYNC_RESULTS: Final = {
    ResponseCode.SUCCESS: "ok",
    ResponseCode.FLUSH_SLAVE_TIMEOUT: "flush_slave_timeout",
    ResponseCode.SLAVE_NOT_AVAILABLE: "slave_not_available",
    ResponseCode.FLUSH_DISK_TIMEOUT: "flush_disk_timeout",
}
SEND_CODES: Final = frozenset(
    {
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
    }
)
UNCOUNTED_MS: Final = 64
"""What remoting answers with success in so many turns, each of less than a millisecond, it counts
together (hot_path_stats.py): a kill may come before."""
_SIZE: Final = 4096
_LIFE_AT: Final = 64
_LIFE_SIZE: Final = 16
_CELLS_AT: Final = 512
_ANSWERS: Final = (*SYNC_RESULTS.values(), "refused")
_PLACES: Final = {int(code): place for place, code in enumerate(SYNC_RESULTS)}
_REFUSED: Final = len(_PLACES)
_BOUNDS: Final = table.RPC_LATENCY.buckets
_BLOCK: Final = len(_ANSWERS) + len(_BOUNDS) + 2
_LOOP_AT: Final = len(SYNC_RESULTS)
_LOCKED_AT: Final = _LOOP_AT + _BLOCK
_CELLS: Final = _LOCKED_AT + _BLOCK
_LARGEST: Final = 2.0**53
_LOST: Final = "if this life is killed, the sends that it answers last are in no line of the dump"
assert _CELLS_AT + 8 * _CELLS <= _SIZE


class KeptSends:
    """The page of this life. Each cell has one writer at a time: the loop, or who holds the lock of
    RemotingMetrics; `claim` is the supervisor's."""

    def __init__(self, fd: int = -1) -> None:
        """fd: of create_kept_sends, stays the caller's; -1: counts into memory of its own."""
        self._map = mmap.mmap(fd, _SIZE)
        self._cells: memoryview[float] = memoryview(self._map)[_CELLS_AT:].cast("d")

    def claim(self, life: str) -> None:
        """Whose it is: 16 hexadecimal digits, `boot` of the life's dump lines."""
        self._map[_LIFE_AT : _LIFE_AT + _LIFE_SIZE] = life.encode()

    def waited(self, code: int, count: int) -> None:
        """`count` sends that had to wait are answered with a code of SYNC_RESULTS; loop thread."""
        self._cells[_PLACES[code]] += count

    def answered(self, code: int, elapsed_ms: float, count: int, *, locked: bool) -> None:
        """`count` answers to requests of SEND_CODES. locked: under the lock, else on the loop."""
        cells, at = self._cells, _LOCKED_AT if locked else _LOOP_AT
        cells[at + _PLACES.get(code, _REFUSED)] += count
        at += len(_ANSWERS)
        cells[at + bisect_left(_BOUNDS, elapsed_ms)] += count
        cells[at + len(_BOUNDS) + 1] += elapsed_ms * count


def create_kept_sends(path: Path) -> int:
    """A descriptor of a fresh page at `path`, in place of the one there; -1 where the disk has no
    room or fails: then no later life reads one."""
    fresh = path.with_name(f"{path.name}.tmp")
    try:
        path.unlink(missing_ok=True)
        fd = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            os.ftruncate(fd, _SIZE)
            if take_blocks(fd, 0, _SIZE):
                os.pwrite(fd, boot_mark(), 0)
                fresh.rename(path)
                return fd
            log.error("%s: no space left on the disk: %s", path, _LOST)
            fresh.unlink()
        except OSError:
            os.close(fd)
            raise
        os.close(fd)
    except OSError as error:
        log.error("%s: %s: %s", path, error, _LOST)
    return -1


def read_kept_sends(path: Path) -> Json | None:
    """`ended` of the next life's first line (docs/metrics_dump.md); None where there is none to be
    believed: of another boot of the machine, of a life without a dump, or damaged."""
    try:
        with path.open("rb") as file:
            page = file.read(_SIZE + 1)
    except OSError:
        return None
    life = page[_LIFE_AT : _LIFE_AT + _LIFE_SIZE]
    mark = boot_mark()
    if len(page) != _SIZE or page[: len(mark)] != mark or not life.isalnum():
        return None
    cells = memoryview(page)[_CELLS_AT : _CELLS_AT + 8 * _CELLS].cast("d").tolist()
    if not all(math.isfinite(cell) and 0 <= cell <= _LARGEST for cell in cells):
        return None
    both = [a + b for a, b in zip(cells[_LOOP_AT:_LOCKED_AT], cells[_LOCKED_AT:], strict=True)]
    counts = both[len(_ANSWERS) : -1]
    return {
        "boot": life.decode("ascii", "replace"),
        "uncounted_ms": UNCOUNTED_MS,
        "sync": _rounded(dict(zip(SYNC_RESULTS.values(), cells, strict=False))),
        "sends": {
            **_rounded(dict(zip(_ANSWERS, both, strict=False))),
            "latency": {
                "le": [bound / 1000 for bound in _BOUNDS],
                "counts": [round(count) for count in counts],
                "sum": both[-1] / 1000,
            },
        },
    }


def _rounded(counts: Mapping[str, float]) -> dict[str, int]:
    return {name: round(count) for name, count in counts.items()}
