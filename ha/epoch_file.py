"""The bytes of epochFileCheckpoint, as RocketMQ 5.3.3 writes them. Pure; any thread.

Text, one item a line, each line ended by \\n:

    number of entries
    CRC-32 & 0x7fffffff of the entries' lines with their ends; 0 is not checked
    epoch-startOffset, as often as the first line says

Java writes no empty list, so that its old one stays in the file; ours writes `0` and `0`, the CRC
of nothing. How the file gets there (temporary file, fsync, rename) is the caller's.
"""

from __future__ import annotations

import re
import zlib
from typing import Final

from ha.epochs import MAX_ENTRIES, EpochList, EpochOrderError, epoch_list

_CRC_MASK: Final = 0x7FFF_FFFF
_MAX_SIZE: Final = 64 * 1024
"""Bytes: more than twice what MAX_ENTRIES can take."""
_ENTRY: Final = re.compile(r"([0-9]{1,10})-([0-9]{1,19})", re.ASCII)


class EpochFileError(ValueError):
    """Bytes that are no list of epochs; the message says what is wrong with them."""


def encode_epochs(epochs: EpochList) -> bytes:
    """The whole file of a list."""
    lines = "".join(f"{epoch}-{start}\n" for epoch, start in epochs.entries).encode()
    return b"%d\n%d\n" % (len(epochs.entries), zlib.crc32(lines) & _CRC_MASK) + lines


def decode_epochs(data: bytes) -> EpochList:
    """The list in a file's bytes. Raises EpochFileError."""
    if len(data) > _MAX_SIZE:
        raise EpochFileError(f"{len(data)} bytes, more than any list of epochs has")
    try:
        count_line, crc_line, *lines = data.decode("ascii").splitlines()
        count, crc = int(count_line), int(crc_line)
    except ValueError:
        raise EpochFileError(f"no count and checksum in {data[:40]!r}") from None
    if count != len(lines) or count > MAX_ENTRIES:
        raise EpochFileError(f"{len(lines)} entries where the first line says {count}")
    text = "".join(f"{line}\n" for line in lines).encode()
    if lines and not data.endswith(b"\n"):
        raise EpochFileError(f"it ends within {lines[-1]!r:.40}")
    if crc not in (0, zlib.crc32(text) & _CRC_MASK):
        raise EpochFileError(f"checksum {crc} does not belong to the entries")
    return _parsed(lines)


def _parsed(lines: list[str]) -> EpochList:
    entries = []
    for line in lines:
        match = _ENTRY.fullmatch(line)
        if match is None:
            raise EpochFileError(f"no entry: {line[:40]!r}")
        entries.append((int(match[1]), int(match[2])))
    try:
        return epoch_list(entries)
    except EpochOrderError as error:
        raise EpochFileError(str(error)) from error


def read_epochs(data: bytes | None, backup: bytes | None) -> EpochList | None:
    """The list of a file, or, if that is missing or damaged, of its .bak, as Java reads them.

    None: neither is readable. Then nobody knows whose bytes the log holds, and it is not joined to
    a group unless an operator says so.
    """
    for candidate in (data, backup):
        try:
            if candidate is not None:
                return decode_epochs(candidate)
        except EpochFileError:
            continue
    return None
