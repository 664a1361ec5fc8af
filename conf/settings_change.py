"""What the name server (318) and the broker (25) share when a request changes settings.

The request's text is read within limits, and every attempt leaves a line for an audit: who asked,
which key, the old and the new value, or why not. No state, any thread; knows no key.
"""

from __future__ import annotations

import logging
from typing import Final

from conf.errors import ConfigError
from conf.properties import parse_properties

_MAX_KEYS: Final = 64
_MAX_VALUE: Final = 1024


def read_changes(text: str, source: str) -> dict[str, str]:
    """The wanted value of each key of a properties text; `source` names who sent it.

    Raises ConfigError: no properties text, or more than anybody means.
    """
    try:
        settings = parse_properties(text, source)
    except ConfigError as error:
        raise ConfigError([f"no properties text: {error}"]) from error
    if len(settings) > _MAX_KEYS:
        raise ConfigError([f"{source}: {len(settings)} settings at once, the limit is {_MAX_KEYS}"])
    for setting in settings:
        if len(setting.text) > _MAX_VALUE:
            raise ConfigError(
                [
                    f"{source}: the value of {setting.key!r:.80} has {len(setting.text)}"
                    f" characters, the limit is {_MAX_VALUE}"
                ]
            )
    return {setting.key: setting.text for setting in settings}


class AuditLog:
    """The audit lines of one program: logger `<program>.audit`, in the process's log file."""

    def __init__(self, program: str) -> None:
        self._log = logging.getLogger(f"{program}.audit")

    def changed(self, who: str, key: str, old: str, new: str, when: str) -> None:
        """`who` set `key`; `when` the new value counts: "now", "after a restart"."""
        self._log.warning("%s changed %s from %r to %r, applies %s", who, key, old, new, when)

    def refused(self, who: str, key: str, reason: str) -> None:
        """`who` wanted to set `key` and must not."""
        self._log.warning("%s tried to change %.80r, refused: %s", who, key, reason)
