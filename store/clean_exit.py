"""How the last stop went: the `abort` file, and our own `clean.exit`.

`abort` is RocketMQ's: it exists while the store is open, and still when the store was not closed
cleanly; ours names the boot of the machine in it, and says on a second line whether the store built
light queues, whose newest units were perhaps in no file: the next start builds them, whatever its
settings say. `clean.exit` is ours, ignored by Java: written
last in an orderly stop, it says where the log ends, so that the next start need not scan. It is
removed before anything is written. A Java broker may have used the files in between: the file is
valid only while the last log file is unchanged (mtime, CRC of its end, nothing after the end).
Run by the `store` process; `machine_went_down` also by the supervisor.
"""

from __future__ import annotations

import json
import logging
import zlib
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Final

from conf.atomic_file import replace_file
from store.mapped_file import make_directory, sync_directory
from store.mapped_file_queue import MappedFileQueue

log = logging.getLogger(__name__)

_TAIL_SIZE: Final = 65_536
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_LIGHT_QUEUES: Final = "light queues"


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanExit:
    """What the store looked like when it was closed. All offsets are log positions."""

    max_phy_offset: int
    dispatched_offset: int
    file_size: int
    last_file: int
    last_file_mtime_ns: int
    tail_crc: int
    queue_count: int
    batch_unit_count: int = 0
    """Units of all batch consume queues."""


# -- abort -------------------------------------------------------------------------------------


def create_abort(path: Path, *, light_queues: bool = False) -> None:
    """Record that the store is open, in this boot, and whether it builds light queues; on disk when
    it returns. Raises FlushFailedError, OSError."""
    make_directory(path.parent)
    text = f"{boot_id()}\n{_LIGHT_QUEUES}\n" if light_queues else boot_id()
    replace_file(path, text.encode("ascii"))


def delete_abort(path: Path) -> None:
    """Record that the store was closed in an orderly way; on disk when it returns."""
    path.unlink(missing_ok=True)
    sync_directory(path.parent)


def boot_id() -> str:
    """Tells this boot of the machine from others: pages that were not on disk are lost with it."""
    return _BOOT_ID.read_text(encoding="ascii").strip()


def is_of_another_boot(abort_path: Path) -> bool:
    """Whether `abort` names another boot: nothing is left in memory of what was written then. False
    when it names none, or cannot be read."""
    try:
        named = _lines(abort_path)[0]
    except OSError:
        return False
    return named not in ("", boot_id())


def machine_went_down(abort_path: Path) -> bool:
    """Whether the store was open in another boot: what was not on disk may be lost.

    So it is when `abort` names no boot (RocketMQ's) or cannot be read.
    """
    try:
        return _lines(abort_path)[0] != boot_id()
    except FileNotFoundError:
        return False
    except OSError as error:
        log.warning("%s: not readable (%s); assuming another boot left it", abort_path, error)
        return True


def left_light_queues(abort_path: Path) -> bool:
    """Whether the store built light queues and was not closed cleanly: units of them may be in no
    file. False when `abort` cannot be read."""
    try:
        return _LIGHT_QUEUES in _lines(abort_path)[1:]
    except OSError:
        return False


def _lines(abort_path: Path) -> list[str]:
    """At least one. Raises OSError."""
    text = abort_path.read_text(encoding="ascii", errors="replace")
    return text.strip(" \0\n").split("\n")


# -- clean.exit --------------------------------------------------------------------------------


def describe_exit(
    queue: MappedFileQueue,
    *,
    max_phy_offset: int,
    dispatched_offset: int,
    queue_count: int = 0,
    batch_unit_count: int = 0,
) -> CleanExit | None:
    """What to write to clean.exit after the last flush; None for a log without files.

    queue_count: consume queues there are; fewer at the next start means that some were deleted.
    batch_unit_count: in the same way.
    """
    last_file = _last_file(queue, max_phy_offset)
    if last_file is None:
        return None
    return CleanExit(
        max_phy_offset=max_phy_offset,
        dispatched_offset=dispatched_offset,
        file_size=queue.file_size,
        last_file=last_file,
        last_file_mtime_ns=queue.path_of(last_file).stat().st_mtime_ns,
        tail_crc=_tail_crc(queue, last_file, max_phy_offset),
        queue_count=queue_count,
        batch_unit_count=batch_unit_count,
    )


def write_clean_exit(path: Path, word: CleanExit) -> None:
    """Whole, and on disk when it returns. Raises OSError."""
    replace_file(path, json.dumps(asdict(word), indent=1).encode())


def remove_clean_exit(path: Path) -> None:
    """Remove clean.exit before the first write; on disk when it returns."""
    if path.exists():
        path.unlink(missing_ok=True)
        sync_directory(path.parent)


def read_clean_exit(path: Path) -> CleanExit | None:
    """What the last stop wrote; None if there is nothing or it cannot be understood."""
    try:
        found = json.loads(path.read_bytes())
        numbers = {item.name: found[item.name] for item in fields(CleanExit)}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        log.warning("%s: not a valid file (%r); scanning the log", path, error)
        return None
    if not all(type(number) is int and number >= 0 for number in numbers.values()):
        log.warning("%s: a field is not a number; scanning the log", path)
        return None
    return CleanExit(**numbers)


def find_objection(word: CleanExit, queue: MappedFileQueue) -> str | None:
    """Why `word` does not describe these files; None when it does."""
    if word.file_size != queue.file_size:
        return f"files of {queue.file_size} bytes, not {word.file_size}"
    if _last_file(queue, word.max_phy_offset) != word.last_file:
        return "the last file is another"
    path = queue.path_of(word.last_file)
    if path.stat().st_mtime_ns != word.last_file_mtime_ns:
        return f"{path.name} has been written since"
    if _tail_crc(queue, word.last_file, word.max_phy_offset) != word.tail_crc:
        return f"the end of {path.name} has changed"
    if _holds_bytes_at(queue, word.max_phy_offset):
        return f"there are bytes after {word.max_phy_offset}"
    if word.dispatched_offset > word.max_phy_offset:
        return "more was dispatched than there is"
    return None


def _last_file(queue: MappedFileQueue, max_phy_offset: int) -> int | None:
    """Start of the file that holds the last byte below the end (or would hold the first)."""
    first = queue.min_offset
    if first is None or max_phy_offset < first:
        return None
    last_byte = max(first, max_phy_offset - 1)
    start = last_byte - last_byte % queue.file_size
    return start if start in queue.start_offsets else None


def _tail_crc(queue: MappedFileQueue, last_file: int, max_phy_offset: int) -> int:
    start = max(last_file, max_phy_offset - _TAIL_SIZE)
    size = max_phy_offset - start
    if size <= 0:
        return 0
    with queue.view(start, size) as view:
        return zlib.crc32(view)


def _holds_bytes_at(queue: MappedFileQueue, phy_offset: int) -> bool:
    file = queue.find_file(phy_offset)
    if file is None:
        return False
    position = phy_offset - file.start_offset
    with file.view(position, min(_TAIL_SIZE, file.size - position)) as view:
        return any(bytes(view))
