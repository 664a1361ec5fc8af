"""Java properties text: `key = value` lines in ISO-8859-1, `\\u` escapes, `#` and `!` comments.

Reads text into settings that know their line, and writes the text back. Any thread; no state.
Knows nothing of what the keys mean. The syntax itself is the javaproperties library's
(java.util.Properties.load and store).
"""

from __future__ import annotations

from collections.abc import Mapping

import javaproperties

from conf.errors import ConfigError
from conf.setting import Setting

ENCODING = "iso-8859-1"


def parse_properties(text: str, name: str) -> list[Setting]:
    """The settings of `text` in their order; `name` is the file's name in sources and errors.

    Values lose white space at their end (Java keeps it and then cannot read the number).
    Raises ConfigError for a bad escape or a line without a key.
    """
    settings: list[Setting] = []
    line = 1
    try:
        for element in javaproperties.parse(text):
            if isinstance(element, javaproperties.KeyValue):
                source = f"{name}:{line}"
                if not element.key:
                    raise ConfigError([f"{source}: the key is missing before '='"])
                settings.append(Setting(element.key, element.value.strip(), source))
            line += len(element.source.splitlines())
    except javaproperties.InvalidUEscapeError as error:
        raise ConfigError([f"{name}:{line}: bad \\u escape {error.escape!r}"]) from error
    return settings


def dump_properties(values: Mapping[str, str]) -> str:
    """The text of a properties file with these values, one line each, in the given order."""
    return "".join(javaproperties.join_key_value(k, v) + "\n" for k, v in values.items())
