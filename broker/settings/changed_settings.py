"""ChangedSettings: values that apply since a request changed them, for processes that start again.

A child of the supervisor gets the settings of the broker's start. When it is started again alone
it must not fall back to them: so the supervisor makes one memfd, process `remoting` writes every
change that is in force into it (one writer), and each child lays it over its boot settings. It ends
with the supervisor: a new start reads the settings file. The supervisor reads the table, too, for
the digest in its metrics dump; what is read during a write may not parse.

    int32 length | JSON object key -> text, in one write
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping

import msgspec

_LENGTH = struct.Struct(">i")


class ChangedSettings:
    """One process' sight of the table. Any thread writes, one at a time."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @staticmethod
    def create() -> int:
        """The descriptor of an empty table, to be inherited."""
        return os.memfd_create("mqbroker-changed-settings")

    def write(self, values: Mapping[str, str]) -> None:
        """Replace the table: key to text, as a settings file has it."""
        text = msgspec.json.encode(values)
        os.pwrite(self._fd, _LENGTH.pack(len(text)) + text, 0)

    def read(self) -> dict[str, str]:
        """The table; empty when nothing was changed."""
        head = os.pread(self._fd, _LENGTH.size, 0)
        if len(head) < _LENGTH.size:
            return {}
        (length,) = _LENGTH.unpack(head)
        return msgspec.json.decode(os.pread(self._fd, length, _LENGTH.size), type=dict[str, str])
