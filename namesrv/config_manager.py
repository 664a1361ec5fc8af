"""ConfigManager: shows and changes the name server's settings at run time (319, 318).

RocketMQ let a peer set any field, paths included, which was exploited (CVE-2023-37582). Here only
the keys in `CHANGEABLE_KEYS` can be changed: none is a path, an address, a port, a home directory
or anything that is ever executed. A request is validated completely before anything changes, then
saved to the settings file (whose other lines and comments are preserved), applied, and logged with
the requester, the old and the new value. One lock; any thread.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from conf.config_fields import Applies, field_specs
from conf.config_loader import describe, update
from conf.errors import ConfigError
from conf.properties import dump_properties
from conf.settings_change import AuditLog, read_changes
from conf.settings_edit import save_changes
from namesrv.namesrv_config import NamesrvConfig
from remoting.errors import RequestError
from remoting.response_code import ResponseCode

log = logging.getLogger(__name__)

CHANGEABLE_KEYS: Final = frozenset(
    spec.key for spec in field_specs(NamesrvConfig) if spec.changeable is Applies.NOW
)
"""What request 318 may change: each of these is read whenever it is used, so that a change takes
effect at once. All others can only be set in the settings file."""


class ConfigManager:
    """The settings in force and their file.

    `others` are settings objects of this process that are shown but never changed here.
    """

    def __init__(self, config: NamesrvConfig, *others: object) -> None:
        self._config = config
        self._others = others
        self._lock = threading.Lock()
        self._audit = AuditLog("namesrv")

    @property
    def config(self) -> NamesrvConfig:
        """The settings in force; a frozen value, replaced by a change."""
        return self._config

    def format_all(self) -> str:
        """All settings, one `key=value` per line, in the syntax of java.util.Properties."""
        return dump_properties(describe(self._config, *self._others))

    def update(self, text: str, who: str) -> str:
        """Apply the changes of a properties text sent by `who`; returns what was done.

        Raises RequestError: NO_PERMISSION for a key that must not be changed, SYSTEM_ERROR for an
        invalid value or a file that cannot be written; nothing is changed then.
        """
        source = f"request 318 from {who}"
        try:
            changes = read_changes(text, source)
        except ConfigError as error:
            self._audit.failed(who, str(error))
            raise RequestError(ResponseCode.SYSTEM_ERROR, str(error)) from error
        if not changes:
            return "nothing to change"
        with self._lock:
            self._refuse_protected(changes, who)
            try:
                return self._apply(changes, source, who)
            except RequestError as error:
                self._audit.failed(who, error.remark)
                raise

    def _refuse_protected(self, changes: Iterable[str], who: str) -> None:
        denied = self._config.config_black_list.split(";")
        for key in changes:
            if key not in CHANGEABLE_KEYS or key in denied:
                reason = "it can only be changed in the settings file before a start"
                self._audit.refused(who, key, reason)
                raise RequestError(
                    ResponseCode.NO_PERMISSION,
                    f"Can not update config {key!r:.80}: {reason}."
                    f" Changeable: {', '.join(sorted(CHANGEABLE_KEYS))}",
                )

    def _apply(self, changes: Mapping[str, str], source: str, who: str) -> str:
        try:
            config = update(self._config, changes, source)
        except ConfigError as error:
            raise RequestError(ResponseCode.SYSTEM_ERROR, str(error)) from error
        path = Path(self._config.config_store_path)
        old, new = describe(self._config), describe(config)
        self._save(path, {key: new[key] for key in changes})
        self._config = config
        for key in changes:
            self._audit.changed(who, key, old[key], new[key], "now")
        return f"applied now: {', '.join(changes)}; saved to {path}"

    def _save(self, path: Path, changes: Mapping[str, str]) -> None:
        try:
            save_changes(path, changes)
        except (OSError, ConfigError) as error:
            log.error("settings: cannot write %s: %s", path, error)
            reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
            remark = f"nothing changed: the settings file cannot be written: {reason}"
            raise RequestError(ResponseCode.SYSTEM_ERROR, remark) from error
