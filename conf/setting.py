"""One setting as written in its source. Plain data, any thread; knows no format and no key."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Setting:
    """One `key=value` as written; `source` is "file:line" or the name of the option."""

    key: str
    text: str
    source: str
