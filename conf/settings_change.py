"""Changing settings by request: what name server (318), broker and container (25) share.

A request is read within limits and judged as a whole before anything changes; then its program
saves and applies it. Every attempt is written to the audit log: requester, key, old and new value,
or the reason for a refusal. Any thread; knows no key.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from conf.errors import ConfigError
from conf.properties import parse_properties
from conf.settings_edit import save_changes

log = logging.getLogger(__name__)

_MAX_KEYS: Final = 64
_MAX_LINES: Final = 4096
"""Comments and continued lines included: every line costs some microseconds and 80 bytes."""
_MAX_VALUE: Final = 1024


class ProtectedSettingError(Exception):
    """A key that a request must not change, and why."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(f"{key}: {reason}")
        self.key = key
        self.reason = reason


@dataclass(frozen=True, slots=True)
class AppliedChanges:
    """What was done: the old and the new text of each key and when the new one takes effect ("now",
    "after a restart"), and all in words for the requester."""

    keys: Mapping[str, tuple[str, str, str]]
    words: str


class SettingsChanges:
    """The requests that change a program's settings, one after the other. Owned by: its lock."""

    def __init__(
        self,
        program: str,
        *,
        why_protected: Callable[[str, str], str],
        apply: Callable[[Mapping[str, str], str], AppliedChanges],
    ) -> None:
        """why_protected: why this key must not get this value; empty if it may. apply: gets key to
        text, and who asks; raises ConfigError and has changed nothing then."""
        self._why_protected = why_protected
        self._apply = apply
        self._audit = AuditLog(program)
        self._lock = threading.Lock()

    def request(self, code: int, text: str, who: str) -> str:
        """Do what a properties text sent by `who` asks for; returns that in words.

        Raises ProtectedSettingError, or ConfigError if the text, a value or the settings file is
        the reason why nothing is changed.
        """
        source = f"request {code} from {who}"
        try:
            changes = read_changes(text, source)
            if not changes:
                return "nothing to change"
            with self._lock:
                self._refuse_protected(changes)
                applied = self._apply(changes, source)
                for key, (old, new, when) in applied.keys.items():
                    self._audit.changed(who, key, old, new, when)
        except ProtectedSettingError as error:
            self._audit.refused(who, error.key, error.reason)
            raise
        except ConfigError as error:
            self._audit.failed(who, str(error))
            raise
        return applied.words

    def _refuse_protected(self, changes: Mapping[str, str]) -> None:
        for key, text in changes.items():
            reason = self._why_protected(key, text)
            if reason:
                raise ProtectedSettingError(key, reason)


_SAVING: Final = threading.Lock()


def save_or_explain(path: Path, changes: Mapping[str, str]) -> None:
    """`save_changes`. Raises ConfigError, also for what the disk refuses; the file is unchanged.
    Two programs of one process may have one file: one after the other."""
    try:
        with _SAVING:
            save_changes(path, changes)
    except (OSError, ConfigError) as error:
        log.error("settings: cannot save to %s: %s", path, error)
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        words = f"{path}: the settings file cannot be written: {reason}"
        raise ConfigError([words]) from error


def read_changes(text: str, source: str) -> dict[str, str]:
    """The key-value pairs of a properties text; `source` names the requester.

    Raises ConfigError: not properties text, too many lines or keys, too long a value, a control
    character (once escapes and continued lines are read): none has one, and a file must not get
    one.
    """
    lines = text.count("\n") + text.count("\r")
    if lines > _MAX_LINES:
        raise ConfigError([f"{source}: {lines} lines, the limit is {_MAX_LINES}; split it"])
    try:
        settings = parse_properties(text, source)
    except ConfigError as error:
        raise ConfigError([f"not properties text: {error}"]) from error
    if len(settings) > _MAX_KEYS:
        count = f"{len(settings)} settings in one request"
        raise ConfigError([f"{source}: {count}, the limit is {_MAX_KEYS}; split it"])
    for setting in settings:
        if not (setting.key + setting.text).isprintable():
            raise ConfigError(
                [f"{source}: {setting.key!r:.80} or its value has a control character; remove it"]
            )
        if len(setting.text) > _MAX_VALUE:
            raise ConfigError(
                [
                    f"{source}: the value of {setting.key!r:.80} has {len(setting.text)}"
                    f" characters, the limit is {_MAX_VALUE}"
                ]
            )
    return {setting.key: setting.text for setting in settings}


class AuditLog:
    """The audit log of one program: logger `<program>.audit`, in the process's log file."""

    def __init__(self, program: str) -> None:
        self._log = logging.getLogger(f"{program}.audit")

    def changed(self, who: str, key: str, old: str, new: str, when: str) -> None:
        """`who` set `key`; `when` the new value takes effect: "now", "after a restart"."""
        self._log.warning("%s changed %s from %r to %r, applies %s", who, key, old, new, when)

    def refused(self, who: str, key: str, reason: str) -> None:
        """`who` tried to set `key`, which is not allowed."""
        self._log.warning("%s tried to change %.80r, refused: %s", who, key, reason)

    def failed(self, who: str, reason: str) -> None:
        """`who` sent something that cannot be read, or a value that cannot be used."""
        self._log.warning("%s tried to change settings, refused: %.500s", who, reason)
