"""ChangedSettings: settings changed at run time, for processes that are restarted.

A child of the supervisor gets the settings that the broker was started with. A child that is
restarted alone must not fall back to them. So the supervisor creates a memfd, process `remoting`
(the only writer) stores every effective change in it, and each child applies it on top of its boot
settings. The memfd lives as long as the supervisor; a new start reads the settings file. The
supervisor also reads the table, for the digest in its metrics dump; a read during a write may not
parse.

    int32 length | JSON object key -> text, in one write
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from typing import Final

import msgspec

_LENGTH = struct.Struct(">i")
_read_table: Final = msgspec.json.Decoder(dict[str, str]).decode


class ChangedSettings:
    """One process's access to the table. Any thread may write, one at a time."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @staticmethod
    def create() -> int:
        """The descriptor of an empty table, to be inherited."""
        return os.memfd_create("mqbroker-changed-settings")

    def write(self, values: Mapping[str, str]) -> None:
        """Replace the table: key to text, as in a settings file."""
        text = msgspec.json.encode(values)
        os.pwrite(self._fd, _LENGTH.pack(len(text)) + text, 0)

    def read(self) -> dict[str, str]:
        """The table; empty if nothing was changed."""
        head = os.pread(self._fd, _LENGTH.size, 0)
        if len(head) < _LENGTH.size:
            return {}
        (length,) = _LENGTH.unpack(head)
        return _read_table(os.pread(self._fd, length, _LENGTH.size))
