"""The flags of the launchers: -n -c -p -m -h, their usage text and exit codes.

Runs once at a program's start, before anything is opened. Kin: srvutil's ServerUtil (commons-cli
with its POSIX parser): `-n x`, `-nx`, `--namesrvAddr x`, `--namesrvAddr=x`, `-pm`. Unlike
in RocketMQ, an argument that is not an option stops the start instead of being ignored.
"""

from __future__ import annotations

import getopt
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from conf.errors import (
    EXIT_BAD_SETTING,
    EXIT_CANNOT_START,
    EXIT_NO_HOME,
    EXIT_OK,
    EXIT_USAGE,
    ConfigError,
    StartupExitError,
)
from conf.java_options import OPTION_VARIABLES, has_other_options
from conf.setting import Setting
from conf.settings_file import read_settings_file

_ADDRESS = re.compile(r"[^\s,;]+:(?P<port>[0-9]{1,5})")
_VERSION = "    --version"
"""Handled by bin/setup-env.sh, without Python."""
_UNUSED_VARIABLES = ("JAVA_HOME", "RMQ_NUMA_NODE")


@dataclass(frozen=True, slots=True)
class Option:
    """One option: `-short`, `--long`, with or without a value."""

    short: str
    long: str
    takes_value: bool
    doc: str


NAMESRV_ADDR = Option(
    "n",
    "namesrvAddr",
    True,
    "Name server address list, eg: '192.168.0.1:9876;192.168.0.2:9876'",
)
CONFIG_FILE = Option("c", "configFile", True, "Settings file, key=value lines or YAML (*.yaml)")
PRINT_ALL = Option("p", "printConfigItem", False, "Print all config item")
PRINT_IMPORTANT = Option("m", "printImportantConfig", False, "Print important config item")
HELP = Option("h", "help", False, "Print help")


def parse_command_line(
    program: str, arguments: Sequence[str], options: Sequence[Option]
) -> dict[str, str]:
    """The given options by long name ("" for flags). Raises StartupExitError for -h and misuse."""
    by_name = {f"-{option.short}": option for option in options}
    by_name.update({f"--{option.long}": option for option in options})
    short = "".join(option.short + (":" if option.takes_value else "") for option in options)
    long = [option.long + ("=" if option.takes_value else "") for option in options]
    try:
        pairs, rest = getopt.gnu_getopt(list(arguments), short, long)
    except getopt.GetoptError as error:
        raise _misuse(program, options, error.msg) from error
    given = {by_name[name].long: value for name, value in pairs}
    if HELP.long in given:
        raise StartupExitError(EXIT_OK, usage(program, options))
    if rest:
        reason = f"argument {rest[0]!r} is not an option; put settings into the file of -c"
        raise _misuse(program, options, reason)
    return given


def usage(program: str, options: Sequence[Option]) -> str:
    """The help text, in RocketMQ's layout."""
    ordered = sorted(options, key=lambda option: option.short)
    synopsis = " ".join(
        f"[-{option.short} <arg>]" if option.takes_value else f"[-{option.short}]"
        for option in ordered
    )
    names = [
        f" -{option.short},--{option.long}" + (" <arg>" if option.takes_value else "")
        for option in ordered
    ]
    width = max(map(len, names)) + 3
    lines = [f"{name:<{width}}{option.doc}" for name, option in zip(names, ordered, strict=True)]
    version = f"{_VERSION:<{width}}Print the version (as the first argument only)"
    return "\n".join([f"usage: {program} {synopsis}", *lines, version])


def config_file(given: Mapping[str, str]) -> tuple[Path | None, list[Setting]]:
    """The absolute path of the -c file and its settings. Raises StartupExitError."""
    if CONFIG_FILE.long not in given:
        return None, []
    path = Path(given[CONFIG_FILE.long])
    try:
        return path.absolute(), read_settings_file(path)
    except ConfigError as error:
        raise cannot_start(error) from error


def require_home(home: str | None) -> str:
    """The install directory. Raises StartupExitError with RocketMQ's message if it is unset."""
    if not home:
        raise StartupExitError(
            EXIT_NO_HOME,
            "Please set the ROCKETMQ_HOME variable in your environment to match the location of"
            " the RocketMQ installation",
        )
    return home


def check_home(home: str | None) -> None:
    """Raises StartupExitError if the install directory does not exist."""
    if home and not Path(home).is_dir():
        raise StartupExitError(
            EXIT_NO_HOME,
            "Please set the ROCKETMQ_HOME variable in your environment to match the location of"
            f" the RocketMQ installation: {home} is not a directory. Without the variable (and"
            " rocketmqHome in the settings file) the programs in bin use their own checkout",
            to_stdout=False,
        )


def require_addresses(addresses: str) -> tuple[str, ...]:
    """The items of a list "ip:port;ip:port". Raises StartupExitError with RocketMQ's message."""
    items = tuple(item.strip() for item in addresses.rstrip(";").split(";"))
    for item in items:
        match = _ADDRESS.fullmatch(item)
        if match is None or int(match["port"]) > 65535:
            raise StartupExitError(
                EXIT_BAD_SETTING,
                f"The Name Server Address[{addresses}] illegal, please set it as follows,"
                ' "127.0.0.1:9876;192.168.0.1:9876"',
            )
    return items


def unused_variables(environment: Mapping[str, str]) -> tuple[str, ...]:
    """At most one warning, naming the variables of the Java launchers that are set but have no
    effect here. JAVA_OPT and JAVA_OPT_EXT with only -Dtls.… options do have one."""
    found = [name for name in _UNUSED_VARIABLES if environment.get(name)]
    found += [name for name in OPTION_VARIABLES if has_other_options(environment.get(name, ""))]
    if not found:
        return ()
    return (f"environment variables of the Java launchers have no effect here: {', '.join(found)}",)


def cannot_start(error: ConfigError) -> StartupExitError:
    """The exit for unusable settings."""
    return StartupExitError(EXIT_CANNOT_START, str(error), to_stdout=False)


def _misuse(program: str, options: Sequence[Option], reason: str) -> StartupExitError:
    text = f"{program}: {reason}\n{usage(program, options)}"
    return StartupExitError(EXIT_USAGE, text)
