"""ReplicaMemory: the replicas of this master, saved for its next start.

A thread of process `ha`, since a disk may block its writer for seconds. The file is written
atomically when a replica connects or leaves, and once a minute. So a replica that disappears during
a restart of the broker is still reported as missing. Only named replicas are saved: an ip means
little after a while. A file that cannot be written or understood is logged once and is no reason to
stop.

What a replica acknowledged after the last write is not in the file, so its offsets are lower bounds
for the next start. They are exact (`ack_limit` is in the file) only if an orderly stop wrote it,
after every connection had ended; the next start revokes that before it serves any slave.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

from conf.atomic_file import replace_file
from ipc.clock import Clock
from ipc.service_thread import FailureHandler, ServiceThread

log = logging.getLogger(__name__)

FILE_NAME: Final = "known_replicas.json"
WRITE_EVERY_MS: Final = 60_000
WRITE_PAUSE_MS: Final = 1_000
"""However often replicas connect and leave."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownReplica:
    """What is written of a replica. Times: wall clock ms; offsets: bytes."""

    id: str
    remote: str
    ack_offset: int
    position: int
    """As in SlaveProgress."""
    connected_since_ms: int
    left_ms: int | None
    """None while it is connected."""
    ack_limit: int | None = None
    """It has acknowledged no more than this; None: it may have since this was written."""


def read_replica_ips(path: Path) -> frozenset[str]:
    """Where the file's replicas connected from: peers that were let in. Empty if the file cannot be
    read; any process."""
    try:
        found = _decode(path.read_bytes())
    except (OSError, ValueError):
        return frozenset()
    return frozenset(each.remote.rpartition(":")[0] for each in found)


def read_replica_ids(path: Path) -> frozenset[str]:
    """The file's replicas, as "brokerName:brokerId"; any process. Empty without a file. Raises
    OSError, ValueError: nobody knows."""
    try:
        return frozenset(each.id for each in _decode(path.read_bytes()))
    except FileNotFoundError:
        return frozenset()


class ReplicaMemory(ServiceThread):
    """See the module. `note` is called by one thread; `load` before the start."""

    def __init__(
        self, path: Path, clock: Clock, *, on_failure: FailureHandler | None = None
    ) -> None:
        super().__init__("ReplicaMemory", on_failure=on_failure)
        self._path = path
        self._clock = clock
        self._noted: tuple[KnownReplica, ...] = ()
        self._is_last_word = False
        self._noted_who: frozenset[tuple[str, bool]] = frozenset()
        self._written: tuple[KnownReplica, ...] = ()
        self._written_who: frozenset[tuple[str, bool]] = frozenset()
        self._tried_ms: int | None = None
        self._trouble: str | None = None

    def load(self) -> list[KnownReplica]:
        """What the file says; those that were connected left when it was written. Empty, with a
        warning, when it cannot be read or understood."""
        try:
            found = _decode(self._path.read_bytes())
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            log.warning(
                "%s: the replicas known before this start are forgotten: %s; the file is rewritten",
                self._path,
                error,
            )
            return []
        self._written = tuple(found)  # So that a file without replicas replaces it.
        if any(each.ack_limit is not None for each in found):
            self._take_back(found)
        return found

    def note(self, replicas: Sequence[KnownReplica], *, is_last: bool = False) -> None:
        """These are known now. Quick: it does not wait for the file. `is_last`: connections have
        ended, and there will be no more in this life."""
        self._noted = tuple(replicas)
        self._is_last_word = is_last
        who = frozenset((each.id, each.left_ms is None) for each in replicas)
        if who != self._noted_who:
            self._noted_who = who
            self.wakeup()

    def step(self) -> None:
        """One write, or one sleep until the next is due."""
        left_ms = self._left_ms()
        if left_ms > 0:
            self.wait_for_running(left_ms)
        else:
            self._write()

    def finish(self) -> None:
        """Write the final state."""
        self._write()

    def _left_ms(self) -> int:
        if self._tried_ms is None:
            return WRITE_EVERY_MS if self._noted_who == self._written_who else 0
        changed = self._noted_who != self._written_who
        pause_ms = WRITE_PAUSE_MS if changed and self._trouble is None else WRITE_EVERY_MS
        return self._tried_ms + pause_ms - self._clock.monotonic_ms()

    def _write(self) -> None:
        self._tried_ms = self._clock.monotonic_ms()
        noted, who, is_last = self._noted, self._noted_who, self._is_last_word
        if not noted and not self._written:
            return
        try:
            self._write_file([each if is_last else _without_end(each) for each in noted])
        except OSError as error:
            self._complain(f"{error.strerror or error}")
            return
        self._written, self._written_who, self._trouble = noted, who, None

    def _write_file(self, replicas: Sequence[KnownReplica]) -> None:
        value = {
            "version": 1,
            "writtenMs": self._clock.now_ms(),
            "replicas": [
                asdict(_without_end(each) if each.left_ms is None else each) for each in replicas
            ],
        }
        replace_file(self._path, json.dumps(value, indent=1).encode())

    def _take_back(self, found: Sequence[KnownReplica]) -> None:
        """From now on they may receive more: a kill must not leave exact values behind."""
        try:
            self._write_file([_without_end(each) for each in found])
        except OSError as error:
            self._complain(f"{error.strerror or error}")
            with contextlib.suppress(OSError):
                self._path.unlink()

    def _complain(self, text: str) -> None:
        if text != self._trouble:
            log.warning(
                "%s: cannot be written: %s; a slave that is away while this broker restarts will "
                "not be reported as missing afterwards. Retrying; free space there and let "
                "this user write",
                self._path,
                text,
            )
        self._trouble = text


def _without_end(replica: KnownReplica) -> KnownReplica:
    return replace(replica, ack_limit=None)


def _decode(data: bytes) -> list[KnownReplica]:
    """Raises ValueError with what is wrong."""
    try:
        found = json.loads(data)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(found, dict) or found.get("version") != 1:
        raise ValueError("not a file of version 1")
    written_ms, replicas = found.get("writtenMs"), found.get("replicas")
    if type(written_ms) is not int or not isinstance(replicas, list):
        raise ValueError("writtenMs or replicas is missing")
    return [
        replace(each, left_ms=written_ms) if each.left_ms is None else each
        for each in map(_replica_of, replicas)
    ]


_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "id": (str,),
    "remote": (str,),
    "left_ms": (int, type(None)),
    "ack_limit": (int, type(None)),
}


def _replica_of(found: Any) -> KnownReplica:
    names = [field.name for field in fields(KnownReplica)]
    if not isinstance(found, dict) or {"ack_limit", *found} != set(names):
        raise ValueError(f"not a replica: {found!r:.200}")
    for name in found:
        if type(found[name]) not in _TYPES.get(name, (int,)):
            raise ValueError(f"{name} of a replica is {found[name]!r:.200}")
    return KnownReplica(**found)
