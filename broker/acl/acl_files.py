"""The access files of a broker: locating, reading and merging them.

Functions over <rocketmqHome>/conf, any thread; PlainPermissionManager decides when. Files are
conf/acl/**/*.yml and *.yaml in path order, then conf/plain_acl.yml; tools.yml files are skipped. If
two files define the same account, the first one wins; whitelisted addresses are merged. Java:
PlainPermissionManager.load, which reads the folder in directory order.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from broker.acl.acl_table import AclTable
from broker.acl.plain_acl_file import (
    Account,
    PlainAccessConfig,
    PlainAclFile,
    build_account,
)
from conf.credentials import TOOLS_FILE
from conf.errors import ConfigError
from remoting.address_patterns import parse_pattern, union
from remoting.body.data_version import DataVersion

log = logging.getLogger(__name__)

DEFAULT_FILE: Final = "plain_acl.yml"
FOLDER: Final = "acl"
_SUFFIXES: Final = (".yml", ".yaml")
_NS_PER_MS: Final = 1_000_000

Stamp = tuple[int, int, int]
"""Modification time in ns, size, inode; a change means that the file has changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AclFile:
    """One file as read. `name`: its path below conf, with slashes. `data_version`: its data
    version, or counter 0 and the file's modification time."""

    name: str
    path: Path
    text: str
    values: PlainAclFile
    data_version: DataVersion


def find_files(conf: Path) -> list[Path]:
    """The existing access files, in order of precedence."""
    found = []
    for directory, folders, names in os.walk(conf / FOLDER):
        # Kubernetes keeps versions of mounted secrets in hidden folders beside the symbolic links.
        folders[:] = [name for name in folders if not name.startswith(".")]
        paths = [Path(directory, name) for name in names]
        found += [path for path in paths if _is_acl_name(path.name) and path.is_file()]
    default = conf / DEFAULT_FILE
    return [*sorted(found), *([default] if default.is_file() else [])]


def stamps_of(conf: Path) -> dict[Path, Stamp]:
    """The stamp of each file, for detecting changes. Raises OSError."""
    return {path: stamp_of(path) for path in find_files(conf)}


def stamp_of(path: Path) -> Stamp:
    """The stamp of one file. Raises OSError."""
    status = path.stat()
    return status.st_mtime_ns, status.st_size, status.st_ino


def read_files(conf: Path) -> tuple[AclFile, ...]:
    """Read every access file. Raises ConfigError naming file and line."""
    return tuple(_read_file(conf, path) for path in find_files(conf))


def _read_file(conf: Path, path: Path) -> AclFile:
    try:
        text = path.read_bytes().decode("utf-8")
        changed_ms = path.stat().st_mtime_ns // _NS_PER_MS
    except OSError as error:
        raise ConfigError([f"{path}: cannot be read: {error.strerror or error}"]) from error
    except UnicodeDecodeError as error:
        raise ConfigError([f"{path}: not UTF-8 text (byte {error.start})"]) from error
    return parse_file(conf, path.relative_to(conf).as_posix(), text, changed_ms)


def parse_file(conf: Path, name: str, text: str, changed_ms: int) -> AclFile:
    """Parse `text` as the file `name` (below conf). Raises ConfigError."""
    path = conf / name
    from broker.acl.plain_acl_text import parse_plain_acl

    values = parse_plain_acl(text, str(path))
    data_version = values.data_version or DataVersion(timestamp=changed_ms)
    return AclFile(name=name, path=path, text=text, values=values, data_version=data_version)


def check_name(name: str) -> None:
    """Raises ValueError unless `name` is the name of an access file below conf."""
    path = PurePosixPath(name)
    plain = path.as_posix() == name and not path.is_absolute() and ".." not in path.parts
    in_folder = len(path.parts) > 1 and path.parts[0] == FOLDER and _is_acl_name(path.name)
    if not plain or not (name == DEFAULT_FILE or in_folder):
        raise ValueError(f"{name!r} is not an access file; use {DEFAULT_FILE} or {FOLDER}/*.yml")


def _is_acl_name(name: str) -> bool:
    return name.endswith(_SUFFIXES) and name != TOOLS_FILE


def merge(files: Iterable[AclFile]) -> AclTable:
    """Merge the files into one table. Raises ConfigError for an invalid account."""
    files = tuple(files)
    accounts: dict[str, Account] = {}
    sources: dict[str, str] = {}
    for config in (config for file in files for config in file.values.accounts):
        account = build_account(config)
        if account.access_key in accounts:
            _warn_repeated(config, sources[account.access_key])
        else:
            accounts[account.access_key] = account
            sources[account.access_key] = config.source
    white = union(parse_pattern(text) for file in files for text in file.values.white_addresses)
    return AclTable(white, accounts)


def _warn_repeated(config: PlainAccessConfig, first: str) -> None:
    log.warning(
        "%s: account %s ignored: already defined at %s; keep one of the two",
        config.source,
        config.access_key,
        first,
    )


def owner_of(files: Iterable[AclFile], access_key: str) -> AclFile | None:
    """The file that defines the effective account of that name."""
    for file in files:
        if any(account.access_key == access_key for account in file.values.accounts):
            return file
    return None


def texts_of(files: Iterable[AclFile]) -> Mapping[str, str]:
    """File name to text, as sent to slaves."""
    return {file.name: file.text for file in files}
