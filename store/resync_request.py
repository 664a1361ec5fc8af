"""ResyncRequest: what shall be done to a slave's store before it is opened next.

Written down by process `ha`, read by the start-up of a master, performed and removed by process
`store` (store/replica_resync.py). It changes no file of the store, and imports nothing heavy.

    <root>/resync.json             what is to be done (ResyncRequest as JSON), until it is done
    <root>/resync.json.done        the last one that was done, until the tables were copied again
    <root>/resync.json.refused     a request that does not fit the store, and why
    <root>/backup-<UTC>-<hex>/     what a request moves aside (the name is made here)

Tested by tests/store/test_resync_backups.py.
"""

from __future__ import annotations

import enum
import json
import logging
import os
import re
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from conf.atomic_file import replace_file
from store.errors import StoreError
from store.mapped_file import sync_directory

log = logging.getLogger(__name__)

REQUEST_NAME: Final = "resync.json"
_DONE: Final = "resync.json.done"
_REFUSED: Final = "resync.json.refused"
_BACKUP_NAME: Final = re.compile(r"backup-\d{8}T\d{6}Z-[0-9a-f]{8}", re.ASCII)


class ResyncAction(enum.StrEnum):
    """What shall happen to the store."""

    START_OVER = "start_over"
    TRUNCATE = "truncate"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResyncRequest:
    """offset: where the log shall end (truncate only). reason: for people.

    `backup` (the directory's name) and `requested_at` (UTC) are filled in by `write_request`.
    """

    action: ResyncAction
    offset: int = 0
    reason: str = ""
    backup: str = ""
    requested_at: str = ""


def write_request(root: Path, request: ResyncRequest) -> None:
    """Put the request down, durably; it takes the place of an older one.

    Raises StoreError when the very same was refused before: it would be again. OSError.
    """
    refused = _read(root / _REFUSED)
    if refused is not None and _same(refused, request):
        raise StoreError(
            f"{root / _REFUSED}: {request.action} at {request.offset} was refused before and does "
            "not fit this store; remove that file to retry, or move the store's files away"
        )
    now = datetime.now(UTC)
    backup = f"backup-{now:%Y%m%dT%H%M%SZ}-{os.urandom(4).hex()}"
    full = replace(request, backup=backup, requested_at=now.isoformat(timespec="seconds"))
    write_json(root / REQUEST_NAME, asdict(full))


def find_request(root: Path) -> ResyncRequest | None:
    """The request that is not performed yet. Raises StoreError when it cannot be understood."""
    path = root / REQUEST_NAME
    found = _read(path)
    if found is None:
        return None
    try:
        request = ResyncRequest(
            action=ResyncAction(found["action"]),
            offset=found["offset"],
            reason=found["reason"],
            backup=found["backup"],
            requested_at=found["requested_at"],
        )
    except (KeyError, ValueError) as error:
        raise StoreError(f"{path}: not a valid file ({error!r})") from error
    if type(request.offset) is not int or not is_backup_name(request.backup):
        raise StoreError(f"{path}: its offset or its backup is not valid: {found}")
    return request


def drop_request(root: Path, why: str) -> None:
    """Take the request back without performing it; kept as resync.json.refused."""
    path = root / REQUEST_NAME
    found = _read(path) or {"text": _text_of(path)}
    write_json(root / _REFUSED, {**found, "refused": why})
    path.unlink(missing_ok=True)
    sync_directory(root)
    log.error("%s: not performed: %s (kept as %s)", path, why, _REFUSED)


def find_refused_cut(root: Path) -> int | None:
    """Where the log was to end by the last request that was refused; None: none was, or it was no
    cut. Raises StoreError."""
    found = _read(root / _REFUSED) or {}
    offset = found.get("offset")
    is_cut = found.get("action") == ResyncAction.TRUNCATE and type(offset) is int
    return offset if is_cut else None


def finish_request(root: Path) -> None:
    """The request was performed. It stays as a mark: offsets in the tables may rest on records that
    are gone now."""
    os.replace(root / REQUEST_NAME, root / _DONE)
    sync_directory(root)


def forget_request(root: Path) -> None:
    """The request was performed, and no table can rest on what is gone."""
    (root / REQUEST_NAME).unlink(missing_ok=True)
    sync_directory(root)


def find_done(root: Path) -> str | None:
    """What was done to the log since its tables were last copied, for people; None: nothing."""
    path = root / _DONE
    try:
        found = _read(path)
    except StoreError:
        found = {}
    if found is None:
        return None
    if found.get("action") == ResyncAction.TRUNCATE:
        return f"{path}: the log was cut at {found.get('offset')}"
    return f"{path}: the log was started over"


def forget_done(root: Path) -> None:
    """The tables rest on the log that there is now."""
    (root / _DONE).unlink(missing_ok=True)
    sync_directory(root)


def _same(refused: dict[str, Any], request: ResyncRequest) -> bool:
    return (refused.get("action"), refused.get("offset")) == (request.action, request.offset)


def is_backup_name(name: object) -> bool:
    """Whether a directory of that name in a store directory is a backup. A topic's directory may
    begin with "backup-", too, but cannot be mistaken for one."""
    return isinstance(name, str) and _BACKUP_NAME.fullmatch(name) is not None


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(
            f"{path}: cannot be read: {error.strerror}. It says what is to be done to this store "
            "before it is opened: make it readable, or move it away"
        ) from error
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {}


def _text_of(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError as error:
        return str(error)


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write `path` whole and durably. Raises OSError."""
    replace_file(path, json.dumps(value, indent=1).encode())
