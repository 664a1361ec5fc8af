"""PastLife: under which broker id this store's last life wrote its dump, in a file of the store.

Written by the dump's thread in the supervisor once in a life, behind its first line; read at the
next start. A slave that is promoted writes under another broker id, so that its own last line is
not among the files of that id: this file tells where it is. A store that was copied to another host
brings it along, so `host` has to be the same.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from conf.atomic_file import write_atomic

FILE_NAME: Final = "metricsDumpLife.json"
"""In the store's directory."""


class PastLife(msgspec.Struct, frozen=True):
    """Whose lines they are; `host` and `boot` as in them."""

    cluster: str
    broker: str
    broker_id: int
    host: str
    boot: str


_read: Final = msgspec.json.Decoder(PastLife).decode


def read_past_life(path: Path) -> PastLife | None:
    """None where no life has written a line. Raises OSError, and msgspec.DecodeError for a damaged
    file."""
    try:
        return _read(path.read_bytes())
    except FileNotFoundError:
        return None


def write_past_life(path: Path, life: PastLife) -> None:
    """Durably. Raises OSError."""
    write_atomic(path, msgspec.json.encode(life))
