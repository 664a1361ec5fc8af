"""ConfigManager: shows and changes the name server's settings at run time (319, 318).

RocketMQ let a peer set any field, paths included, which was exploited (CVE-2023-37582). Here only
the keys in `CHANGEABLE_KEYS` can be changed: none is a path, an address, a port, a home directory
or anything that is ever executed. A request is validated completely before anything changes, then
saved to the settings file (whose other lines and comments are preserved), applied, and logged with
the requester, the old and the new value. One lock; any thread.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from conf.config_fields import Applies, field_specs
from conf.config_loader import describe, update
from conf.errors import ConfigError
from conf.properties import dump_properties
from conf.settings_change import (
    AppliedChanges,
    ProtectedSettingError,
    SettingsChanges,
    save_or_explain,
)
from namesrv.namesrv_config import NamesrvConfig
from remoting.errors import RequestError
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode

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
        self._changes = SettingsChanges(
            "namesrv", why_protected=self._why_protected, apply=self._apply
        )

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
        try:
            return self._changes.request(RequestCode.UPDATE_NAMESRV_CONFIG, text, who)
        except ProtectedSettingError as error:
            raise RequestError(
                ResponseCode.NO_PERMISSION,
                f"Can not update config {error.key!r:.80}: {error.reason}."
                f" Changeable: {', '.join(sorted(CHANGEABLE_KEYS))}",
            ) from error
        except ConfigError as error:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"nothing changed: {error}") from error

    def _why_protected(self, key: str, _text: str) -> str:
        if key in CHANGEABLE_KEYS and key not in self._config.config_black_list.split(";"):
            return ""
        return "it can only be changed in the settings file before a start"

    def _apply(self, changes: Mapping[str, str], source: str) -> AppliedChanges:
        config = update(self._config, changes, source)
        path = Path(self._config.config_store_path)
        old, new = describe(self._config), describe(config)
        save_or_explain(path, {key: new[key] for key in changes})
        self._config = config
        keys = {key: (old[key], new[key], "now") for key in changes}
        return AppliedChanges(keys, f"applied now: {', '.join(changes)}; saved to {path}")
