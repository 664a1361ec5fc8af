"""EmbeddedStore: the groups of a lone controller, in one file of its own.

The default (controllerStore=embedded): one controller, always leader, which one lock on its
directory ensures. Every change writes the whole file anew and is durable when `swap` returns; there
are few changes, at starts and elections. Used by one thread at a time.

    <controllerStorePath>/groups.json        the groups (controller/group_codec.py)
    <controllerStorePath>/groups.json.bak    the same before the last change; never read
    <controllerStorePath>/lock               held while a controller runs
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final

from conf.atomic_file import backup_path, make_directory, replace_file
from controller.events import Outcome, Stored, Swap, SwapEnded
from controller.group_codec import GroupsTextError, decode_groups, encode_groups
from controller.group_store import ControllerStoreError

FILE_NAME: Final = "groups.json"
FENCE: Final = 1
"""There is one leader, for ever."""
_NOBODY: Final = Stored(0, None)


class EmbeddedStore:
    """See the module."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._path = directory / FILE_NAME
        self._groups: dict[str, Stored] = {}
        self._lock_fd = -1
        self._is_known = True
        """Whether `_groups` is what the file holds: a write that failed may have come through."""

    def open(self) -> dict[str, Stored]:
        """Take the lock and read the groups. Raises ControllerStoreError."""
        self._take_lock()
        try:
            self._groups = self._read()
        except BaseException:
            self.close()
            raise
        return dict(self._groups)

    def close(self) -> None:
        """Give the lock back. Idempotent."""
        fd, self._lock_fd = self._lock_fd, -1
        if fd >= 0:
            os.close(fd)

    def swap(self, swap: Swap) -> SwapEnded:
        """Write one group. Raises OSError: whether it is written is not known."""
        self._know()
        stored = self._groups.get(swap.broker_name, _NOBODY)
        if stored.version != swap.version:
            return SwapEnded(swap.broker_name, swap.number, Outcome.CONFLICT)
        written = Stored(swap.version + 1, swap.group)
        groups = {**self._groups, swap.broker_name: written}
        self._is_known = False
        replace_file(self._path, encode_groups(groups), backup=True)
        self._groups, self._is_known = groups, True
        return SwapEnded(swap.broker_name, swap.number, Outcome.DONE, written.version)

    def load(self, broker_name: str) -> Stored:
        """One group as it is stored. Raises OSError, ControllerStoreError."""
        self._know()
        return self._groups.get(broker_name, _NOBODY)

    def _know(self) -> None:
        """After a write that failed, the file says whether it came through. If it is gone, the
        groups as they were before count: nobody was told of more, and who else would write it?"""
        if not self._is_known:
            if self._path.exists():
                self._groups = self._read()
            self._is_known = True

    def _take_lock(self) -> None:
        path = self._directory / "lock"
        try:
            make_directory(self._directory)
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise ControllerStoreError(
                f"{path}: cannot be opened: {error.strerror}; set controllerStorePath to a "
                "directory that this user may write"
            ) from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            raise ControllerStoreError(
                f"{path}: another controller uses this directory ({error.strerror}); stop it "
                "(bin/mqshutdown controller), or set another controllerStorePath"
            ) from error
        self._lock_fd = fd

    def _read(self) -> dict[str, Stored]:
        """Nothing at all is a first start; anything else that cannot be read is not taken for
        that."""
        path, copy = self._path, backup_path(self._path)
        way_out = (
            f"a controller that forgot its groups would have a second master elected. {copy.name} "
            "beside it is older by one change: copy it over this file only if no broker has "
            "changed its role since; or remove both and have each group elect anew, with all its "
            "brokers stopped and the one with the longest log started first"
        )
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            if copy.exists():
                raise ControllerStoreError(
                    f"{path} is missing and {copy.name} is there: {way_out}"
                ) from None
            return {}
        except OSError as error:
            raise ControllerStoreError(f"{path}: cannot be read: {error.strerror}") from error
        try:
            return decode_groups(data)
        except GroupsTextError as error:
            raise ControllerStoreError(f"{path}: {error}; {way_out}") from error
