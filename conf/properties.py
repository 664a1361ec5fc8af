"""Java properties text: `key = value` lines in ISO-8859-1, `\\u` escapes, `#` and `!` comments.

Parses text into settings with their line numbers, and formats them again. Any thread; no state.
Does not know what the keys mean. The syntax (java.util.Properties.load and store) is left to the
javaproperties library, but for continued lines: it looks through all of a line again for each that
continues it, which took 204 s for 4,095 lines of 250 characters; and for lines without a backslash,
which most settings files have only: the library brings an XML reader and an HTTP client along,
which every process of a broker would keep.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from conf.errors import ConfigError
from conf.setting import Setting

ENCODING = "iso-8859-1"
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_BLANKS: Final = " \t\f"
_PLAIN: Final = re.compile(r"([^=: \t\f]*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
"""Key and value of a line without a backslash; every text matches."""


def parse_properties(text: str, name: str) -> list[Setting]:
    """The settings of `text`, in order; `name` is the file's name in sources and errors.

    Trailing white space of values is removed (Java keeps it and then fails to parse numbers).
    Raises ConfigError for a bad escape, one of half a character, or a line without a key.
    """
    settings: list[Setting] = []
    for number, line in _logical_lines(text):
        source = f"{name}:{number}"
        settings += (_setting(key, value, source) for key, value in _pairs(line, source))
    return settings


def _pairs(line: str, source: str) -> list[tuple[str, str]]:
    """What a logical line sets: one key, or none."""
    if "\\" not in line:
        plain = _PLAIN.fullmatch(line)
        assert plain is not None
        return [(plain[1], plain[2])]
    import javaproperties

    try:
        elements = list(javaproperties.parse(line))
    except javaproperties.InvalidUEscapeError as error:
        raise ConfigError([f"{source}: bad \\u escape {error.escape!r}"]) from error
    found = (each for each in elements if isinstance(each, javaproperties.KeyValue))
    return [(each.key, each.value) for each in found]


def _setting(key: str, value: str, source: str) -> Setting:
    if not key:
        raise ConfigError([f"{source}: the key is missing before '='"])
    if _has_half_characters(key + value):
        raise ConfigError([f"{source}: a \\u escape of half a character (D800 to DFFF)"])
    return Setting(key, value.strip(), source)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Each line that is no comment and not blank, with those that continue it, and its number. In
    time that grows with the text."""
    parts: list[str] = []
    first = 0
    for number, natural in enumerate(_LINE_END.split(text), 1):
        piece = natural.lstrip(_BLANKS)
        if not parts:
            first = number
            if piece[:1] in ("", "#", "!"):
                continue
        is_continued = (len(piece) - len(piece.rstrip("\\"))) % 2
        parts.append(piece[:-1] if is_continued else piece)
        if not is_continued:
            yield first, _joined(parts)
            parts.clear()
    if parts:
        yield first, _joined(parts)


def _joined(parts: list[str]) -> str:
    """One line. What came from a second one is no comment."""
    line = "".join(parts)
    return f"\\{line}" if line.startswith(("#", "!")) else line


def _has_half_characters(text: str) -> bool:
    """Surrogates that make no pair: no file, frame or terminal takes them."""
    return any("\ud800" <= character <= "\udfff" for character in text)


def dump_properties(values: Mapping[str, str]) -> str:
    """The text of a properties file with these values, one per line, in the given order."""
    import javaproperties

    return "".join(javaproperties.join_key_value(k, v) + "\n" for k, v in values.items())
