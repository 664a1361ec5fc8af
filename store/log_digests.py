"""LogDigests: what the closed files of the commit log hold, as digests of 16 MiB each.

Written by process `store` (ScrubService); read by process `remoting`, which compares them with
those of the group's other brokers. A digest that a later reading does not find again means that
the bytes have changed since: nobody writes closed files but a repair. It reads no log.

    <commitlog>-digests/<20 digits>.json   beside the log's directory, one for each closed file:
        chunkSize   bytes of a chunk; the last of a file may be shorter
        dataEnd     position in the file behind its blank record: what follows is no data, and is
                    in no digest
        checkedAt   wall clock ms of the last reading
        digests     BLAKE2b-256 of each chunk as hex digits, "" when it has never been whole
        found       chunk number to digest: chunks that the last reading found to be different
        damaged     numbers of the chunks in which a record did not pass its own checks

Java brokers ignore the directory.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from conf.atomic_file import replace_file
from store.errors import StoreError
from store.mapped_file import file_name, find_start_offset, make_directory

CHUNK_SIZE: Final = 16 << 20
_DIGEST_SIZE: Final = 32
"""Bytes. Whoever can choose messages must not be able to make two logs look the same."""


def new_digest(data: bytes | memoryview = b"") -> hashlib.blake2b:
    """The hash of a chunk, or of a piece of one."""
    return hashlib.blake2b(data, digest_size=_DIGEST_SIZE)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDigests:
    """One closed file. See the module; `data_end` is a position in the file."""

    start: int
    data_end: int
    checked_ms: int
    digests: tuple[str, ...]
    found: Mapping[int, str] = field(default_factory=dict)
    damaged: frozenset[int] = frozenset()
    chunk_size: int = CHUNK_SIZE

    def current(self, chunk: int) -> str | None:
        """What the last reading found; None where a record was damaged."""
        if chunk in self.damaged or chunk >= len(self.digests):
            return None
        return self.found.get(chunk) or self.digests[chunk] or None

    def range_of(self, chunk: int) -> tuple[int, int]:
        """Log positions [low, high) of the chunk's data."""
        low = chunk * self.chunk_size
        high = max(low, min(low + self.chunk_size, self.data_end))
        return self.start + low, self.start + high

    def accepting(self, chunk: int, digest: str) -> FileDigests:
        """With `digest` as what the chunk is expected to hold from now on."""
        digests = list(self.digests)
        digests[chunk] = digest
        found = {each: seen for each, seen in self.found.items() if each != chunk}
        if (seen := self.found.get(chunk, self.digests[chunk])) != digest:
            found[chunk] = seen
        return replace(self, digests=tuple(digests), found=found)

    def to_json(self) -> dict[str, Any]:
        """As in the file."""
        return {
            "chunkSize": self.chunk_size,
            "dataEnd": self.data_end,
            "checkedAt": self.checked_ms,
            "digests": list(self.digests),
            "found": {str(chunk): digest for chunk, digest in sorted(self.found.items())},
            "damaged": sorted(self.damaged),
        }


def digests_from_json(start: int, tree: Any) -> FileDigests:
    """Raises ValueError: it is none."""
    try:
        found = FileDigests(
            start=start,
            data_end=int(tree["dataEnd"]),
            checked_ms=int(tree["checkedAt"]),
            digests=tuple(map(str, tree["digests"])),
            found={int(chunk): str(digest) for chunk, digest in tree["found"].items()},
            damaged=frozenset(map(int, tree["damaged"])),
            chunk_size=int(tree["chunkSize"]),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no digests of a file: {error!r}") from error
    if found.chunk_size <= 0 or found.data_end < 0:
        raise ValueError("no digests of a file: sizes below 0")
    return found


class LogDigests:
    """The directory. Any thread; one writer for each file."""

    def __init__(self, commit_log: Path) -> None:
        self.directory: Final = commit_log.with_name(f"{commit_log.name}-digests")

    def starts(self) -> list[int]:
        """Start offsets of the files that have digests."""
        if not self.directory.is_dir():
            return []
        names = (path.stem for path in self.directory.glob("*.json"))
        return sorted(start for name in names if (start := find_start_offset(name)) is not None)

    def load(self, start: int) -> FileDigests | None:
        """None: there are none. Raises StoreError naming the file, OSError."""
        path = self._path(start)
        try:
            return digests_from_json(start, json.loads(path.read_bytes()))
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise StoreError(f"{path}: not a valid file ({error}); delete it") from error

    def save(self, digests: FileDigests) -> None:
        """Whole, and on disk when it returns. Raises OSError."""
        make_directory(self.directory)
        replace_file(self._path(digests.start), json.dumps(digests.to_json()).encode())

    def drop(self, start: int) -> None:
        """Forget a file. Raises OSError."""
        self._path(start).unlink(missing_ok=True)

    def _path(self, start: int) -> Path:
        return self.directory / f"{file_name(start)}.json"
