"""LogFences: the parts of the commit log that hold no record that can be read.

A fence says: these bytes are damaged, whole records lie around them, and nobody reads inside. The
bytes stay as they are. Written by process `store` only (store/fence_keeper.py); the other processes
read the file again when the control page says that it has changed. It judges no bytes.

    <commitlog>-fences.json   beside the log's directory: {"fences": [...]}, each with start and end
                              (positions in the log), reason, foundAt (UTC), and queues: a list of
                              [topic, queueId, next queue offset] of what is known to lie inside

Tested by tests/store/test_reput_message_service.py.
"""

from __future__ import annotations

import bisect
import json
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from conf.atomic_file import replace_file
from store.errors import StoreError
from store.log_directories import LogDirectories

log = logging.getLogger(__name__)

FARTHEST_GUESS: Final = 10_000
"""The queue offset of a damaged record is not believed further behind its queue's end."""
NO_FENCE: Final = 1 << 62
"""`next_start` when no fence follows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """[start, end) of the log is damaged. reason: for people. found_at: UTC, ISO 8601.

    queues: (topic, queue id, the first queue offset that no record inside has) of the queues that
    are known to have records inside, and of those that may have: more than one is possible.
    """

    start: int
    end: int
    reason: str
    found_at: str = ""
    queues: tuple[tuple[str, int, int], ...] = ()

    def __str__(self) -> str:
        return f"[{self.start}, {self.end}): {self.reason}"


def new_fence(start: int, end: int, reason: str) -> Fence:
    """A fence found now."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return Fence(start=start, end=end, reason=reason, found_at=now)


class LogFences:
    """Fences by their place in the log; never changed. No two overlap."""

    __slots__ = ("_fences", "_starts")

    def __init__(self, fences: Iterable[Fence] = ()) -> None:
        self._fences: tuple[Fence, ...] = tuple(sorted(fences, key=lambda fence: fence.start))
        self._starts = [fence.start for fence in self._fences]

    def __iter__(self) -> Iterator[Fence]:
        return iter(self._fences)

    def __len__(self) -> int:
        return len(self._fences)

    @property
    def byte_count(self) -> int:
        """Bytes inside of all of them."""
        return sum(fence.end - fence.start for fence in self._fences)

    def find(self, phy_offset: int) -> Fence | None:
        """The fence that `phy_offset` is inside of."""
        at = bisect.bisect_right(self._starts, phy_offset) - 1
        if at >= 0 and phy_offset < self._fences[at].end:
            return self._fences[at]
        return None

    def next_start(self, phy_offset: int) -> int:
        """Where the first fence behind `phy_offset` starts; NO_FENCE without one."""
        at = bisect.bisect_right(self._starts, phy_offset)
        return self._starts[at] if at < len(self._starts) else NO_FENCE

    def with_fence(self, fence: Fence) -> LogFences:
        """With `fence`, which takes the place of those that it overlaps."""
        kept = [old for old in self if old.end <= fence.start or old.start >= fence.end]
        return LogFences([*kept, fence])

    def without(self, start: int) -> LogFences:
        """Without the fence that starts at `start`."""
        return LogFences(fence for fence in self if fence.start != start)

    def within(self, low: int, high: int) -> LogFences:
        """What of them lies in the log [low, high)."""
        return LogFences(
            replace(fence, end=min(fence.end, high))
            for fence in self
            if fence.start < high and fence.end > low
        )


NO_FENCES: Final = LogFences()


def fences_path(commit_log: Path) -> Path:
    """The file of the log in the directory `commit_log`."""
    return commit_log.with_name(f"{commit_log.name}-fences.json")


def check_fences_place(directories: LogDirectories) -> None:
    """Raises StoreError: another directory than the first has become the first, and what is
    known of damage would be lost."""
    wanted = fences_path(directories.first)
    for directory in directories:
        found = fences_path(directory)
        if found.exists() and not wanted.exists():
            raise StoreError(
                f"{found} lists damage in the log and belongs next to the directory that "
                f"storePathCommitLog names first: name that one first, or move it to {wanted} "
                "(with -digests and -scrub.json)"
            )


def load_fences(path: Path) -> LogFences:
    """What `path` says; without the file there are none. Raises StoreError, naming it, when it
    cannot be understood; OSError."""
    try:
        found = json.loads(path.read_bytes())
        return LogFences(map(_fence_of, found["fences"]))
    except FileNotFoundError:
        return LogFences()
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise StoreError(
            f"{path}: not a valid file ({error!r}); move it away and create {path.parent / 'abort'}"
            ": the start then searches the log for damage again"
        ) from error


def save_fences(path: Path, fences: LogFences) -> None:
    """Whole, and on disk when it returns. Raises OSError."""
    if not fences and not path.exists():
        return
    rows = [
        {
            "start": fence.start,
            "end": fence.end,
            "reason": fence.reason,
            "foundAt": fence.found_at,
            "queues": fence.queues,
        }
        for fence in fences
    ]
    replace_file(path, json.dumps({"fences": rows}, indent=1).encode())


def _fence_of(row: dict[str, Any]) -> Fence:
    fence = Fence(
        start=row["start"],
        end=row["end"],
        reason=str(row["reason"]),
        found_at=str(row["foundAt"]),
        queues=tuple(
            (str(topic), int(queue_id), int(following))
            for topic, queue_id, following in row["queues"]
        ),
    )
    if type(fence.start) is not int or type(fence.end) is not int or fence.end <= fence.start:
        raise ValueError(f"not a range of the log: {row['start']!r} to {row['end']!r}")
    return fence
