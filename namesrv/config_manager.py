"""ConfigManager: shows and changes the name server's settings while it runs (319, 318).

The original let a peer set any field, paths included, and was broken into that way
(CVE-2023-37582). Here a key can be changed only when it stands in `CHANGEABLE_KEYS`: nothing there
is a path, an address, a port, a home or anything that is ever executed. A change is checked whole
before any of it happens, saved to the settings file (its other lines and comments stay as they
are), then applied, and logged with who asked, the old and the new value. One lock; any thread.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from conf.atomic_file import write_atomic
from conf.config_loader import describe, update
from conf.errors import ConfigError
from conf.properties import ENCODING, dump_properties, parse_properties
from conf.setting import Setting
from conf.settings_file import YAML_SUFFIXES
from namesrv.namesrv_config import NamesrvConfig
from namesrv.settings_edit import edit_properties, edit_yaml
from remoting.errors import RequestError
from remoting.response_code import ResponseCode

log = logging.getLogger(__name__)

CHANGEABLE_KEYS: Final = frozenset({"orderMessageEnable", "scanNotActiveBrokerInterval"})
"""What request 318 may change: each of them is read anew whenever it matters."""

_MAX_KEYS: Final = 64
_MAX_VALUE: Final = 1024


class ConfigManager:
    """The settings in force, and their file.

    `others` are settings objects of the same process that are shown but never changed here.
    """

    def __init__(self, config: NamesrvConfig, *others: object) -> None:
        self._config = config
        self._others = others
        self._lock = threading.Lock()

    @property
    def config(self) -> NamesrvConfig:
        """The settings in force; a frozen value that a change replaces."""
        return self._config

    def format_all(self) -> str:
        """Every setting, one `key=value` a line, as java.util.Properties reads it."""
        return dump_properties(describe(self._config, *self._others))

    def update(self, text: str, who: str) -> None:
        """Take the changes of a properties text that `who` sent.

        Raises RequestError: NO_PERMISSION names a key that must not be changed, SYSTEM_ERROR a
        value that cannot be taken or a file that cannot be written; nothing changes then.
        """
        try:
            settings = parse_properties(text, "request 318")
        except ConfigError as error:
            raise RequestError(ResponseCode.SYSTEM_ERROR, f"no properties text: {error}") from error
        changes = {setting.key: setting.text for setting in settings}
        with self._lock:
            self._refuse_protected(changes, who)
            self._take(changes, settings, who)

    def _refuse_protected(self, changes: Iterable[str], who: str) -> None:
        denied = self._config.config_black_list.split(";")
        for key in changes:
            if key not in CHANGEABLE_KEYS or key in denied:
                log.warning("settings: %s tried to change %.80r, refused", who, key)
                raise RequestError(
                    ResponseCode.NO_PERMISSION,
                    f"Can not update config {key!r:.80}: it can only be changed in the settings"
                    f" file before a start. Changeable: {', '.join(sorted(CHANGEABLE_KEYS))}",
                )

    def _take(self, changes: Mapping[str, str], settings: list[Setting], who: str) -> None:
        if len(settings) > _MAX_KEYS or any(len(value) > _MAX_VALUE for value in changes.values()):
            raise RequestError(ResponseCode.SYSTEM_ERROR, "too many or too long settings")
        try:
            config = update(self._config, changes, f"request 318 from {who}")
        except ConfigError as error:
            raise RequestError(ResponseCode.SYSTEM_ERROR, str(error)) from error
        if changes:
            self._save(changes)
        old = describe(self._config)
        self._config = config
        for key, value in changes.items():
            log.warning("settings: %s changed %s from %r to %r", who, key, old[key], value)

    def _save(self, changes: Mapping[str, str]) -> None:
        path = Path(self._config.config_store_path)
        try:
            _save(path, changes)
        except (OSError, ConfigError) as error:
            log.error("settings: cannot save to %s: %s", path, error)
            reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
            remark = f"nothing changed: the settings file cannot be written: {reason}"
            raise RequestError(ResponseCode.SYSTEM_ERROR, remark) from error


def _save(path: Path, changes: Mapping[str, str]) -> None:
    """Write `changes` into the settings file; what it held before stays in `<path>.bak`.

    Raises OSError, ConfigError.
    """
    is_yaml = path.suffix in YAML_SUFFIXES
    encoding = "utf-8" if is_yaml else ENCODING
    try:
        text = path.read_bytes().decode(encoding)
    except FileNotFoundError:
        text = ""
    except UnicodeDecodeError as error:
        raise ConfigError([f"{path}: not {encoding} text"]) from error
    edited = (edit_yaml if is_yaml else edit_properties)(text, changes)
    write_atomic(path, edited.encode(encoding), backup=True)
