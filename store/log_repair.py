"""LogRepair: puts bytes that a replica still has in the place of damaged ones, and lifts the fence.

Runs on the main thread of process `store`, which serves the commands; process `remoting` has
fetched the bytes. They are believed only when they are whole records from the fence's first byte to
its last. The damaged bytes are kept beside the log. It knows no replica. `write_again` is for the
scrub thread, too: it shares nothing with the rest.

    <commitlog>-damaged-<start>-<end>   what was there before the repair
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from conf.atomic_file import replace_file
from store.careful_dispatch import dispatch_piece
from store.consume_queue_table import ConsumeQueueTable
from store.errors import StoreError
from store.log_damage import LogDamage
from store.log_directories import LogDirectories
from store.log_fences import Fence
from store.message_codec import RecordKind, check_record
from store.record_properties import PropertyExtractor

log = logging.getLogger(__name__)

REPAIR_LIMIT: Final = 64 << 20
"""Bytes of the largest range that is repaired while the broker runs."""


class LogRepair:
    """See the module. Owned by: the main thread of process `store`."""

    def __init__(
        self,
        place: Path | LogDirectories,
        file_size: int,
        damage: LogDamage,
        queues: ConsumeQueueTable,
        extractor: PropertyExtractor,
        on_repaired: Callable[[int], None] = lambda start: None,
    ) -> None:
        """place: the commit log's directory, or directories. damage, extractor: not shared.
        on_repaired: gets the log position at which each repair began."""
        self._directories = LogDirectories.of(place)
        self._file_size = file_size
        self._damage = damage
        self._keeper = damage.keeper
        self._on_repaired = on_repaired
        self._queues = queues
        self._extractor = extractor

    def put_back(self, start: int, end: int, source: Path) -> None:
        """Replace the bytes of the fence [start, end) with those in the file `source`; durable.

        Raises StoreError, with everything untouched: there is no such fence, or the bytes are not
        whole records from its start to its end. OSError.
        """
        fence = self._keeper.fences.find(start)
        if fence is None or (fence.start, fence.end) != (start, end):
            raise StoreError(f"[{start}, {end}) of the commit log is not fenced")
        self._put(fence, self._whole_records(start, end, source))

    def replace(self, start: int, end: int, source: Path, reason: str) -> None:
        """As `put_back`, of a range that is not fenced: it is until the good bytes are there.
        Raises StoreError, with everything untouched when the bytes are no whole records; OSError.
        """
        data = self._whole_records(start, end, source)
        if any(True for _ in self._keeper.fences.within(start, end)):
            raise StoreError(f"[{start}, {end}) of the commit log is fenced in part")
        self._damage.fence_off(start, end, reason)
        fence = self._keeper.fences.find(start)
        if fence is None:
            raise StoreError(f"[{start}, {end}) of the commit log is not fenced any more")
        self._put(fence, data)

    def write_again(self, start: int, end: int) -> None:
        """Have the disk get once more what the page cache has of [start, end). Raises OSError."""
        for phy_offset, piece in self._by_file(start, memoryview(bytearray(end - start))):
            position = phy_offset % self._file_size
            with (self._directories.path_of(phy_offset - position)).open("rb") as file:
                os.preadv(file.fileno(), [piece], position)
            self._write(phy_offset, piece)

    def _whole_records(self, start: int, end: int, source: Path) -> bytes:
        try:
            data = source.read_bytes()
        except OSError as error:
            raise StoreError(f"{source}: the replica's bytes cannot be read: {error}") from error
        if len(data) != end - start:
            raise StoreError(f"{source}: {len(data)} bytes, the range has {end - start}")
        self._check(start, memoryview(data))
        return data

    def _put(self, fence: Fence, data: bytes) -> None:
        self._keep_damaged(fence.start, fence.end)
        for phy_offset, piece in self._by_file(fence.start, memoryview(data)):
            self._write(phy_offset, piece)
            dispatch_piece(piece, phy_offset, self._extractor, self._queues.fill_blanks)
        self._keeper.lift(fence.start)
        log.warning("commit log: repaired from a replica: %s", fence)
        self._on_repaired(fence.start)

    def _by_file(self, start: int, data: memoryview) -> Iterator[tuple[int, memoryview]]:
        """(log position, bytes) of the parts that lie in one file each."""
        at = 0
        while at < len(data):
            left = self._file_size - (start + at) % self._file_size
            yield start + at, data[at : at + left]
            at += left

    def _check(self, start: int, data: memoryview) -> None:
        for phy_offset, piece in self._by_file(start, data):
            position = 0
            while position < len(piece):
                at = phy_offset + position
                found = check_record(piece, position, len(piece), at, check_crc=True)
                if found.kind not in (RecordKind.MESSAGE, RecordKind.BLANK):
                    raise StoreError(f"what a replica has at {at} is no record: {found.reason}")
                position += found.size

    def _keep_damaged(self, start: int, end: int) -> None:
        log_path = self._directories.first
        path = log_path.with_name(f"{log_path.name}-damaged-{start}-{end}")
        if path.exists():
            return
        pieces = []
        for phy_offset, piece in self._by_file(start, memoryview(bytes(end - start))):
            position = phy_offset % self._file_size
            with (self._directories.path_of(phy_offset - position)).open("rb") as file:
                pieces.append(os.pread(file.fileno(), len(piece), position))
        replace_file(path, b"".join(pieces))

    def _write(self, phy_offset: int, piece: memoryview) -> None:
        position = phy_offset % self._file_size
        path = self._directories.path_of(phy_offset - position)
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            while piece:
                written = os.pwrite(fd, piece, position)
                piece, position = piece[written:], position + written
            os.fsync(fd)
        finally:
            os.close(fd)
