"""The -D options of JAVA_OPT and JAVA_OPT_EXT that are settings, as operators of RocketMQ set them.

Runs once at a program's start. There is no JVM, so the other options in these variables have no
effect (conf/command_line.py warns); -Dtls.… and SYSTEM_PROPERTIES are settings like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from conf.setting import Setting

OPTION_VARIABLES: Final = ("JAVA_OPT", "JAVA_OPT_EXT")
"""In the order in which RocketMQ's launchers join them: the last option for a key counts."""
_PREFIX: Final = "-Dtls."
SYSTEM_PROPERTIES: Final = (
    "rocketmq.broker.multiPathSplitter",
    "rocketmq.namesrv.domain",
    "rocketmq.namesrv.domain.subgroup",
)
"""Of the broker; a name server started with the same options ignores them, as in RocketMQ."""


def tls_options(environment: Mapping[str, str]) -> list[Setting]:
    """The settings of TLS that they contain, one per key."""
    return _options(environment, lambda word: word.startswith(_PREFIX))


def system_properties(environment: Mapping[str, str]) -> list[Setting]:
    """Those of SYSTEM_PROPERTIES that they contain, one per key."""
    return _options(environment, _is_system_property)


def _options(environment: Mapping[str, str], is_wanted: Callable[[str], bool]) -> list[Setting]:
    found = {}
    for name in OPTION_VARIABLES:
        for word in environment.get(name, "").split():
            if is_wanted(word):
                key, _, text = word.removeprefix("-D").partition("=")
                found[key] = Setting(key, text, f"environment variable {name}")
    return list(found.values())


def _is_system_property(word: str) -> bool:
    name, equals, _ = word.removeprefix("-D").partition("=")
    return word.startswith("-D") and bool(equals) and name in SYSTEM_PROPERTIES


def has_other_options(text: str) -> bool:
    """Whether the value of such a variable contains other options."""
    return any(
        not word.startswith(_PREFIX) and not _is_system_property(word) for word in text.split()
    )
