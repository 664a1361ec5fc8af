"""ContainerSettings: the container's settings in force (26), and changing them (25).

A request is checked as a whole before anything changes, then saved to the -c file, whose other
lines are kept, then it applies; each key gets an audit line. RocketMQ lets a peer set any field but
those of the black list. One lock; any thread.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from broker.container.container_config import BrokerContainerConfig
from broker.container.container_startup import ContainerOptions
from conf.config_fields import Applies, field_specs
from conf.config_loader import update
from conf.errors import ConfigError
from conf.settings_change import AuditLog, read_changes
from conf.settings_edit import save_changes
from remoting.body.data_version import DataVersion
from remoting.errors import RequestError
from remoting.response_code import ResponseCode

log = logging.getLogger(__name__)

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
        self._lock = threading.Lock()
        self._audit = AuditLog("container")
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
        source = f"request 25 from {who}"
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
            except (ConfigError, OSError) as error:
                self._audit.failed(who, str(error))
                remark = f"{error}. Nothing is changed"
                raise RequestError(ResponseCode.SYSTEM_ERROR, remark) from error

    def _refuse_protected(self, changes: Mapping[str, str], who: str) -> None:
        black_list = {*_BLACK_LIST, *self.container.config_black_list.split(";")}
        for key in changes:
            if key not in black_list and key in CHANGEABLE:
                continue
            remark = "Can not update config in black list."
            if key not in black_list:
                remark = (
                    f"Can not update config {key!r:.80}: it can only be changed in the settings "
                    f"file before a start. Changeable: {', '.join(sorted(CHANGEABLE))}"
                )
            self._audit.refused(who, key, remark)
            raise RequestError(ResponseCode.NO_PERMISSION, remark)

    def _apply(self, changes: Mapping[str, str], source: str, who: str) -> str:
        container = update(self._options.container, changes, source)
        changed = replace(self._options, container=container)
        old, new = self._options.settings(), changed.settings()
        path = self._options.config_file
        if path is not None:
            save_changes(path, {key: new[key] for key in changes})
        self._options = changed
        self._version = self._version.next_version(self._now_ms())
        for key in changes:
            self._audit.changed(who, key, old[key], new[key], "now")
        saved = "not saved, as there is no -c file" if path is None else f"saved to {path}"
        return f"applied now: {', '.join(changes)}; {saved}"
