"""PlainPermissionManager: holds the access table, watches its files, and updates them.

Runs in process `remoting`; apart from operators editing them, it is the only writer of the files.
`table` is replaced as a whole and may be read by any thread. One lock covers reading and writing
the files; a task of the scheduled executor or an admin thread holds it. If a file becomes invalid,
the last valid table stays in use and the error is logged once for each state of the files. Java:
PlainPermissionManager.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from broker.acl.acl_files import (
    DEFAULT_FILE,
    AclFile,
    Stamp,
    check_name,
    merge,
    owner_of,
    parse_file,
    read_files,
    stamp_of,
    stamps_of,
    texts_of,
)
from broker.acl.acl_table import AclTable
from broker.acl.permission import PERMISSIONS
from broker.acl.plain_acl_file import (
    MIN_KEY_LENGTH,
    PlainAccessConfig,
    PlainAclFile,
    split_permission,
)
from conf.atomic_file import backup_path, write_atomic
from conf.errors import ConfigError
from conf.file_permissions import without_others
from ipc.clock import Clock
from ipc.scheduled_executor import ScheduledExecutor
from remoting.address_patterns import parse_pattern
from remoting.body.data_version import DataVersion

log = logging.getLogger(__name__)

PERIOD_MS: Final = 1_000
"""Polling period of the files (RocketMQ: 5,000); a change takes effect at the second poll."""
_OWNER_ONLY: Final = 0o600
"""File mode of a new file, since it holds keys."""


class AclChangeError(Exception):
    """A change was rejected; the text is for the client that requested it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountChange:
    """The account changes of request 50; None leaves a value unchanged."""

    access_key: str | None
    secret_key: str | None
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: Sequence[str] | None = None
    group_perms: Sequence[str] | None = None


class PlainPermissionManager:
    """See the module. `home`: rocketmqHome."""

    def __init__(self, home: Path, clock: Clock) -> None:
        self._conf = home / "conf"
        self._clock = clock
        self._lock = threading.Lock()
        self._files: tuple[AclFile, ...] = ()
        self._loaded: dict[Path, Stamp] = {}
        """Stamps of the files that `table` was built from, or that were found invalid."""
        self._seen: dict[Path, Stamp] = {}
        """Stamps at the last poll."""
        self.table = AclTable()

    @property
    def default_path(self) -> Path:
        """conf/plain_acl.yml, where new accounts go."""
        return self._conf / DEFAULT_FILE

    # -- watching the files --------------------------------------------------------------------

    def load(self) -> None:
        """Read the files. Raises ConfigError, which leaves the table unchanged, and OSError."""
        with self._lock:
            self._seen = self._loaded = stamps_of(self._conf)
            files = read_files(self._conf)
            self._take(files, merge(files))

    def schedule_on(self, executor: ScheduledExecutor) -> None:
        """Start polling the files."""
        executor.schedule(
            "watch-access-files",
            self.reload_if_changed,
            first_delay_ms=PERIOD_MS,
            period_ms=PERIOD_MS,
        )

    def reload_if_changed(self) -> None:
        """Reload files that have changed and then stayed unchanged for one poll, so that a file
        that is still being written is not read."""
        with self._lock:
            stamps = stamps_of(self._conf)
            rested, self._seen = stamps == self._seen, stamps
            if not rested or stamps == self._loaded:
                return
            self._loaded = stamps
            try:
                files = read_files(self._conf)
                self._take(files, merge(files))
            except ConfigError as error:
                log.error("%s; keeping the previous access table", error)

    def _take(self, files: Sequence[AclFile], table: AclTable) -> None:
        self._files, self.table = tuple(files), table
        log.info(
            "access table: %s accounts from %s",
            len(table.accounts),
            ", ".join(str(file.path) for file in files) or "no file",
        )
        if table.is_empty:
            log.warning(
                "access table: no account and no whitelisted address, so all requests are denied; "
                "create %s (docs/access.md shows the format)",
                self.default_path,
            )

    # -- queries ------------------------------------------------------------------------

    def data_versions(self) -> dict[str, DataVersion]:
        """The data version of each file, by path."""
        return {str(file.path): file.data_version for file in self._files}

    def default_data_version(self) -> DataVersion:
        """The data version of conf/plain_acl.yml; 0 if the file does not exist."""
        return self.data_versions().get(str(self.default_path), DataVersion())

    def contents(self) -> tuple[PlainAclFile, ...]:
        """What every file in use says. Contains secret keys."""
        return tuple(file.values for file in self._files)

    def texts(self) -> Mapping[str, str]:
        """Every file in use: its name below conf, and its text. Contains secret keys."""
        return texts_of(self._files)

    # -- changes --------------------------------------------------------------------------------

    def update_account(self, change: AccountChange) -> None:
        """Create an account in conf/plain_acl.yml, or change it where it is.

        Raises AclChangeError with RocketMQ's wording for an invalid key or permission.
        """
        _check_change(change)
        assert change.access_key is not None
        with self._lock:
            files = self._read_for_change()
            file = owner_of(files, change.access_key) or self._default_file(files)
            accounts = list(file.values.accounts)
            for place, account in enumerate(accounts):
                if account.access_key == change.access_key:
                    accounts[place] = _changed(account, change)
                    break
            else:
                new = PlainAccessConfig(access_key=change.access_key, secret_key="")
                accounts.append(_changed(new, change))
            self._write(files, file, replace(file.values, accounts=tuple(accounts)))

    def delete_account(self, access_key: str) -> None:
        """Remove an account from its file. Raises AclChangeError if it does not exist."""
        with self._lock:
            files = self._read_for_change()
            file = owner_of(files, access_key)
            if file is None:
                raise AclChangeError(f"there is no account {access_key} in {self._conf}")
            left = tuple(one for one in file.values.accounts if one.access_key != access_key)
            self._write(files, file, replace(file.values, accounts=left))

    def update_white_addresses(self, addresses: Sequence[str], path: str | None) -> None:
        """Replace globalWhiteRemoteAddresses of the file at `path`, by default of
        conf/plain_acl.yml. Raises AclChangeError for another path and a wrong address."""
        for address in addresses:
            try:
                parse_pattern(address)
            except ValueError as error:
                raise AclChangeError(str(error)) from error
        with self._lock:
            files = self._read_for_change()
            file = self._file_at(files, path) if path else self._default_file(files)
            self._write(files, file, replace(file.values, white_addresses=tuple(addresses)))

    def replace_files(self, texts: Mapping[str, str]) -> bool:
        """On a slave: replace the files by exactly these (name below conf to text); True if
        anything changed. A file that the master does not have is renamed to .bak. Raises
        ConfigError, ValueError for an invalid name, OSError."""
        if not texts:
            raise ValueError("the master sent no access file; keeping the local ones")
        for name in texts:
            check_name(name)
        with self._lock:
            here = read_files_or_none(self._conf)
            if here is not None and texts_of(here) == dict(texts):
                return False
            now_ms = self._clock.now_ms()
            new = [parse_file(self._conf, name, text, now_ms) for name, text in texts.items()]
            new.sort(key=lambda file: (file.name == DEFAULT_FILE, file.path))
            table = merge(new)
            self._hold_exactly(new)
            self._loaded = self._seen = stamps_of(self._conf)
            self._take(new, table)
        return True

    def _hold_exactly(self, files: Sequence[AclFile]) -> None:
        """Write new files before removing any."""
        for file in files:
            if not file.path.is_file() or file.path.read_bytes() != file.text.encode():
                self._write_text(file)
        for path in stamps_of(self._conf).keys() - {file.path for file in files}:
            path.chmod(_mode_of(path))
            os.replace(path, backup_path(path))
            log.warning("%s: not on the master: moved to %s", path, backup_path(path))

    def _read_for_change(self) -> tuple[AclFile, ...]:
        """The files on disk now, including changes that are not loaded yet."""
        self._seen = stamps_of(self._conf)
        try:
            return read_files(self._conf)
        except ConfigError as error:
            raise AclChangeError(
                f"no change is possible while a file is invalid: {error}"
            ) from error

    def _default_file(self, files: Sequence[AclFile]) -> AclFile:
        for file in files:
            if file.name == DEFAULT_FILE:
                return file
        return parse_file(self._conf, DEFAULT_FILE, "", self._clock.now_ms())

    def _file_at(self, files: Sequence[AclFile], path: str) -> AclFile:
        for file in (*files, self._default_file(files)):
            if file.path.resolve() == Path(path).resolve():
                return file
        known = ", ".join(str(file.path) for file in files)
        raise AclChangeError(
            f"{path} is not an access file of this broker; expected one of {known}"
        )

    def _write(self, files: Sequence[AclFile], old: AclFile, values: PlainAclFile) -> None:
        """Validate, write and load. Raises AclChangeError."""
        data_version = (old.values.data_version or DataVersion()).next_version(self._clock.now_ms())
        text = replace(values, data_version=data_version).dump()
        try:
            new = parse_file(self._conf, old.name, text, data_version.timestamp)
            all_files = [new if file.name == old.name else file for file in files]
            if new not in all_files:
                all_files.append(new)
            table = merge(all_files)
            self._write_text(new)
        except ConfigError as error:
            raise AclChangeError(str(error)) from error
        except OSError as error:
            raise AclChangeError(f"{old.path} could not be written: {error}") from error
        # Another file that has changed since it was read is detected at the next poll.
        self._loaded = self._seen = {**self._seen, new.path: stamp_of(new.path)}
        self._take(all_files, table)

    @staticmethod
    def _write_text(file: AclFile) -> None:
        write_atomic(file.path, file.text.encode(), backup=True, mode=_mode_of(file.path))


def read_files_or_none(conf: Path) -> tuple[AclFile, ...] | None:
    """Read the files; None if one is invalid, in which case it gets replaced."""
    try:
        return read_files(conf)
    except ConfigError as error:
        log.warning("%s", error)
        return None


def _mode_of(path: Path) -> int:
    """What an operator chose for the file, but nothing for other users of the machine."""
    try:
        return without_others(path.stat().st_mode)
    except FileNotFoundError:
        return _OWNER_ONLY


def _check_change(change: AccountChange) -> None:
    lengths = [len(key or "") for key in (change.access_key, change.secret_key)]
    if min(lengths) <= MIN_KEY_LENGTH:
        shown = "null" if change.secret_key is None else "***"
        raise AclChangeError(
            f"The accessKey={change.access_key} and secretKey={shown} cannot be null and length "
            f"should longer than {MIN_KEY_LENGTH}"
        )
    for entry in (*(change.topic_perms or ()), *(change.group_perms or ())):
        parts = split_permission(entry)
        if parts is None:
            raise AclChangeError(
                f"Parse Resource format error for {entry}.\n"
                "The expected resource format is 'Res=Perm'. For example: topicA=SUB"
            )
        if parts[1] not in PERMISSIONS:
            raise AclChangeError(
                f"Parse resource permission error for {entry}.\nThe expected permissions are "
                "'SUB' or 'PUB' or 'SUB|PUB' or 'PUB|SUB'."
            )


def _changed(account: PlainAccessConfig, change: AccountChange) -> PlainAccessConfig:
    """Apply a change. Keys and admin are always set; an empty default permission is ignored."""
    white, topics, groups = change.white_remote_address, change.topic_perms, change.group_perms
    return PlainAccessConfig(
        access_key=account.access_key,
        secret_key=change.secret_key or account.secret_key,
        white_remote_address=account.white_remote_address if white is None else white,
        admin=change.admin,
        default_topic_perm=change.default_topic_perm or account.default_topic_perm,
        default_group_perm=change.default_group_perm or account.default_group_perm,
        topic_perms=account.topic_perms if topics is None else tuple(topics),
        group_perms=account.group_perms if groups is None else tuple(groups),
    )
