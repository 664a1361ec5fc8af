"""ChangeableSettings: the settings of a program that a request may change while it runs.

RocketMQ let a peer set any field, paths included, which was exploited (CVE-2023-37582). Here only
the keys that the settings class declares as changeable NOW can be changed: none is a path, an
address, a port, a home directory or anything that is ever executed. A request is validated
completely before anything changes, then saved to the settings file (whose other lines and comments
are preserved), applied, and logged with the requester, the old and the new value. One lock; any
thread. Knows no program: name server (318) and controller (1009) use it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Generic, NamedTuple, Protocol, TypeVar

from conf.config_fields import Applies, field_specs
from conf.config_loader import describe, update
from conf.properties import dump_properties
from conf.settings_change import AppliedChanges, SettingsChanges, save_or_explain


class StoredConfig(Protocol):
    """A settings class that knows its file and what must not be changed."""

    @property
    def config_store_path(self) -> str:
        """The file that changes are saved to."""

    @property
    def config_black_list(self) -> str:
        """Keys that no request may change, separated by ';'."""


ConfigT = TypeVar("ConfigT", bound=StoredConfig)


class Program(NamedTuple):
    """Whose settings they are."""

    name: str
    """In the audit log."""
    request_code: int
    """Of the request that changes them."""


class ChangeableSettings(Generic[ConfigT]):
    """The settings in force and their file.

    `others` are settings objects of this process that are shown but never changed here.
    """

    def __init__(
        self,
        program: Program,
        config: ConfigT,
        *others: object,
        on_change: Callable[[ConfigT], None] = lambda _config: None,
    ) -> None:
        """on_change: is given the settings that are in force from now on; any thread."""
        self._config = config
        self._others = others
        self._code = program.request_code
        self._on_change = on_change
        self.keys = changeable_keys(type(config))
        """What a request may change: each is read whenever it is used, so that a change takes
        effect at once. All others can only be set in the settings file."""
        self._changes = SettingsChanges(
            program.name, why_protected=self._why_protected, apply=self._apply
        )

    @property
    def config(self) -> ConfigT:
        """The settings in force; a frozen value, replaced by a change."""
        return self._config

    def format_all(self) -> str:
        """All settings, one `key=value` per line, in the syntax of java.util.Properties."""
        return dump_properties(describe(self._config, *self._others))

    def update(self, text: str, who: str) -> str:
        """Apply the changes of a properties text sent by `who`; returns what was done.

        Raises ProtectedSettingError for a key that must not be changed, ConfigError for an invalid
        value or a file that cannot be written; nothing is changed then.
        """
        return self._changes.request(self._code, text, who)

    def _why_protected(self, key: str, _text: str) -> str:
        listed = {each.strip() for each in self._config.config_black_list.split(";")}
        if key in self.keys and key not in listed:
            return ""
        return "it can only be changed in the settings file before a start"

    def _apply(self, changes: Mapping[str, str], source: str) -> AppliedChanges:
        config = update(self._config, changes, source)
        path = Path(self._config.config_store_path)
        old, new = describe(self._config), describe(config)
        save_or_explain(path, {key: new[key] for key in changes})
        self._config = config
        self._on_change(config)
        keys = {key: (old[key], new[key], "now") for key in changes}
        return AppliedChanges(keys, f"applied now: {', '.join(changes)}; saved to {path}")


def changeable_keys(config: type) -> frozenset[str]:
    """The keys of a settings class that a request may change."""
    return frozenset(spec.key for spec in field_specs(config) if spec.changeable is Applies.NOW)
