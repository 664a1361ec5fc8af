"""ScrubPace: how fast the scrub may read, and the place where it goes on after a restart.

Pure arithmetic over a clock, and one small file. Owned by the scrub thread of process `store`.

    <commitlog>-scrub.json   beside the log's directory; wall clock in ms, 0: never
        passStartedAt   when the pass that is under way began; 0: none is
        position        log position of the file that comes next in it
        lastStartedAt   when the last whole pass began
        lastEndedAt     when it ended

Java brokers ignore the file.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from conf.atomic_file import replace_file
from ipc.clock import Clock

log = logging.getLogger(__name__)

BUSY_SHARE: Final = 0.1
"""Of the rate, while the broker is under load: a busy broker's files are read, too."""
_SLOW_READ_MS: Final = 500
"""One read of DiskReader that takes so long says that the disk is busy."""


class ScrubPace:
    """When the next bytes may be read."""

    def __init__(self, clock: Clock, is_busy: Callable[[], bool]) -> None:
        self._clock = clock
        self._is_busy = is_busy
        self._next_ms = 0.0
        self._released_ms = 0.0

    def begin_anew(self) -> None:
        """At another rate: what was read at the last one is not waited for."""
        self._next_ms = 0.0

    def time_of(self, size: int, bytes_per_second: float) -> float:
        """Monotonic ms at which `size` bytes may be read. Unused time is not saved up."""
        now_ms = float(self._clock.monotonic_ms())
        was_slow = self._released_ms > 0 and now_ms - self._released_ms > _SLOW_READ_MS
        rate = bytes_per_second * (BUSY_SHARE if was_slow or self._is_busy() else 1.0)
        at_ms = max(now_ms, self._next_ms)
        self._next_ms = at_ms + size * 1_000 / rate
        self._released_ms = at_ms
        return at_ms


@dataclass(slots=True)
class ScrubProgress:
    """What the file says."""

    pass_started_ms: int = 0
    position: int = 0
    last_started_ms: int = 0
    last_ended_ms: int = 0


_KEYS: Final = {
    "pass_started_ms": "passStartedAt",
    "position": "position",
    "last_started_ms": "lastStartedAt",
    "last_ended_ms": "lastEndedAt",
}


def progress_path(commit_log: Path) -> Path:
    """The file of the log in the directory `commit_log`."""
    return commit_log.with_name(f"{commit_log.name}-scrub.json")


def load_progress(path: Path) -> ScrubProgress:
    """What `path` says; a pass begins anew when it says nothing that can be understood."""
    try:
        tree = json.loads(path.read_bytes())
        return ScrubProgress(**{field: int(tree[key]) for field, key in _KEYS.items()})
    except FileNotFoundError:
        return ScrubProgress()
    except (OSError, ValueError, KeyError, TypeError) as error:
        log.warning("%s: cannot be read (%r): the scrub starts over", path, error)
        return ScrubProgress()


def save_progress(path: Path, progress: ScrubProgress) -> None:
    """Whole, and on disk when it returns. Raises OSError."""
    fields = asdict(progress)
    tree = {key: fields[field] for field, key in _KEYS.items()}
    replace_file(path, json.dumps(tree).encode())
