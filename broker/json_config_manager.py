"""JsonConfigManager: a table stored in config/<name>.json, loaded and saved as a whole.

Base of the topic, group, offset and delay-offset managers (Java: ConfigManager). The `remoting`
process is the only writer of these files. Rules: nothing is saved before a load has succeeded; a
corrupt file is never treated as an empty table (RocketMQ starts empty if the .bak is missing or
empty); saves go through conf.atomic_file. The files have fastjson's pretty format, so that a Java
broker can use the directory. Pool threads and the scheduled executor save, under one lock. Knows no
key of any table.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Final

from conf.atomic_file import write_atomic
from ipc.clock import Clock
from remoting.body.data_version import DataVersion
from remoting.remoting_serializable import (
    JsonError,
    dumps_java,
    dumps_java_pretty,
    loads_lenient,
)

log = logging.getLogger(__name__)

SECRET_MODE: Final = 0o600
"""Of a file that holds secrets."""


class ConfigFileError(Exception):
    """A config/*.json file is unusable; the message names the files and the fix."""


def parse_object(text: bytes) -> dict[str, Any]:
    """Parse the JSON object of a file or of another broker's response. Raises ValueError."""
    value = loads_lenient(text)
    if not isinstance(value, dict):
        raise ValueError("is not a JSON object")
    return value


Submit = Callable[[str, Callable[[], None]], object]
"""ScheduledExecutor.submit: run a named function soon, in another thread."""


class JsonConfigManager(ABC):
    """One table and its file. `_persist_lock` guards everything concerning the file."""

    FILE_MODE: ClassVar[int | None] = None
    """Permission bits of the file and its .bak; None: the process's default."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.backup_path = path.with_name(path.name + ".bak")
        self._persist_lock = threading.Lock()
        self.was_missing = False
        """Whether `load` found neither the file nor its .bak."""
        self._loaded = False
        self._main_is_good = False
        self._version = 0
        self._saved_version = 0
        self._submit: Submit | None = None

    @abstractmethod
    def decode(self, value: dict[str, Any]) -> None:
        """Replace the table by the parsed file. Raises ValueError, which leaves the table
        unchanged."""

    @abstractmethod
    def snapshot(self) -> dict[str, Any]:
        """The table as a JSON value in Java's format, safe to iterate during changes."""

    def file_snapshot(self) -> dict[str, Any]:
        """What the file holds."""
        return self.snapshot()

    def encode(self) -> bytes:
        """The compact JSON text, as in the bodies of 21, 43, 45 and 201."""
        return dumps_java(self.snapshot())

    # -- load -----------------------------------------------------------------------------------

    def load(self) -> None:
        """Read the file, else its .bak. If neither exists (first start), the table stays unchanged.

        Raises ConfigFileError if a file exists but none is valid, or if one cannot be read.
        """
        problems: list[str] = []
        if self._try_load(self.path, problems):
            self._main_is_good = True
        elif self._try_load(self.backup_path, problems):
            log.warning(
                "%s: loaded from %s instead; changes after that copy are lost%s",
                self.path,
                self.backup_path,
                "".join(f"; {problem}" for problem in problems),
            )
        elif problems:
            raise ConfigFileError(self._refusal(problems))
        else:
            self.was_missing = True
            log.info("%s: does not exist yet, starting with the built-in entries", self.path)
        self._loaded = True

    def _try_load(self, path: Path, problems: list[str]) -> bool:
        try:
            text = path.read_bytes()
        except FileNotFoundError:
            return False
        except OSError as error:
            # Not the .bak instead: the newest table is here and intact, for all that is known.
            raise ConfigFileError(
                f"cannot read {path}: {error.strerror}. It must be a file that the broker's user "
                f"may read and write; mend that, or restore it from a copy"
            ) from error
        try:
            if not text.strip(b" \t\r\n\0"):
                raise ValueError(f"contains only blank or zero bytes ({len(text)})")
            self.decode(parse_object(text))
        except JsonError as error:
            problems.append(f"{path}: {error}{_place(text, error.position)}")
            return False
        except ValueError as error:
            problems.append(f"{path}: {error}")
            return False
        return True

    def _refusal(self, problems: list[str]) -> str:
        leftover = self.path.with_name(self.path.name + ".tmp")
        hint = f" ({leftover} exists and may hold the newest text)" if leftover.exists() else ""
        return (
            f"cannot load {self.path} nor {self.backup_path}: {'; '.join(problems)}. "
            f"Starting with an empty table would lose it for good. Restore one of the two files "
            f"from a copy, a slave or a dump of mqadmin{hint}; or, to really start empty, move "
            f"both away."
        )

    # -- save -----------------------------------------------------------------------------------

    def save_in_background(self, submit: Submit) -> None:
        """From now on `save_soon` uses `submit`, since the loop's thread must not block."""
        self._submit = submit

    def mark_changed(self) -> None:
        """Record that the table differs from the file. Any thread."""
        self._version += 1

    @property
    def changes(self) -> int:
        """How often the table was marked changed since the start."""
        return self._version

    def persist(self) -> None:
        """Write the table to the file and the previous text to .bak. Raises OSError."""
        with self._persist_lock:
            self._write()

    def save_if_changed(self) -> bool:
        """Save if the table was marked changed since the last save; True if it is saved now.

        A failure is logged and retried by the next call; the table in memory stays in use.
        """
        with self._persist_lock:
            if self._version == self._saved_version:
                return True
            try:
                self._write()
            except OSError as error:
                log.error("%s: save failed, will retry: %s", self.path, error)
                return False
        return True

    def save_soon(self) -> None:
        """Mark changed and save, in the background if available, else synchronously."""
        self.mark_changed()
        if self._submit is None:
            self.save_if_changed()
        else:
            self._submit(f"save {self.path.name}", self._save_task)

    def _save_task(self) -> None:
        self.save_if_changed()

    def _write(self) -> None:
        if not self._loaded:
            raise ConfigFileError(f"{self.path}: not saved, because it was never loaded")
        version = self._version
        data = dumps_java_pretty(self.file_snapshot())
        # A main file that could not be read must not replace the .bak that was loaded instead.
        write_atomic(self.path, data, backup=self._main_is_good, mode=self.FILE_MODE)
        self._main_is_good = True
        self._saved_version = version


class VersionedConfigManager(JsonConfigManager):
    """A table with a DataVersion: name servers and slaves take a table whose version is another one
    than theirs. Base of the tables of topics, static topics and groups; changed under `_lock`."""

    def __init__(self, path: Path, clock: Clock, state_version: int | None = None) -> None:
        """state_version: the epoch of a table that was never changed; None: its file has none."""
        super().__init__(path)
        self._clock = clock
        self._lock = threading.Lock()
        self._data_version = DataVersion(timestamp=clock.now_ms(), state_version=state_version)

    @property
    def data_version(self) -> DataVersion:
        """The data version of the table."""
        return self._data_version

    def bump_data_version(self, state_version: int | None = None) -> None:
        """Raise the data version though the table is the same, since what is told along with it
        changed: brokerPermission, or the epoch in which this broker leads (state_version)."""
        with self._lock:
            self._next_version(state_version)
        self.save_soon()

    def _next_version(self, state_version: int | None = None) -> None:
        self._data_version = self._data_version.next_version(self._clock.now_ms(), state_version)


def _place(text: bytes, position: int | None) -> str:
    """ " (line 3, column 14)" of a character, counting from 1; damaged bytes count as one each."""
    if position is None:
        return ""
    before = text.decode(errors="replace")[:position]
    line = before.count("\n") + 1
    return f" (line {line}, column {len(before) - before.rfind(chr(10))})"
