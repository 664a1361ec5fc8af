"""KnownDirectories: which directories held files of the commit log, for the next start.

A disk that is not mounted looks like a directory without files, and a log that lacks its newest or
its oldest file like one that ends or begins elsewhere: recovery would cut the queues to it. So
`<storePathRootDir>/log.directories` names each directory that holds files, with the newest of them,
and a start where one of them is empty or missing ends. Only for a log in several directories, or
one that was. Run by process `store`; Java ignores the file.

    {"directories": {"/disk1/log": "00000000002147483648", …}}
"""

from __future__ import annotations

import json
import logging
import threading
from pathlib import Path
from typing import Final

from conf.atomic_file import replace_file
from store.dledger.unfinished_import import QUEUES_NAME, REPORT_NAME
from store.errors import StoreError
from store.log_directories import LogDirectories
from store.mapped_file import find_start_offset, sync_directory
from store.mapped_file_queue import list_store_files

log = logging.getLogger(__name__)

_NAME: Final = "log.directories"


class KnownDirectories:
    """Owned by: `_lock`, held for a whole change of the file. Any thread.

    What cannot be written is logged: it is protection against a second fault.
    """

    def __init__(self, root: Path, directories: LogDirectories) -> None:
        """root: storePathRootDir."""
        self._path: Final = root / _NAME
        self._usual: Final = root / "commitlog"
        self._directories: Final = directories
        self._is_needed: Final = len(list(directories)) > 1
        self._lock: Final = threading.Lock()

    def check(self) -> None:
        """Before anything is made or read at a start. Raises StoreError: a directory that held
        files has none, and the newest of them is nowhere else, or an adopted store's log is not
        the one that is named; OSError."""
        self._check_adopted()
        named = {str(path.absolute()) for path in self._directories}
        there = {file.path.name for file in list_store_files(self._directories)}
        if self._is_needed and not self._path.exists():
            self._check_usual(there)
        for directory, newest in self._read().items():
            if newest in there or (directory in named and list_store_files(Path(directory))):
                continue
            way = (
                "mount its disk"
                if directory in named
                else "it is named neither in storePathCommitLog nor in "
                "readOnlyCommitLogStorePaths, name it in both until its files have expired"
            )
            raise StoreError(
                f"{directory}: it held files of the commit log, up to {newest}, that are not there "
                f"now; {way}. If they were deleted on purpose, remove {self._path}"
            )

    def _check_usual(self, there: set[str]) -> None:
        """The first start with several directories: the one that there was is among them."""
        if any(self._usual.absolute() == path.absolute() for path in self._directories):
            return
        if any(file.path.name not in there for file in list_store_files(self._usual)):
            raise StoreError(
                f"{self._usual}: it holds files of the commit log, but storePathCommitLog does not "
                "name it; name it there, too, or move its files away if they are of no use"
            )

    def _check_adopted(self) -> None:
        """The settings of the broker before often name its log, which is not the adopted one."""
        if not any((self._usual.parent / name).exists() for name in (REPORT_NAME, QUEUES_NAME)):
            return
        is_named = any(self._usual.resolve() == path.resolve() for path in self._directories)
        if not is_named and list_store_files(self._usual):
            raise StoreError(
                f"{self._usual}: the log of this adopted store is there, but storePathCommitLog "
                f"names {self._directories}; remove that line, or move the files away if they are "
                "of no use any more"
            )

    def remember(self) -> None:
        """What is there now; after recovery and after a new file."""
        with self._lock:
            self._write(self._newest())

    def before_removal(self, path: Path) -> None:
        """The file at `path` is about to be unlinked: if it is the last of its directory, nobody
        expects one there any more."""
        with self._lock:
            self._write(self._newest(without=path))

    def forget(self) -> None:
        """Whole directories are about to be emptied."""
        if self._path.exists():
            self._path.unlink(missing_ok=True)
            sync_directory(self._path.parent)

    def _newest(self, without: Path | None = None) -> dict[str, str]:
        found = {}
        for directory in self._directories:
            files = [file.path for file in list_store_files(directory) if file.path != without]
            if files:
                found[str(directory.absolute())] = files[-1].name
        return found

    def _read(self) -> dict[str, str]:
        try:
            found = json.loads(self._path.read_bytes())["directories"]
            rows = {Path(path): find_start_offset(name) for path, name in found.items()}
        except FileNotFoundError:
            return {}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            log.error("%s: not valid, ignored: %r", self._path, error)
            return {}
        return {str(path): found[str(path)] for path, start in rows.items() if start is not None}

    def _write(self, newest: dict[str, str]) -> None:
        if not self._is_needed and not self._path.exists():
            return
        try:
            if newest != self._read():
                replace_file(self._path, json.dumps({"directories": newest}, indent=1).encode())
        except OSError as error:
            log.warning("%s: cannot be written: %s", self._path, error)
