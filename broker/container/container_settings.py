"""ContainerSettings: the container's settings in force (26), and changing them (25).

A request is checked as a whole before anything changes, then saved to the -c file, whose other
lines are kept, then it applies; each key gets an audit line. RocketMQ lets a peer set any field but
those of the black list. One lock; any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from broker.container.container_config import BrokerContainerConfig
from broker.container.container_startup import ContainerOptions
from conf.config_fields import Applies, field_specs
from conf.config_loader import update
from conf.errors import ConfigError
from conf.settings_change import (
    AppliedChanges,
    ProtectedSettingError,
    SettingsChanges,
    save_or_explain,
)
from remoting.body.data_version import DataVersion
from remoting.errors import RequestError
from remoting.request_code import RequestCode
from remoting.response_code import ResponseCode

CHANGEABLE: Final = frozenset(
    spec.key for spec in field_specs(BrokerContainerConfig) if spec.changeable is Applies.NOW
)
_BLACK_LIST: Final = ("brokerConfigPaths", "rocketmqHome", "configBlackList")


class ContainerSettings:
    """The settings in force; the only writer of the container's settings file."""

    def __init__(self, options: ContainerOptions, now_ms: Callable[[], int]) -> None:
        """now_ms: wall clock."""
        self._options = options
        self._now_ms = now_ms
        self._changes = SettingsChanges(
            "container", why_protected=self._why_protected, apply=self._apply
        )
        self._version = DataVersion(timestamp=now_ms())

    @property
    def container(self) -> BrokerContainerConfig:
        """A frozen value, replaced by a change."""
        return self._options.container

    def all_configs(self) -> Mapping[str, str]:
        """Every key with its text, in alphabetical order as RocketMQ's container gives them."""
        return dict(sorted(self._options.settings().items()))

    def data_version(self) -> DataVersion:
        """Increases with each change."""
        return self._version

    def update(self, text: str, who: str) -> str:
        """Apply the changes of a properties text sent by `who`; returns what was done.

        Raises RequestError: NO_PERMISSION for a key that must not be changed, SYSTEM_ERROR for a
        bad value or a file that cannot be written. Nothing is changed then.
        """
        try:
            return self._changes.request(RequestCode.UPDATE_BROKER_CONFIG, text, who)
        except ProtectedSettingError as error:
            raise RequestError(ResponseCode.NO_PERMISSION, error.reason) from error
        except ConfigError as error:
            remark = f"{error}. Nothing is changed"
            raise RequestError(ResponseCode.SYSTEM_ERROR, remark) from error

    def _why_protected(self, key: str, _text: str) -> str:
        listed = {each.strip() for each in self.container.config_black_list.split(";")}
        if key in _BLACK_LIST or key in listed:
            return "Can not update config in black list."
        if key in CHANGEABLE:
            return ""
        return (
            f"Can not update config {key!r:.80}: it can only be changed in the settings "
            f"file before a start. Changeable: {', '.join(sorted(CHANGEABLE))}"
        )

    def _apply(self, changes: Mapping[str, str], source: str) -> AppliedChanges:
        container = update(self._options.container, changes, source)
        changed = replace(self._options, container=container)
        old, new = self._options.settings(), changed.settings()
        path = self._options.config_file
        if path is not None:
            save_or_explain(path, {key: new[key] for key in changes})
        self._options = changed
        self._version = self._version.next_version(self._now_ms())
        keys = {key: (old[key], new[key], "now") for key in changes}
        saved = "not saved, as there is no -c file" if path is None else f"saved to {path}"
        return AppliedChanges(keys, f"applied now: {', '.join(changes)}; {saved}")
