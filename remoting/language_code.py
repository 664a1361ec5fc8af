"""Language codes: the implementation language that a peer reports.

Pure data. A JSON header carries the name, a ROCKETMQ header the number (Java: LanguageCode).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class LanguageCode(IntEnum):
    """The peer's language (Java: LanguageCode). NODE_JS exists in 5.x only."""

    JAVA = 0
    CPP = 1
    DOTNET = 2
    PYTHON = 3
    DELPHI = 4
    ERLANG = 5
    RUBY = 6
    OTHER = 7
    HTTP = 8
    GO = 9
    PHP = 10
    OMS = 11
    RUST = 12
    NODE_JS = 13


LANGUAGE_NAMES: Final[tuple[str, ...]] = tuple(code.name for code in LanguageCode)
"""Name by number: the index is the code."""

LANGUAGE_CODES: Final[dict[str, int]] = {code.name: int(code) for code in LanguageCode}
"""Number by name."""


def language_name(code: int) -> str:
    """The name of a language code; OTHER for an undefined number."""
    return LANGUAGE_NAMES[code] if 0 <= code < len(LANGUAGE_NAMES) else LanguageCode.OTHER.name


def language_code(name: str) -> int:
    """The number of a language name (case-insensitive); OTHER for an undefined name (Java:
    null)."""
    code = LANGUAGE_CODES.get(name)
    return LANGUAGE_CODES.get(name.upper(), int(LanguageCode.OTHER)) if code is None else code
