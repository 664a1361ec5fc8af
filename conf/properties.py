"""Java properties text: `key = value` lines in ISO-8859-1, `\\u` escapes, `#` and `!` comments.

Parses text into settings with their line numbers, and formats them again. Any thread; no state.
Does not know what the keys mean. The syntax (java.util.Properties.load and store) is left to the
javaproperties library.
"""

from __future__ import annotations

from collections.abc import Mapping

import javaproperties

from conf.errors import ConfigError
from conf.setting import Setting

ENCODING = "iso-8859-1"


def parse_properties(text: str, name: str) -> list[Setting]:
    """The settings of `text`, in order; `name` is the file's name in sources and errors.

    Trailing white space of values is removed (Java keeps it and then fails to parse numbers).
    Raises ConfigError for a bad escape, one of half a character, or a line without a key.
    """
    settings: list[Setting] = []
    line = 1
    try:
        for element in javaproperties.parse(text):
            if isinstance(element, javaproperties.KeyValue):
                source = f"{name}:{line}"
                if not element.key:
                    raise ConfigError([f"{source}: the key is missing before '='"])
                if _has_half_characters(element.key + element.value):
                    raise ConfigError(
                        [f"{source}: a \\u escape of half a character (D800 to DFFF)"]
                    )
                settings.append(Setting(element.key, element.value.strip(), source))
            line += len(element.source.splitlines())
    except javaproperties.InvalidUEscapeError as error:
        raise ConfigError([f"{name}:{line}: bad \\u escape {error.escape!r}"]) from error
    return settings


def _has_half_characters(text: str) -> bool:
    """Surrogates that make no pair: no file, frame or terminal takes them."""
    return any("\ud800" <= character <= "\udfff" for character in text)


def dump_properties(values: Mapping[str, str]) -> str:
    """The text of a properties file with these values, one per line, in the given order."""
    return "".join(javaproperties.join_key_value(k, v) + "\n" for k, v in values.items())
