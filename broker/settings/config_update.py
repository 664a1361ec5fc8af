"""BrokerConfigUpdate: the current settings (26), and changing them while the broker runs (25).

Runs in the `admin` pool of process `remoting`; a lock serializes changes. A request is validated as
a whole before any of it is applied: one key that may not be changed, or one invalid value, rejects
the request. Then it is saved to the settings file (whose other lines and comments are kept), then
it applies, immediately or after a restart (broker/settings/changeable_keys.py), and each key gets
an audit line. RocketMQ lets a peer set any field. Does not know who reads which setting.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Final, Protocol

from broker.settings.changeable_keys import CHANGEABLE
from broker.settings.changed_settings import ChangedSettings
from broker.settings.startup_options import StartupOptions
from conf.config_fields import Applies
from conf.config_loader import update
from conf.errors import ConfigError
from conf.ignored_keys import IGNORED_BROKER_KEYS
from conf.settings_change import (
    AppliedChanges,
    ProtectedSettingError,
    SettingsChanges,
    save_or_explain,
)
from ipc.clock import Clock
from ipc.command_channel import CommandError
from remoting.body.data_version import DataVersion
from remoting.errors import RequestError
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode
from store.errors import StoreError

log = logging.getLogger(__name__)

_OWN_FILE: Final = "broker.properties"
"""Relative to the store's config directory, where RocketMQ writes when started without -c."""
_ROLE: Final = "brokerRole"


class SettingsUser(Protocol):
    """Passes the current settings to their readers."""

    def offer(self, options: StartupOptions, keys: Collection[str]) -> None:
        """Send the changed `keys` to the other processes that use them. Raises CommandError."""
        ...

    def use(self, options: StartupOptions, keys: Collection[str]) -> None:
        """Apply `options` in this process; `keys` are the changed ones."""
        ...


class BrokerConfigUpdate:
    """ConfigSource of this broker, and the only writer of its settings file."""

    def __init__(
        self,
        options: StartupOptions,
        clock: Clock,
        *,
        config_file: Path | None,
        user: SettingsUser,
        changed: ChangedSettings,
        shown: Callable[[StartupOptions], StartupOptions] = lambda options: options,
    ) -> None:
        """config_file: the -c file. shown: the settings as the role of now makes them. changed:
        stores every effective change, for processes that are restarted while the broker runs;
        `options` already includes its contents."""
        self._options = options
        self._clock = clock
        self._config_file = config_file
        self._user = user
        self._changed = changed
        self._shown = shown
        self._changes = SettingsChanges(
            "broker", why_protected=self._why_protected, apply=self._apply
        )
        self._pending: dict[str, str] = {}
        """Saved values that take effect after a restart."""
        self._version = DataVersion(timestamp=clock.now_ms())

    # -- ConfigSource ----------------------------------------------------------------------------

    def all_configs(self) -> Mapping[str, str]:
        """Every key with its current value, formatted as in a settings file."""
        return self._shown(self._options).settings()

    def data_version(self) -> DataVersion:
        """Increases with each change of a setting."""
        return self._version

    def update(self, text: str, who: str) -> str:
        """Apply the changes of a properties text sent by `who`; returns a summary of what applies
        when.

        Raises RequestError: NO_PERMISSION names a key that must not be changed and why,
        SYSTEM_ERROR an invalid value, a file that cannot be written, or a process that does not
        respond. Nothing is changed in these cases.
        """
        try:
            return self._changes.request(RequestCode.UPDATE_BROKER_CONFIG, text, who)
        except ProtectedSettingError as error:
            raise RequestError(
                ResponseCode.NO_PERMISSION,
                f"Can not update config {error.key!r:.80}: {error.reason}. Nothing is changed",
            ) from error
        except ConfigError as error:
            raise RequestError(ResponseCode.SYSTEM_ERROR, str(error)) from error

    # -- checks ----------------------------------------------------------------------------------

    def _why_protected(self, key: str, value: str) -> str:
        if key in (each.strip() for each in self._options.broker.config_black_list.split(";")):
            return "it is in configBlackList"
        if key in CHANGEABLE:
            slave = "SLAVE"
            if key == _ROLE and slave in (value, self._options.store.broker_role.name):
                return (
                    "switching between master and slave is only possible in the settings file "
                    "before a start; brokerId and the data must match"
                )
            return ""
        if key in IGNORED_BROKER_KEYS:
            return "it has no effect in this broker"
        if key in self._options.settings():
            return "it can only be changed in the settings file before a start"
        return "there is no such setting; getBrokerConfig lists all"

    def _with(
        self, options: StartupOptions, changes: Mapping[str, str], source: str
    ) -> StartupOptions:
        """A copy with these values. Raises ConfigError for an invalid one."""
        try:
            changed = dataclasses.replace(
                options,
                broker=update(options.broker, changes, source),
                store=update(options.store, changes, source),
            )
            changed.store.validate()
        except (ConfigError, StoreError) as error:
            raise ConfigError([f"{error}. Nothing is changed"]) from error
        return changed

    # -- the change ------------------------------------------------------------------------------

    def _apply(self, changes: Mapping[str, str], source: str) -> AppliedChanges:
        now = {key: text for key, text in changes.items() if CHANGEABLE[key] is Applies.NOW}
        later = {key: text for key, text in changes.items() if key not in now}
        old = self._with(self._options, self._pending, source).settings()
        in_force = self._with(self._options, now, source)
        pending = {**self._pending, **later}
        new = self._with(in_force, pending, source).settings()
        path = self._config_file or self._options.store.config_path / _OWN_FILE
        self._offer(in_force, now)
        self._save(path, {key: new[key] for key in changes}, now)
        self._pending = pending
        self._put_in_force(in_force, {key: new[key] for key in now})
        keys = {key: (old[key], new[key], CHANGEABLE[key].value) for key in changes}
        return AppliedChanges(keys, _remark(now, later, self._saved_words(path)))

    def _offer(self, options: StartupOptions, keys: Collection[str]) -> None:
        try:
            self._user.offer(options, keys)
        except CommandError as error:
            raise ConfigError([f"{error}. Nothing is changed; try again"]) from error

    def _save(self, path: Path, values: Mapping[str, str], offered: Collection[str]) -> None:
        """Write the file; if that fails, roll back the changes in other processes."""
        try:
            save_or_explain(path, values)
        except ConfigError as error:
            raise ConfigError([f"{error}. {self._take_back(offered)}"]) from error

    def _take_back(self, offered: Collection[str]) -> str:
        """Send the current values again; returns the outcome as text."""
        try:
            self._user.offer(self._options, offered)
        except CommandError as error:
            log.error("settings: rollback in process store failed: %s", error)
            return f"Nothing is saved, but the new values may be in effect until a restart: {error}"
        return "Nothing is changed"

    def _put_in_force(self, options: StartupOptions, values: Mapping[str, str]) -> None:
        self._changed.write({**self._changed.read(), **values})
        self._options = options
        self._version = self._version.next_version(self._clock.now_ms())
        self._user.use(options, values.keys())

    def _saved_words(self, path: Path) -> str:
        if self._config_file is not None:
            return f"saved to {path}"
        return f"saved to {path}, which is used only when starting with -c {path}"


def _remark(now: Collection[str], later: Collection[str], saved: str) -> str:
    """Text for the operator: "applied now: a, b; applies after a restart: c; saved to FILE"."""
    parts = []
    if now:
        parts.append(f"applied now: {', '.join(now)}")
    if later:
        parts.append(f"applies after a restart: {', '.join(later)}")
    return "; ".join((*parts, saved))
