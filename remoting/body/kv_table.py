"""Plain tables of strings: bodies of 28, 103 (answer), 219; file kvConfig.json.

Pure data, any thread.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from remoting.body.json_bean import JsonBean


@dataclass(frozen=True, slots=True, kw_only=True)
class KVTable(JsonBean):
    """Key to value."""

    table: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class KVConfigSerializeWrapper(JsonBean):
    """kvConfig.json of the name server: namespace to key to value."""

    config_table: dict[str, dict[str, str]] = field(default_factory=dict)
