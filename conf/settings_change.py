"""Changing settings by request: what the name server (318) and the broker (25) share.

The request's text is parsed within limits, and every attempt is written to the audit log:
requester, key, old and new value, or the reason for a refusal. No state, any thread; knows no key.
"""

from __future__ import annotations

import logging
from typing import Final

from conf.errors import ConfigError
from conf.properties import parse_properties

_MAX_KEYS: Final = 64
_MAX_VALUE: Final = 1024


def read_changes(text: str, source: str) -> dict[str, str]:
    """The key-value pairs of a properties text; `source` names the requester.

    Raises ConfigError: not properties text, too many keys, too long a value, a control character
    (once escapes and continued lines are read): none has one, and a file must not get one.
    """
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
