"""Resync backups: what re-synchronisations of a slave's store have moved aside (replica_resync.py).

They are listed for operators, and deleted once they are older than haBackupReservedHours. Only
directories whose name is exactly that of a backup, directly in a directory where a re-sync puts
them, are ever touched; links are not. CleanBackupsService is a thread of process `store`; listing
is for any process and thread.

A backup's age is the difference of two wall clocks, and clocks jump: one is deleted only after the
clock has called it expired at every look for CONFIRM_MS of time that really passed.
"""

from __future__ import annotations

import logging
import os
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from ipc.clock import Clock
from ipc.service_thread import FailureHandler, ServiceThread
from store.errors import StoreError
from store.message_store_config import MessageStoreConfig
from store.resync_request import find_request, is_backup_name

log = logging.getLogger(__name__)

LOOK_MS: Final = 600_000
CONFIRM_MS: Final = 3_600_000
_HOUR_MS: Final = 3_600_000
_BLOCK: Final = 512
_STAMP: Final = slice(len("backup-"), len("backup-00000000T000000Z"))


@dataclass(frozen=True, slots=True)
class ResyncBackup:
    """One backup. `made_ms`: wall clock, from its name. `places`: its directories, all of that
    name, the root's last."""

    name: str
    made_ms: int
    places: tuple[Path, ...]

    def count_bytes(self) -> int:
        """What it takes on disk. Reads every directory: not for a thread in a hurry."""
        return sum(_bytes_on_disk(place) for place in self.places)


def list_backups(config: MessageStoreConfig) -> list[ResyncBackup]:
    """All backups of this store, the oldest first. A directory that cannot be read has none."""
    places: dict[str, list[Path]] = {}
    for parent in _parents(config):
        for path in _backups_in(parent):
            places.setdefault(path.name, []).append(path)
    found = [(name, _made_ms(name), tuple(where)) for name, where in places.items()]
    return [ResyncBackup(name, made_ms, where) for name, made_ms, where in sorted(found) if made_ms]


def _parents(config: MessageStoreConfig) -> list[Path]:
    """Where a re-sync puts backups: beside a store directory, or inside a mount point."""
    paths = (*config.log_directories, config.consume_queue_path, config.index_path)
    real = [path.resolve() for path in paths]
    beside = [path if os.path.ismount(path) else path.parent for path in real]
    return [path for path in dict.fromkeys(beside) if path != config.root.resolve()] + [
        config.root.resolve()
    ]


def _backups_in(parent: Path) -> list[Path]:
    try:
        with os.scandir(parent) as entries:
            return [
                parent / entry.name
                for entry in entries
                if is_backup_name(entry.name) and entry.is_dir(follow_symlinks=False)
            ]
    except OSError:
        return []


def _made_ms(name: str) -> int:
    """0: no such time exists."""
    try:
        made = datetime.strptime(name[_STAMP], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except ValueError:
        return 0
    return int(made.timestamp() * 1000)


def _bytes_on_disk(place: Path) -> int:
    size = 0
    for directory, _, names in os.walk(place):
        for name in names:
            try:
                size += os.lstat(os.path.join(directory, name)).st_blocks * _BLOCK
            except OSError:
                continue
    return size


class CleanBackupsService(ServiceThread):
    """Logs the backups at the start, and deletes expired ones. Owned by its thread."""

    def __init__(
        self,
        config: MessageStoreConfig,
        clock: Clock,
        *,
        on_failure: FailureHandler | None = None,
    ) -> None:
        super().__init__("CleanBackupsService", on_failure=on_failure)
        self._config = config
        self._clock = clock
        self._has_logged = False
        self._expired_since_ms: dict[str, int] = {}
        """Name to the monotonic time from which on every look found it expired."""

    def step(self) -> None:
        """One look, then the wait for the next."""
        self.look()
        self.wait_for_running(LOOK_MS)

    def look(self) -> None:
        """Delete what has been expired for long enough."""
        backups = list_backups(self._config)
        if not self._has_logged:
            self._has_logged = True
            self._log(backups)
        expired = {backup.name: backup for backup in backups if self._is_expired(backup)}
        now_ms = self._clock.monotonic_ms()
        since = self._expired_since_ms
        self._expired_since_ms = {name: since.get(name, now_ms) for name in expired}
        waiting = self._waiting_backup()
        for name, backup in expired.items():
            if now_ms - self._expired_since_ms[name] >= CONFIRM_MS and name != waiting:
                self._delete(backup)

    def _is_expired(self, backup: ResyncBackup) -> bool:
        reserved_ms = self._config.ha_backup_reserved_hours * _HOUR_MS
        return 0 < reserved_ms < self._clock.now_ms() - backup.made_ms

    def _waiting_backup(self) -> str | None:
        """That of a request which is not performed yet, or goes on at the next start."""
        try:
            request = find_request(self._config.root)
        except StoreError:
            return None
        return None if request is None else request.backup

    def _log(self, backups: list[ResyncBackup]) -> None:
        if not backups:
            return
        hours = self._config.ha_backup_reserved_hours
        log.warning(
            "%s backups of re-syncs take %s bytes: %s; %s",
            len(backups),
            sum(backup.count_bytes() for backup in backups),
            ", ".join(str(place) for backup in backups for place in backup.places),
            f"each is deleted after {hours} hours (haBackupReservedHours)"
            if hours
            else "they are kept (haBackupReservedHours=0): delete them with `rm -r`",
        )

    def _delete(self, backup: ResyncBackup) -> None:
        size = backup.count_bytes()
        for place in backup.places:
            try:
                shutil.rmtree(place)
            except OSError as error:
                log.error("%s: backup cannot be deleted, will retry: %s", place, error)
                return
        log.warning(
            "%s: backup of a re-sync deleted, %s bytes: older than haBackupReservedHours=%s",
            ", ".join(map(str, backup.places)),
            size,
            self._config.ha_backup_reserved_hours,
        )
