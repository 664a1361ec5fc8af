"""Records that raise when they are read back: left out, counted, named and kept (rule 4).

`with guard.of(phy_offset): …` surrounds what is done with one stored record, wherever a service
reads records back by itself (ReadBy has the places). What the record is to blame for
(`is_of_record`) is put aside: the block ends, `guard.failed` is set, and the caller goes on with
what is behind it. What means "not now" or is the machine's trouble leaves the block as ever.

A process has one list, as it has one log, which guards reach without being handed it: RECORDS, in
memory only until the composition root calls `keep`. Then what is put aside is a line of JSON in
<storePathRootDir>/putaside.<process>.jsonl, with the bytes of the record, since the log that holds
it expires. Nothing is ever taken out of such a file: from 12 MiB on its lines have no records, from
16 MiB on it takes none, and the log and the counters have the rest. A record that is read again,
also after a restart, is put aside silently: it counts once.

    {"time": ms, "by": ReadBy, "error": "ValueError: …", "at": "file.py:12 in function",
     "topic": …, "queueId": …, "queueOffset": …, "physicalOffset": …,
     "size": bytes, "record": base64}

What is not known is left out. Any thread of any process; it must not know what the record is for.
"""

from __future__ import annotations

import base64
import enum
import json
import logging
import os
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple

from ipc.clock import Clock
from ipc.control_page import ControlPage, ProcessIndex
from ipc.errors import SharedMemoryFullError
from store.control_slots import PUT_ASIDE, READING
from store.errors import MessageIllegalError, RecordDamagedError, StoreError
from store.message_codec import decode_record

log = logging.getLogger(__name__)

_FILE_LIMIT: Final = 16 << 20
_RECORDS_LIMIT: Final = 12 << 20
"""Up to where lines have the bytes of their records; the rest is for lines without."""
_RECORD_LIMIT: Final = 256 << 10
"""Bytes of a record that are kept with its line; of a larger one nothing is."""
_REMEMBERED: Final = 1 << 16
"""Records that are known to be put aside already."""
_TEXT_LIMIT: Final = 500
_OFFSET_MASK: Final = (1 << 64) - 1


class ReadBy(enum.IntEnum):
    """What reads records back. The numbers are slots of the control page."""

    DISPATCH = 0
    TIMER_ENQUEUE = 1
    COMPACTION = 2
    TIMER_DELIVERY = 3
    DELAY_DELIVERY = 4
    DELAY_ESCAPE = 5
    POP_REVIVAL = 6
    LOG_START = 7
    TRANSACTION_CHECK = 8
    TRANSACTION_OP = 9
    FILTER = 10
    REPLICA_CHECK = 11
    POP = 12

    @property
    def label(self) -> str:
        """In metrics, files and logs."""
        return self.name.lower()


class StoredPlace(NamedTuple):
    """Where a record is; -1 and empty: not known."""

    phy_offset: int = -1
    topic: str = ""
    queue_id: int = -1
    queue_offset: int = -1


ReadRecord = Callable[[int], bytes | None]
"""The checked record at a phy offset; None where there is none. May raise."""


def is_of_record(error: BaseException) -> bool:
    """Whether an error is that of the one record that was read: the next try would not help, and
    other records are not concerned. All that means "not now" is a StoreError, and the machine's
    trouble an OSError, MemoryError or SharedMemoryFullError."""
    if isinstance(error, MessageIllegalError | RecordDamagedError):
        return True
    return isinstance(error, Exception) and not isinstance(
        error, StoreError | OSError | MemoryError | SharedMemoryFullError
    )


class PutAside:
    """The records that this process has put aside. Guarded by: its lock; any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = dict.fromkeys(ReadBy, 0)
        self._known: dict[tuple[int, StoredPlace], None] = {}
        self._path: Path | None = None
        self._file_size = 0
        self._read_record: ReadRecord = lambda phy_offset: None
        self._now_ms: Callable[[], int] = lambda: 0
        self._counters: memoryview[int] | None = None
        self._reading_at = 0

    # -- life ----------------------------------------------------------------------------------

    def keep(
        self,
        root: Path,
        page: ControlPage,
        process: ProcessIndex,
        read_record: ReadRecord,
        clock: Clock,
    ) -> None:
        """Keep and publish them from now on, with those of earlier lives. root: storePathRootDir.
        read_record: of a reader that nobody else uses; it is called under the lock."""
        with self._lock:
            self._path = root / f"putaside.{process.name.lower()}.jsonl"
            self._read_record, self._now_ms = read_record, clock.now_ms
            self._counters = page.counters
            self._reading_at = READING + 2 * process
            self._load()
            for by, count in self._counts.items():
                if count:
                    self._publish(by)

    def forget(self) -> None:
        """Begin anew, in memory only. For tests."""
        PutAside.__init__(self)

    def count(self, by: ReadBy) -> int:
        """How many records `by` could not read, those of earlier lives among them."""
        return self._counts[by]

    # -- putting aside -------------------------------------------------------------------------

    def reading(self, by: ReadBy, phy_offset: int) -> None:
        """Say in shared memory what is read now: the supervisor names it if the process dies."""
        counters = self._counters
        if counters is not None:
            counters[self._reading_at + 1] = phy_offset & _OFFSET_MASK
            counters[self._reading_at] = by + 1

    def read(self) -> None:
        """That is over."""
        counters = self._counters
        if counters is not None:
            counters[self._reading_at] = 0

    def put(self, by: ReadBy, place: StoredPlace | int, error: BaseException) -> None:
        """A record could not be read, at a place or phy offset. Raises `error` again if that is
        nothing of the record's (is_of_record)."""
        if not is_of_record(error):
            raise error
        place = StoredPlace(place) if isinstance(place, int) else place
        with self._lock:
            known = (by, place)
            if known in self._known:
                return
            if len(self._known) >= _REMEMBERED:
                del self._known[next(iter(self._known))]
            self._known[known] = None
            self._counts[by] += 1
            self._publish(by)
            record, named = self._look(place)
            self._keep(by, place, named, error, record)

    def _look(self, place: StoredPlace) -> tuple[bytes | None, StoredPlace]:
        """The record, and what it says of its place: it may be what cannot be read."""
        record = None
        try:
            record = self._read_record(place.phy_offset) if place.phy_offset >= 0 else None
            if record is None or place.topic:
                return record, place
            message = decode_record(record, 0)[0]
        except Exception as error:
            log.debug("the record at %s: %r", place.phy_offset, error, exc_info=True)
            return record, place
        named = StoredPlace(place.phy_offset, message.topic, message.queue_id, message.queue_offset)
        return record, named

    def _keep(
        self,
        by: ReadBy,
        place: StoredPlace,
        named: StoredPlace,
        error: BaseException,
        record: bytes | None,
    ) -> None:
        text, at = f"{type(error).__name__}: {error}"[:_TEXT_LIMIT], _where(error)
        log.error(
            "%s: a record cannot be read and is put aside: topic %s, queue %s, queue offset %s, "
            "phy offset %s: %s (%s)",
            by.label,
            named.topic or "unknown",
            named.queue_id,
            named.queue_offset,
            named.phy_offset,
            text,
            at,
            exc_info=error if self._counts[by] == 1 else None,
        )
        line: dict[str, Any] = {"time": self._now_ms(), "by": by.label, "error": text, "at": at}
        if named.topic:
            line |= {
                "topic": named.topic,
                "queueId": named.queue_id,
                "queueOffset": named.queue_offset,
            }
        if named.phy_offset >= 0:
            line["physicalOffset"] = named.phy_offset
        if place != StoredPlace(named.phy_offset):
            line["named"] = True
        if record is not None:
            line["size"] = len(record)
            most = min(_RECORD_LIMIT, (_RECORDS_LIMIT - self._file_size) * 3 // 4)
            if len(record) <= most:
                line["record"] = base64.b64encode(record).decode()
        self._write(line)

    # -- the file ------------------------------------------------------------------------------

    def _write(self, line: dict[str, Any]) -> None:
        if self._path is None:
            return
        data = json.dumps(line).encode() + b"\n"
        if self._file_size + len(data) > _FILE_LIMIT:
            log.error("%s is full, the record is not copied into it", self._path)
            return
        try:
            fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                self._file_size += os.write(fd, data)
            finally:
                os.close(fd)
        except OSError as error:
            log.error(
                "%s: cannot be written, the record is not copied into it: %s", self._path, error
            )

    def _load(self) -> None:
        """What earlier lives have put aside. A line that was cut off by a crash counts for
        nothing; its record is put aside again when it is read again."""
        assert self._path is not None
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            log.error("cannot read which records were put aside before: %s", error)
            return
        self._file_size = len(data)
        if data and not data.endswith(b"\n"):
            self._write_end_of_line()
        for raw in data.splitlines():
            try:
                line = json.loads(raw)
                by = ReadBy[line["by"].upper()]
                place = _place_of(line)
            except (ValueError, KeyError, TypeError, AttributeError):
                log.warning("%s: skipped a malformed line", self._path)
                continue
            self._counts[by] += 1
            if len(self._known) < _REMEMBERED:
                self._known[by, place] = None

    def _write_end_of_line(self) -> None:
        assert self._path is not None
        try:
            with self._path.open("ab") as file:
                file.write(b"\n")
            self._file_size += 1
        except OSError as error:
            log.error("%s: %s", self._path, error)

    def _publish(self, by: ReadBy) -> None:
        """It never falls: what the file had no room for is counted over restarts of the process."""
        if self._counters is not None:
            slot = PUT_ASIDE + by
            self._counters[slot] = self._counts[by] = max(self._counts[by], self._counters[slot])


class RecordGuard:
    """See the module. Owned by: one thread; not entered twice at a time."""

    __slots__ = ("_by", "_list", "_phy_offset", "failed")

    def __init__(self, by: ReadBy, records: PutAside | None = None) -> None:
        """records: where they are put; that of this process by default."""
        self._by = by
        self._list = RECORDS if records is None else records
        self._phy_offset = -1
        self.failed = False
        """Whether the last block ended early, and its record was put aside."""

    def of(self, phy_offset: int) -> RecordGuard:
        """For the record at `phy_offset`; -1: not known yet, see `note`."""
        self._phy_offset = phy_offset
        return self

    def note(self, phy_offset: int) -> None:
        """The record that is read from now on in this block."""
        self._phy_offset = phy_offset
        self._list.reading(self._by, phy_offset)

    def __enter__(self) -> None:
        self.failed = False
        self._list.reading(self._by, self._phy_offset)

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _trace: TracebackType | None,
    ) -> bool:
        if error is None:
            self._list.read()
            return False
        if not is_of_record(error):
            if isinstance(error, StoreError):
                self._list.read()
            return False
        self._list.read()
        self.put(self._phy_offset, error)
        return True

    def put(self, place: StoredPlace | int, error: BaseException) -> None:
        """Put a record aside that raised, or was refused, outside of a block."""
        self.failed = True
        self._list.put(self._by, place, error)


RECORDS: Final = PutAside()
"""Those of this process."""


def _place_of(line: dict[str, Any]) -> StoredPlace:
    """As it was given to `put`."""
    phy_offset = int(line.get("physicalOffset", -1))
    if not line.get("named"):
        return StoredPlace(phy_offset)
    return StoredPlace(
        phy_offset,
        str(line.get("topic", "")),
        int(line.get("queueId", -1)),
        int(line.get("queueOffset", -1)),
    )


def _where(error: BaseException) -> str:
    """The innermost line that raised."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return "unknown"
    last = frames[-1]
    return f"{'/'.join(Path(last.filename).parts[-3:])}:{last.lineno} in {last.name}"
