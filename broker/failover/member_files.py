"""MemberFiles: brokerIdentity, brokerIdentity-temp and epochFileCheckpoint of a member.

Used by the member's thread, and by a start before it. Each file is written by temporary file,
fsync and rename. What cannot be read stops the start by name: a broker without its id would become
another one, and a log without its epochs would be compared with nobody's.
"""

from __future__ import annotations

import logging
from pathlib import Path

from broker.failover.identity import Identity, IdentityError, decode_identity
from broker.failover.member import Found
from conf.atomic_file import backup_path, sync_directory, write_atomic
from ha.epoch_file import encode_epochs, read_epochs
from ha.epochs import EpochList

log = logging.getLogger(__name__)


class MemberFileError(Exception):
    """A file of the member that cannot be used; the message names it and the way out."""


class MemberFiles:
    """Owned by the member's thread."""

    def __init__(self, identity: Path, epochs: Path) -> None:
        self._identity = identity
        self._temporary = identity.with_name(f"{identity.name}-temp")
        self._epochs = epochs

    def read(self, cluster_name: str, broker_name: str, confirm_offset: int) -> Found:
        """What a start finds. confirm_offset: of the store's check point. Raises MemberFileError;
        OSError where a file is there and cannot be opened.

        With an identity, the temporary one is what a death between the last two steps of
        `write_identity` left: it goes, unread. Left there, it would bring the old id back when
        somebody moves the identity away for a new one.
        """
        identity = self._read_identity(self._identity, cluster_name, broker_name)
        temporary = None
        if identity is None:
            temporary = self._read_identity(self._temporary, cluster_name, broker_name)
        elif self._temporary.exists():
            self._remove_temporary()
        epochs, is_old = self._read_epochs()
        return Found(temporary, identity, epochs, confirm_offset, is_old)

    def _read_identity(self, path: Path, cluster_name: str, broker_name: str) -> Identity | None:
        data = _read(path)
        if data is None:
            return None
        try:
            found = decode_identity(data, cluster_name, broker_name)
        except IdentityError as error:
            raise MemberFileError(
                f"{path}: {error}. If this store is the named broker's, correct brokerName or "
                "brokerClusterName; if the broker shall get a new id, move the file away"
            ) from error
        if bool(found.register_check_code) != (path == self._temporary):
            raise MemberFileError(f"{path}: {data[:60]!r} is not what belongs into this file")
        return found

    def _read_epochs(self) -> tuple[EpochList, bool]:
        """The list, and whether it is the one before the last."""
        data, backup = _read(self._epochs), _read(backup_path(self._epochs))
        if data is None and backup is None:
            return EpochList(), False
        found = read_epochs(data, backup)
        if found is None:
            raise MemberFileError(
                f"{self._epochs}: neither it nor {backup_path(self._epochs).name} is a list of "
                "epochs, so nobody knows whose bytes this log has; start the broker over as an "
                "empty slave, or put the file back from a copy"
            )
        is_old = data is None or read_epochs(data, None) is None
        if is_old:
            log.error(
                "%s: %s; the list before it is used, from %s",
                self._epochs,
                "missing" if data is None else "damaged",
                backup_path(self._epochs).name,
            )
        return found, is_old

    def write_temporary_identity(self, data: bytes) -> None:
        """brokerIdentity-temp, durably. Raises OSError."""
        write_atomic(self._temporary, data)

    def write_identity(self, data: bytes) -> None:
        """brokerIdentity, durably; then the temporary one goes. Raises OSError."""
        write_atomic(self._identity, data)
        self._remove_temporary()

    def _remove_temporary(self) -> None:
        self._temporary.unlink(missing_ok=True)
        sync_directory(self._temporary.parent)

    def write_epochs(self, epochs: EpochList) -> None:
        """epochFileCheckpoint, durably; the list before it stays in .bak. Raises OSError."""
        write_atomic(self._epochs, encode_epochs(epochs), backup=True)

    def put_back_epochs(self, offset: int) -> None:
        """A cut of the log to `offset` was refused: if the list is the one that was written for
        it, the one before it is this log's. Raises OSError."""
        data, backup = _read(self._epochs), _read(backup_path(self._epochs))
        now, before = read_epochs(data, None), read_epochs(backup, None)
        if now is not None and before is not None and now == before.cut(offset) != before:
            log.error("%s: the log was not cut to %s: the longer list again", self._epochs, offset)
            self.write_epochs(before)


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
