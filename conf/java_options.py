"""The -Dtls.… options of JAVA_OPT and JAVA_OPT_EXT, as operators of RocketMQ set them.

Runs once at a program's start. There is no JVM, so the other options in these variables have no
effect (conf/command_line.py warns); these are settings like any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from conf.setting import Setting

OPTION_VARIABLES: Final = ("JAVA_OPT", "JAVA_OPT_EXT")
"""In the order in which RocketMQ's launchers join them: the last option for a key counts."""
_PREFIX: Final = "-Dtls."


def tls_options(environment: Mapping[str, str]) -> list[Setting]:
    """The settings that they contain, one per key."""
    found = {}
    for name in OPTION_VARIABLES:
        for word in environment.get(name, "").split():
            if word.startswith(_PREFIX):
                key, _, text = word.removeprefix("-D").partition("=")
                found[key] = Setting(key, text, f"environment variable {name}")
    return list(found.values())


def has_other_options(text: str) -> bool:
    """Whether the value of such a variable contains other options."""
    return any(not word.startswith(_PREFIX) for word in text.split())
