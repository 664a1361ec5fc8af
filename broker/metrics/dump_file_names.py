"""The names of a dump's files (docs/metrics_dump.md, "Files"), and how a broker's are found.

Any thread of any process: the supervisor writes them, process `remoting` reads them for request
28912. Knows no lines. Tested by tests/broker/metrics/test_metrics_dump.py.
"""

from __future__ import annotations

import hashlib
import re
import string
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from broker.metrics.dump_file_access import list_names

_SAFE: Final = frozenset((string.ascii_letters + string.digits + "._-").encode())
_NAME: Final = re.compile(
    r"(?P<hidden>\.)?(?P<hhmm>\d{4})-(?P<broker_id>\d+)-(?P<boot>[0-9a-f]{8})-(?P<seq>\d{8,})"
    r"\.jsonl(?P<packed>\.gz)?"
)
_DATE: Final = re.compile(r"dt=(\d{4}-\d{2}-\d{2})")
_COMPONENT_MAX: Final = 255 - len("cluster=")
"""Maximum characters of a name in a path: a file system's limit for a path component, less our
prefix."""
_DIGEST_DIGITS: Final = 16


@dataclass(frozen=True, slots=True)
class DumpFile:
    """A file of the dump, parsed from its name."""

    path: Path
    day: str
    hhmm: str
    broker_id: int
    boot: str
    """The first digits of it."""
    seq: int
    hidden: bool
    packed: bool

    @property
    def age_key(self) -> tuple[str, str, int]:
        """Sort key, oldest first."""
        return self.day, self.hhmm, self.seq


def path_component(name: str) -> str:
    """`name` as a path component: everything except letters, digits, `.`, `_` and `-` is escaped as
    %XX. A name that is too long is truncated and ends in `~` (never used otherwise) and a digest of
    the full name."""
    data = name.encode("utf-8", "surrogateescape")
    text = "".join(chr(byte) if byte in _SAFE else f"%{byte:02X}" for byte in data)
    if len(text) <= _COMPONENT_MAX:
        return text
    end = f"~{hashlib.sha256(data).hexdigest()[:_DIGEST_DIGITS]}"
    return text[: _COMPONENT_MAX - len(end)] + end


def place_of(cluster: str, broker: str) -> Path:
    """The directories of a broker group's files within that of a day."""
    return Path(f"cluster={path_component(cluster)}", f"broker={path_component(broker)}")


def find_dump_files(directory: Path, place: Path, broker_id: int | None) -> list[DumpFile]:
    """The files of all runs of a broker; None: of every broker of the group. place: from
    `place_of`. Raises OSError."""
    found = []
    for day in list_names(directory):
        match = _DATE.fullmatch(day)
        if match is None:
            continue
        parent = directory / day / place
        for name in list_names(parent):
            parts = _NAME.fullmatch(name.removesuffix(".tmp"))
            if parts is None or broker_id not in (None, int(parts["broker_id"])):
                continue
            if name.endswith(".tmp") != bool(parts["hidden"]):
                continue
            found.append(
                DumpFile(
                    path=parent / name,
                    day=match[1],
                    hhmm=parts["hhmm"],
                    broker_id=int(parts["broker_id"]),
                    boot=parts["boot"],
                    seq=int(parts["seq"]),
                    hidden=bool(parts["hidden"]),
                    packed=bool(parts["packed"]),
                )
            )
    return found
