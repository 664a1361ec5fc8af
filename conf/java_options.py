"""The -Dtls.… options of JAVA_OPT and JAVA_OPT_EXT, as the original's operators give them.

Runs once at a program's start. There is no Java here, so every other word in these variables has no
effect (conf/command_line.py says so); these are settings like any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from conf.setting import Setting

OPTION_VARIABLES: Final = ("JAVA_OPT", "JAVA_OPT_EXT")
"""In the order in which the original's launchers join them: the last word of a key counts."""
_PREFIX: Final = "-Dtls."


def tls_options(environment: Mapping[str, str]) -> list[Setting]:
    """The settings they make, one for each key."""
    found = {}
    for name in OPTION_VARIABLES:
        for word in environment.get(name, "").split():
            if word.startswith(_PREFIX):
                key, _, text = word.removeprefix("-D").partition("=")
                found[key] = Setting(key, text, f"environment variable {name}")
    return list(found.values())


def has_other_words(text: str) -> bool:
    """Whether the value of such a variable holds anything else."""
    return any(not word.startswith(_PREFIX) for word in text.split())
